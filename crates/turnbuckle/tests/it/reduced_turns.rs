//! Turns that fill a context alone: what stays of them in the turns behind, and how often they are cut.

use std::time::Duration;

use serde_json::json;
use turnbuckle::context::plan::Retention;
use turnbuckle::context::reducers::{ToolResults, Window};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Cut, Store as _};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxFuture, Limits, Message, Outcome, Reply, Scope};

/// Answers with so many bytes of what a tokenizer finds hard, in one line.
fn dense(bytes: usize, retention: Retention) -> FunctionTool {
    let schema = json!({"type": "object"});
    let tool = function_with_schema("look", "Looks.", schema, Effect::Pure, move |_, arguments| async move {
        let mut digit = arguments["n"].as_u64().unwrap_or(0).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let digits = (0..bytes).map(|_| {
            digit = digit.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(7) | 1;
            char::from_digit(u32::try_from(digit >> 60).unwrap_or(0), 16).unwrap_or('0')
        });
        Ok(digits.collect::<String>())
    });
    tool.retention(retention)
}

/// One turn for each number: so many calls, and then an answer.
fn script(turns: &[usize]) -> Script {
    let step = |turn: usize, n: usize| {
        let mut reply = ScriptReply::calls(&format!("c{turn}_{n}"), "look", json!({"n": n, "turn": turn}));
        reply.text = Some(format!("now stone {n} of turn {turn}, and then the next one"));
        reply
    };
    let turn = |(turn, calls): (usize, &usize)| {
        let steps: Vec<ScriptReply> = (0..*calls).map(|n| step(turn, n)).collect();
        steps.into_iter().chain([ScriptReply::says(format!("answer {turn}"))])
    };
    Script::of(turns.iter().enumerate().flat_map(turn))
}

fn agent(model: &Recorder, context_tokens: u64, tool: FunctionTool) -> AgentBuilder {
    let limits =
        Limits { context_tokens, injection_reserve: context_tokens / 16, max_model_calls: 1_000, ..Limits::default() };
    Agent::builder("a", model.clone()).limits(limits).tool(tool)
}

fn said(request: &Request) -> String {
    request.messages.iter().map(|message| message.content().text()).collect::<Vec<_>>().join("\n")
}

async fn cuts(rig: &Rig) -> Vec<Cut> {
    rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap()
}

const GOAL: &str = "GOAL: build a heron feeder, never delete files, use only oak.";

/// Makes notes of nothing in particular.
struct Notes;

impl Model for Notes {
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(std::future::ready(Ok(Reply::text("## Done\nstones were looked at"))))
    }
}

#[tokio::test]
async fn a_turn_that_fills_the_context_alone_is_summarised_when_it_ends() {
    let model = Recorder::of(script(&[75, 20, 20, 20]));
    let mut rig = Rig::new(agent(&model, 8_000, dense(60, Retention::default())).summary_model(Notes).build().unwrap());
    for message in [GOAL, "second", "third", "fourth"] {
        let ended = rig.ended(message).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
        rig.conversations.drain(Duration::from_secs(600)).await;
        let summaries = rig.conversations.summaries(&rig.id, Scope::local()).await.unwrap();
        assert!(!summaries.is_empty(), "the first turn fills the context");
    }
    for (n, request) in model.requests().iter().enumerate() {
        assert!(said(request).contains("heron"), "request {n} does not have the goal");
    }
    let cuts = cuts(&rig).await;
    assert!(cuts.iter().any(|cut| cut.turns > 0), "{cuts:?}");
    assert!(cuts.iter().all(|cut| cut.turns == 0 || cut.summary.is_some()), "{cuts:?}");
}

/// The turns are so large that each is in a summary as soon as it has ended: there might be no room for it at the next cut.
#[tokio::test]
async fn the_turn_before_the_open_one_stays_word_for_word_beside_a_summary_of_it_if_there_is_room() {
    let answer = |n: usize| format!("answer {n}: {}", "word ".repeat(1_700));
    let model = Recorder::of(Script::says((0..12).map(answer)));
    let agent = agent(&model, 8_000, dense(60, Retention::default())).summary_model(Notes);
    let store = MemoryStore::default();
    let mut rig = Rig::on(agent.build().unwrap(), store.clone());
    for n in 0..12 {
        assert_eq!(rig.ended(format!("message {n}")).await.unwrap().outcome, Outcome::Completed);
        rig.conversations.drain(Duration::from_secs(600)).await;
    }
    let summaries = store.summaries(&rig.id).await.unwrap();
    let (cuts, log) = (cuts(&rig).await, store.log(&rig.id, 1, usize::MAX).await.unwrap());
    let covers_all =
        |cut: &&Cut| summaries.iter().any(|one| Some(one.version) == cut.summary && one.last + 1 == cut.made_at);
    let covered = cuts.iter().filter(covers_all).count();
    assert!(covered == cuts.len() && covered > 1, "the turn before a cut is in the summary that it shows: {cuts:?}");
    for cut in &cuts {
        // The message behind the cut is the last event before it was made.
        let n = log.iter().filter(|event| event.seq <= cut.made_at && event.kind.name() == "user_message").count() - 1;
        let request = &model.requests()[n];
        assert!(said(request).contains(&answer(n - 1)), "request {n}: {}", cut.summary());
        assert!(said(request).contains("stones were looked at") && cut.after <= 7_500 * 6 / 10, "{}", cut.summary());
    }
}

#[tokio::test]
async fn of_a_long_turn_before_the_open_one_steps_go_and_what_the_user_said_and_the_answer_stay() {
    let model = Recorder::of(script(&[75, 45]));
    let agent = agent(&model, 8_000, dense(60, Retention::default())).reducer(ToolResults).reducer(Window);
    let mut rig = Rig::new(agent.build().unwrap());
    for message in [GOAL, "second"] {
        assert_eq!(rig.ended(message).await.unwrap().outcome, Outcome::Completed);
    }
    let cuts = cuts(&rig).await;
    let last = cuts.last().unwrap();
    assert!(last.ended_steps > 20 && cuts.iter().all(|cut| cut.turns == 0), "{cuts:?}");
    assert!(last.summary().contains("steps of earlier turns left out"), "{}", last.summary());
    assert!(last.after <= 7_500 * 6 / 10, "{}", last.summary());
    let last = said(model.requests().last().unwrap());
    assert!(last.contains("heron") && last.contains("answer 0") && !last.contains("stone 0 of turn 0"), "{last}");
    assert!(last.contains("These calls were made"), "{last}");
}

/// What was sent, by one process or by one for each turn, which `why` can rebuild.
async fn sent(turns: &[usize], make: impl Fn(&Recorder) -> AgentBuilder, fresh: bool) -> Vec<Vec<Message>> {
    let (model, store) = (Recorder::of(script(turns)), MemoryStore::default());
    let mut rig = Rig::on(make(&model).build().unwrap(), store.clone());
    for n in 0..turns.len() {
        if fresh {
            let id = rig.id.clone();
            rig = Rig::on(make(&model).build().unwrap(), store.clone());
            rig.id = id;
        }
        let ended = rig.ended(format!("message {n}")).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    }
    let (log, cuts) = (store.log(&rig.id, 1, usize::MAX).await.unwrap(), cuts(&rig).await);
    assert!(!cuts.is_empty());
    let sent: Vec<Vec<Message>> = model.requests().iter().map(|request| request.messages.to_vec()).collect();
    let rebuilt = crate::kit::rebuilt(&log, &cuts);
    assert_eq!(rebuilt.len(), sent.len());
    for ((call, rebuilt), sent) in rebuilt.iter().zip(&sent) {
        assert_eq!(**rebuilt, **sent, "call {} of {}", call.number, call.turn);
    }
    sent
}

#[tokio::test]
async fn after_cuts_of_long_turns_a_new_process_sends_what_a_live_one_would_and_why_rebuilds_it() {
    let make =
        |model: &Recorder| agent(model, 6_000, dense(60, Retention::default())).reducer(ToolResults).reducer(Window);
    let turns = [50, 30, 0, 45, 3, 3, 60, 1];
    assert_eq!(sent(&turns, make, false).await, sent(&turns, make, true).await);
}

#[tokio::test]
async fn a_note_in_the_place_of_a_dense_result_stays_as_it_is_at_later_cuts() {
    for bytes in [900, 3_869] {
        let make = |model: &Recorder| agent(model, 8_000, dense(bytes, Retention::default()));
        let turns = [12, 12, 12];
        let live = sent(&turns, make, false).await;
        let text = |message: &Message| message.content().text();
        let notes = live.iter().flatten().map(text).filter(|text| text.starts_with("[left out to save room: a result"));
        let mut count = 0;
        for note in notes {
            assert!(note.contains(&format!("of {bytes} bytes")) && note.matches("left out").count() == 1, "{note}");
            count += 1;
        }
        assert!(count > 0);
        assert_eq!(live, sent(&turns, make, true).await);
    }
}

#[tokio::test]
async fn cuts_that_would_follow_each_other_at_every_call_leave_steps_out_instead() {
    let model = Recorder::of(script(&[60]));
    let mut rig = Rig::new(agent(&model, 8_000, dense(700, Retention::Last(2))).build().unwrap());
    assert_eq!(rig.ended("look at all of them").await.unwrap().outcome, Outcome::Completed);
    let cuts = cuts(&rig).await;
    assert!((2..=12).contains(&cuts.len()), "{} cuts: {cuts:#?}", cuts.len());
    for cut in &cuts {
        assert!(cut.after * 10 <= cut.before * 8, "{}", cut.summary());
    }
    // The results that the tool asks to keep, the last two, are shown whole all the time.
    for request in model.requests().iter().skip(4) {
        let results = request.messages.iter().filter(|message| matches!(message, Message::Result { .. }));
        let whole = results.filter(|result| result.content().text().len() == 700).count();
        assert!(whole >= 2, "{whole}");
    }
}
