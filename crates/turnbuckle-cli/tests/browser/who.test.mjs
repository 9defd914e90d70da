// Logging in and out, and what others have.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, closeBrowser, ended, open, say, serve, shows, text } from "./program.mjs";

after(closeBrowser);

const tokens = { ann: { token: "token-of-ann-1234567890" }, bob: { token: "token-of-bob-1234567890" }, sue: { token: "token-of-sue-1234567890", roles: ["support"] } };
const config = '[access]\nread = ["support"]\n';

async function logIn(page, server, user) {
  await page.goto(server.url);
  await page.waitForURL("**/login");
  await page.getByLabel("Token").fill(tokens[user].token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL(`${server.url}/`);
}

test("who logs in sees their conversations, and after logging out the cookie is worth nothing", async (t) => {
  const server = await serve(t, { replies: [{ text: "Hello." }], tokens });
  const page = await open(t);
  await page.goto(server.url);
  assert.ok(page.url().endsWith("/login"), "nothing is shown to whoever is not logged in");
  await page.getByLabel("Token").fill("a guess");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").getByText("This token is not known.").waitFor();
  await logIn(page, server, "ann");
  assert.equal(await text(page, ".who span"), "ann");
  const [cookie] = await page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict", JSON.stringify(cookie));
  assert.ok(!cookie.value.includes(tokens.ann.token));
  await begin(page, server);
  await say(page, "Hi");
  await ended(page);
  const address = page.url();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.waitForURL("**/login");
  assert.deepEqual(await page.context().cookies(), []);
  await page.context().addCookies([cookie]);
  await page.goto(address);
  assert.ok(page.url().endsWith("/login"), "a copy of the cookie does not let anybody in");
});

test("logging out in one tab ends the page in another", async (t) => {
  const server = await serve(t, { replies: [{ text: "Hello." }], tokens });
  const page = await open(t);
  await logIn(page, server, "ann");
  await begin(page, server);
  const other = await page.context().newPage();
  await other.goto(server.url);
  await other.getByRole("button", { name: "Log out" }).click();
  await other.waitForURL("**/login");
  await say(page, "Hi");
  await page.waitForURL("**/login");
});

test("another user's conversation does not exist, whatever one asks for", async (t) => {
  const server = await serve(t, { replies: [{ text: "A secret." }], tokens, config });
  const ann = await open(t);
  await logIn(ann, server, "ann");
  await begin(ann, server);
  await say(ann, "Hi");
  await ended(ann);
  const [, id] = ann.url().split("/page/c/");
  const turn = await ann.getByRole("link", { name: "Details" }).getAttribute("href");
  const bob = await open(t);
  await logIn(bob, server, "bob");
  await shows(bob, "There are no conversations yet.");
  for (const path of [`/page/c/${id}`, `/page/c/${id}/events`, `/page/c/${id}/delete`, turn]) {
    const answer = await bob.goto(server.url + path);
    assert.equal(answer.status(), 404, path);
    assert.ok(!(await bob.content()).includes("secret"), path);
  }
  const missing = await bob.goto(`${server.url}/page/c/c_nothing`);
  assert.equal(missing.status(), 404);

  const sue = await open(t);
  await logIn(sue, server, "sue");
  await sue.goto(ann.url());
  await shows(sue, "You may read this conversation and not write to it.");
  assert.equal(await sue.locator("#composer, .cancel, #manage").count(), 0, "there is no form for what she may not do");
});
