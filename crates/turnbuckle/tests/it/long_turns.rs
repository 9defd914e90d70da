//! Turns of many small steps, which do not fit a context although nothing in them is large.

use serde_json::json;
use turnbuckle::context::Segment;
use turnbuckle::context::plan::Retention;
use turnbuckle::context::tokens;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{OnStop, OnStopContext, stop};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Answer, BreakCause, Cut, Store as _};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, SearchHistory, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, Limits, Message, Outcome, Scope, TurnReport, TurnStatus};

const CALLS: usize = 400;

fn tool(name: &'static str) -> FunctionTool {
    function_with_schema(name, "Looks.", json!({"type": "object"}), Effect::Pure, |_, arguments| async move {
        let n = &arguments["n"];
        Ok(format!("stone {n} is grey and lies in the second row, as all before it; {}", "it is small, ".repeat(9)))
    })
}

/// Looks at one stone after the other. Every hundredth time it asks first, and the third time it notes a plan.
fn script() -> Recorder {
    let step = |n: usize| {
        let name = match n {
            3 => "note",
            n if n % 100 == 99 => "ask",
            _ => "look",
        };
        let mut reply = ScriptReply::calls(&format!("c{n}"), name, json!({"n": n, "where": "in the garden"}));
        reply.text = Some(format!("now stone {n}, and then the next one"));
        reply
    };
    let greeting = [ScriptReply::says("hi")].into_iter();
    Recorder::of(Script::of(greeting.chain((0..CALLS).map(step)).chain([ScriptReply::says("all are grey")])))
}

fn agent(model: &Recorder, context_tokens: u64) -> AgentBuilder {
    let limits =
        Limits { context_tokens, injection_reserve: context_tokens / 16, max_model_calls: 1_000, ..Limits::default() };
    let agent = Agent::builder("a", model.clone()).limits(limits).tool(tool("look")).tool(tool("ask"));
    agent.tool(tool("note").retention(Retention::Last(1))).approve(["ask"])
}

/// Runs the turn, in a new process after each question if `fresh`.
async fn run(agent: impl Fn() -> AgentBuilder, store: &MemoryStore, fresh: bool) -> (Rig, TurnReport) {
    let mut rig = Rig::on(agent().build().unwrap(), store.clone());
    rig.ended("hello").await;
    let mut status = rig.run("Look at all stones of the garden, and name the odd one.").await.unwrap();
    loop {
        match status {
            TurnStatus::Ended(ended) => return (rig, *ended),
            TurnStatus::Waiting(waiting) => {
                if fresh {
                    rig = Rig::on(agent().build().unwrap(), store.clone());
                }
                rig.listen().await.unwrap();
                let call = waiting[0].call.clone();
                let by = Scope::user("local");
                let turn = rig.conversations.resolve(&rig.id, &call, Answer::Approve, None, by).await.unwrap();
                status = rig.follow(turn).await.unwrap();
            }
        }
    }
}

fn said(messages: &[Message]) -> String {
    messages.iter().map(|message| message.content().text()).collect::<Vec<_>>().join("\n")
}

async fn cuts(rig: &Rig) -> Vec<Cut> {
    rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap()
}

#[tokio::test]
async fn a_turn_of_400_small_calls_completes_in_a_window_of_32000_tokens() {
    let model = script();
    let (rig, ended) = run(|| agent(&model, 32_000), &MemoryStore::default(), false).await;
    assert_eq!((ended.outcome, &*ended.text()), (Outcome::Completed, "all are grey"), "{:?}", ended.reason);
    let (requests, cuts) = (model.requests(), cuts(&rig).await);
    assert!((1..=4).contains(&cuts.len()), "{} cuts", cuts.len());
    for cut in &cuts {
        assert!(cut.steps > 50 && cut.after <= 32_000 * 6 / 10, "{}", cut.summary());
        assert!(cut.summary().contains("steps of the open turn left out"), "{}", cut.summary());
    }
    for (n, request) in requests.iter().enumerate() {
        assert!(tokens::of_messages(&request.messages) <= 32_000, "request {n}");
    }
    let last = said(&requests.last().unwrap().messages);
    assert!(last.contains("name the odd one") && last.contains("now stone 3,") && last.contains("now stone 399,"));
    assert!(last.contains("These calls were made") && !last.contains("now stone 50,"), "{last}");
    assert_eq!(last.matches("left out to save room").count(), 1, "one note for all of them");
}

#[tokio::test]
async fn between_two_cuts_of_a_long_turn_requests_only_grow() {
    let model = script();
    let (rig, _) = run(|| agent(&model, 6_000), &MemoryStore::default(), false).await;
    let (requests, cuts) = (model.requests(), cuts(&rig).await);
    let begins = |pair: &[turnbuckle::model::Request]| pair[1].messages.starts_with(&pair[0].messages);
    let moved = requests.windows(2).filter(|pair| !begins(pair)).count();
    // The first turn's answer and the message behind it are one more.
    assert!(moved <= cuts.len() + 1, "{moved} of {} moved, and there were {} cuts", requests.len(), cuts.len());
    assert!(cuts.len() < requests.len() / 10, "{} cuts for {} calls", cuts.len(), requests.len());
}

#[tokio::test]
async fn a_long_turn_that_new_processes_carry_on_sends_what_a_live_one_would_and_why_can_rebuild_it() {
    let mut sent = Vec::new();
    for fresh in [false, true] {
        let (model, store) = (script(), MemoryStore::default());
        let (rig, ended) = run(|| agent(&model, 6_000), &store, fresh).await;
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
        let requests: Vec<_> = model.requests().iter().map(|request| request.messages.clone()).collect();
        let (log, cuts) = (store.log(&rig.id, 1, usize::MAX).await.unwrap(), cuts(&rig).await);
        assert!(cuts.iter().filter(|cut| cut.steps > 0).count() > 4);
        let rebuilt = crate::kit::rebuilt(&log, &cuts);
        assert_eq!(rebuilt.len(), requests.len());
        for ((call, messages), request) in rebuilt.iter().zip(&requests) {
            assert_eq!(**messages, **request, "call {} of {}", call.number, call.turn);
            assert_eq!(call.messages, request.len());
        }
        sent.push(requests);
    }
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test]
async fn the_cuts_of_a_long_turn_break_the_cache_in_its_calls_and_are_no_reason_for_a_warning() {
    let (model, store) = (script(), MemoryStore::default());
    let (rig, ended) = run(|| agent(&model, 6_000), &store, false).await;
    let (breaks, cuts) = (store.cache_breaks(&rig.id).await.unwrap(), cuts(&rig).await);
    assert!(breaks.len() > 4 && breaks.len() <= cuts.len(), "{} breaks, {} cuts", breaks.len(), cuts.len());
    for found in &breaks {
        let is_right = matches!(found.segment, Segment::History | Segment::Calls);
        assert!(is_right && matches!(found.cause, BreakCause::Reducers { .. }), "{}", found.summary());
    }
    assert!(breaks.iter().skip(1).all(|found| found.segment == Segment::Calls));
    assert!(ended.warnings.is_empty(), "{:?}", ended.warnings);
}

#[tokio::test]
async fn what_a_long_turn_leaves_out_is_told_traced_and_found() {
    let (model, store) = (script(), MemoryStore::default());
    let (rig, _) = run(|| agent(&model, 6_000).tool(SearchHistory::default()), &store, false).await;
    let told: u32 = rig.told().iter().fold(0, |sum, told| match &told.item {
        FeedItem::Live(LiveEvent::Compacted { steps, .. }) => sum + steps,
        _ => sum,
    });
    let cuts = cuts(&rig).await;
    let last = cuts.last().unwrap();
    assert_eq!(told, cuts.iter().map(|cut| cut.steps).sum::<u32>());
    assert_eq!((last.left_out.len(), last.left_out[0].steps), (1, told), "one entry, which grows");
    assert!(said(&model.requests().last().unwrap().messages).contains("search_history finds what is not shown"));
    let log = rig.log().await.unwrap();
    let trace = turnbuckle::trace::trace_with_times(&log, &cuts);
    assert_eq!(trace.matches("steps of the open turn left out").count(), cuts.len(), "{trace}");
    let sent: Vec<_> = model.requests().iter().map(|request| request.messages.len()).collect();
    let traced: Vec<usize> =
        trace.lines().filter_map(|line| line.strip_prefix("build     ")?.split(' ').next()?.parse().ok()).collect();
    assert_eq!(traced, sent, "the trace counts the messages that were sent");
}

#[tokio::test]
async fn a_stop_hook_judges_calls_that_contexts_do_not_show_any_more() {
    let model = script();
    let make = || {
        let all = stop("all", |turn: OnStopContext| async move {
            let (looks, ok) = (turn.tool_trace().len(), turn.tool_trace().iter().all(|one| one.ok));
            let first = turn.tool_trace().first().map(|one| (one.arguments["n"].clone(), one.content.text()));
            let is_whole = looks == CALLS && ok && first.is_some_and(|(n, text)| n == 0 && text.starts_with("stone 0"));
            let is_greeting = turn.user_message().text() == "hello";
            Ok(if is_whole || is_greeting { OnStop::Accept } else { OnStop::Prevent(format!("{looks} calls").into()) })
        });
        agent(&model, 6_000).hook(all)
    };
    let (_, ended) = run(make, &MemoryStore::default(), true).await;
    assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
}

#[tokio::test]
async fn a_note_about_steps_leaves_with_its_turn_and_is_no_injection_of_a_hook() {
    let (model, store) = (script(), MemoryStore::default());
    let (mut rig, _) = run(|| agent(&model, 6_000), &store, true).await;
    assert_eq!(rig.ended("thanks").await.unwrap().outcome, Outcome::Failed, "the script has no more");
    let log = rig.log().await.unwrap();
    assert!(!log.iter().any(|event| matches!(event.kind, EventKind::Injection { .. })), "the log has no notes");
}
