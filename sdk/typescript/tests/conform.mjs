// The hooks that the conformance kit asks for exact answers, and one at every other point:
//   turnbuckle hooks conform -- node tests/conform.mjs

import { spawnSync } from "node:child_process";
import { writeSync } from "node:fs";
import { accept, deny, goOn, hook, progress, run, signal, textOf } from "../src/index.js";

hook("before_tool", async function conform_deny() {
  return deny("conform: no");
});
hook("before_tool", async function conform_print() {
  console.log("conform: printed");
  console.table(["in a table"]);
  process.stdout.write("as a stream\n");
  writeSync(1, "by its number\n");
  spawnSync("echo", ["by a child"], { stdio: "inherit" });
  return deny("conform: no");
});
hook("before_tool", function conform_child() {
  spawnSync("cat", { stdio: "inherit" });
  return deny("conform: no");
});
hook("before_tool", function conform_uncalled() {
  return deny;
});
hook("before_agent", function conform_fail() {
  throw new Error("conform: broken");
});
hook("on_stop", async function conform_wait() {
  progress("conform: waiting");
  await new Promise((done) => signal().addEventListener("abort", done));
});
hook("wrap_tool_call", async function conform_twice(turn, call, next) {
  return textOf((await next()).content) + ", " + textOf((await next()).content);
});
hook("wrap_model_call", async function conform_pass_on(turn, request, next) {
  return await next();
});
hook("stream", function conform_hold() {
  let held = "";
  return {
    chunk: (text) => void (held += text),
    finish: async () => held.toUpperCase(),
  };
});
hook("on_stop", function satisfied(turn) {
  return turn.reply ? accept() : undefined;
});
for (const point of ["on_conversation", "before_model", "after_model", "after_tool", "background", "before_compaction", "on_ended", "on_logged", "on_event"]) {
  hook(point, { name: "quiet" }, () => {});
}
hook("after_agent", { name: "shown" }, (turn, reply) => goOn({ result: { said: textOf(reply.content) } }));
run();
