//! Whatever happened in a conversation, and however its contexts were reduced: every request is one that providers accept.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::context::plan::{Plan, Retention};
use turnbuckle::context::reducer::Reducer;
use turnbuckle::context::reducers::{Summaries, ToolResults, Window};
use turnbuckle::context::tokens;
use turnbuckle::hook::{AfterModel, BeforeModelContext, guard, pre};
use turnbuckle::message::{Text, Thought};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, BoxFuture, Limits, Message, Part, Reply, Scope};

/// Numbers that are the same in every run of one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*, which is good enough to choose among few things.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

/// Does something to a plan that nobody would call sensible.
struct Wild(u64);

impl Reducer for Wild {
    fn name(&self) -> &str {
        "wild"
    }
    fn reduce(&self, plan: &mut Plan) {
        let mut dice = Dice(self.0 ^ plan.tokens() ^ 0x9E37_79B9);
        for _ in 0..dice.roll(20) {
            let places = plan.results().len().max(1) as u64;
            let place = usize::try_from(dice.roll(places + 2)).unwrap();
            match dice.roll(6) {
                5 => _ = plan.leave_out_ended_steps(),
                0 => drop(plan.leave_out_oldest()),
                4 => _ = plan.leave_out_steps(dice.roll(plan.limit() + 1), dice.roll(plan.limit() / 2 + 1)),
                1 => drop(plan.stub(place)),
                2 if dice.roll(2) == 0 => drop(plan.shorten_call(place, dice.roll(300))),
                2 => drop(plan.shorten(place, dice.roll(300))),
                _ => drop(plan.show_summary()),
            }
        }
        assert!(!self.0.is_multiple_of(5), "a reducer that panics");
    }
}

/// Signs what a script thinks, as Anthropic does, and sometimes hides it.
struct Signed(Script);

impl Model for Signed {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let mut reply = self.0.stream(request, out).await?;
            let number = request.ordinal;
            let signed = |part: &Part| match part {
                Part::Thinking(thought) => {
                    let more = "and so on ".repeat(usize::try_from(number % 40).unwrap());
                    let text = format!("{} {number} {more}", thought.text);
                    Thought { signature: Some(signature(&text)), text: text.into() }.into()
                }
                other => other.clone(),
            };
            reply.content = reply.content.parts().iter().map(signed).collect();
            Ok(reply)
        })
    }
}

/// What only the provider can make, and what no longer fits once the text is another one.
fn signature(thought: &str) -> Text {
    format!("signed:{}:{}", thought.len(), tokens::of_text(thought)).into()
}

/// Makes summaries of nothing in particular.
struct Notes;

impl Model for Notes {
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(std::future::ready(Ok(Reply::text("## Goal\nsomething"))))
    }
}

fn tool(name: &'static str, bytes: usize, retention: Retention) -> FunctionTool {
    let schema = json!({"type": "object"});
    let tool = function_with_schema(name, "Answers.", schema, Effect::Pure, move |_, _| async move {
        Ok("result ".repeat(bytes / 7 + 1))
    });
    tool.retention(retention)
}

/// Answers with one long line whose bytes are nearly tokens each.
fn dense() -> FunctionTool {
    let schema = json!({"type": "object"});
    function_with_schema("dense", "Answers.", schema, Effect::Pure, |_, _| async { Ok("5feceb66ffc86f38".repeat(240)) })
}

/// A turn: some rounds of calls, in parallel or not, then words. Some tools do not exist, some replies fail.
fn turn(dice: &mut Dice) -> Vec<ScriptReply> {
    let names = ["small", "large", "kept", "huge", "missing", "dense"];
    let mut replies = Vec::new();
    // Some turns have many more steps than fit.
    let steps = if dice.roll(12) == 0 { 10 + dice.roll(90) } else { dice.roll(4) };
    for _ in 0..steps {
        let name = |dice: &mut Dice| names[usize::try_from(dice.roll(6)).unwrap()];
        // The same id again and again, as some providers send it.
        let content = if dice.roll(4) == 0 { "long line\n".repeat(dice.roll(3_000) as usize) } else { String::new() };
        let path = "a".repeat(dice.roll(200) as usize);
        let mut reply = ScriptReply::calls("c", name(dice), json!({"path": path, "edits": [{"new": content}]}));
        for n in 0..dice.roll(3) {
            reply = reply.and_calls(&format!("c{n}"), name(dice), json!({}));
        }
        reply.text = (dice.roll(2) == 0).then(|| "thinking aloud".to_owned());
        reply.thinking = (dice.roll(3) == 0).then(|| "hm".to_owned());
        replies.push(reply);
    }
    replies.push(match dice.roll(12) {
        0 => ScriptReply::fails(400),
        1 => ScriptReply::says(""),
        _ => ScriptReply::says("word ".repeat(dice.roll(120) as usize + 1)),
    });
    replies
}

/// The rules of both providers: a user speaks first, each call has its one result right behind it and in order, no id twice, no
/// result without a call, nothing behind an open call but its results, and thinking only where an assistant speaks.
fn complaint(messages: &[Message]) -> Option<String> {
    match messages.first() {
        Some(Message::User(_) | Message::Note(_)) => {}
        other => return Some(format!("it begins with {other:?}")),
    }
    let (mut open, mut ids): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for message in messages {
        let mut has_spoken = false;
        for part in message.content().parts() {
            match part {
                Part::Thinking(thought) if thought.signature.is_some() => {
                    // Kept whole or dropped whole: a thought that was cut has a signature that does not fit.
                    if thought.signature != Some(signature(&thought.text)) {
                        return Some(format!("the signature does not fit: {thought:?}"));
                    }
                    if has_spoken {
                        return Some("a thought stands behind what it led to".to_owned());
                    }
                }
                _ => has_spoken = true,
            }
        }
        match message {
            Message::Assistant { calls, .. } => {
                if !open.is_empty() {
                    return Some(format!("{open:?} have no results"));
                }
                for call in calls {
                    if ids.contains(&call.call.to_string()) {
                        return Some(format!("{} is there twice", call.call));
                    }
                    if !call.arguments.is_object() {
                        return Some(format!("the arguments of {} are no object", call.call));
                    }
                    ids.push(call.call.to_string());
                    open.push(call.call.to_string());
                }
            }
            Message::Result { call, .. } => {
                if open.first().is_none_or(|expected| *expected != call.as_str()) {
                    return Some(format!("{call} is not the result of {open:?}"));
                }
                open.remove(0);
            }
            _ if !open.is_empty() => return Some(format!("{open:?} have no results")),
            other => {
                if other.content().parts().iter().any(|part| matches!(part, Part::Thinking(_))) {
                    return Some("a user thinks".to_owned());
                }
            }
        }
    }
    match messages.last() {
        Some(Message::Assistant { .. }) => Some("an assistant has the last word".to_owned()),
        _ if !open.is_empty() => Some(format!("{open:?} have no results")),
        _ => None,
    }
}

/// Returns how many steps of open turns were left out.
async fn check(seed: u64) -> u32 {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let turns: Vec<Vec<ScriptReply>> = (0..12 + dice.roll(20)).map(|_| turn(&mut dice)).collect();
    let model = Recorder::of(Signed(Script::of(turns.into_iter().flatten())));
    let context_tokens = [1_500, 2_500, 4_000, 9_000][usize::try_from(dice.roll(4)).unwrap()];
    let limits = Limits { context_tokens, injection_reserve: 150, max_model_calls: 1_000, ..Limits::default() };
    let mut agent = Agent::builder("a", model.clone()).limits(limits).summary_model(Notes);
    agent = agent.tool(tool("small", 40, Retention::Turns(1))).tool(tool("large", 2_000, Retention::default()));
    agent = agent.tool(tool("kept", 500, Retention::Keep)).tool(tool("huge", 60_000, Retention::Last(1)));
    agent = agent.tool(dense());
    agent = match dice.roll(4) {
        0 => agent,
        1 => agent.reducer(Wild(seed)).reducer(ToolResults).reducer(Window).reducer(Summaries),
        2 => agent.reducer(Window).reducer(Wild(seed)),
        _ => agent.reducer(ToolResults).reducer(Summaries).reducer(Wild(seed)),
    };
    if dice.roll(2) == 0 {
        let note = pre("note", |mut turn: BeforeModelContext| async move {
            turn.inject("by the way");
            turn.proceed()
        });
        agent = agent.hook(note.every_call());
    }
    if dice.roll(3) == 0 {
        let picky = guard("picky", |_, reply: Arc<Reply>| async move {
            let text = reply.content.text();
            Ok(if text.len() % 11 == 3 { AfterModel::Reject("no".into()) } else { AfterModel::Continue })
        });
        agent = agent.hook(picky);
    }
    let mut rig = Rig::new(agent.build().unwrap());
    for n in 0..40 {
        let words = usize::try_from(dice.roll(150)).unwrap();
        // Some turns fail or are rejected: the next one must not mind.
        rig.ended(format!("{n} {}", "word ".repeat(words))).await.unwrap();
        if dice.roll(3) == 0 {
            rig.conversations.drain(std::time::Duration::from_secs(600)).await;
        }
    }
    for (n, request) in model.requests().iter().enumerate() {
        if let Some(complaint) = complaint(&request.messages) {
            panic!("seed {seed}, request {n}: {complaint}\n{:#?}", request.messages);
        }
        let tools: u64 = request.tools().iter().map(tokens::of_definition).sum();
        let size = tools + tokens::of_messages(&request.messages);
        assert!(size <= context_tokens, "seed {seed}, request {n} has {size} tokens of {context_tokens}");
    }
    for request in model.requests() {
        let text = |message: &Message| message.content().text();
        for note in
            request.messages.iter().map(text).filter(|text| text.starts_with("[left out to save room: a result"))
        {
            assert_eq!(note.matches("left out to save room").count(), 1, "seed {seed}: a note of a note: {note}");
        }
    }
    let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
    cuts.iter().map(|cut| cut.steps).sum()
}

#[tokio::test]
async fn every_request_of_random_conversations_is_one_that_providers_accept() {
    let mut steps = 0;
    for seed in 1..=60 {
        steps += check(seed).await;
    }
    assert!(steps > 500, "only {steps} steps of open turns were left out");
}
