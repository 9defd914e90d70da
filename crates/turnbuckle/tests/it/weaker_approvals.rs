//! The approvals that a turn began with: an agent that asks less does not carry it on, unless a person insists.

use std::sync::Arc;

use turnbuckle::access::RoleAccess;
use turnbuckle::agent::MissingPart;
use turnbuckle::conversation::{Conversations, LeftReason, SendError};
use turnbuckle::event::{Cause, EventKind};
use turnbuckle::id::SystemIds;
use turnbuckle::store::Answer;
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::{ConversationId, TurnStatus};

use crate::access::{Paid, ann, process, roles, support, user, waiting};
use crate::approving::rule;
use crate::evidence::boss;
use crate::faulty_store::FaultyStore;

fn desk(store: &FaultyStore, clock: &PausedClock) -> Conversations {
    let builder = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone()));
    builder.ids(Arc::new(SystemIds::default())).build()
}

/// A turn that began under the rule that two managers other than ann must approve, and that two have approved.
async fn approved(paid: &Paid) -> (FaultyStore, PausedClock) {
    let (store, clock, rig) = waiting(paid, rule(&["manager"], true, 2)).await;
    for name in ["mia", "max"] {
        let manager = user(name, "manager");
        desk(&store, &clock).answer(&rig.id, &"c1".into(), Answer::Approve, None, manager).await.unwrap();
    }
    (store, clock)
}

/// What the end of the last turn warns of because the agent changed.
async fn warned(rig: &Rig, id: &str) -> Vec<String> {
    let log = rig.conversations.log(&ConversationId::from(id), ann()).await.unwrap();
    let ended = log.iter().rev().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.clone()),
        _ => None,
    });
    let ended = ended.unwrap();
    let warnings = ended.warnings();
    let of_change = warnings.iter().filter(|warning| matches!(warning.cause, Some(Cause::AgentChanged)));
    of_change.map(|warning| warning.text.to_string()).collect()
}

#[tokio::test]
async fn a_turn_whose_approval_rule_is_gone_or_weaker_is_left_until_a_person_insists() {
    let weaker = [
        RoleAccess::default(),
        rule(&["manager"], true, 1),
        rule(&["manager"], false, 2),
        rule(&["manager", "clerk"], true, 2),
        rule(&[], true, 2),
    ];
    for access in weaker {
        let paid = Paid::default();
        let (store, clock) = approved(&paid).await;
        let mut own = process(support(&paid), &store, &clock, access.clone());
        let resumed = own.conversations.resume(&own.id, ann()).await;
        let Err(SendError::Left { left, .. }) = resumed else { panic!("{access:?}: {resumed:?}") };
        let by = Some("2 of role manager, but not who asked for it".into());
        let missing = vec![MissingPart::Approval { tool: "refund".into(), by }];
        assert_eq!(left.reason, LeftReason::Changed { missing }, "{access:?}");
        assert!(paid.lock().unwrap().is_empty());
        own.conversations.accept_changes(&own.id, ann()).await.unwrap();
        let handle = own.conversations.resume(&own.id, ann()).await.unwrap().unwrap();
        assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
        own.settle().await;
        let told = warned(&own, "c_1").await;
        assert!(
            told[0].contains("it is carried on without the approval of tool refund by 2 of role manager"),
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn a_stricter_approval_rule_is_only_told() {
    for access in [rule(&["manager"], true, 3), rule(&["manager"], true, 2)] {
        let (paid, is_same) = (Paid::default(), access == rule(&["manager"], true, 2));
        let (store, clock) = approved(&paid).await;
        let mut own = process(support(&paid), &store, &clock, access);
        let handle = own.conversations.resume(&own.id, ann()).await.unwrap().unwrap();
        assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
        own.settle().await;
        assert_eq!(paid.lock().unwrap().len(), 1);
        let told = warned(&own, "c_1").await;
        assert_eq!(told.is_empty(), is_same, "{told:?}");
        assert!(is_same || told[0].contains("tool refund must be approved by 3 of role manager"), "{told:?}");
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_without_its_agent_does_not_say_that_the_agent_changed() {
    let (paid, store, clock) = (Paid::default(), FaultyStore::shared(), PausedClock::default());
    let rig = process(boss(support(&paid)), &store, &clock, roles());
    let status = rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    assert!(matches!(status, TurnStatus::Waiting(_)));
    let desk = desk(&store, &clock);
    desk.cancel(&rig.id, ann()).await.unwrap();
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let after = process(boss(support(&paid)), &store, &clock, roles());
    for id in ["c_1", "c_1/s1"] {
        assert_eq!(warned(&after, id).await, Vec::<String>::new(), "{id}");
    }
}
