// Every page in every look: phone and desk, light and dark, and for those who do not see it.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { begin, closeBrowser, ended, faults, open, overhang, say, serve, shows, unfold } from "./program.mjs";

after(closeBrowser);

// Where the pictures of the README and the docs go; nothing is written without it.
const PICTURES = process.env.TURNBUCKLE_TEST_PICTURES;
const long = "a_very_long_name_without_any_place_to_break_it_".repeat(4);
const replies = [
  {
    text: `# A title\n\nSome **text** with \`${long}\` and a table:\n\n| a | b |\n|---|---|\n| ${long} | 2 |\n\n\`\`\`rust\nfn ${long}() { let x = "string"; } // comment\n\`\`\`\n\n> quoted\n\n1. one\n2. two\n\n[a link](https://example.org/${long})`,
    thinking: "Let me think.",
    usage: { input: 1200, output: 80 },
    tool_calls: [{ id: "c1", name: "list_files", arguments: {} }],
  },
  { tool_calls: [{ id: "c2", name: "write_file", arguments: { path: `${long}.txt`, content: `${long}\n`.repeat(4) } }] },
  { text: "Done." },
];
const hook = '\n[[hooks]]\nuse = "command"\nname = "todo"\non = "stop"\nrun = "test -e seen || { touch seen; echo not yet >&2; exit 2; }"\non_failure = "block"\n';

// Leads a page through everything that there is, and has each of them looked at.
async function tour(page, server, look) {
  await page.goto(server.url);
  await look("list, empty");
  await begin(page, server);
  await look("conversation, empty");
  await say(page, "Please write it.");
  await shows(page, /May write_file run/);
  await look("conversation with a question");
  await page.getByText("Edit the arguments").click();
  await page.getByText("Rename or delete").click();
  await page.getByText("Thinking").first().click();
  await look("conversation with everything unfolded");
  const address = page.url();
  await page.goto(`${server.url}/page/waiting`);
  await look("waiting");
  await page.goto(address);
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await ended(page);
  await shows(page, "Stop refused");
  await look("conversation, ended");
  await page.getByRole("link", { name: "Details" }).click();
  await unfold(page);
  await look("turn");
  await page.goto(`${address}/delete`);
  await look("delete");
  await page.goto(server.url);
  await look("list");
  await page.goto(`${server.url}/page/c/nothing`);
  await look("not found");
}

for (const colorScheme of ["light", "dark"]) {
  test(`axe-core finds nothing wrong with any page, and nothing scrolls sideways (${colorScheme})`, async (t) => {
    const server = await serve(t, { replies, config: hook });
    const page = await open(t, { colorScheme });
    const found = [];
    await tour(page, server, async (name) => {
      found.push(...(await faults(page)).map((fault) => `${name}: ${fault}`));
      const over = await overhang(page);
      if (over > 0) found.push(`${name}: ${over} pixels too wide`);
    });
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const [red] = ground.match(/\d+/g).map(Number);
    assert.ok(colorScheme === "dark" ? red < 60 : red > 200, ground);
    assert.deepEqual(found, []);
    assert.deepEqual(page.complaints.filter((text) => !text.includes("404")), []);
  });
}

test("at a width of 320 pixels nothing scrolls sideways and axe-core finds nothing", async (t) => {
  const server = await serve(t, { replies, config: hook });
  const page = await open(t, { viewport: { width: 320, height: 640 }, isMobile: true, hasTouch: true });
  const found = [];
  await tour(page, server, async (name) => {
    const over = await overhang(page);
    if (over > 0) found.push(`${name}: ${over} pixels too wide`);
    found.push(...(await faults(page)).map((fault) => `${name}: ${fault}`));
  });
  assert.deepEqual(found, []);
});

test("a form that a model made, with a name and choices of any length, does not scroll at 320 pixels", async (t) => {
  const choices = { type: "array", title: long, items: { enum: [long, "b"] } };
  const properties = { [long]: { type: "string", description: long }, choices, one: { enum: [long] }, yes: { type: "boolean", title: long } };
  const question = { tool_calls: [{ id: "q", name: "ask_human", arguments: { question: "What?", schema: { type: "object", properties } } }] };
  const server = await serve(t, { replies: [question] });
  const page = await open(t, { viewport: { width: 320, height: 640 }, isMobile: true, hasTouch: true });
  await begin(page, server);
  await say(page, "go");
  await page.getByRole("button", { name: "Send the answer" }).waitFor();
  assert.equal(await overhang(page), 0);
  assert.deepEqual(await faults(page), []);
});

test("axe-core finds nothing wrong with the page to log in, also after a wrong token", async (t) => {
  const server = await serve(t, { replies, tokens: { ann: { token: "token-of-ann-1234567890" } } });
  const page = await open(t, { viewport: { width: 320, height: 640 } });
  await page.goto(server.url);
  assert.deepEqual(await faults(page), []);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  assert.deepEqual(await faults(page), []);
  assert.equal(await overhang(page), 0);
});

test("a browser loads at most 100 KB before a conversation can be used, and then nothing of it again", async (t) => {
  const server = await serve(t, { replies });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await shows(page, /May write_file run/);
  const address = page.url();
  const fresh = await open(t);
  const network = await fresh.context().newCDPSession(fresh);
  let bytes = 0;
  await network.send("Network.enable");
  network.on("Network.loadingFinished", (done) => (bytes += done.encodedDataLength));
  await fresh.goto(address, { waitUntil: "load" });
  const ms = await fresh.evaluate(() => performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd);
  t.diagnostic(`${(bytes / 1000).toFixed(1)} KB, usable after ${ms.toFixed(0)} ms in this build on this machine`);
  assert.ok(bytes > 1_000 && bytes <= 100_000, `${bytes} bytes`);
  const first = bytes;
  await fresh.goto(server.url, { waitUntil: "load" });
  assert.ok(bytes - first < 5_000, `the second page took ${bytes - first} bytes: its files were loaded again`);
});

test("on a fresh clone the page plays the story, with a stop that a hook refused and one that it let pass", async (t) => {
  const server = await serve(t, { pace: 0.2 });
  const page = await open(t, { colorScheme: "light", viewport: { width: 1000, height: 720 } });
  const picture = async (name) => {
    if (!PICTURES) return;
    mkdirSync(PICTURES, { recursive: true });
    await page.screenshot({ path: join(PICTURES, `page-${name}.png`), animations: "disabled", caret: "hide" });
  };
  await page.goto(server.url);
  await page.getByRole("link", { name: /The story/ }).click();
  await ended(page);
  await shows(page, "Stop refused");
  assert.deepEqual(await faults(page), []);
  await page.locator(".refused").evaluate((element) => scrollTo({ top: element.offsetTop - 330 }));
  await picture("story");
  await page.getByRole("link", { name: "Details" }).click();
  // The bars of the stop hook: the refusal in the middle of the turn, the consent at its end.
  const bars = await page.locator(".waterfall li.hook").evaluateAll((all) =>
    all.filter((one) => one.textContent.includes("on_stop")).map((one) => {
      const fill = one.querySelector("rect.fill");
      return { text: one.textContent, end: Number(fill.getAttribute("x")) + Number(fill.getAttribute("width")) };
    }),
  );
  const refused = bars.filter((bar) => /refuse/.test(bar.text)).map((bar) => bar.end);
  const last = bars.at(-1);
  assert.ok(refused.length > 0 && !/refuse/.test(last.text), JSON.stringify(bars));
  assert.ok(last.end > 950 && refused.every((end) => end < last.end - 50), JSON.stringify(bars));
  await picture("turn");
});
