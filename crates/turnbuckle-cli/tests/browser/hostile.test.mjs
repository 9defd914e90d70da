// Text that would like to be more than text, everywhere that a model, a tool, a hook or a file can put it.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, closeBrowser, ended, open, overhang, say, serve, shows, text, unfold } from "./program.mjs";

after(closeBrowser);

const BAD = [
  `<script>window.ran = 1; fetch("http://127.0.0.1:9/script")</script>`,
  `<img src="http://127.0.0.1:9/img" onerror="window.ran = 2">`,
  `<svg onload="window.ran = 3"><image href="http://127.0.0.1:9/svg"/></svg>`,
  `<iframe src="javascript:parent.ran = 4"></iframe>`,
  `<a href="javascript:window.ran = 5">click</a>`,
  `[markdown](javascript:window.ran=6) [data](data:text/html,<script>window.ran=7</script>)`,
  `![picture](http://127.0.0.1:9/markdown.png)`,
  `</textarea></pre></template></title><b id="main" data-in="log">out</b>`,
  `<form action="http://127.0.0.1:9/form"><button>Approve</button></form>`,
  `" autofocus onfocus="window.ran = 8" x="`,
  `<style>@import "http://127.0.0.1:9/css";</style>`,
  `<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/meta">`,
  "right\u202eto\u2066left\u200b hidden\u0007",
].join("\n\n");
const NAME = `<img src=x onerror="window.ran=9">\u202egpj.txt`;

const replies = [
  { text: BAD, thinking: BAD, tool_calls: [{ id: `<b onclick="ran=1">`, name: NAME, arguments: { [NAME]: BAD } }] },
  { chunks: BAD.match(/.{1,40}/gs), delay_ms: 5, tool_calls: [{ id: "r", name: "read_file", arguments: { path: "bad.md" } }, { id: "l", name: "list_files", arguments: {} }] },
  { tool_calls: [{ id: "w", name: "write_file", arguments: { path: NAME, content: BAD } }] },
  { tool_calls: [{ id: "q", name: "ask_human", arguments: { question: BAD, schema: { type: "object", properties: { [BAD]: { type: "string", title: BAD, description: BAD, default: BAD }, b: { enum: [BAD, NAME] } } } } }] },
  { text: "Done." },
];
// Its reason is hostile, too, and it is asked again until it has refused once.
const config = '\n[[hooks]]\nuse = "command"\nname = "judge"\non = "stop"\nrun = "test -e seen || { touch seen; cat bad.md >&2; exit 2; }"\non_failure = "block"\n';

async function harmless(page, server, where) {
  assert.equal(await page.evaluate(() => window.ran), undefined, `${where}: something ran`);
  const foreign = page.asked.filter((url) => !url.startsWith(server.url));
  assert.deepEqual(foreign, [], `${where}: something was loaded`);
  // A complaint of the policy would mean that only the policy held it back.
  assert.deepEqual(page.complaints, [], where);
  const found = await page.evaluate(() => ({
    handlers: [...document.querySelectorAll("*")].flatMap((one) => [...one.attributes].filter((all) => /^on|^style$/.test(all.name)).map((all) => all.name)),
    elements: document.querySelectorAll("main script, main img, main iframe, main style, main meta, main svg image, main object, main embed").length,
    links: [...document.querySelectorAll("a")].map((one) => one.protocol).filter((one) => !/^(https?|mailto):$/.test(one)),
    forms: [...document.forms].map((one) => new URL(one.action).origin).filter((one) => one !== location.origin),
    mains: document.querySelectorAll("#main").length,
    reversed: /[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText),
  }));
  assert.deepEqual(found, { handlers: [], elements: 0, links: [], forms: [], mains: 1, reversed: false }, where);
}

test("hostile text of models, tools, files and hooks is shown as text: nothing of it runs, loads or leads anywhere", async (t) => {
  const server = await serve(t, { replies, config, files: { "bad.md": BAD, [`<img src=x onerror=window.ran=10>.md`]: BAD } });
  const page = await open(t);
  await begin(page, server);
  await say(page, BAD);
  await shows(page, /May .*write_file.* run/);
  await harmless(page, server, "an approval");
  await unfold(page);
  await page.locator("body").click({ position: { x: 5, y: 300 } });
  await harmless(page, server, "unfolded");
  await page.reload();
  await harmless(page, server, "loaded again");
  const address = page.url();
  await page.goto(`${server.url}/page/waiting`);
  await harmless(page, server, "waiting");
  await page.goto(address);
  await page.getByLabel(/Why not/).fill(BAD);
  await page.getByRole("button", { name: "Deny" }).click();
  await page.getByRole("button", { name: "Send the answer" }).waitFor();
  await harmless(page, server, "a form");
  await page.getByRole("button", { name: "Decline" }).click();
  await ended(page);
  await shows(page, "Stop refused");
  await harmless(page, server, "the end");
  await page.getByText("Rename or delete").click();
  await page.getByLabel("Title").fill(BAD.replaceAll("\n", " ").slice(0, 200));
  await page.getByRole("button", { name: "Rename" }).click();
  await page.locator("h1").getByText("<script>").waitFor();
  await harmless(page, server, "a title");
  await page.getByRole("link", { name: "Details" }).click();
  await page.waitForURL("**/turns/*");
  await unfold(page);
  await harmless(page, server, "the turn");
  await page.goto(`${address}/delete`);
  await harmless(page, server, "the question before deleting");
  await page.goto(`${server.url}/?q=${encodeURIComponent("<script>")}`);
  assert.match(await text(page, ".rows"), /<script>/);
  await harmless(page, server, "the list");
});

test("lines of a megabyte make no page too wide, and the page still answers", async (t) => {
  const line = "x".repeat(1 << 20);
  const server = await serve(t, { replies: [{ text: line, tool_calls: [{ id: "r", name: "read_file", arguments: { path: "line.txt" } }] }, { chunks: ["`", line, "`"] }], files: { "line.txt": line } });
  const page = await open(t, { viewport: { width: 320, height: 640 } });
  await begin(page, server);
  await say(page, "go");
  await ended(page);
  assert.equal(await overhang(page), 0);
  await say(page, "and again");
  await ended(page, 2);
  assert.deepEqual(page.complaints, []);
});
