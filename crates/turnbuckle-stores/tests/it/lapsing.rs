//! When a claim or a hold no longer counts: its time is over, its process is gone, or its time cannot be true.

use std::time::Duration;

use turnbuckle::ConversationId;
use turnbuckle::store::{Batch, ConversationStatus, Job, JobLease, LEASE, Lease, Store, StoreError};

use crate::child::Other;
use crate::kit::{NOW, Place, batch, claim, hooks, job, message, said};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn after_a_clock_was_set_back_only_a_living_process_keeps_its_claim() {
    let place = Place::new();
    let (store, id) = (place.store(), ConversationId::from("c"));
    let future = NOW.after(HOUR);
    let old = claim(&store, &id, "w", future).await.unwrap().epoch;
    store.append(Batch { status: Some(ConversationStatus::Running), ..batch(&id, old, 0, &[]) }).await.unwrap();
    assert!(matches!(claim(&store, &id, "v", NOW).await, Err(StoreError::InUse { .. })), "this process lives");
    assert!(store.due(NOW, None, 9).await.unwrap().is_empty());
    // A process of which nothing is known.
    let outside = rusqlite::Connection::open(place.file()).unwrap();
    for process in ["'elsewhere 7 7'", "NULL", "'nonsense'"] {
        outside.execute_batch(&format!("UPDATE conversation SET process = {process}")).unwrap();
        assert_eq!(store.due(NOW, None, 9).await.unwrap(), std::slice::from_ref(&id), "{process}");
        let near = future.as_millis() - LEASE.as_millis() as u64;
        let near = turnbuckle::Timestamp::from_millis(near);
        assert!(store.due(near, None, 9).await.unwrap().is_empty(), "{process}: a lease may be a little ahead");
    }
    let new = claim(&store, &id, "v", NOW).await.unwrap().epoch;
    assert!(matches!(store.append(batch(&id, old, 0, &[])).await, Err(StoreError::Fenced { .. })));
    store.append(batch(&id, new, 0, &[said(1, "one")])).await.unwrap();
}

#[tokio::test]
async fn what_a_dead_process_held_is_due_and_free_at_once() {
    let place = Place::new();
    let mut other = Other::start("work", &place.file());
    assert_eq!(other.next().unwrap(), "at work");
    let store = place.store();
    let (turn, jobs) = (ConversationId::from("turn"), ConversationId::from("jobs"));
    let lease = JobLease { writer: &"w".into(), from: NOW, lasts: LEASE };
    assert!(store.due(NOW, None, 9).await.unwrap().is_empty(), "somebody does it");
    assert!(store.take_job(&jobs, &hooks("memory"), lease).await.unwrap().is_none());
    other.kill();
    while other.next().is_some() {}
    drop(other);
    let due = store.due(NOW, None, 9).await.unwrap();
    assert_eq!(due.len(), 2, "{due:?}");
    assert!(due.contains(&turn) && due.contains(&jobs));
    assert_eq!(store.due(NOW, None, 1).await.unwrap().len(), 1);
    let taken = store.take_job(&jobs, &hooks("memory"), lease).await.unwrap();
    assert_eq!(taken, Some(Job { tries: 2, ..job("memory") }));
    assert_eq!(store.due(NOW, None, 9).await.unwrap(), [turn], "the job is ours now");
}

#[tokio::test]
async fn what_is_due_for_many_reasons_is_named_once() {
    let place = Place::new();
    let store = place.store();
    for name in ["young", "old", "middle"] {
        let id = ConversationId::from(name);
        let epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
        let (status, lease, events) = (Some(ConversationStatus::Running), Lease::Release, [said(1, name)]);
        let jobs = vec![job("memory"), job("other")];
        store.append(Batch { status, lease, jobs, ..batch(&id, epoch, 0, &events) }).await.unwrap();
        store.deliver(&id, message("t2")).await.unwrap();
        store.deliver(&id, message("t3")).await.unwrap();
    }
    let names: Vec<_> = store.due(NOW, None, 9).await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["middle", "old", "young"]);
}

#[tokio::test]
async fn after_a_clock_was_set_back_only_a_living_process_keeps_its_jobs() {
    let place = Place::new();
    let (store, id) = (place.store(), ConversationId::from("c"));
    let epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
    let (jobs, events) = (vec![job("memory")], [said(1, "one")]);
    store.append(Batch { jobs, lease: Lease::Release, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    let (hooks, writer) = (hooks("memory"), "w".into());
    let take = async |from| {
        let lease = JobLease { writer: &writer, from, lasts: HOUR };
        store.take_job(&id, &hooks, lease).await.unwrap().is_some()
    };
    assert!(take(NOW.after(HOUR)).await);
    assert!(!take(NOW).await, "this process lives");
    let outside = rusqlite::Connection::open(place.file()).unwrap();
    outside.execute_batch("UPDATE job SET process = 'elsewhere 7 7'").unwrap();
    assert!(!take(NOW.after(HOUR)).await, "it may well live");
    assert_eq!(store.due(NOW, None, 9).await.unwrap(), std::slice::from_ref(&id));
    assert!(take(NOW).await, "it was taken in a future that is none any more");
}
