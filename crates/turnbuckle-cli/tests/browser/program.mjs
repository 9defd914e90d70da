// Starts the real program in a folder of its own, and a real browser before it. `scripts/browser` says where both are.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const needed = (name) => process.env[name] ?? (() => { throw new Error(`${name} is not set: run scripts/browser`); })();
const PROGRAM = needed("TURNBUCKLE_TEST_PROGRAM");
const PACKAGES = createRequire(join(needed("TURNBUCKLE_TEST_BROWSER_PACKAGES"), "package.json"));
const CHROMIUM = needed("TURNBUCKLE_TEST_CHROMIUM");
const { chromium } = PACKAGES("playwright-core");
const AXE = readFileSync(PACKAGES.resolve("axe-core/axe.min.js"), "utf8");

// How long anything may take, in milliseconds. The machine may be busy with other tests.
const PATIENCE = 60_000;

// A server that runs in a folder of its own. `replies` are those of a script; without any the program plays its story.
export async function serve(test, { replies, config = "", tokens = {}, files = {}, pace } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "turnbuckle-page-"));
  const [project, home] = [join(folder, "project"), join(folder, "home")];
  [project, home].forEach((path) => mkdirSync(path));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(project, name), text);
  let toml = "";
  if (replies) {
    writeFileSync(join(project, "script.json"), JSON.stringify({ replies, on_exhausted: "repeat" }));
    toml += '[agent]\nmodel = "script:script.json"\n';
  }
  toml += config;
  for (const [user, { token, roles = [] }] of Object.entries(tokens)) {
    const digest = createHash("sha256").update(token).digest("hex");
    toml += `\n[[serve.tokens]]\nsha256 = "${digest}"\nuser = ${JSON.stringify(user)}\nroles = ${JSON.stringify(roles)}\n`;
  }
  if (toml) writeFileSync(join(project, "turnbuckle.toml"), toml);
  // Nothing of whoever runs the tests: with a key of theirs a turn would reach a real provider.
  const env = { PATH: process.env.PATH, HOME: home, LANG: "C.UTF-8", ...(pace === undefined ? {} : { TURNBUCKLE_DEMO_PACE: String(pace) }) };
  const trusted = spawnSync(PROGRAM, ["trust", "--folder", "--yes"], { cwd: project, env });
  if (trusted.status !== 0) throw new Error(String(trusted.stderr));
  const server = new Server(project, env);
  test.after(async () => {
    await server.kill();
    rmSync(folder, { recursive: true, force: true });
  });
  await server.start();
  return server;
}

// A folder of its own with these files, and a home beside it; `run` runs the program there and gives what it printed.
export function folderWith(files) {
  const folder = mkdtempSync(join(tmpdir(), "turnbuckle-page-"));
  const [project, home] = [join(folder, "project"), join(folder, "home")];
  [project, home].forEach((path) => mkdirSync(path));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(project, name), text);
  const env = { PATH: process.env.PATH, HOME: home, LANG: "C.UTF-8" };
  const run = (...args) => {
    const ran = spawnSync(PROGRAM, args, { cwd: project, env, encoding: "utf8", maxBuffer: 1 << 28 });
    if (ran.status !== 0) throw new Error(`${args.join(" ")} ended with ${ran.status}: ${ran.stderr}`);
    return ran.stdout;
  };
  run("trust", "--folder", "--yes");
  return { project, run, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

class Server {
  constructor(project, env) {
    Object.assign(this, { project, env, port: 0, said: "" });
  }

  // Starts it; again on the same port, as a supervisor would.
  async start() {
    const child = spawn(PROGRAM, ["serve", "--listen", `127.0.0.1:${this.port}`], { cwd: this.project, env: this.env, stdio: ["ignore", "ignore", "pipe"] });
    this.child = child;
    const address = await new Promise((resolve, reject) => {
      createInterface({ input: child.stderr }).on("line", (line) => {
        this.said += `${line}\n`;
        const found = /^listening on (http:\/\/\S+)/.exec(line);
        if (found) resolve(found[1]);
      });
      child.once("exit", () => reject(new Error(`the server ended: ${this.said}`)));
    });
    this.url = address.replace(/\/$/, "");
    this.port = new URL(this.url).port;
  }

  async kill() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await ended;
  }

  // A request of the API.
  async api(method, path, body, token) {
    const headers = { ...(body ? { "content-type": "application/json" } : {}), ...(token ? { authorization: `Bearer ${token}` } : {}) };
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    return { status: answer.status, body: await answer.json().catch(() => null) };
  }
}

let browser;

// Ends the browser of this file's tests.
export const closeBrowser = () => browser?.close();

// A browser window that remembers what went wrong in it and everything that it asked for.
export async function open(test, options = {}) {
  const flags = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  // Chromium's own sandbox does not work for root, nor in most containers; what it loads here is ours.
  browser ??= await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", ...flags] });
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  test.after(() => context.close());
  const page = await context.newPage();
  watch(page);
  return page;
}

// Notes what a page complains about and asks for.
export function watch(page) {
  page.complaints = [];
  page.asked = [];
  page.on("console", (message) => message.type() === "error" && page.complaints.push(message.text()));
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("dialog", (dialog) => {
    page.complaints.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => page.asked.push(request.url()));
}

// Begins a conversation on the page.
export async function begin(page, server) {
  await page.goto(server.url);
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.waitForURL("**/page/c/*");
}

// Types a message and sends it.
export async function say(page, text) {
  await page.getByLabel("Message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

export const text = (page, selector) => page.locator(selector).innerText();

export async function shows(page, words, options) {
  await page.getByText(words, options).first().waitFor();
}

// The turn is over, `times` times.
export async function ended(page, times = 1) {
  await page.waitForFunction((count) => document.querySelectorAll(".ended").length >= count, times);
}

// What axe-core finds wrong with the page.
export async function faults(page) {
  // Through the debugger, since the page's policy lets no other script in.
  await page.evaluate(AXE);
  const found = await page.evaluate(() => window.axe.run(document));
  if (found.passes.length < 10) throw new Error("axe-core has looked at next to nothing");
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).join(", ")}: ${one.help}`);
}

// How many pixels the page is wider than the window.
export const overhang = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

// A reply that comes slowly, word by word.
export const slow = (count, delay_ms = 50, word = (n) => `word${n} `) => ({ chunks: Array.from({ length: count }, (_, n) => word(n)), delay_ms });

// Opens every fold of the page.
export const unfold = (page) => page.locator("details").evaluateAll((all) => all.forEach((one) => (one.open = true)));
