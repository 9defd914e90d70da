//! A conversation to look at: every kind of event, with every text given by the test.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::event::Event;
use turnbuckle::feed::{Cursor, FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hook::{Decision, Point, Record};
use turnbuckle::projection::Projection;
use turnbuckle::{Actor, ConversationId, Timestamp};
use turnbuckle_server::page::{Rights, View, Viewer};

/// 2026-01-31 12:00.
pub(crate) const NOON: u64 = 1_769_860_800_000;

pub(crate) struct Story<'a> {
    say: &'a dyn Fn(&str) -> String,
    pub(crate) events: Vec<FeedEvent>,
    seq: u64,
    ms: u64,
    turn: &'static str,
}

impl<'a> Story<'a> {
    pub(crate) fn new(say: &'a dyn Fn(&str) -> String) -> Self {
        Self { say, events: Vec::new(), seq: 0, ms: NOON, turn: "t_1" }
    }

    fn push(&mut self, item: FeedItem) {
        let cursor = Cursor { epoch: 1, position: self.events.len() as u64 + 1 };
        let (conversation, at) = (ConversationId::from("c_1"), Timestamp::from_millis(self.ms));
        self.events.push(FeedEvent { conversation, turn: Some(self.turn.into()), cursor, at, item });
    }

    /// What follows is of another turn.
    pub(crate) fn next_turn(&mut self) -> &mut Self {
        self.turn = if self.turn == "t_1" { "t_2" } else { "t_1" };
        self
    }

    /// Time passes.
    pub(crate) fn after(&mut self, ms: u64) -> &mut Self {
        self.ms += ms;
        self
    }

    /// An event of the log, as JSON has it. Every text goes through what the test says.
    pub(crate) fn log(&mut self, mut event: Value) -> &mut Self {
        self.seq += 1;
        self.put_words(&mut event);
        event["seq"] = self.seq.into();
        event["turn"] = self.turn.into();
        event["at"] = serde_json::to_value(Timestamp::from_millis(self.ms)).unwrap();
        let event: Event = serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error}: {event}"));
        self.push(FeedItem::Log(Arc::new(event)));
        self
    }

    /// A live event, likewise.
    pub(crate) fn live(&mut self, mut event: Value) -> &mut Self {
        self.put_words(&mut event);
        let event: LiveEvent = serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error}: {event}"));
        self.push(FeedItem::Live(event));
        self
    }

    fn put_words(&self, event: &mut Value) {
        match event {
            Value::Object(fields) => {
                // What decides the type of the event, and not what it says.
                const FIXED: &[&str] = &[
                    "type",
                    "kind",
                    "executor",
                    "decision",
                    "stop_reason",
                    "outcome",
                    "state",
                    "point",
                    "expires",
                    "for",
                    "level",
                    "system",
                    "digest",
                    "call",
                    "media_type",
                    "required",
                    "enum",
                ];
                let old = std::mem::take(fields);
                for (key, mut value) in old {
                    let fixed = FIXED.contains(&key.as_str());
                    if !fixed {
                        self.put_words(&mut value);
                    }
                    // Names that the model chooses are hostile, too.
                    let key = match key.strip_prefix("free:") {
                        Some(free) => (self.say)(free),
                        None => key,
                    };
                    fields.insert(key, value);
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|value| self.put_words(value)),
            Value::String(text) => *text = (self.say)(text),
            _ => {}
        }
    }

    /// The view after all of it.
    pub(crate) fn view(&self) -> View {
        let mut view = View::new("c_1".into(), Projection::default());
        self.events.iter().for_each(|event| drop(view.apply(event)));
        view
    }

    /// The events of the log.
    pub(crate) fn logged(&self) -> Vec<Arc<Event>> {
        let logged = |event: &FeedEvent| match &event.item {
            FeedItem::Log(event) => Some(event.clone()),
            FeedItem::Live(_) => None,
        };
        self.events.iter().filter_map(logged).collect()
    }
}

fn text(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

const ANSWER: &str = "The test fails because `total` starts at **1**:\n\n```rust\n// the sum of all prices\nfn total(prices: &[u32]) -> u32 {\n    let mut total = 1;\n    for price in prices { total += price; }\n    total\n}\n```\n\n| prices | expected | found |\n|---|--:|--:|\n| none | 0 | 1 |\n| 2, 3 | 5 | 6 |\n\nI will change the start to `0`. See [the docs](https://doc.rust-lang.org/std/).";

/// A whole turn, and one that waits.
pub(crate) fn tell<'a>(say: &'a dyn Fn(&str) -> String) -> Story<'a> {
    let mut story = Story::new(say);
    let usage = json!({"input": 1840, "output": 212, "cache_read": 1200, "cache_write": 0});
    story
        .live(json!({"type": "state_changed", "state": "accept"}))
        .log(json!({"type": "user_message", "content": text("The test of `total` fails. Can you find out why, and fix it?"), "by": {"user": "ann"}}))
        .log(json!({"type": "injection", "hook": "recall", "content": text("The project uses Rust 1.95."), "for": "this_turn"}))
        .live(json!({"type": "state_changed", "state": "call"}))
        .after(900)
        .live(json!({"type": "thinking_delta", "attempt": 1, "text": "Let me "}))
        .live(json!({"type": "thinking_delta", "attempt": 1, "text": "guess."}))
        .live(json!({"type": "text_delta", "attempt": 1, "text": "It is surely "}))
        .live(json!({"type": "text_delta", "attempt": 1, "text": "the compiler."}))
        .live(json!({"type": "attempt_discarded", "attempt": 1, "by": {"hook": "critic"}, "reason": "It guesses instead of looking at the code."}))
        .after(1300)
        .log(json!({"type": "assistant_message", "attempt": 2, "model": "anthropic:claude-sonnet-4-5", "cost": 0.0087, "stop_reason": "tool_calls", "usage": usage, "object": null,
            "content": [{"type": "thinking", "text": "I should read the file before I say anything."}, {"type": "text", "text": "I look at the code first."}]}))
        .log(json!({"type": "tool_call", "call": "c1", "name": "read_file", "arguments": {"path": "src/total.rs", "free:limit": 40}, "executor": "server"}))
        .log(json!({"type": "tool_started", "call": "c1", "arguments": {"path": "src/total.rs"}, "digest": "d1", "approved_by": null}))
        .live(json!({"type": "tool_progress", "call": "c1", "payload": "reading…"}))
        .after(120)
        .log(json!({"type": "tool_result", "call": "c1", "ok": true, "content": text("// the sum of all prices\nfn total(prices: &[u32]) -> u32 {\n    let mut total = 1;\n    for price in prices { total += price; }\n    total\n}\n")}))
        .after(2100)
        .log(json!({"type": "assistant_message", "attempt": 1, "model": "anthropic:claude-sonnet-4-5", "cost": 0.0113, "stop_reason": "tool_calls", "usage": usage, "object": null, "content": text(ANSWER)}))
        .log(json!({"type": "tool_call", "call": "c2", "name": "edit_file", "arguments": {"path": "src/total.rs", "old": "    let mut total = 1;", "new": "    let mut total = 0;"}, "executor": "server"}))
        .log(json!({"type": "suspension", "call": "c2", "kind": "approval", "prompt": {"tool": "edit_file", "arguments": {"path": "src/total.rs", "old": "    let mut total = 1;", "new": "    let mut total = 0;"}, "digest": "d2", "why": "edit_file changes a file"}, "expires": "2026-02-01T12:00:00.000Z"}))
        .live(json!({"type": "state_changed", "state": "waiting"}))
        .after(31_000)
        .log(json!({"type": "resolution", "call": "c2", "decision": "approved", "by": {"user": "bob"}, "reason": "looks right"}))
        .live(json!({"type": "state_changed", "state": "dispatch"}))
        .log(json!({"type": "tool_started", "call": "c2", "arguments": {"path": "src/total.rs", "old": "    let mut total = 1;", "new": "    let mut total = 0;"}, "digest": "d2", "approved_by": {"user": "bob"}}))
        .after(40)
        .log(json!({"type": "tool_result", "call": "c2", "ok": true, "content": text("changed src/total.rs\n--- a/src/total.rs\n+++ b/src/total.rs\n@@ -2,3 +2,3 @@\n fn total(prices: &[u32]) -> u32 {\n-    let mut total = 1;\n+    let mut total = 0;\n     for price in prices { total += price; }\n")}))
        .log(json!({"type": "tool_call", "call": "c3", "name": "shell", "arguments": {"command": "cargo test total", "timeout": 60}, "executor": "server"}))
        .log(json!({"type": "tool_started", "call": "c3", "arguments": {"command": "cargo test total"}, "digest": "d3", "approved_by": null}))
        .after(3_400)
        .log(json!({"type": "tool_result", "call": "c3", "ok": false, "content": text("error: could not find `Cargo.toml` in `/srv/shop` or any parent directory")}))
        .after(1_500)
        .log(json!({"type": "assistant_message", "attempt": 1, "model": "anthropic:claude-sonnet-4-5", "cost": 0.0061, "stop_reason": "end", "usage": usage, "object": null, "content": text("It is fixed.")}))
        .live(json!({"type": "state_changed", "state": "end"}))
        .live(json!({"type": "hook_started", "hook": "lint", "point": "on_stop"}))
        .live(json!({"type": "hook_progress", "hook": "lint", "text": "running cargo check…"}))
        .after(2_200)
        .live(json!({"type": "hook_finished", "hook": "lint", "point": "on_stop", "decision": "refuse", "reason": "unused variable", "ms": 2200.0, "tokens": 0, "error": null}))
        .log(json!({"type": "stop_feedback", "refusals": [{"hook": "lint", "feedback": "`cargo test` was not run in the right folder. Run it in `shop/`."}]}))
        .live(json!({"type": "notice", "level": "warning", "text": "the prompt cache broke", "hook": "recall"}))
        .after(1_900)
        .log(json!({"type": "assistant_message", "attempt": 1, "model": "anthropic:claude-sonnet-4-5", "cost": 0.0049, "stop_reason": "end", "usage": usage, "object": null, "content": text("The test passes now, in `shop/`:\n\n- 4 tests passed\n- nothing else changed")}))
        .log(json!({"type": "turn_ended", "outcome": "completed", "reason": null, "cause": null, "by": null, "result": null, "warnings": [{"hook": "telemetry", "text": "the collector did not answer"}], "model_calls": 5, "usage": usage, "cost": 0.031, "ms": 13460}))
        .live(json!({"type": "state_changed", "state": "idle"}))
        .live(json!({"type": "suggestion", "text": "Add a test for an empty list"}))
        .live(json!({"type": "suggestion", "text": "Commit this"}));
    story.turn = "t_2";
    story
        .after(60_000)
        .log(json!({"type": "user_message", "content": text("Deploy it."), "by": {"user": "ann"}}))
        .log(json!({"type": "assistant_message", "attempt": 1, "stop_reason": "end", "usage": usage, "object": null, "content": text("I stop here.")}))
        .log(json!({"type": "turn_ended", "outcome": "cancelled", "reason": "not today", "cause": null, "by": {"user": "ann"}, "result": null, "warnings": [], "model_calls": 1, "usage": usage, "ms": 300}));
    story.turn = "t_3";
    story
        .after(9_000)
        .log(json!({"type": "user_message", "content": text("Then write the release notes, and ask me what the version is."), "by": {"user": "ann"}}))
        .live(json!({"type": "state_changed", "state": "call"}))
        .after(800)
        .log(json!({"type": "assistant_message", "attempt": 1, "model": "demo", "stop_reason": "tool_calls", "usage": usage, "object": null, "content": text("Two things.")}))
        .log(json!({"type": "tool_call", "call": "c4", "name": "ask_human", "arguments": {"question": "Which version?"}, "executor": "human"}))
        .log(json!({"type": "suspension", "call": "c4", "kind": "elicitation", "prompt": {"question": "Which **version** is it, and may it be announced?", "schema": {"type": "object", "required": ["version"], "properties": {
            "free:version": {"type": "string", "title": "Version", "description": "As in `Cargo.toml`"},
            "announce": {"type": "boolean", "title": "Announce it"},
            "channel": {"type": "string", "enum": ["stable", "beta"]}}}}, "expires": "2026-02-01T12:00:00.000Z"}))
        .log(json!({"type": "tool_call", "call": "c5", "name": "write_file", "arguments": {"path": "NOTES.md", "content": "# 1.2\n\n- totals are right\n"}, "executor": "server"}))
        .log(json!({"type": "suspension", "call": "c5", "kind": "approval", "prompt": {"tool": "write_file", "arguments": {"path": "NOTES.md", "content": "# 1.2\n\n- totals are right\n"}, "digest": "d5", "why": "write_file changes a file"}, "expires": "2026-02-01T12:00:00.000Z",
            "answer_by": {"roles": ["manager"], "users": ["ann"], "n": 2}}))
        .log(json!({"type": "tool_call", "call": "c6", "name": "shell", "arguments": {"command": "git log --oneline | head"}, "executor": "server"}))
        .log(json!({"type": "tool_started", "call": "c6", "arguments": {"command": "git log --oneline | head"}, "digest": "d6", "approved_by": null}))
        .live(json!({"type": "tool_progress", "call": "c6", "payload": "12 lines"}))
        .live(json!({"type": "hook_started", "hook": "audit_log", "point": "before_tool"}))
        .live(json!({"type": "state_changed", "state": "waiting"}));
    story
}

/// What hooks left of the first turn.
pub(crate) fn records(say: &dyn Fn(&str) -> String) -> Vec<Record> {
    let record = |point, hook: &str, decision, ms: f64| {
        Record::new(point, say(hook).into(), decision, std::time::Duration::from_secs_f64(ms / 1e3))
    };
    let mut critic = record(Point::AfterModel, "critic", Decision::Regenerate, 410.0);
    critic.reason = Some(say("It guesses instead of looking at the code.").into());
    let mut recall = record(Point::BeforeAgent, "recall", Decision::Continue, 35.0);
    recall.tokens = 9;
    let mut gate = record(Point::BeforeTool, "permit", Decision::Ask, 0.3);
    gate.call = Some("c2".into());
    let mut lint = record(Point::OnStop, "lint", Decision::Refuse, 2_200.0);
    lint.reason = Some(say("`cargo test` was not run in the right folder.").into());
    let mut telemetry = record(Point::OnEnded, "telemetry", Decision::Failed, 30.0);
    telemetry.failure = Some(say("the collector did not answer").into());
    vec![recall, critic, gate, lint, record(Point::OnStop, "lint", Decision::Accept, 1_700.0), telemetry]
}

pub(crate) fn rights() -> Rights {
    let actor = Actor::User { id: "ann".into(), roles: Arc::new([]) };
    Rights { actor, say: true, answer: true, cancel: true, delete: true }
}

pub(crate) fn viewer(csrf: &str) -> Viewer {
    Viewer { user: Some("ann".into()), csrf: csrf.into(), can_log_out: true, waiting: 2 }
}
