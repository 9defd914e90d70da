//! The cache: what was answered is answered again, and nothing broken is ever kept.

use std::sync::Arc;
use std::time::Duration;

use turnbuckle::Agent;
use turnbuckle::event::EventKind;
use turnbuckle::feed::FeedItem;
use turnbuckle::hooks::{Fallback, HumanDuration};
use turnbuckle::model::Model;
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle_hooks::cache::CacheOptions;
use turnbuckle_hooks::{Cache, Redact};

use super::kit::{Act, Puppet, add, begin, end, pieces, settle, turn_of};

fn cache(options: CacheOptions) -> Cache {
    Cache::new(options).unwrap()
}

fn rig(model: &Puppet, cache: Cache) -> Rig {
    Rig::new(Agent::builder("a", model.clone()).hook(cache).build().unwrap())
}

#[tokio::test]
async fn the_same_request_is_answered_from_memory_in_the_same_pieces() {
    let model = Puppet::new([Act::Chunks(&["Hel", "lo"]), Act::Says("another")]);
    let agent = Agent::builder("a", model.clone()).hook(cache(CacheOptions::default())).build().unwrap();
    Rig::new(agent.clone()).ended("hi").await.unwrap();
    let mut again = Rig::new(agent);
    let ended = again.ended("hi").await.unwrap();
    assert_eq!((ended.text().as_str(), model.calls()), ("Hello", 1));
    assert_eq!(pieces(again.told()), ["Hel", "lo"]);
    assert_eq!(ended.usage.total(), 0, "nothing was spent on it");
}

#[tokio::test]
async fn a_reply_from_memory_names_the_model_that_once_gave_it() {
    let broken = Puppet::new([Act::Fails(500)]);
    let other: Arc<dyn Model> = Arc::new(Script::says(["", "the second call"]));
    let agent = Agent::builder("a", broken.clone()).hook(cache(CacheOptions::default()));
    let agent = agent.hook(Fallback::to([other]).unwrap()).build().unwrap();
    for _ in 0..2 {
        let mut rig = Rig::new(agent.clone());
        rig.ended("hi").await.unwrap();
        let models = rig.told().iter().filter_map(|told| match &told.item {
            FeedItem::Log(event) => match &event.kind {
                EventKind::AssistantMessage { model, .. } => Some(model.as_deref().map(str::to_owned)),
                _ => None,
            },
            FeedItem::Live(_) => None,
        });
        assert_eq!(models.collect::<Vec<_>>(), [Some("script".to_owned())]);
    }
    assert_eq!(broken.calls(), 1, "the second answer came from memory");
}

#[tokio::test]
async fn a_reply_from_memory_is_streamed_and_passes_the_transformers() {
    let model = Puppet::new([Act::Chunks(&["ann@exam", "ple.com", " is", " hers"])]);
    let agent = Agent::builder("a", model.clone()).hook(cache(CacheOptions::default()));
    let agent = agent.hook(Redact::standard().unwrap()).build().unwrap();
    let first = Rig::new(agent.clone()).ended("hi").await.unwrap();
    let mut again = Rig::new(agent);
    let second = again.ended("hi").await.unwrap();
    assert_eq!(model.calls(), 1);
    assert_eq!((first.text().as_str(), second.text().as_str()), ("[email] is hers", "[email] is hers"));
    assert!(pieces(again.told()).len() > 1, "in pieces: {:?}", pieces(again.told()));
}

#[tokio::test]
async fn another_question_another_system_prompt_or_another_user_is_another_request() {
    let model = Puppet::new([Act::Says("first"), Act::Says("second"), Act::Says("third")]);
    let rig = rig(&model, cache(CacheOptions { per_user: true, ..CacheOptions::default() }));
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "first");
    assert_eq!(turn_of(&rig, "ann", "hello").await.text(), "second");
    assert_eq!(turn_of(&rig, "bob", "hi").await.text(), "third");
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "first");
    assert_eq!(model.calls(), 3);
}

#[tokio::test]
async fn a_reply_is_good_until_its_time_is_over() {
    let model = Puppet::new([Act::Says("old"), Act::Says("new")]);
    let rig = rig(&model, cache(CacheOptions { ttl: HumanDuration::secs(60), ..CacheOptions::default() }));
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "old");
    rig.clock.advance(Duration::from_secs(59));
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "old");
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "new");
}

#[tokio::test]
async fn a_clock_that_went_back_makes_no_entry_live_longer() {
    let model = Puppet::new([Act::Says("old"), Act::Says("new")]);
    let agent = Agent::builder("a", model.clone()).hook(cache(CacheOptions::default())).build().unwrap();
    let late = Rig::new(agent.clone());
    late.clock.advance(Duration::from_secs(1_000_000));
    turn_of(&late, "ann", "hi").await;
    // The same hook in conversations whose clock is a million seconds behind.
    assert_eq!(turn_of(&Rig::new(agent), "ann", "hi").await.text(), "new");
}

#[tokio::test]
async fn a_cancelled_stream_is_never_kept() {
    let model = Puppet::new([Act::HangsAfter("half of a"), Act::Says("whole")]);
    let rig = rig(&model, cache(CacheOptions::default()));
    let handle = begin(&rig, "talk_1", "hi").await;
    settle().await;
    rig.conversations.cancel(&"talk_1".into(), turnbuckle::Scope::local()).await.unwrap();
    assert_eq!(end(handle).await.outcome, turnbuckle::Outcome::Cancelled);
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "whole");
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "whole");
    assert_eq!(model.calls(), 2);
}

#[tokio::test]
async fn a_stream_that_broke_is_never_kept() {
    let model = Puppet::new([Act::BreaksAfter("half"), Act::Fails(500), Act::Says("whole")]);
    let rig = rig(&model, cache(CacheOptions::default()));
    assert!(!turn_of(&rig, "ann", "hi").await.is_completed());
    assert!(!turn_of(&rig, "ann", "hi").await.is_completed());
    assert_eq!(turn_of(&rig, "ann", "hi").await.text(), "whole");
}

#[tokio::test]
async fn the_least_used_goes_when_there_is_no_room_and_what_never_fits_is_not_kept() {
    let long: &'static str = Box::leak("x".repeat(2_000).into_boxed_str());
    let huge: &'static str = Box::leak("y".repeat(50_000).into_boxed_str());
    let model = Puppet::new([Act::Says(long), Act::Says(long), Act::Says(huge), Act::Says("again")]);
    let rig = rig(&model, cache(CacheOptions { max_bytes: 6_000, ..CacheOptions::default() }));
    turn_of(&rig, "ann", "one").await;
    turn_of(&rig, "ann", "two").await;
    turn_of(&rig, "ann", "huge").await;
    turn_of(&rig, "ann", "one").await;
    assert_eq!(model.calls(), 3, "one and two are still there");
    assert_eq!(turn_of(&rig, "ann", "huge").await.text(), "again");
}

#[tokio::test]
async fn a_reply_that_calls_a_tool_is_kept_and_the_tool_runs_again() {
    let model = Puppet::new([Act::Adds(2, 2), Act::Says("4")]);
    let agent = Agent::builder("a", model.clone()).tool(add()).hook(cache(CacheOptions::default())).build().unwrap();
    for _ in 0..2 {
        let mut rig = Rig::new(agent.clone());
        let trace = rig.trace("2+2?").await;
        assert!(trace.contains("dispatch  add(2, 2) = 4"), "{trace}");
    }
    assert_eq!(model.calls(), 2, "both replies came from memory the second time");
}
