// The worker's side of the protocol: lines of JSON-RPC 2.0 on stdin and stdout. The types are in index.d.ts.

import { AsyncLocalStorage } from "node:async_hooks";
import { closeSync, fstatSync, openSync, writeSync } from "node:fs";
import { Socket } from "node:net";
import { inspect } from "node:util";

const PROTOCOL = 1;
const LINE_FEED = 10;
const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
const HOOK_FAILED = -32000;
const NEXT_FAILED = -32001;
const CANCELLED = -32800;

/** What each point gives its function, in order. */
const POINTS = {
  on_conversation: (p) => [p],
  before_agent: (p) => [p.turn, textOf(p.prompt)],
  before_model: (p) => [p.turn, p.request],
  wrap_model_call: (p) => [p.turn, p.request],
  stream: (p) => [p],
  after_model: (p) => [p.turn, p.reply],
  before_tool: (p) => [p.turn, p.call],
  wrap_tool_call: (p) => [p.turn, p.call],
  after_tool: (p) => [p.turn, p.call, p.result],
  on_stop: (p) => [{ ...p.turn, reply: p.reply, tools: p.tools }],
  after_agent: (p) => [p.turn, p.reply, p.result],
  background: (p) => [p],
  before_compaction: (p) => [p],
  on_ended: (p) => [p],
  on_logged: (p) => [p],
  on_event: (p) => [p.event],
};
const TOOL_POINTS = ["before_tool", "wrap_tool_call", "after_tool"];
const WRAPS = ["wrap_model_call", "wrap_tool_call"];

const registered = [];
const running = new AsyncLocalStorage();

export class NextFailed extends Error {
  name = "NextFailed";
}

export function textOf(content) {
  if (typeof content === "string") return content;
  return content.filter((part) => part.type === "text").map((part) => part.text).join("");
}

export function hook(point, options, fn) {
  if (typeof options === "function") [options, fn] = [{}, options];
  if (!Object.hasOwn(POINTS, point)) {
    throw new RangeError(`there is no point "${point}"; there are ${Object.keys(POINTS).join(", ")}`);
  }
  const tools = options.tools ?? [];
  if (tools.length > 0 && !TOOL_POINTS.includes(point)) throw new RangeError(`${point} is not about tools`);
  const name = options.name ?? fn.name;
  if (!name) throw new TypeError("a hook needs a name: give it one, or use a named function");
  if (registered.some((other) => other.name === name && other.point === point)) {
    throw new RangeError(`there is a hook "${name}" at ${point} already`);
  }
  registered.push({ name, point, tools, fn });
}

export function progress(text) {
  const call = running.getStore();
  if (!call) throw new Error("progress() is for a hook that runs");
  // What is said after the answer would be about a call that is not open.
  if (call.open) send({ method: "progress", params: { call: call.id, text: String(text) } });
}

/** Puts something beside the message that is made of the text. */
export function annotate(key, value) {
  const call = running.getStore();
  if (!call) throw new Error("annotate() is for a hook that runs");
  call.annotations[key] = value;
}

/** Aborted when the call of the hook that runs is cancelled. */
export function signal() {
  const call = running.getStore();
  if (!call) throw new Error("signal() is for a hook that runs");
  return call.controller.signal;
}

const decision = (name, fields = {}) => ({ decision: name, ...fields });
export const goOn = (edits = {}) => decision("continue", edits);
export const halt = (reason) => decision("halt", { reason });
export const erase = (reason) => decision("erase", { reason });
export const skip = (reason) => decision("skip", { reason });
export const approve = () => decision("approve");
export const ask = (reason) => decision("ask", { reason });
export const reject = (reason) => decision("reject", { reason });
export const regenerate = (reason) => decision("regenerate", { reason });
export const modifyReply = (text) => decision("modify", { text });
export const modifyResult = (content, ok) => decision("modify", ok === undefined ? { content } : { content, ok });
export const rewrite = (args) => decision("rewrite", { arguments: args });
export const deny = (reason) => decision("deny", { reason });
export const answer = (content, ok) => decision("answer", ok === undefined ? { content } : { content, ok });
export const accept = () => decision("accept");
export const advise = (reason) => decision("advise", { reason });
export const refuse = (reason) => decision("refuse", { reason });
export const pause = (reason) => decision("pause", { reason });
export const prevent = (reason) => decision("prevent", { reason });

/** Calls that are being answered, by id. */
const calls = new Map();
/** What `next` of a wrap waits for, by the id of its request. */
const nexts = new Map();
let lastNext = 0;
/** The transformers at work: by stretch, then by hook. */
const streams = new Map();

/** Where the protocol is written: stdout, or its other number once `run` has moved it. */
let out = 1;

const encoded = (message) => Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const send = (message) => write(encoded(message));

function write(data) {
  while (data.length > 0) {
    try {
      data = data.subarray(writeSync(out, data));
    } catch (error) {
      // The pipe is full, and does not block in this process: the runtime reads it soon.
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

/**
 * Keeps stdout for the protocol: what hooks, libraries and child processes write there goes to stderr.
 *
 * Node has no dup2. The protocol's pipe gets another number, and as a file is always opened under the lowest free number, stderr
 * gets the number 1. Where that cannot be done (Windows, a socket, or a stderr that is a file, which two positions would be written at),
 * only what is written through Node's own stdout is sent to stderr.
 */
function protectStdout() {
  let moved;
  try {
    if (fstatSync(2).isFile()) throw new Error("stderr is a file");
    moved = openSync("/dev/fd/1", "w");
    closeSync(openSync("/dev/fd/2", "w"));
  } catch {
    if (moved !== undefined) closeSync(moved);
    process.stdout.write = (...given) => process.stderr.write(...given);
    return;
  }
  out = moved;
  closeSync(1);
  const taken = openSync("/dev/fd/2", "w");
  // Another thread was faster: then nothing has the number 1 that belongs to the protocol, either.
  if (taken !== 1) closeSync(taken);
}

/**
 * Keeps stdin for the protocol: a child process that read it would take lines of the protocol and wait for the runtime to close it.
 * The pipe gets another number, and as a file is always opened under the lowest free number, an empty file gets the number 0. What
 * is no pipe (on Windows, or when somebody tries a worker on a terminal) stays where it is.
 */
function protectStdin() {
  let moved;
  try {
    if (!fstatSync(0).isFIFO()) return process.stdin;
    moved = openSync("/dev/fd/0", "r");
  } catch {
    return process.stdin;
  }
  closeSync(0);
  const taken = openSync("/dev/null", "r");
  if (taken !== 0) closeSync(taken);
  return new Socket({ fd: moved, readable: true, writable: false });
}

const fail = (id, code, message) => send({ id, error: { code, message } });

/** Serves the hooks until the runtime closes stdin. From here on what is written to stdout goes to stderr, and stdin is empty. */
export async function run() {
  if (registered.length === 0) throw new Error("no hook is registered: call hook(point, …) before run()");
  protectStdout();
  // The beginning of a line whose end was not read yet.
  let rest = [];
  for await (const data of protectStdin()) {
    let from = 0;
    // By its bytes: `readline` of newer versions also ends a line at U+2028 and U+2029, which JSON has in its texts.
    for (let end; (end = data.indexOf(LINE_FEED, from)) >= 0; from = end + 1) {
      const piece = data.subarray(from, end);
      const line = rest.length > 0 ? Buffer.concat([...rest, piece]) : piece;
      rest = [];
      take(JSON.parse(line.toString()));
    }
    if (from < data.length) rest.push(data.subarray(from));
  }
  process.exit(0);
}

function take({ id, method, params, result, error }) {
  if (method === undefined) {
    const waiting = nexts.get(id);
    nexts.delete(id);
    if (error === undefined) waiting?.resolve(result);
    else waiting?.reject(error.code === NEXT_FAILED ? new NextFailed(error.message) : new Error(error.message));
  } else if (method === "cancel") {
    cancel(params.call);
  } else if (method === "discard") {
    streams.delete(params.stream);
  } else if (id === undefined) {
    // A notification of a newer runtime.
  } else if (method === "initialize") {
    if (params.protocol !== PROTOCOL) return fail(id, INVALID_PARAMS, `this worker speaks protocol ${PROTOCOL}`);
    const hooks = registered.map(({ name, point, tools }) => ({ name, point, tools }));
    send({ id, result: { protocol: PROTOCOL, hooks } });
  } else if (!Object.hasOwn(POINTS, method)) {
    fail(id, METHOD_NOT_FOUND, `there is no method "${method}"`);
  } else {
    const one = registered.find(({ name, point }) => point === method && name === params.hook);
    if (one) void begin(id, one, params);
    else fail(id, INVALID_PARAMS, `there is no hook "${params.hook}" at ${method}`);
  }
}

/** A function cannot be stopped from outside: its call is answered now, and what it returns later is dropped. */
function cancel(id) {
  const call = calls.get(id);
  if (!call) return;
  close(call);
  fail(id, CANCELLED, "cancelled");
  call.controller.abort();
}

function close(call) {
  call.open = false;
  calls.delete(call.id);
}

async function begin(id, { name, point, fn }, params) {
  const call = { id, open: true, controller: new AbortController(), annotations: {} };
  calls.set(id, call);
  let sendAnswer;
  try {
    const given = POINTS[point](params);
    const made = await running.run(call, () => {
      if (WRAPS.includes(point)) return wrap(call, name, point, fn, given);
      return point === "stream" ? transform(call, name, fn, params) : fn(...given);
    });
    const result = made ?? decision(point === "on_stop" ? "accept" : "continue");
    if (typeof result.decision !== "string") throw notADecision(name, result);
    // What is no JSON is this call's failure as well.
    const line = encoded({ id, result });
    sendAnswer = () => write(line);
  } catch (error) {
    if (error instanceof NextFailed) sendAnswer = () => fail(id, NEXT_FAILED, error.message);
    else {
      console.error(error);
      sendAnswer = () => fail(id, HOOK_FAILED, String(error));
    }
  }
  if (!call.open) return;
  close(call);
  sendAnswer();
}

/** A hook's mistake, which is the failure of its call and of nothing else. */
function notADecision(name, made) {
  const what = typeof made === "function" ? `the function ${made.name || "without a name"}` : inspect(made, { depth: 0 });
  const hint = typeof made === "function" ? ": call it, as in `return deny(\"reason\")`" : "";
  return new TypeError(`${name} returned ${what.slice(0, 100)}, which is no decision${hint}`);
}

async function transform(call, name, make, { conversation, turn, agent, attempt, kind, stream, chunks, last }) {
  if (!streams.has(stream)) streams.set(stream, new Map());
  const hooks = streams.get(stream);
  if (!hooks.has(name)) hooks.set(name, make({ conversation, turn, agent, attempt, kind }));
  const one = hooks.get(name);
  if (last) {
    hooks.delete(name);
    if (hooks.size === 0) streams.delete(stream);
  }
  let text = "";
  const pass = (made = "") => {
    if (made !== null && typeof made !== "string") throw new TypeError(`${name} returned ${typeof made}, and not text`);
    text += made ?? "";
  };
  for (const chunk of chunks) pass(await one.chunk(chunk));
  if (last && one.finish) pass(await one.finish());
  return decision("pass", { text, annotations: call.annotations });
}

async function wrap(call, name, point, fn, given) {
  let last;
  const next = async (changes = {}) => {
    if (!call.open) throw new Error("the call is over");
    const id = ++lastNext;
    const line = encoded({ id, method: "next", params: { ...changes, call: call.id } });
    const result = await new Promise((resolve, reject) => {
      nexts.set(id, { resolve, reject });
      write(line);
    });
    last = result.reply ?? result.result;
    return last;
  };
  // Without an answer, as if the wrap had only passed the call on.
  const made = (await fn(...given, next)) ?? last ?? (await next());
  if (typeof made !== "string" && made.content === undefined) throw notADecision(name, made);
  if (point === "wrap_tool_call") {
    const { ok, content } = typeof made === "string" ? { ok: true, content: made } : made;
    return decision("result", ok === undefined ? { content } : { ok, content });
  }
  if (made === last) return decision("reply");
  if (typeof made === "string") return decision("answer", { content: made });
  const { content, calls: wanted = [] } = made;
  const renamed = wanted.map(({ call: id, name, arguments: args }) => ({ id, name, arguments: args }));
  return decision("answer", { content, calls: renamed });
}
