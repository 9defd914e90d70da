// Many tabs, slow lines, coming back: what a page does when it is not alone, not seen or not in step.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, closeBrowser, ended, open, say, serve, shows, slow, text, watch } from "./program.mjs";

after(closeBrowser);

const write = { tool_calls: [{ id: "c1", name: "write_file", arguments: { path: "note.txt", content: "x" } }] };

// A tab of the same browser that is not looked at, or is.
async function tab(page, address, hidden) {
  const other = await page.context().newPage();
  watch(other);
  await other.addInitScript((hidden) => {
    window.isHidden = hidden;
    Object.defineProperty(document, "hidden", { get: () => window.isHidden });
  }, hidden);
  await other.goto(address);
  return other;
}

const look = (page, hidden) =>
  page.evaluate((hidden) => {
    window.isHidden = hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

// What was said to screen readers from now on.
const listen = (page) =>
  page.evaluate(() => {
    window.told = [];
    new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach((node) => window.told.push(node.textContent)))).observe(
      document.getElementById("announce"),
      { childList: true },
    );
  });

test("with eight tabs of a conversation open a call is still approved, and a tab is in step when it is looked at again", async (t) => {
  const server = await serve(t, { replies: [write, { text: "It is written." }] });
  const page = await open(t);
  page.setDefaultTimeout(20_000);
  await begin(page, server);
  await say(page, "go");
  await shows(page, /May write_file run/);
  const tabs = [];
  for (let number = 0; number < 7; number++) {
    const other = await tab(page, page.url(), false);
    await other.waitForFunction(() => performance.getEntriesByType("resource").length > 0);
    await look(other, true);
    tabs.push(other);
  }
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await ended(page);
  const last = tabs.at(-1);
  await listen(last);
  assert.equal(await last.locator(".ended").count(), 0);
  await look(last, false);
  await ended(last);
  assert.deepEqual(await last.evaluate(() => window.told), ["Assistant: It is written."], "what came meanwhile is announced, once");
});

test("a message is sent once however often it is asked for, and what is typed meanwhile stays", async (t) => {
  const server = await serve(t, { replies: [{ text: "One." }, { text: "Two." }] });
  const page = await open(t);
  await begin(page, server);
  let sent = 0;
  await page.route("**/messages", async (route) => {
    sent += 1;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await route.continue();
  });
  await page.getByLabel("Message").fill("first");
  await page.keyboard.press("Control+Enter");
  await page.keyboard.press("Control+Enter");
  await page.getByLabel("Message").pressSequentially("the next one");
  await page.keyboard.press("Control+Enter");
  await ended(page);
  assert.equal(sent, 1);
  assert.equal(await page.locator(".msg.user").count(), 1);
  assert.equal(await page.getByLabel("Message").inputValue(), "the next one");
});

test("a message that gets no answer is given back, and a second try is the same message", async (t) => {
  const server = await serve(t, { replies: [{ text: "One." }] });
  const page = await open(t);
  await page.clock.install();
  await begin(page, server);
  let tries = 0;
  await page.route("**/messages", async (route) => {
    tries += 1;
    // It arrives, and its answer is lost.
    if (tries === 1) await route.fetch();
    else await route.continue();
  });
  await page.getByLabel("Message").fill("hello");
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => document.getElementById("content").value === "");
  await ended(page);
  await page.clock.fastForward(25_000);
  await page.locator("#alert").getByText("it is not taken twice").waitFor();
  assert.equal(await page.getByLabel("Message").inputValue(), "hello");
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => document.getElementById("content").value === "");
  await page.locator("#composer button:not([aria-disabled])").waitFor();
  assert.equal(tries, 2);
  await page.reload();
  assert.equal(await page.locator(".msg.user").count(), 1);
});

test("the keyboard stays at the card that was answered, in a conversation and among those that wait", async (t) => {
  const server = await serve(t, { replies: [write, write, { text: "Done." }] });
  const page = await open(t);
  const at = () => page.evaluate(() => document.activeElement.id);
  await begin(page, server);
  await say(page, "go");
  await shows(page, /May write_file run/);
  const card = await page.locator(".card[data-state=ask]").getAttribute("id");
  await page.getByRole("button", { name: "Approve", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.locator(`#${card}:not([data-state=ask])`).waitFor();
  await page.waitForFunction(() => document.activeElement !== document.body);
  assert.equal(await at(), card);
  await page.locator(".card[data-state=ask]").waitFor();
  await page.goto(`${server.url}/page/waiting`);
  await page.getByRole("button", { name: "Approve", exact: true }).focus();
  await page.keyboard.press("Enter");
  await shows(page, "Nothing waits for an answer of yours.");
  assert.equal(await at(), "log");
});

test("a reply that came while the server was away is announced when it is back", async (t) => {
  const server = await serve(t, { replies: [slow(30, 100)] });
  const page = await open(t);
  await begin(page, server);
  await listen(page);
  await say(page, "go");
  await page.locator("#streaming").getByText("word5 ").waitFor();
  await page.context().setOffline(true);
  await server.kill();
  await server.start();
  const id = page.url().split("/").pop();
  for (let tries = 0; (await server.api("GET", `/v1/conversations/${id}`)).body.state !== "idle" && tries < 400; tries++) await new Promise((resolve) => setTimeout(resolve, 50));
  await page.context().setOffline(false);
  await ended(page);
  await page.waitForFunction(() => window.told.length > 0);
  assert.match((await page.evaluate(() => window.told)).join("\n"), /^Assistant: word0 .*word29$/);
});

test("the number of questions and the list follow what happens in other windows", async (t) => {
  const server = await serve(t, { replies: [write, { text: "Done." }] });
  const page = await open(t);
  await begin(page, server);
  const list = await page.context().newPage();
  await list.goto(server.url);
  const waiting = await page.context().newPage();
  await waiting.goto(`${server.url}/page/waiting`);
  await say(page, "Write me a note");
  await shows(page, /May write_file run/);
  await page.locator("#waiting-count:visible").getByText("1").waitFor();
  await list.locator(".rows").getByText(/waits for/).waitFor();
  assert.match(await text(list, ".rows .title"), /Write me a note/, "without a title it is called by its first words");
  assert.equal(await text(list, "#waiting-count"), "1");
  await shows(waiting, /May write_file run/);
  assert.match(await text(waiting, ".card"), /Write me a note/);
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await page.locator("#waiting-count").waitFor({ state: "hidden" });
  await list.locator(".rows").getByText(/at rest/).waitFor();
  await shows(waiting, "Nothing waits for an answer of yours.");
});

test("a conversation in which a turn runs is not deleted, and its page is left as it was", async (t) => {
  const server = await serve(t, { replies: [slow(600)] });
  const page = await open(t);
  await begin(page, server);
  const address = page.url();
  await say(page, "go");
  await page.locator("#streaming").getByText("word3 ").waitFor();
  await page.goto(`${address}/delete`);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alert").getByText(/Cancel it first/).waitFor();
  assert.equal(await page.locator("#composer").count(), 0, "nothing is typed on a page that is about something else");
  await page.getByRole("link", { name: "Keep it" }).click();
  assert.equal(page.url(), address);
  await page.locator("#streaming").getByText("word3 ").waitFor();
});

test("a hook in the picture of a turn leads to its record, which is unfolded", async (t) => {
  const config = '\n[[hooks]]\nuse = "command"\nname = "todo"\non = "stop"\nrun = "test -e seen || { touch seen; printf \'in __init__.py:\\\\n    x = a*b*c\\\\n        ^\' >&2; exit 2; }"\non_failure = "block"\n';
  const server = await serve(t, { replies: [{ text: "Done." }], config });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await ended(page);
  assert.equal(await page.locator(".refused pre").evaluate((pre) => pre.textContent), "in __init__.py:\n    x = a*b*c\n        ^");
  await page.getByRole("link", { name: "Details" }).click();
  await page.waitForURL("**/turns/*");
  assert.equal(await page.locator(".record[open]").count(), 0);
  await page.locator(".waterfall li.hook a", { hasText: "todo" }).first().click();
  await page.locator(".record[open]").getByText("x = a*b*c").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.localName), "summary");
});
