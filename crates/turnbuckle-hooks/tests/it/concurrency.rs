//! Concurrency: so many at once, the others in line; whoever leaves makes room.

use std::time::Duration;

use turnbuckle::hooks::HumanDuration;
use turnbuckle::hooks::WrappedCalls;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome, Scope};
use turnbuckle_hooks::concurrency::ConcurrencyOptions;
use turnbuckle_hooks::{Concurrency, LimitPer};

use super::kit::{Act, Puppet, add, adding, begin, begin_as, end, settle};

fn rig(model: &Puppet, options: ConcurrencyOptions) -> Rig {
    Rig::new(Agent::builder("a", model.clone()).hook(Concurrency::new(options).unwrap()).build().unwrap())
}

fn one() -> ConcurrencyOptions {
    ConcurrencyOptions { limit: 1, ..ConcurrencyOptions::default() }
}

#[tokio::test]
async fn a_second_call_waits_until_the_first_is_over() {
    let model = Puppet::new([Act::HangsAfter("…"), Act::Says("mine")]);
    let rig = rig(&model, one());
    let first = begin(&rig, "talk_1", "hi").await;
    settle().await;
    let second = begin(&rig, "talk_2", "hi").await;
    settle().await;
    assert_eq!(model.calls(), 1, "the second has not reached the model");
    rig.conversations.cancel(&"talk_1".into(), Scope::local()).await.unwrap();
    assert_eq!(end(first).await.outcome, Outcome::Cancelled);
    assert_eq!(end(second).await.text(), "mine");
}

#[tokio::test]
async fn who_waits_too_long_is_told_so_and_the_model_is_not_asked() {
    let model = Puppet::new([Act::HangsAfter("…")]);
    let rig = rig(&model, ConcurrencyOptions { max_wait: HumanDuration::secs(3), ..one() });
    let _first = begin(&rig, "talk_1", "hi").await;
    settle().await;
    let second = begin(&rig, "talk_2", "hi").await;
    rig.clock.pass(Duration::from_secs(3)).await;
    let ended = end(second).await;
    let reason = ended.reason.unwrap();
    assert!(reason.contains("not asked") && reason.contains("model puppet"), "{reason}");
    assert_eq!(model.calls(), 1);
}

#[tokio::test]
async fn whoever_leaves_the_line_does_not_keep_its_place() {
    let model = Puppet::new([Act::HangsAfter("…"), Act::Says("mine")]);
    let rig = rig(&model, one());
    let _first = begin(&rig, "talk_1", "hi").await;
    settle().await;
    let second = begin(&rig, "talk_2", "hi").await;
    settle().await;
    let third = begin(&rig, "talk_3", "hi").await;
    for leaves in ["talk_2", "talk_1"] {
        settle().await;
        rig.conversations.cancel(&leaves.into(), Scope::local()).await.unwrap();
    }
    assert_eq!(end(second).await.outcome, Outcome::Cancelled);
    assert_eq!(end(third).await.text(), "mine");
}

#[tokio::test]
async fn users_may_have_lines_of_their_own() {
    let model = Puppet::new([Act::HangsAfter("…"), Act::Says("bob's")]);
    let rig = rig(&model, ConcurrencyOptions { per: vec![LimitPer::User], ..one() });
    let _ann = begin_as(&rig, "talk_1", "hi", Scope::user("ann")).await;
    settle().await;
    assert_eq!(end(begin_as(&rig, "talk_2", "hi", Scope::user("bob")).await).await.text(), "bob's");
}

#[tokio::test]
async fn tools_have_lines_too() {
    let options = ConcurrencyOptions { around: WrappedCalls::ToolCalls, max_wait: HumanDuration::secs(3), ..one() };
    let agent = |a| {
        let hook = Concurrency::new(options.clone()).unwrap();
        Agent::builder("a", adding(a, "done")).tool(add()).hook(hook).build().unwrap()
    };
    let rig = Rig::new(agent(99));
    let _first = begin(&rig, "talk_1", "hi").await;
    settle().await;
    let second = begin(&rig, "talk_2", "hi").await;
    rig.clock.pass(Duration::from_secs(3)).await;
    assert_eq!(end(second).await.text(), "done");
    let log = rig.conversations.log(&"talk_2".into(), Scope::local()).await.unwrap();
    assert!(format!("{log:?}").contains("1 at once is the limit for tool add"), "{log:?}");
}
