//! Timeouts: what takes too long is dropped, by the runtime's clock.

use std::time::Duration;

use turnbuckle::hooks::HumanDuration;
use turnbuckle::hooks::WrappedCalls;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome};
use turnbuckle_hooks::Timeout;
use turnbuckle_hooks::timeout::TimeoutOptions;

use super::kit::{Act, Puppet, add, adding, begin, end, pieces};

fn after(secs: u64) -> TimeoutOptions {
    TimeoutOptions { after: HumanDuration::secs(secs), ..TimeoutOptions::default() }
}

#[tokio::test]
async fn a_model_that_hangs_is_dropped_and_its_text_taken_back() {
    let model = Puppet::new([Act::HangsAfter("well, ")]);
    let mut rig = Rig::new(Agent::builder("a", model).hook(Timeout::new(after(10)).unwrap()).build().unwrap());
    let handle = rig.send("hi").await.unwrap();
    rig.clock.pass(Duration::from_secs(10)).await;
    let ended = end(handle).await;
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.reason.unwrap().contains("no reply within 10s"));
    rig.settle().await;
    assert_eq!(pieces(rig.told()), ["well, "]);
    assert!(format!("{:?}", rig.told()).contains("AttemptDiscarded"));
}

#[tokio::test]
async fn a_tool_that_hangs_ends_with_an_error_result_and_the_turn_goes_on() {
    let options = TimeoutOptions { around: WrappedCalls::ToolCalls, ..after(5) };
    let agent = Agent::builder("a", adding(99, "never mind")).tool(add()).hook(Timeout::new(options).unwrap());
    let mut rig = Rig::new(agent.build().unwrap());
    let handle = rig.send("hi").await.unwrap();
    rig.clock.pass(Duration::from_secs(5)).await;
    assert_eq!(end(handle).await.text(), "never mind");
    rig.settle().await;
    assert!(format!("{:?}", rig.told()).contains("no result within 5s"));
}

#[tokio::test]
async fn calls_it_is_not_for_take_their_time() {
    let model = Puppet::new([Act::HangsAfter("")]);
    let for_others = [
        TimeoutOptions { models: vec!["gpt-*".into()], ..after(5) },
        TimeoutOptions { users: vec!["ann".into()], ..after(5) },
        TimeoutOptions { around: WrappedCalls::ToolCalls, ..after(5) },
    ];
    for options in for_others {
        let rig = Rig::new(Agent::builder("a", model.clone()).hook(Timeout::new(options).unwrap()).build().unwrap());
        let handle = begin(&rig, "talk_1", "hi").await;
        rig.clock.pass(Duration::from_secs(5)).await;
        super::kit::settle().await;
        rig.conversations.cancel(&"talk_1".into(), turnbuckle::Scope::local()).await.unwrap();
        assert_eq!(end(handle).await.outcome, Outcome::Cancelled);
    }
}

#[tokio::test]
async fn what_is_in_time_is_left_alone() {
    let model = Puppet::new([Act::Says("quick")]);
    let mut rig = Rig::new(Agent::builder("a", model).hook(Timeout::new(after(1)).unwrap()).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "quick");
}
