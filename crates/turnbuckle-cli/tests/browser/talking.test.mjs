// Messages, streams, cancelling, coming back: what a person does with a conversation.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, closeBrowser, ended, faults, open, overhang, say, serve, shows, slow, text, watch } from "./program.mjs";

after(closeBrowser);

test("a message that is sent is shown with its reply, and nothing is asked of another server", async (t) => {
  const server = await serve(t, { replies: [{ text: "Hello **you**, with `code`:\n\n```rust\nfn main() {}\n```" }] });
  const page = await open(t);
  await begin(page, server);
  await say(page, "Hi there");
  await ended(page);
  assert.match(await text(page, ".msg.user"), /Hi there/);
  assert.equal(await page.locator(".msg.assistant strong").innerText(), "you");
  assert.equal(await page.locator(".msg.assistant pre .t-keyword").first().innerText(), "fn");
  assert.equal(await page.getByLabel("Message").inputValue(), "", "what was sent is not in the field any more");
  assert.ok(page.asked.every((url) => url.startsWith(server.url)), page.asked.join("\n"));
  assert.deepEqual(page.complaints, []);
});

test("a reply is shown while it is written, and in the end stands there once", async (t) => {
  const server = await serve(t, { replies: [slow(40)] });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await page.locator("#streaming").getByText("word3 ").waitFor();
  assert.ok(!(await text(page, "#streaming")).includes("word39"), "it is seen before it is complete");
  await ended(page);
  const words = (await text(page, "#log .msg.assistant .said")).trim().split(" ");
  assert.deepEqual(words, Array.from({ length: 40 }, (_, n) => `word${n}`));
  assert.equal((await text(page, "#streaming")).trim(), "");
  assert.deepEqual(page.complaints, []);
});

test("a turn that is cancelled on the page ends, and the page says by whom", async (t) => {
  const server = await serve(t, { replies: [slow(600)] });
  const page = await open(t);
  await begin(page, server);
  assert.ok(!(await page.getByRole("button", { name: "Cancel the turn" }).isVisible()), "nothing runs that could be cancelled");
  await say(page, "go");
  await page.locator("#streaming").getByText("word3 ").waitFor();
  await page.getByRole("button", { name: "Cancel the turn" }).click();
  await shows(page, /Turn cancelled by/);
  await page.getByRole("button", { name: "Cancel the turn" }).waitFor({ state: "hidden" });
});

test("a page that is loaded again in mid-stream goes on with the same reply", async (t) => {
  const server = await serve(t, { replies: [slow(60)] });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await page.locator("#streaming").getByText("word5 ").waitFor();
  await page.reload();
  assert.match(await text(page, "#streaming"), /word0 word1 word2/, "what was said so far is there at once");
  await ended(page);
  const words = (await text(page, "#log .msg.assistant .said")).trim().split(" ");
  assert.deepEqual(words, Array.from({ length: 60 }, (_, n) => `word${n}`));
});

test("two tabs show the same conversation, whichever of them is used", async (t) => {
  const server = await serve(t, { replies: [slow(20), { text: "The second reply." }] });
  const page = await open(t);
  await begin(page, server);
  const other = await page.context().newPage();
  watch(other);
  await other.goto(page.url());
  await say(page, "from the first tab");
  await Promise.all([ended(page), ended(other)]);
  await say(other, "from the second tab");
  await Promise.all([ended(page, 2), ended(other, 2)]);
  assert.equal(await text(page, "#log"), await text(other, "#log"));
  assert.deepEqual([...page.complaints, ...other.complaints], []);
});

test("a conversation is called by its first words as soon as they are said", async (t) => {
  const server = await serve(t, { replies: [{ text: "Hello." }] });
  const page = await open(t);
  await begin(page, server);
  assert.equal(await text(page, "h1"), "New conversation");
  await say(page, "What is *this* about?");
  await ended(page);
  assert.equal(await text(page, "h1"), "What is *this* about?");
  assert.equal(await page.title(), "What is *this* about? · Turnbuckle");
  assert.deepEqual(page.complaints, []);
});

test("older messages are on a page of their own, which fits a phone", async (t) => {
  // After a restart the page holds about as much as the model is shown.
  const server = await serve(t, { replies: [{ text: "word ".repeat(300) }], config: "\n[limits]\ncontext_tokens = 6000\n" });
  const page = await open(t, { viewport: { width: 320, height: 640 }, isMobile: true });
  await begin(page, server);
  for (let turn = 1; turn <= 8; turn++) {
    await say(page, `message ${turn}`);
    await ended(page, turn);
  }
  await server.kill();
  await server.start();
  // The stream broke off.
  page.complaints = [];
  await page.reload();
  const shown = await page.locator(".msg.user").count();
  assert.ok(shown < 8, "not everything is on the newest page");
  await page.getByRole("link", { name: "Older messages" }).click();
  await page.waitForURL("**/page/c/*?before=*");
  assert.equal(await page.locator(".msg.user").count(), 8 - shown);
  assert.match(await text(page, ".msg.user >> nth=0"), /message 1$/);
  assert.equal(await text(page, "h1"), "message 1");
  assert.deepEqual([await faults(page), await overhang(page), page.complaints], [[], 0, []]);
  await page.getByRole("link", { name: "To the newest messages" }).click();
  await page.getByLabel("Message").waitFor();
});

test("a message for later is shown in the queue and can be taken back", async (t) => {
  const server = await serve(t, { replies: [slow(600)] });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await page.locator("#streaming").getByText("word3 ").waitFor();
  await say(page, "and then this");
  await page.locator("#queue").getByText("and then this").waitFor();
  await page.getByRole("button", { name: "Take back" }).click();
  await page.locator("#queue li").waitFor({ state: "detached" });
});

test("a turn that kill -9 cut off goes on before the eyes of whoever has the page open", async (t) => {
  const server = await serve(t, { replies: [slow(200, 100)] });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await page.locator("#streaming").getByText("word5 ").waitFor();
  await server.kill();
  await page.locator("#connection").getByText(/Trying again/).waitFor();
  await server.start();
  await page.locator("#streaming").getByText("word7 ").waitFor();
  await page.waitForFunction(() => document.getElementById("connection").textContent === "");
  assert.equal(await page.locator("#log .msg.user").count(), 1, "the message is there, and was not sent twice");
  await page.getByRole("button", { name: "Cancel the turn" }).click();
  await shows(page, /Turn cancelled/);
});

test("what somebody has typed and unfolded stays while the page changes around it", async (t) => {
  const server = await serve(t, { replies: [{ ...slow(40), thinking: "Let me think." }] });
  const page = await open(t);
  await begin(page, server);
  await page.getByText("Rename or delete").click();
  await say(page, "go");
  await page.locator("#streaming").getByText("word2 ").waitFor();
  await page.getByLabel("Message").pressSequentially("half a sen");
  await page.locator("#streaming").getByText("word20 ").waitFor();
  await page.getByLabel("Message").pressSequentially("tence");
  await ended(page);
  assert.equal(await page.getByLabel("Message").inputValue(), "half a sentence");
  assert.ok(await page.locator("#manage").evaluate((element) => element.open));
  assert.ok(await page.getByLabel("Message").evaluate((element) => element === document.activeElement));
});

test("a screen reader is told of each new text once, and not of every piece of it", async (t) => {
  const server = await serve(t, { replies: [slow(20), { text: "Second." }] });
  const page = await open(t);
  await begin(page, server);
  await page.evaluate(() => {
    window.told = [];
    new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach((node) => window.told.push(node.textContent)))).observe(
      document.getElementById("announce"),
      { childList: true, subtree: true },
    );
  });
  await say(page, "go");
  await ended(page);
  await say(page, "again");
  await ended(page, 2);
  const told = await page.evaluate(() => window.told);
  assert.equal(told.length, 2, told.join("\n"));
  assert.match(told[0], /^Assistant: word0 .*word19$/);
  assert.equal(told[1], "Assistant: Second.");
  assert.equal(await page.locator("#streaming[aria-live], #log[aria-live]").count(), 0, "nothing else is read aloud as it changes");
});

test("without JavaScript, messages are sent and conversations are renamed and deleted by ordinary forms", async (t) => {
  const server = await serve(t, { replies: [{ text: "Hello." }] });
  const page = await open(t, { javaScriptEnabled: false });
  await begin(page, server);
  await say(page, "Hi");
  for (let tries = 0; (await page.locator(".ended").count()) === 0 && tries < 100; tries++) {
    await page.waitForTimeout(50);
    await page.reload();
  }
  assert.match(await text(page, "#log .msg.assistant"), /Hello\./);
  await page.getByText("Rename or delete").click();
  await page.getByLabel("Title").fill("My talk");
  await page.getByRole("button", { name: "Rename" }).click();
  assert.equal(await text(page, "h1"), "My talk");
  await page.goto(`${server.url}/?q=my+t`);
  await page.getByRole("link", { name: "My talk" }).click();
  await page.getByText("Rename or delete").click();
  await page.getByRole("link", { name: /Delete this/ }).click();
  await page.getByRole("link", { name: "Keep it" }).click();
  await page.getByText("Rename or delete").click();
  await page.getByRole("link", { name: /Delete this/ }).click();
  await page.getByRole("button", { name: "Delete" }).click();
  await shows(page, "There are no conversations yet.");
});

test("everything is done with the keyboard alone: begin, write, unfold, rename", async (t) => {
  const server = await serve(t, { replies: [{ text: "Hello.", thinking: "I greet." }] });
  const page = await open(t);
  await page.goto(server.url);
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id);
  // Goes on with the Tab key until something has the focus.
  const to = async (name) => {
    for (let tries = 0; tries < 40; tries++) {
      await page.keyboard.press("Tab");
      if ((await focused()) === name) return;
    }
    assert.fail(`the Tab key does not lead to ${name}`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "To the content", "the first thing is the way past the navigation");
  await to("New conversation");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/page/c/*");
  await page.keyboard.press("/");
  assert.equal(await focused(), "content");
  await page.keyboard.type("Hi");
  await page.keyboard.press("Control+Enter");
  await ended(page);
  assert.equal(await focused(), "content", "the next message can be typed at once");
  await page.locator("#main").focus();
  await to("Rename or delete");
  await page.keyboard.press("Enter");
  await to("title");
  await page.keyboard.type("By hand");
  await page.keyboard.press("Enter");
  await page.locator("h1").getByText("By hand").waitFor();
  await to("Thinking");
  await page.keyboard.press("Enter");
  await shows(page, "I greet.");
  await to("Details");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/turns/*");
});
