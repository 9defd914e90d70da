/** A piece of content. */
export type Part = { type: "text"; text: string } | { type: string; [key: string]: unknown };
/** As a hook may write it. */
export type Content = string | Part[];
/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Actor = { user: string } | { hook: string } | { system: string };
export interface Usage { input: number; output: number; cache_read: number; cache_write: number }

/** What is left of a turn; what is missing has no limit. */
export interface Budget { model_calls: number; tokens?: number; cost?: number }

/** The turn that the hook runs in. */
export interface Turn {
  conversation: string;
  id: string;
  agent: string;
  parent_agent: string | null;
  permission_mode: "interactive" | "headless";
  actor: Actor;
  user_message: Part[];
  stop_active: boolean;
  touched: string[];
  budget: Budget;
}
/** A call of a tool. */
export interface Call { id: string; name: string; arguments: Record<string, any> }
/** What came of a call. */
export interface Result { ok: boolean; content: Part[] }
/** A complete reply of the model. */
export interface Reply {
  content: Part[];
  calls: { call: string; name: string; arguments: Record<string, any> }[];
  stop_reason: "end" | "tool_calls" | "length" | "refusal" | "cancelled";
  usage: Usage;
  object?: Json;
  model?: string;
}
/** A message of a context. */
export type Message =
  | { role: "user" | "note"; content: Content }
  | { role: "assistant"; content: Content; calls?: Call[] }
  | { role: "result"; call: string; name: string; ok: boolean; content: Content };
/** What the model is about to be sent; `tools` are names. */
export interface Request { system: string; messages: Message[]; tools: string[] }
/** At `on_stop`. */
export interface StopTurn extends Turn {
  reply: Reply | null;
  tools: { call: string; name: string; arguments: Record<string, any>; ok: boolean; content: Part[] }[];
}
export interface ConversationChange { conversation: string; actor: Actor; what: "started" | "revived" | "ended" }
export interface Background {
  conversation: string; turn: string; agent: string; actor: Actor; outcome: string; messages: Message[]; reply: Reply | null;
}
/** The oldest turns, of which a summary is about to be made: `transcript` is what its model reads. */
export interface Compaction {
  conversation: string; turn: string; agent: string; actor: Actor; turns: number; transcript: string;
}
export interface Ended {
  conversation: string; turn: string; agent: string; permission_mode: string; outcome: string; reason: string | null;
  model_calls: number; usage: Usage; ms: number;
}
export interface Logged { key: string; agent: string; tries: number; reminder: number | null; event: Record<string, any> }

/** Where the text comes from that a transformer sees. */
export interface Stretch { conversation: string; turn: string; agent: string; attempt: number; kind: "text" | "thinking" }
/** Sees the chunks of one stretch in order. What it returns gets through; what it does not return is dropped or held back. */
export interface Transformer {
  chunk(text: string): string | void | Promise<string | void>;
  /** No further chunk comes: what was held back. */
  finish?(): string | void | Promise<string | void>;
}

interface Halt { decision: "halt"; reason: string }
interface Erase { decision: "erase"; reason: string }
interface Skip { decision: "skip"; reason: string }
interface Approve { decision: "approve" }
interface Ask { decision: "ask"; reason: string }
interface Reject { decision: "reject"; reason: string }
interface Regenerate { decision: "regenerate"; reason: string }
interface ModifyReply { decision: "modify"; text: string }
interface ModifyResult { decision: "modify"; content: Content; ok?: boolean }
interface Rewrite { decision: "rewrite"; arguments: Record<string, unknown> }
interface Deny { decision: "deny"; reason: string }
interface Answer { decision: "answer"; content: Content; ok?: boolean }
interface OnStop { decision: "accept" | "advise" | "refuse" | "pause" | "prevent"; reason?: string }
type GoOn<Edits> = { decision: "continue" } & Edits;

type May<D> = D | void | Promise<D | void>;
type Next<Changes extends unknown[], T> = (...changes: Changes) => Promise<T>;

/** The function of each point: what it is given, and what it may return. Nothing lets the turn go on. */
export interface Hooks {
  on_conversation: (change: ConversationChange) => May<GoOn<{ inject?: Content[] }>>;
  before_agent: (turn: Turn, prompt: string) => May<GoOn<{ inject?: Content[]; prompt?: Content }> | Halt | Erase>;
  before_model: (turn: Turn, request: Request) => May<GoOn<{ inject?: Content[]; messages?: Message[] }> | Halt>;
  wrap_model_call: (
    turn: Turn,
    request: Request,
    next: Next<[changes?: Partial<Request>], Reply>,
  ) => Promise<Reply | string | void>;
  /** Makes a transformer for each stretch of text or thinking. */
  stream: (stretch: Stretch) => Transformer;
  after_model: (
    turn: Turn,
    reply: Reply,
  ) => May<GoOn<{}> | Approve | Ask | Reject | Regenerate | ModifyReply>;
  before_tool: (turn: Turn, call: Call) => May<GoOn<{}> | Rewrite | Deny | Answer | Ask | Halt>;
  wrap_tool_call: (turn: Turn, call: Call, next: Next<[], Result>) => Promise<Result | Answer | string | void>;
  after_tool: (turn: Turn, call: Call, result: Result) => May<GoOn<{}> | ModifyResult | Halt>;
  on_stop: (turn: StopTurn) => May<OnStop>;
  after_agent: (turn: Turn, reply: Reply | null, result: Json) => May<GoOn<{ result?: Json; inject?: Content[] }>>;
  background: (turn: Background) => May<GoOn<{ notes?: Content[]; suggest?: string }>>;
  /** `keep` stays word for word beside the summary. */
  before_compaction: (compaction: Compaction) => May<GoOn<{ keep?: string[] }> | Skip>;
  on_ended: (ended: Ended) => May<GoOn<{}>>;
  on_logged: (logged: Logged) => May<GoOn<{}>>;
  on_event: (event: Record<string, any>) => May<GoOn<{}>>;
}
export interface Options {
  /** The function's name by default. */
  name?: string;
  /** At tool points: globs of the tools it is for; empty for all. */
  tools?: string[];
}

/** Makes a function a hook at `point`. */
export function hook<P extends keyof Hooks>(point: P, fn: Hooks[P]): void;
export function hook<P extends keyof Hooks>(point: P, options: Options, fn: Hooks[P]): void;
/** Serves the hooks until the runtime closes stdin. From here on what is written to stdout goes to stderr, and stdin is empty. */
export function run(): Promise<void>;
/** Tells viewers what the hook is doing. */
export function progress(text: string): void;
/** At `stream`: puts something beside the message that is made of the text. */
export function annotate(key: string, value: Json): void;
/** Aborted when the call of the hook that runs is cancelled. */
export function signal(): AbortSignal;
/** All text of the content. */
export function textOf(content: Content): string;
/** What a wrap wraps has failed. A wrap that does not catch it passes the failure on as it was. */
export class NextFailed extends Error {}

/** Go on, with these edits. */
export function goOn<Edits extends object = {}>(edits?: Edits): GoOn<Edits>;
/** End the turn. */
export function halt(reason: string): Halt;
/** End the turn and do not keep the message. */
export function erase(reason: string): Erase;
/** Make no summary of these turns. */
export function skip(reason: string): Skip;
/** The calls of this reply need no further gate. */
export function approve(): Approve;
/** A person decides. */
export function ask(reason: string): Ask;
/** Take the reply back and end the turn. */
export function reject(reason: string): Reject;
/** Take the reply back and ask for another. */
export function regenerate(feedback: string): Regenerate;
/** Use this text as the reply. */
export function modifyReply(text: string): ModifyReply;
/** Use this content as the result. */
export function modifyResult(content: Content, ok?: boolean): ModifyResult;
/** Run the call with these arguments. */
export function rewrite(args: Record<string, unknown>): Rewrite;
/** Do not run the call; the model reads the reason. */
export function deny(reason: string): Deny;
/** Do not run the call; this is its result. */
export function answer(content: Content, ok?: boolean): Answer;
/** The turn may end. */
export function accept(): OnStop;
/** The turn may end; the model of the next turn reads this. */
export function advise(text: string): OnStop;
/** The model is not done: it reads this and goes on. */
export function refuse(feedback: string): OnStop;
/** A person decides whether the turn ends. */
export function pause(reason: string): OnStop;
/** End the turn as halted, whatever other hooks say. */
export function prevent(reason: string): OnStop;
