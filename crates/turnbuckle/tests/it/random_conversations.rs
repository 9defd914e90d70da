//! Conversations in which anything may happen, the same for each seed: contexts that are reduced in any way, turns that are cancelled,
//! steered, or wait for an approval, replies that fail or are sent back, thoughts with signatures, and blocks of tools that the
//! provider runs. The clients of providers are tested with them, too.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnbuckle::context::plan::{Plan, Retention};
use turnbuckle::context::reducer::Reducer;
use turnbuckle::context::reducers::{Summaries, ToolResults, Window};
use turnbuckle::context::{Cut, tokens};
use turnbuckle::conversation::TurnHandle;
use turnbuckle::event::EventKind;
use turnbuckle::hook::{AfterModel, BeforeModelContext, OnStop, OnStopContext, guard, pre, stop};
use turnbuckle::message::{ProviderBlock, Text, Thought};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, BoxFuture, Limits, Outcome, Part, Reply, Scope, TurnStatus, WhileBusy};

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
            let mut parts: Vec<Part> = reply.content.parts().iter().map(signed).collect();
            if number.is_multiple_of(5) {
                let at = parts.iter().take_while(|part| matches!(part, Part::Thinking(_))).count();
                parts.splice(at..at, hosted(number));
            }
            reply.content = parts.into();
            Ok(reply)
        })
    }
}

/// A call that the provider runs itself, and what came of it.
fn hosted(number: u64) -> [Part; 2] {
    let id = format!("srvtoolu_{number}");
    let call = json!({ "type": "server_tool_use", "id": id, "name": "web_search", "input": { "query": "heron" } });
    let result = json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": [] });
    [call, result].map(|block| ProviderBlock { provider: "anthropic".into(), block: Arc::new(block) }.into())
}

/// What only the provider can make, and what no longer fits once the text is another one.
pub fn signature(thought: &str) -> Text {
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

/// Takes its time, so that something can happen meanwhile.
fn slow() -> FunctionTool {
    let schema = json!({"type": "object"});
    function_with_schema("slow", "Answers.", schema, Effect::Pure, |_, _| async {
        for _ in 0..30 {
            tokio::task::yield_now().await;
        }
        Ok("at last")
    })
}

/// A turn: some rounds of calls, in parallel or not, then words. Some tools do not exist, some replies fail.
fn turn(dice: &mut Dice) -> Vec<ScriptReply> {
    let names = ["small", "large", "kept", "huge", "missing", "dense", "slow", "gated"];
    let mut replies = Vec::new();
    // Some turns have many more steps than fit.
    let steps = if dice.roll(12) == 0 { 10 + dice.roll(90) } else { dice.roll(4) };
    for _ in 0..steps {
        let name = |dice: &mut Dice| names[usize::try_from(dice.roll(8)).unwrap()];
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

/// A conversation as it came to pass.
pub struct Conversed {
    /// What its model was sent.
    pub requests: Vec<Request>,
    pub context_tokens: u64,
    pub cuts: Vec<Cut>,
    /// How its turns ended, those of messages that steered them left out.
    pub outcomes: Vec<Outcome>,
    /// How many questions people answered.
    pub answered: usize,
    /// How often a stop was refused.
    pub refused: usize,
}

/// The conversation of this seed.
pub async fn converse(seed: u64) -> Conversed {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let turns: Vec<Vec<ScriptReply>> = (0..12 + dice.roll(20)).map(|_| turn(&mut dice)).collect();
    let model = Recorder::of(Signed(Script::of(turns.into_iter().flatten())));
    let context_tokens = [1_500, 2_500, 4_000, 9_000][usize::try_from(dice.roll(4)).unwrap()];
    let limits = Limits { context_tokens, injection_reserve: 150, max_model_calls: 1_000, ..Limits::default() };
    let mut agent = Agent::builder("a", model.clone()).limits(limits).summary_model(Notes);
    agent = agent.tool(tool("small", 40, Retention::Turns(1))).tool(tool("large", 2_000, Retention::default()));
    agent = agent.tool(tool("kept", 500, Retention::Keep)).tool(tool("huge", 60_000, Retention::Last(1)));
    agent = agent.tool(dense()).tool(slow()).tool(tool("gated", 300, Retention::default())).approve(["gated"]);
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
    if dice.roll(3) == 0 {
        let judge = stop("judge", |turn: OnStopContext| async move {
            let is_fine = turn.stop_active() || !turn.user_message().text().len().is_multiple_of(3);
            Ok(if is_fine { OnStop::Accept } else { OnStop::Refuse("there is more to be done".into()) })
        });
        agent = agent.hook(judge);
    }
    let mut rig = Rig::new(agent.build().unwrap());
    let (mut outcomes, mut answered) = (Vec::new(), 0);
    for n in 0..40 {
        let words = usize::try_from(dice.roll(150)).unwrap();
        let turn = rig.send(format!("{n} {}", "word ".repeat(words))).await.unwrap();
        let mut steering = None;
        let meddling = dice.roll(6);
        if meddling < 2 {
            for _ in 0..dice.roll(60) {
                tokio::task::yield_now().await;
            }
            if meddling == 0 {
                rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
            } else {
                // One that waits for an answer takes no message.
                let sent = rig.conversations.send_while(&rig.id, "and faster", Scope::local(), WhileBusy::Steer).await;
                steering = sent.ok();
            }
        }
        // Some turns fail or are rejected: the next one must not mind.
        outcomes.extend(finish(&mut rig, turn, &mut dice, &mut answered).await);
        if let Some(steering) = steering {
            // It was taken in by the turn, or opened one of its own.
            finish(&mut rig, steering, &mut dice, &mut answered).await;
        }
        if dice.roll(3) == 0 {
            rig.conversations.drain(Duration::from_secs(600)).await;
        }
    }
    let log = rig.log().await.unwrap();
    let refused = log.iter().filter(|event| matches!(event.kind, EventKind::StopFeedback { .. })).count();
    let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
    Conversed { requests: model.requests(), context_tokens, cuts, outcomes, answered, refused }
}

/// Answers whatever the turn asks until it has ended. `None` if that was answered before, through another handle.
async fn finish(rig: &mut Rig, turn: TurnHandle, dice: &mut Dice, answered: &mut usize) -> Option<Outcome> {
    let mut status = rig.follow(turn).await.unwrap();
    loop {
        let pending = match status {
            TurnStatus::Ended(ended) => return Some(ended.outcome),
            TurnStatus::Waiting(pending) => pending,
        };
        let answer = if dice.roll(2) == 0 { Answer::Approve } else { Answer::Deny(Some("not now".into())) };
        let asked = &pending[0].call;
        let resolved = rig.conversations.resolve(&rig.id, asked, answer, None, Scope::user("local")).await;
        let turn = resolved.ok()?;
        *answered += 1;
        status = rig.follow(turn).await.unwrap();
    }
}
