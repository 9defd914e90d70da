//! Rate limits: calls are spread over time, and time only counts forward.

use std::time::Duration;

use turnbuckle::Agent;
use turnbuckle::hooks::HumanDuration;
use turnbuckle::hooks::WrappedCalls;
use turnbuckle::testing::Rig;
use turnbuckle_hooks::rate_limit::RateLimitOptions;
use turnbuckle_hooks::{LimitPer, RateLimit};

use super::kit::{Act, Puppet, add, adding, begin, end, settle, turn_of};

fn two_a_minute() -> RateLimitOptions {
    RateLimitOptions { limit: 2, max_wait: HumanDuration::secs(0), ..RateLimitOptions::default() }
}

fn agent(options: RateLimitOptions) -> Agent {
    agent_on(Puppet::new([Act::Says("yes")]), options)
}

fn agent_on(model: Puppet, options: RateLimitOptions) -> Agent {
    Agent::builder("a", model).hook(RateLimit::new(options).unwrap()).build().unwrap()
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_with_the_time_until_the_next() {
    let rig = Rig::new(agent(two_a_minute()));
    assert!(turn_of(&rig, "ann", "1").await.is_completed());
    assert!(turn_of(&rig, "ann", "2").await.is_completed());
    let refused = turn_of(&rig, "ann", "3").await;
    let reason = refused.reason.unwrap();
    assert!(reason.contains("model puppet") && reason.contains("30s"), "{reason}");
    rig.clock.advance(Duration::from_secs(30));
    assert!(turn_of(&rig, "ann", "4").await.is_completed());
    assert!(!turn_of(&rig, "ann", "5").await.is_completed(), "one came free, not two");
}

#[tokio::test]
async fn a_call_waits_as_long_as_it_may() {
    let model = Puppet::new([Act::Says("yes")]);
    let options = RateLimitOptions { max_wait: HumanDuration::secs(30), burst: Some(1), ..two_a_minute() };
    let rig = Rig::new(agent_on(model.clone(), options));
    assert!(turn_of(&rig, "ann", "1").await.is_completed());
    let waiting = begin(&rig, "talk_1", "2").await;
    settle().await;
    assert_eq!(model.calls(), 1, "it waits");
    rig.clock.pass(Duration::from_secs(30)).await;
    assert!(end(waiting).await.is_completed());
}

#[tokio::test]
async fn users_may_have_limits_of_their_own() {
    let rig = Rig::new(agent(RateLimitOptions { limit: 1, per: vec![LimitPer::User], ..two_a_minute() }));
    assert!(turn_of(&rig, "ann", "1").await.is_completed());
    assert!(!turn_of(&rig, "ann", "2").await.is_completed());
    assert!(turn_of(&rig, "bob", "1").await.is_completed());
}

#[tokio::test]
async fn a_tool_beyond_its_limit_answers_with_an_error_result() {
    let options = RateLimitOptions { limit: 1, around: WrappedCalls::ToolCalls, ..two_a_minute() };
    let agent = Agent::builder("a", adding(1, "done")).tool(add()).hook(RateLimit::new(options).unwrap());
    let agent = agent.build().unwrap();
    let mut first = Rig::new(agent.clone());
    assert!(first.trace("hi").await.contains("add(1, 2) = 3"));
    let mut second = Rig::new(agent);
    let trace = second.trace("hi").await;
    assert!(trace.contains("the rate limit for tool add is reached"), "{trace}");
    assert!(trace.contains("completed"), "{trace}");
}

#[tokio::test]
async fn a_clock_that_goes_back_gives_nobody_a_call_and_takes_none_away() {
    let agent = agent(two_a_minute());
    let late = Rig::new(agent.clone());
    late.clock.advance(Duration::from_secs(1_000));
    assert!(turn_of(&late, "ann", "1").await.is_completed());
    let early = Rig::new(agent);
    assert!(turn_of(&early, "ann", "2").await.is_completed(), "the burst of two is still there");
    assert!(!turn_of(&early, "ann", "3").await.is_completed(), "and no more");
    late.clock.advance(Duration::from_secs(30));
    assert!(turn_of(&late, "ann", "4").await.is_completed());
}
