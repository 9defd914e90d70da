//! Circuit breakers: open, half-open, closed, and told.

use std::time::Duration;

use turnbuckle::hook::HookExt;
use turnbuckle::hooks::ConfigHook;
use turnbuckle::hooks::HumanDuration;
use turnbuckle::hooks::WrappedCalls;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome, Scope};
use turnbuckle_hooks::CircuitBreaker;
use turnbuckle_hooks::circuit_breaker::CircuitBreakerOptions;

use super::kit::{Act, Puppet, add, adding, begin, end, notices, settle, turn_of};

fn options() -> CircuitBreakerOptions {
    CircuitBreakerOptions { failures: 2, open_for: HumanDuration::secs(10), ..CircuitBreakerOptions::default() }
}

fn rig(model: &Puppet) -> Rig {
    let breaker = CircuitBreaker::new(options()).unwrap().entry("breaker".into());
    Rig::new(Agent::builder("a", model.clone()).hook(breaker).build().unwrap())
}

#[tokio::test]
async fn after_failures_in_a_row_the_model_is_left_alone_then_probed_then_used_again() {
    let model = Puppet::new([Act::Fails(500), Act::Fails(429), Act::Fails(503), Act::Says("back")]);
    let mut rig = rig(&model);
    rig.ended("1").await.unwrap();
    rig.ended("2").await.unwrap();
    let refused = rig.ended("3").await.unwrap();
    assert!(refused.reason.unwrap().contains("the circuit of model puppet is open for another 10s"));
    assert_eq!(model.calls(), 2, "the model was left alone");
    rig.clock.advance(Duration::from_secs(10));
    rig.ended("probe fails").await.unwrap();
    assert_eq!(model.calls(), 3);
    assert!(!rig.ended("open again").await.unwrap().is_completed());
    assert_eq!(model.calls(), 3);
    rig.clock.advance(Duration::from_secs(10));
    assert_eq!(rig.ended("probe works").await.unwrap().text(), "back");
    assert_eq!(rig.ended("closed").await.unwrap().text(), "back");
    let open = "breaker: the circuit of model puppet is open for 10s: it keeps failing";
    let closed = "breaker: the circuit of model puppet is closed: it answers again";
    assert_eq!(notices(rig.told()), [open, open, closed]);
}

#[tokio::test]
async fn a_success_between_failures_keeps_it_closed() {
    let model = Puppet::new([Act::Fails(500), Act::Says("ok"), Act::Fails(500), Act::Says("ok")]);
    let rig = rig(&model);
    for _ in 0..4 {
        turn_of(&rig, "ann", "hi").await;
    }
    assert_eq!(model.calls(), 4);
}

#[tokio::test]
async fn a_bad_request_says_nothing_about_the_model() {
    let model = Puppet::new([Act::Fails(400)]);
    let rig = rig(&model);
    for _ in 0..5 {
        turn_of(&rig, "ann", "hi").await;
    }
    assert_eq!(model.calls(), 5);
}

#[tokio::test]
async fn one_probe_at_a_time_and_a_cancelled_one_gives_its_place_back() {
    let model = Puppet::new([Act::Fails(500), Act::Fails(500), Act::HangsAfter("…"), Act::Says("back")]);
    let rig = rig(&model);
    turn_of(&rig, "ann", "1").await;
    turn_of(&rig, "ann", "2").await;
    rig.clock.advance(Duration::from_secs(10));
    let probe = begin(&rig, "talk_1", "probe").await;
    settle().await;
    assert!(!turn_of(&rig, "ann", "beside the probe").await.is_completed());
    assert_eq!(model.calls(), 3);
    rig.conversations.cancel(&"talk_1".into(), Scope::local()).await.unwrap();
    assert_eq!(end(probe).await.outcome, Outcome::Cancelled);
    assert_eq!(turn_of(&rig, "ann", "another probe").await.text(), "back");
}

#[tokio::test]
async fn a_clock_that_went_back_does_not_keep_a_circuit_open_for_ever() {
    let model = Puppet::new([Act::Fails(500), Act::Fails(500), Act::Says("back")]);
    let breaker = CircuitBreaker::new(options()).unwrap();
    let agent = Agent::builder("a", model.clone()).hook(breaker).build().unwrap();
    let late = Rig::new(agent.clone());
    late.clock.advance(Duration::from_secs(1_000_000));
    turn_of(&late, "ann", "1").await;
    turn_of(&late, "ann", "2").await;
    let early = Rig::new(agent);
    assert!(!turn_of(&early, "ann", "3").await.is_completed());
    early.clock.advance(Duration::from_secs(10));
    assert_eq!(turn_of(&early, "ann", "4").await.text(), "back");
}

#[tokio::test]
async fn tools_have_circuits_too() {
    let options = CircuitBreakerOptions { failures: 1, around: WrappedCalls::ToolCalls, ..options() };
    let breaker = CircuitBreaker::new(options).unwrap().named("breaker");
    let agent = Agent::builder("a", adding(13, "done")).tool(add()).hook(breaker).build().unwrap();
    let first = Rig::new(agent.clone()).trace("hi").await;
    assert!(first.contains("unlucky"), "{first}");
    let second = Rig::new(agent).trace("hi").await;
    assert!(second.contains("the circuit of tool add is open"), "{second}");
}
