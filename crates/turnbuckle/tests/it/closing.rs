//! Closing a conversation: `on_conversation` hooks are told, and what they do is written down.

use std::sync::Arc;
use std::time::Duration;

use turnbuckle::clock::Clock as _;
use turnbuckle::conversation::SendError;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::models::Script;
use turnbuckle::store::LEASE;
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::{Agent, BoxError, Conversations, Scope};

use crate::faulty_store::FaultyStore;
use crate::kit::assert_valid;

/// Says goodbye, and does what it is told.
#[derive(Clone, Copy)]
enum Goodbye {
    Fails,
    Notes,
    Takes(Duration),
}

struct Host(Goodbye, PausedClock);

impl Hook for Host {
    async fn on_conversation(&self, meeting: &mut OnConversationContext) -> Result<(), BoxError> {
        if meeting.lifecycle() != Lifecycle::Ended {
            return Ok(());
        }
        match self.0 {
            Goodbye::Fails => Err("the door is stuck".into()),
            Goodbye::Notes => {
                meeting.inject("they left");
                Ok(())
            }
            Goodbye::Takes(time) => {
                self.1.sleep(time).await;
                Ok(())
            }
        }
    }
}

fn host(goodbye: Goodbye, clock: &PausedClock) -> HookEntry {
    Host(goodbye, clock.clone()).named("host")
}

fn with(hook: HookEntry) -> Agent {
    Agent::builder("a", Script::says(["one", "two"])).hook(hook).build().unwrap()
}

#[tokio::test]
async fn a_hook_that_fails_at_the_end_leaves_a_record_and_is_told_of() {
    let mut rig = Rig::new(with(host(Goodbye::Fails, &Default::default())));
    let turn = rig.ended("hi").await.unwrap().turn;
    rig.conversations.close(&rig.id, Scope::local()).await.unwrap();
    rig.settle().await;
    let records = rig.conversations.records(&rig.id, &turn, Scope::local()).await.unwrap();
    let failed = records.iter().find(|record| record.failure.is_some()).expect("a record of the failure");
    assert_eq!((failed.point, &*failed.hook), (Point::OnConversation, "host"));
    let told = rig.told().iter().any(|told| {
        matches!(&told.item, FeedItem::Live(LiveEvent::HookFinished { hook, error: Some(_), .. }) if &**hook == "host")
    });
    assert!(told);
}

#[tokio::test]
async fn a_hook_whose_failure_blocks_keeps_the_conversation_open() {
    let hook = host(Goodbye::Fails, &Default::default()).on_failure(OnFailure::Block);
    let mut rig = Rig::new(with(hook));
    rig.ended("hi").await.unwrap();
    let closed = rig.conversations.close(&rig.id, Scope::local()).await;
    assert!(matches!(&closed, Err(SendError::Hook { hook, .. }) if &**hook == "host"), "{closed:?}");
    rig.settle().await;
    assert_eq!(rig.conversations.resident_count(), 1);
    assert_eq!(rig.ended("again").await.unwrap().text(), "two");
}

#[tokio::test]
async fn what_a_hook_leaves_at_the_end_belongs_to_the_last_turn() {
    let mut rig = Rig::new(with(host(Goodbye::Notes, &Default::default())));
    let turn = rig.ended("hi").await.unwrap().turn;
    rig.conversations.close(&rig.id, Scope::local()).await.unwrap();
    rig.ended("again").await.unwrap();
    let log = rig.log().await.unwrap();
    assert_valid(&log);
    let note = log.iter().find(|event| matches!(event.kind, EventKind::Injection { .. })).unwrap();
    assert_eq!(note.turn, turn);
}

#[tokio::test]
async fn the_claim_is_kept_while_hooks_say_goodbye() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let process = || {
        let agent = with(host(Goodbye::Takes(LEASE * 3), &clock));
        Conversations::builder(agent, store.clone()).clock(Arc::new(clock.clone())).build()
    };
    let (here, there, id) = (process(), process(), "c".into());
    here.turn(&id, "hi", Scope::local()).await.unwrap();
    let close = here.close(&id, Scope::local());
    let meanwhile = async {
        for _ in 0..LEASE.as_secs() * 2 {
            settle().await;
            clock.advance(Duration::from_secs(1));
        }
        settle().await;
        let sent = there.send(&id, "hello?", Scope::local()).await;
        assert!(matches!(sent, Err(SendError::Busy { .. })), "{sent:?}");
        clock.advance(LEASE);
    };
    let (closed, ()) = tokio::join!(close, meanwhile);
    closed.unwrap();
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
