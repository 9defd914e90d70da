// What waits for a person: approvals, edited arguments, forms.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { begin, closeBrowser, ended, open, say, serve, shows, text } from "./program.mjs";

after(closeBrowser);

const write = { tool_calls: [{ id: "c1", name: "write_file", arguments: { path: "note.txt", content: "as the model wrote it" } }] };
const done = { text: "Done." };
const written = (server) => readFileSync(join(server.project, "note.txt"), "utf8");

async function asked(t, replies, options) {
  const server = await serve(t, { replies });
  const page = await open(t, options);
  await begin(page, server);
  await say(page, "go");
  return { server, page };
}

test("a call waits until somebody approves it, and the log says who did", async (t) => {
  const { server, page } = await asked(t, [write, done]);
  await shows(page, /May write_file run/);
  assert.ok(!existsSync(join(server.project, "note.txt")), "nothing ran before the answer");
  assert.match(await text(page, ".card"), /as the model wrote it/, "the arguments are shown");
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await ended(page);
  assert.equal(written(server), "as the model wrote it");
  assert.match(await text(page, ".card"), /Approved by/);
  assert.deepEqual(page.complaints, []);
});

test("a denial carries its reason to the model, and the Enter key in that field does not approve", async (t) => {
  const { server, page } = await asked(t, [write, done]);
  await page.getByLabel(/Why not/).fill("write it to docs instead");
  await page.keyboard.press("Enter");
  await ended(page);
  assert.ok(!existsSync(join(server.project, "note.txt")));
  assert.match(await text(page, ".card"), /Denied by .*write it to docs instead/s);
});

test("edited arguments run in the place of the model's, and the card says so", async (t) => {
  const { server, page } = await asked(t, [write, done]);
  await page.getByText("Edit the arguments").click();
  const field = page.getByLabel("Arguments, as JSON");
  await field.fill('{"path": "note.txt", ');
  await page.getByRole("button", { name: "Approve as edited" }).click();
  await page.locator("#alert").getByText("that is not JSON").waitFor();
  assert.equal(await field.inputValue(), '{"path": "note.txt", ', "what was typed is still there");
  await field.fill('{"path": "note.txt", "content": "as I want it"}');
  await page.getByRole("button", { name: "Approve as edited" }).click();
  await ended(page);
  assert.equal(written(server), "as I want it");
  await shows(page, "Ran with other arguments");
});

const schema = {
  type: "object",
  required: ["version", "count"],
  properties: {
    version: { type: "string", title: "Which version?", description: "As in the tag." },
    count: { type: "integer", title: "How many" },
    channel: { enum: ["stable", "beta"], title: "Channel" },
    sign: { type: "boolean", title: "Sign it" },
    systems: { type: "array", title: "Systems", items: { enum: ["linux", "mac"] } },
  },
};
const question = { tool_calls: [{ id: "q1", name: "ask_human", arguments: { question: "What is to be **released**?", schema } }] };

test("a question is a form made from its schema, and the answer has the types that the schema asks for", async (t) => {
  const { server, page } = await asked(t, [question, done]);
  await page.getByLabel(/Which version/).fill("1.2");
  await page.getByRole("button", { name: "Send the answer" }).click();
  assert.ok(await page.getByLabel(/How many/).evaluate((field) => field.validity.valueMissing), "the browser asks for what is needed");
  await page.getByLabel(/How many/).fill("3");
  await page.getByLabel("Channel").selectOption("beta");
  await page.getByLabel("Sign it").check();
  await page.getByLabel("mac").check();
  await page.getByRole("button", { name: "Send the answer" }).click();
  await ended(page);
  const id = page.url().split("/").pop();
  const { body } = await server.api("GET", `/v1/conversations/${id}`);
  const result = body.messages.find((event) => event.type === "tool_result");
  assert.deepEqual(JSON.parse(result.content[0].text), { version: "1.2", count: 3, channel: "beta", sign: true, systems: ["mac"] });
});

test("a choice is one field, and what is typed for a property with a hidden name arrives as it was typed", async (t) => {
  const schemas = [
    { enum: ["yes", "no"] },
    { type: "object", required: ["n"], properties: { n: { type: "integer", minimum: 1, maximum: 5 }, t: { type: "string", default: "line1\nline2" }, "bad\u202ekey": { type: "string" } } },
  ];
  const asks = schemas.map((schema, n) => ({ tool_calls: [{ id: `q${n}`, name: "ask_human", arguments: { question: `Question ${n}?`, schema } }] }));
  const { server, page } = await asked(t, [...asks, done]);
  await page.getByLabel("Answer").selectOption("no");
  await page.getByRole("button", { name: "Send the answer" }).click();
  await shows(page, "Question 1?");
  await page.getByLabel(/^n/).fill("9");
  assert.ok(await page.getByLabel(/^n/).evaluate((field) => field.validity.rangeOverflow));
  await page.getByLabel(/^n/).fill("3");
  await page.getByLabel(/key/).fill("typed");
  await page.getByRole("button", { name: "Send the answer" }).click();
  await ended(page);
  const { body } = await server.api("GET", `/v1/conversations/${page.url().split("/").pop()}`);
  const results = body.messages.filter((event) => event.type === "tool_result").map((event) => event.content[0].text);
  assert.match(results[0], /no/);
  assert.deepEqual(JSON.parse(results[1]), { n: 3, t: "line1\nline2", "bad\u202ekey": "typed" });
});

test("what waits in any conversation is on one page, and can be answered there", async (t) => {
  const { server, page } = await asked(t, [write, done]);
  await shows(page, /May write_file run/);
  await begin(page, server);
  await say(page, "another");
  await shows(page, /May write_file run/);
  await page.goto(`${server.url}/page/waiting`);
  assert.equal(await page.locator(".card").count(), 2);
  assert.equal(await text(page, "#waiting-count"), "2");
  assert.match(await text(page, ".card >> nth=0"), /in a turn of .*Lapses in/s);
  await page.getByRole("button", { name: "Approve", exact: true }).first().click();
  await page.waitForFunction(() => document.querySelectorAll(".card").length === 1);
  await page.getByLabel(/Why not/).fill("no");
  await page.getByRole("button", { name: "Deny" }).click();
  await shows(page, "Nothing waits for an answer of yours.");
  await page.getByRole("link", { name: "Conversations" }).click();
  assert.match(await text(page, ".rows"), /at rest|running/);
});

test("what an MCP server asks stands on the page while its call runs, is announced, and is answered there", async (t) => {
  const script = fileURLToPath(new URL("../../../turnbuckle-mcp/tests/it/server.py", import.meta.url));
  const config = `\n[[tools.mcp]]\nname = "test"\ncommand = ["python3", ${JSON.stringify(script)}, "good"]\napprove = []\n`;
  const call = { tool_calls: [{ id: "c1", name: "mcp__test__echo", arguments: { text: "ask" } }] };
  const server = await serve(t, { replies: [call, done], config });
  const page = await open(t);
  await begin(page, server);
  await say(page, "go");
  await shows(page, /What is your password/);
  assert.match(await text(page, "#asked"), /the MCP server test asks, while its tool mcp__test__echo runs/);
  assert.deepEqual(await page.locator("#announce p").allInnerTexts(), ["A question: What is your password?"]);
  const other = await page.context().newPage();
  await other.goto(`${server.url}/page/waiting`);
  await shows(other, /What is your password/);
  await page.locator("#asked").getByLabel("p", { exact: true }).fill("blue");
  await page.getByRole("button", { name: "Send the answer" }).click();
  await ended(page);
  assert.equal(await page.locator("#asked article").count(), 0);
  assert.ok(await page.evaluate(() => document.activeElement !== document.body), "the keyboard is not at the top of the page");
  const { body } = await server.api("GET", `/v1/conversations/${page.url().split("/").pop()}`);
  assert.match(body.messages.find((event) => event.type === "tool_result").content[0].text, /the answer was accept {"p": "blue"}/);
  assert.deepEqual(page.complaints, []);
});

test("a question that another tab answered is gone here, and the keyboard is where the question was", async (t) => {
  const { page } = await asked(t, [write, done]);
  await shows(page, /May write_file run/);
  const other = await page.context().newPage();
  await other.goto(page.url());
  await page.getByRole("button", { name: "Approve", exact: true }).focus();
  await other.getByRole("button", { name: "Approve", exact: true }).click();
  await ended(page);
  assert.equal(await page.getByRole("button", { name: "Approve", exact: true }).count(), 0);
  assert.ok(await page.locator(".card").evaluate((card) => card === document.activeElement || card.contains(document.activeElement)));
});

test("an approval is announced once", async (t) => {
  const { page } = await asked(t, [write, done]);
  await shows(page, /May write_file run/);
  const told = await page.locator("#announce p").allInnerTexts();
  assert.deepEqual(told, ["write_file: May write_file run?"]);
});

test("without JavaScript a call is approved by its form", async (t) => {
  const { server, page } = await asked(t, [write, done], { javaScriptEnabled: false });
  for (let tries = 0; !(await page.getByRole("button", { name: "Approve", exact: true }).count()) && tries < 100; tries++) {
    await page.waitForTimeout(50);
    await page.reload();
  }
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  for (let tries = 0; !(await page.locator(".ended").count()) && tries < 100; tries++) {
    await page.waitForTimeout(50);
    await page.reload();
  }
  assert.equal(written(server), "as the model wrote it");
});
