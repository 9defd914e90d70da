//! Observers: what their failures mean, and that telling of them has an end.

use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hook::{HookEntry, HookExt, OnFailure, Point, observe};
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxError, Outcome};

/// Fails at every event that `when` picks.
fn failing(name: &str, when: fn(&FeedItem) -> bool) -> HookEntry {
    let watch = move |told: FeedEvent| async move {
        if when(&told.item) { Err(BoxError::from("no more paper")) } else { Ok(()) }
    };
    observe(name, watch).into()
}

fn is_reply(what: &FeedItem) -> bool {
    matches!(what, FeedItem::Log(event) if matches!(event.kind, EventKind::AssistantMessage { .. }))
}

fn is_end(what: &FeedItem) -> bool {
    matches!(what, FeedItem::Log(event) if matches!(event.kind, EventKind::TurnEnded(_)))
}

fn told_failures(rig: &Rig) -> Vec<String> {
    let failed = |told: &FeedEvent| match &told.item {
        FeedItem::Live(LiveEvent::HookFinished { hook, point: Point::OnEvent, error: Some(error), .. }) => {
            Some(format!("{hook}: {error}"))
        }
        _ => None,
    };
    rig.told().iter().filter_map(failed).collect()
}

#[tokio::test]
async fn an_observer_that_blocks_ends_the_turn_it_failed_in() {
    let hook = failing("printer", is_reply).on_failure(OnFailure::Block);
    let mut rig = Rig::new(Agent::builder("a", Script::says(["one", "two"])).hook(hook).build().unwrap());
    for _ in 0..2 {
        let ended = rig.ended("hi").await.unwrap();
        assert_eq!(ended.outcome, Outcome::Failed);
        assert_eq!(ended.reason.as_deref(), Some("hook printer failed at on_event: no more paper"));
    }
}

#[tokio::test]
async fn a_failure_at_the_very_end_neither_changes_it_nor_blocks_the_next_turn() {
    let hook = failing("printer", is_end).on_failure(OnFailure::Block);
    let mut rig = Rig::new(Agent::builder("a", Script::says(["one", "two"])).hook(hook).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "one");
    assert_eq!(rig.ended("hi").await.unwrap().text(), "two");
    rig.settle().await;
    assert_eq!(told_failures(&rig), ["printer: no more paper"; 2]);
}

#[tokio::test]
async fn failures_that_are_ignored_are_told_once_a_turn_also_of_observers_that_fail_at_each_other() {
    let agent = Agent::builder("a", Script::says(["one", "two"]));
    let agent = agent.hook(failing("left", |_| true)).hook(failing("right", |_| true)).build().unwrap();
    let mut rig = Rig::new(agent);
    assert_eq!(rig.ended("hi").await.unwrap().text(), "one");
    rig.settle().await;
    let (first, mut of_each) = (told_failures(&rig), Vec::new());
    for hook in ["left", "right"] {
        of_each.push(first.iter().filter(|failure| failure.starts_with(hook)).count());
    }
    // Once in the turn, and once for what is told between turns.
    assert!(of_each.iter().all(|count| (1..=2).contains(count)), "{first:?}");
}
