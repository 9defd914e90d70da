//! The first answer to a call that is stored wins; its sender, and the sender of every other one, is told so.

use std::sync::Arc;

use turnbuckle::event::{Event, EventKind, Question, Resolved};
use turnbuckle::scope::Author;
use turnbuckle::store::{Answer, Batch, InboxFilter, InboxItem, InboxKind, LEASE, Store, StoreError};
use turnbuckle::{Actor, CallId, ConversationId};
use turnbuckle_stores::SqliteStore;

use crate::kit::{NOW, Place, batch, claim, said};

fn answer(item: &str, call: &str, answer: Answer) -> InboxItem {
    let kind = InboxKind::Answer { call: call.into(), answer, digest: None, via: None, standing: None };
    InboxItem { id: item.into(), from: Actor::System, at: NOW, kind }
}

fn event(seq: u64, kind: EventKind) -> Arc<Event> {
    Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind })
}

fn asked(seq: u64, call: &str) -> Arc<Event> {
    let question = Question::Elicitation { question: "Which?".into(), schema: None };
    event(
        seq,
        EventKind::Suspension {
            call: call.into(),
            question: Box::new(question),
            expires: NOW.after(LEASE),
            rule: None,
        },
    )
}

fn resolved(seq: u64, call: &str) -> Arc<Event> {
    let by = Author::User("ann".into());
    event(
        seq,
        EventKind::Resolution {
            call: call.into(),
            decision: Resolved::Approved,
            by,
            reason: None,
            evidence: Default::default(),
        },
    )
}

/// A conversation whose log has these events.
async fn asking(store: &SqliteStore, events: &[Arc<Event>]) -> ConversationId {
    let id = ConversationId::from("c");
    let epoch = claim(store, &id, "w", NOW).await.unwrap().epoch;
    store.append(batch(&id, epoch, 0, events)).await.unwrap();
    id
}

#[tokio::test]
async fn of_many_answers_at_once_exactly_one_is_delivered() {
    let place = Place::new();
    let stores = [place.store(), place.store()];
    let id = asking(&stores[0], &[asked(1, "c1"), asked(2, "c2")]).await;
    let deliveries = (0..40).map(|sender| {
        let item =
            answer(&format!("l{sender}"), "c1", if sender % 2 == 0 { Answer::Approve } else { Answer::Deny(None) });
        let (store, id) = (stores[sender % 2].clone(), id.clone());
        async move { (sender, store.deliver(&id, item).await) }
    });
    let told = futures_util::future::join_all(deliveries).await;
    let winners: Vec<usize> = told.iter().filter(|(_, told)| told.is_ok()).map(|(sender, _)| *sender).collect();
    let [winner] = winners[..] else { panic!("{told:?}") };
    let late = |told: &Result<(), StoreError>| matches!(told, Err(StoreError::AlreadyAnswered { .. }));
    assert_eq!(told.iter().filter(|(_, told)| late(told)).count(), 39);
    let inbox = stores[0].inbox(&id, InboxFilter::All).await.unwrap();
    assert_eq!(inbox.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), [format!("l{winner}")]);
    let other = stores[1].deliver(&id, answer("other", "c2", Answer::Approve)).await;
    other.expect("another call has an answer of its own");
}

#[tokio::test]
async fn an_answer_that_the_writer_has_taken_up_is_still_the_first() {
    let place = Place::new();
    let store = place.store();
    let id = asking(&store, &[asked(1, "c1")]).await;
    store.deliver(&id, answer("l1", "c1", Answer::Approve)).await.unwrap();
    let (take, events) = (["l1".into()], [resolved(2, "c1")]);
    store.append(Batch { take: &take, ..batch(&id, 1, 1, &events) }).await.unwrap();
    let late = store.deliver(&id, answer("l2", "c1", Answer::Deny(None))).await;
    assert!(matches!(late, Err(StoreError::NotAsked { .. })), "{late:?}");
    // The call is asked about again, as after a crash: that question is open.
    store.append(batch(&id, 1, 2, &[asked(3, "c1")])).await.unwrap();
    store.deliver(&id, answer("l3", "c1", Answer::Approve)).await.unwrap();
}

#[tokio::test]
async fn an_answer_to_nothing_that_is_open_is_not_delivered() {
    let result = EventKind::ToolResult { call: CallId::from("c1"), ok: true, content: "done".into() };
    let logs = [vec![], vec![asked(1, "c2")], vec![asked(1, "c1"), event(2, result)]];
    for log in logs {
        let place = Place::new();
        let store = place.store();
        let id = asking(&store, &log).await;
        let told = store.deliver(&id, answer("l1", "c1", Answer::Approve)).await;
        assert!(matches!(told, Err(StoreError::NotAsked { .. })), "{told:?} after {log:?}");
        assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap(), []);
    }
    let place = Place::new();
    let nowhere = place.store().deliver(&"none".into(), answer("l1", "c1", Answer::Approve)).await;
    assert!(matches!(nowhere, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn an_answer_to_a_turn_that_is_over_is_not_delivered() {
    let place = Place::new();
    let store = place.store();
    let id = asking(&store, &[asked(1, "c1"), said(2, "stands for the end of the turn")]).await;
    let by_hand = rusqlite::Connection::open(place.file()).unwrap();
    by_hand.execute_batch("UPDATE event SET type = 'turn_ended' WHERE seq = 2").unwrap();
    let told = store.deliver(&id, answer("l1", "c1", Answer::Approve)).await;
    assert!(matches!(told, Err(StoreError::NotAsked { .. })), "{told:?}");
}
