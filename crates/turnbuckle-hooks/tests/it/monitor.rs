//! The monitor: changes when a number is above its limit, says which number, and goes back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnbuckle::hook::{HookEntry, Point};
use turnbuckle::hooks::{ConfigHook, HumanDuration, WrappedCalls};
use turnbuckle::message::{StopReason, Usage};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxFuture, Outcome, Reply, Scope};
use turnbuckle_hooks::Monitor;
use turnbuckle_hooks::monitor::MonitorOptions;

use super::kit::{Act, Puppet, begin, built, end, notices, settle, turn_of};

fn options() -> MonitorOptions {
    let (window, hold) = (HumanDuration::secs(1000), HumanDuration::secs(60));
    MonitorOptions { window, hold, min_calls: 2, ..Default::default() }
}

fn rig(model: impl Model, options: MonitorOptions, fallback: Option<&Puppet>) -> Rig {
    let fallback = fallback.map(|model| Arc::new(model.clone()) as Arc<dyn Model>);
    let monitor = Monitor::new(options, fallback).unwrap().entry("watch".into());
    Rig::new(Agent::builder("a", model).hook(monitor).build().unwrap())
}

#[tokio::test]
async fn too_many_errors_lead_to_the_fallback_and_back_when_it_is_well() {
    let model = Puppet::new([Act::Fails(500), Act::Fails(500), Act::Says("main")]);
    let backup = Puppet::new([Act::Says("backup")]);
    let mut rig = rig(model.clone(), MonitorOptions { max_error_rate: Some(0.5), ..options() }, Some(&backup));
    rig.ended("1").await.unwrap();
    rig.ended("2").await.unwrap();
    assert_eq!(rig.ended("3").await.unwrap().text(), "backup");
    assert_eq!(rig.ended("4").await.unwrap().text(), "backup");
    rig.clock.advance(Duration::from_secs(60));
    assert_eq!(rig.ended("5").await.unwrap().text(), "backup", "well for long enough: it is the last one");
    assert_eq!(rig.ended("6").await.unwrap().text(), "main");
    assert_eq!(
        notices(rig.told()),
        [
            "watch: error rate 100 % (limit 50 %) over 2 calls in 16m 40s: model calls go to the fallback model",
            "watch: error rate 0 % (limit 50 %) over 3 calls in 16m 40s: model calls go to the agent's model again"
        ]
    );
}

/// Takes two seconds of the paused clock, costs a dollar, or refuses.
#[derive(Clone)]
struct Odd {
    clock: Arc<std::sync::OnceLock<turnbuckle::testing::PausedClock>>,
    fast: Arc<std::sync::atomic::AtomicBool>,
    reason: StopReason,
}

impl Model for Odd {
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        if let Some(clock) = self.clock.get()
            && !self.fast.load(std::sync::atomic::Ordering::Relaxed)
        {
            clock.advance(Duration::from_secs(2));
        }
        let usage = Usage { input: 1, ..Usage::default() };
        Box::pin(async move { Ok(Reply { usage, stop_reason: self.reason, ..Reply::text("odd") }) })
    }
    fn price(&self, _: &Usage) -> Option<f64> {
        Some(1.0)
    }
}

fn odd(reason: StopReason) -> Odd {
    Odd { clock: Arc::default(), fast: Arc::default(), reason }
}

#[tokio::test]
async fn calls_that_take_too_long_lower_the_concurrency_step_by_step_to_its_floor() {
    let model = odd(StopReason::End);
    let options = MonitorOptions {
        max_latency: Some(HumanDuration::secs(1)),
        concurrency: Some(8),
        min_concurrency: 3,
        hold: HumanDuration::secs(1),
        ..options()
    };
    let mut rig = rig(model.clone(), options, None);
    model.clock.set(rig.clock.clone()).ok().unwrap();
    for _ in 0..10 {
        rig.ended("hi").await.unwrap();
    }
    assert_eq!(
        notices(rig.told()),
        [
            "watch: average latency 2s (limit 1s) over 2 calls in 16m 40s: at most 4 model calls run at once",
            "watch: average latency 2s (limit 1s) over 2 calls in 16m 40s: at most 3 model calls run at once"
        ]
    );
}

#[tokio::test]
async fn what_costs_too_much_gets_a_tighter_budget() {
    let options = MonitorOptions { max_cost: Some(1.5), budget: Some(2), min_budget: 1, ..options() };
    let mut rig = rig(odd(StopReason::End), options, None);
    rig.ended("1").await.unwrap();
    rig.ended("2").await.unwrap();
    let told = "watch: cost $2.00 (limit $1.50) over 2 calls in 16m 40s: a turn may make at most 1 model calls";
    assert_eq!(notices(rig.told()), [told]);
    assert!(rig.ended("3").await.unwrap().is_completed(), "one call is still allowed");
}

#[tokio::test]
async fn a_turn_beyond_the_budget_ends_exhausted() {
    let model = Puppet::new([Act::Adds(1, 1)]);
    let monitor = Monitor::new(MonitorOptions { budget: Some(3), ..options() }, None).unwrap();
    let agent = Agent::builder("a", model.clone()).tool(super::kit::add()).hook(monitor).build().unwrap();
    let Err(turnbuckle::RunError::NotCompleted(ended)) = agent.run("loop").await else { panic!("it completed") };
    assert_eq!((ended.outcome, model.calls()), (Outcome::Exhausted, 3));
}

#[tokio::test]
async fn refusals_of_the_model_and_refused_stops_count() {
    let backup = Puppet::new([Act::Says("backup")]);
    let options = MonitorOptions { max_refusal_rate: Some(0.5), ..options() };
    let rig = rig(odd(StopReason::Refusal), options, Some(&backup));
    turn_of(&rig, "ann", "1").await;
    turn_of(&rig, "ann", "2").await;
    assert_eq!(turn_of(&rig, "ann", "3").await.text(), "backup");
}

#[tokio::test]
async fn refused_stops_count_as_refusals() {
    let model = Puppet::new([Act::Says("main")]);
    let backup = Arc::new(Puppet::new([Act::Says("backup")]));
    let options = MonitorOptions { max_refusal_rate: Some(0.3), ..options() };
    let never = turnbuckle::hook::stop("never", |turn: turnbuckle::hook::OnStopContext| async move {
        Ok(if turn.stop_active() {
            turnbuckle::hook::OnStop::Accept
        } else {
            turnbuckle::hook::OnStop::Refuse("more".into())
        })
    });
    let agent = Agent::builder("a", model).hook(never).hook(Monitor::new(options, Some(backup)).unwrap());
    let mut rig = Rig::new(agent.build().unwrap());
    for _ in 0..2 {
        rig.ended("hi").await.unwrap();
    }
    assert_eq!(rig.ended("hi").await.unwrap().text(), "backup");
}

#[tokio::test]
async fn calls_beyond_the_concurrency_wait_and_a_cancelled_one_makes_room() {
    let model = Puppet::new([Act::HangsAfter("…"), Act::Says("mine")]);
    let rig = rig(model.clone(), MonitorOptions { concurrency: Some(1), ..options() }, None);
    let first = begin(&rig, "talk_1", "hi").await;
    settle().await;
    let second = begin(&rig, "talk_2", "hi").await;
    settle().await;
    assert_eq!(model.calls(), 1);
    rig.conversations.cancel(&"talk_1".into(), Scope::local()).await.unwrap();
    assert_eq!(end(first).await.outcome, Outcome::Cancelled);
    assert_eq!(end(second).await.text(), "mine");
}

#[tokio::test]
async fn a_clock_that_went_back_changes_nothing_for_ever() {
    let model = Puppet::new([Act::Fails(500)]);
    let backup = Puppet::new([Act::Says("backup")]);
    let monitor =
        Monitor::new(MonitorOptions { max_error_rate: Some(0.5), ..options() }, Some(Arc::new(backup))).unwrap();
    let agent = Agent::builder("a", model).hook(monitor).build().unwrap();
    let late = Rig::new(agent.clone());
    late.clock.advance(Duration::from_secs(1_000_000));
    turn_of(&late, "ann", "1").await;
    let early = Rig::new(agent);
    turn_of(&early, "ann", "2").await;
    assert!(!turn_of(&early, "ann", "3").await.is_completed(), "the sample from the future does not count");
    assert_eq!(turn_of(&early, "ann", "4").await.text(), "backup");
    turn_of(&early, "ann", "5").await;
    early.clock.advance(Duration::from_secs(60));
    turn_of(&early, "ann", "6").await;
    assert!(!turn_of(&early, "ann", "7").await.is_completed(), "and the way back is not blocked either");
}

#[tokio::test]
async fn concurrency_goes_back_step_by_step_when_calls_are_fast_again() {
    let model = odd(StopReason::End);
    let options = MonitorOptions { max_latency: Some(HumanDuration::secs(1)), concurrency: Some(8), ..options() };
    let mut rig = rig(model.clone(), MonitorOptions { hold: HumanDuration::secs(4), ..options }, None);
    model.clock.set(rig.clock.clone()).ok().unwrap();
    for _ in 0..4 {
        rig.ended("slow").await.unwrap();
    }
    model.fast.store(true, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..6 {
        rig.clock.advance(Duration::from_secs(2));
        rig.ended("fast").await.unwrap();
    }
    let told: Vec<String> =
        notices(rig.told()).iter().map(|text| text.rsplit(": ").next().unwrap().to_owned()).collect();
    let runs = [4, 2, 4, 8].map(|calls| format!("at most {calls} model calls run at once"));
    assert_eq!(told, runs);
}

#[tokio::test]
async fn rows_of_the_table_do_not_depend_on_each_other() {
    // Too dear for good, with nothing to be done about it: the fallback is left again all the same.
    let model = Puppet::new([Act::Fails(500), Act::Fails(500), Act::Says("main")]);
    let backup = Puppet::new([Act::Says("backup")]);
    let options = MonitorOptions {
        max_error_rate: Some(0.5),
        max_latency: Some(HumanDuration::secs(1)),
        max_cost: Some(0.1),
        ..options()
    };
    let mut rig = rig(model, options, Some(&backup));
    for _ in 0..4 {
        rig.ended("hi").await.unwrap();
    }
    rig.clock.advance(Duration::from_secs(60));
    rig.ended("hi").await.unwrap();
    assert_eq!(rig.ended("hi").await.unwrap().text(), "main");
    assert_eq!(notices(rig.told()).len(), 2, "{:?}", notices(rig.told()));
}

#[tokio::test]
async fn a_limit_with_nothing_to_change_is_announced_once_and_when_it_holds_again() {
    let model = Puppet::new([Act::Fails(500), Act::Fails(500), Act::Fails(500), Act::Says("main")]);
    let mut rig = rig(model, MonitorOptions { max_error_rate: Some(0.5), ..options() }, None);
    for _ in 0..5 {
        rig.ended("hi").await.unwrap();
        rig.clock.advance(Duration::from_secs(60));
    }
    let told: Vec<String> = notices(rig.told());
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].ends_with("error rate 100 % (limit 50 %) over 2 calls in 16m 40s: above the limit"), "{told:?}");
    assert!(told[1].ends_with(": within the limit again"), "{told:?}");
}

#[test]
fn only_limits_that_need_events_observe_them() {
    let points = |options: serde_json::Value| HookEntry::from(built::<Monitor>(options).unwrap()).points();
    assert!(points(json!({"max_error_rate": 0.5})).iter().eq([Point::WrapModelCall]));
    assert!(points(json!({"max_refusal_rate": 0.5})).iter().eq([Point::WrapModelCall, Point::OnEvent]));
}

#[test]
fn bad_options_are_refused() {
    for (options, word) in [
        (json!({"max_error_rate": 1.1}), "max_error_rate"),
        (json!({"max_refusal_rate": -1}), "max_refusal_rate"),
        (json!({"max_cost": 0}), "max_cost"),
        (json!({"max_latency": "0s"}), "max_latency"),
        (json!({"min_calls": 0}), "min_calls"),
        (json!({"concurrency": 2, "min_concurrency": 3}), "min_concurrency"),
        (json!({"budget": 2, "min_budget": 0}), "min_budget"),
        (json!({"window": "0s"}), "window"),
        (json!({"fallback": "missing"}), "fallback"),
        (json!({"max_errors": 1}), "max_errors"),
    ] {
        let refusal = built::<Monitor>(options).unwrap_err();
        assert!(refusal.contains(word), "{refusal}");
    }
    assert!(built::<Monitor>(json!({})).unwrap_err().contains("nothing would come of watching"));
    for enough in [json!({"max_latency": "5s"}), json!({"concurrency": 2}), json!({"budget": 9, "around": "both"})] {
        built::<Monitor>(enough).unwrap();
    }
}

#[tokio::test]
async fn tools_that_fail_count_where_they_are_watched() {
    for (around, on_fallback) in [(WrappedCalls::ModelCalls, false), (WrappedCalls::Both, true)] {
        let model = Puppet::new([Act::Adds(13, 1), Act::Adds(13, 2), Act::Adds(13, 3), Act::Says("main")]);
        let backup = Arc::new(Puppet::new([Act::Says("backup")]));
        let options = MonitorOptions { max_error_rate: Some(0.3), around, ..options() };
        let monitor = Monitor::new(options, Some(backup)).unwrap();
        let agent = Agent::builder("a", model).tool(super::kit::add()).hook(monitor).build().unwrap();
        let said = Rig::new(agent).ended("go").await.unwrap().text();
        assert_eq!(said == "backup", on_fallback, "{around:?}: {said}");
    }
}
