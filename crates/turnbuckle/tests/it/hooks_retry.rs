//! `retry`: what failed for a passing reason is tried again, after a wait, and nothing else is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use turnbuckle::clock::Clock;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::HookExt;
use turnbuckle::hooks::Retry;
use turnbuckle::hooks::WrappedCalls;
use turnbuckle::hooks::retry::RetryOptions;
use turnbuckle::models::{Script, ScriptFault, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::{Effect, Output, Reconcile};
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, ToolCall, Turn, TurnStatus};

fn retry(change: impl FnOnce(&mut RetryOptions)) -> Retry {
    let mut options = RetryOptions::default();
    change(&mut options);
    Retry::new(options).unwrap()
}

/// Runs with the clock moved on while somebody waits; also says how long that was.
async fn ended_in(rig: &mut Rig, step: Duration) -> (turnbuckle::TurnReport, Duration) {
    let handle = rig.send("hi").await.unwrap();
    let clock = rig.clock.clone();
    let passing = async {
        for _ in 0..100_000 {
            tokio::task::yield_now().await;
            if clock.sleepers() > 0 {
                clock.advance(step);
            }
        }
    };
    let rest = tokio::select! {
        rest = rig.follow(handle) => rest,
        () = passing => panic!("it still waits"),
    };
    let Ok(TurnStatus::Ended(ended)) = rest else { panic!("{rest:?}") };
    (*ended, rig.clock.elapsed())
}

async fn ended(agent: AgentBuilder) -> (turnbuckle::TurnReport, Rig, Duration) {
    let mut rig = Rig::new(agent.build().unwrap());
    let (ended, waited) = ended_in(&mut rig, Duration::from_millis(50)).await;
    (ended, rig, waited)
}

fn notices(rig: &Rig) -> Vec<String> {
    let text = |telling: &FeedItem| match telling {
        FeedItem::Live(LiveEvent::Notice { text, .. }) => Some(text.to_string()),
        _ => None,
    };
    rig.told().iter().filter_map(|told| text(&told.item)).collect()
}

#[tokio::test]
async fn an_overloaded_model_is_asked_again_after_a_wait_that_doubles() {
    let script = Script::of([ScriptReply::fails(529), ScriptReply::fails(529), ScriptReply::says("fine")]);
    let (ended, rig, waited) = ended(Agent::builder("a", script).hook(retry(|_| ()))).await;
    assert_eq!((ended.text(), ended.model_calls), ("fine".to_owned(), 3));
    assert!((Duration::from_millis(750)..=Duration::from_millis(1600)).contains(&waited), "{waited:?}");
    assert_eq!(notices(&rig).len(), 2);
    assert!(notices(&rig)[0].starts_with("try 1 of 3 at the model failed, the next in 0."), "{:?}", notices(&rig));
}

#[tokio::test]
async fn after_the_last_try_the_error_goes_on() {
    let script = Script::of([ScriptReply::fails(500), ScriptReply::fails(503), ScriptReply::says("never asked")]);
    let (ended, ..) = ended(Agent::builder("a", script).hook(retry(|options| options.max_attempts = 2))).await;
    assert_eq!(ended.reason.as_deref(), Some("the model answered with status 503: scripted"));
}

#[tokio::test]
async fn a_bad_request_is_not_tried_again() {
    let script = Script::of([ScriptReply::fails(400), ScriptReply::says("never asked")]);
    let (ended, _, waited) = ended(Agent::builder("a", script).hook(retry(|_| ()))).await;
    assert_eq!((ended.model_calls, waited), (1, Duration::ZERO));
}

#[tokio::test]
async fn the_providers_advice_is_kept_to_and_too_long_an_advice_is_not_waited_for() {
    let advised = |seconds: f64| {
        let error = ScriptFault { status: 429, retry_after: Some(seconds), message: "slow down".into() };
        Script::of([ScriptReply { error: Some(error), ..ScriptReply::default() }, ScriptReply::says("fine")])
    };
    let (patient, _, waited) = ended(Agent::builder("a", advised(7.0)).hook(retry(|_| ()))).await;
    assert_eq!((patient.text(), waited), ("fine".to_owned(), Duration::from_secs(7)));
    let (refused, _, waited) = ended(Agent::builder("a", advised(61.0)).hook(retry(|_| ()))).await;
    assert_eq!((refused.is_completed(), waited), (false, Duration::ZERO));
}

#[tokio::test]
async fn a_reply_that_broke_off_is_tried_again_only_if_told_so() {
    let script = || {
        let broken = ScriptReply { fail_after_chunks: Some(1), ..ScriptReply::chunks(["par", "tial"]) };
        Script::of([broken, ScriptReply::says("whole")])
    };
    let (kept, ..) = ended(Agent::builder("a", script()).hook(retry(|_| ()))).await;
    assert!(!kept.is_completed());
    let (again, ..) = ended(Agent::builder("a", script()).hook(retry(|options| options.after_text = true))).await;
    assert_eq!(again.text(), "whole");
}

/// Fails twice, then works; counts its runs.
fn flaky(effect: Effect, runs: &Arc<AtomicU32>) -> FunctionTool {
    let runs = runs.clone();
    function_with_schema("fetch", "Fetches.", json!({"type": "object"}), effect, move |_, _| {
        let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
        async move { if run < 3 { Err::<&str, BoxError>("the line is busy".into()) } else { Ok("fetched") } }
    })
}

async fn fetched(effect: Effect, hook: impl Into<turnbuckle::hook::HookEntry>) -> (u32, Rig) {
    let runs = Arc::default();
    let script = Script::of([ScriptReply::calls("c1", "fetch", json!({})), ScriptReply::says("done")]);
    let (_, rig, _) = ended(Agent::builder("a", script).tool(flaky(effect, &runs)).hook(hook)).await;
    (runs.load(Ordering::Relaxed), rig)
}

#[tokio::test]
async fn a_tool_without_effect_is_tried_again() {
    let (runs, rig) = fetched(Effect::Pure, retry(|_| ())).await;
    assert_eq!(runs, 3);
    expect![[r#"
        accept    "hi"
        build     1 message, 1 tool
        call      fetch()
        dispatch  fetch() = fetched
        build     3 messages, 1 tool
        call      "done"
        end       completed
    "#]]
    .assert_eq(&turnbuckle::trace::trace_told(rig.told(), 1));
}

#[tokio::test]
async fn a_tool_whose_effect_forbids_it_is_not_repeated_unless_it_is_named() {
    for effect in [Effect::Never, Effect::Ask] {
        assert_eq!(fetched(effect.clone(), retry(|_| ())).await.0, 1);
        assert_eq!(fetched(effect, retry(|options| options.repeat = vec!["fet*".into()])).await.0, 3);
    }
}

#[tokio::test]
async fn a_tool_that_can_ask_the_world_asks_before_it_repeats() {
    struct Happened;
    impl Reconcile for Happened {
        fn reconcile<'a>(&'a self, _: &'a Turn, _: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
            Box::pin(async { Ok(Some("it had happened".into())) })
        }
    }
    let (runs, rig) = fetched(Effect::Reconcile(Arc::new(Happened)), retry(|_| ())).await;
    assert_eq!(runs, 1);
    assert!(turnbuckle::trace::trace_told(rig.told(), 1).contains("= it had happened"));
}

#[tokio::test]
async fn it_minds_only_the_calls_and_tools_it_is_for() {
    assert_eq!(fetched(Effect::Pure, retry(|options| options.around = WrappedCalls::ModelCalls)).await.0, 1);
    assert_eq!(fetched(Effect::Pure, retry(|_| ()).for_tools(["f*"])).await.0, 3);
}

#[tokio::test]
async fn error_results_are_answers_unless_it_is_told_otherwise() {
    for (error_results, expected) in [(false, 1), (true, 3)] {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let tool = function_with_schema("look", "", json!({"type": "object"}), Effect::Pure, move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, BoxError>(Output::error("nothing there")) }
        });
        let script = Script::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::says("done")]);
        let hook = retry(|options| options.error_results = error_results);
        ended(Agent::builder("a", script).tool(tool).hook(hook)).await;
        assert_eq!(runs.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test]
async fn turns_that_failed_together_do_not_come_back_together() {
    let mut waits = std::collections::BTreeSet::new();
    for id in ["a", "b", "c", "d", "e"] {
        let script = Script::of([ScriptReply::fails(529), ScriptReply::says("fine")]);
        let mut rig = Rig::new(Agent::builder("a", script).hook(retry(|_| ())).build().unwrap());
        rig.id = id.into();
        waits.insert(ended_in(&mut rig, Duration::from_millis(1)).await.1);
    }
    assert!(waits.len() > 3, "{waits:?}");
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |change: fn(&mut RetryOptions)| {
        let mut options = RetryOptions::default();
        change(&mut options);
        Retry::new(options).unwrap_err().to_string()
    };
    assert_eq!(refused(|options| options.max_attempts = 0), "`max_attempts` must be 1 to 20");
    assert_eq!(refused(|options| options.max_attempts = 21), "`max_attempts` must be 1 to 20");
    let idle = refused(|options| (options.around, options.after_text) = (WrappedCalls::ToolCalls, true));
    assert!(idle.contains("`after_text` is about replies of models, and `around`"), "{idle}");
    let renamed = serde_json::from_str::<RetryOptions>(r#"{"on": ["model"]}"#).unwrap_err().to_string();
    assert!(renamed.contains("unknown field `on`") && renamed.contains("`around`"), "{renamed}");
    assert!(refused(|options| options.max_wait = Duration::ZERO.into()).starts_with("`backoff`"));
}
