//! What every store promises, as a suite that any store can be put through.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use turnbuckle::{stores::MemoryStore, testing::conformance};
//!
//! conformance::check(|| Arc::new(MemoryStore::default())).await;
//! # });
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken promise ends the test that looked for it")]

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, EventKind};
use crate::hook::{Point, Record};
use crate::scope::By;
use crate::store::{
    Batch, Beside, BesideWrite, Claim, Hold, Job, JobDone, JobKind, LEASE, Lease, Letter, RENEW_EVERY, Says, Standing,
    Store, StoreError, Totals,
};
use crate::{Actor, Boxed, ConversationId, Limits, Scope, Timestamp, TurnId};

/// A store behind a pointer, as programs hold it.
pub type Shelf = Arc<dyn Store>;
/// One promise: panics where the store, given fresh and empty, breaks it.
pub type Promise = fn(Shelf) -> Boxed<'static, ()>;

macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        /// Each promise by its name: for a test each, or a report that goes on after a broken one.
        pub const PROMISES: &[(&str, Promise)] = &[$((stringify!($name), |store| Box::pin($name(store)))),+];
    };
}

promises! {
    a_conversation_belongs_to_whoever_opened_it_first,
    what_was_never_opened_is_not_found,
    conversations_are_listed_newest_first,
    while_a_lease_holds_no_other_writer_may_claim,
    of_many_claims_at_once_one_is_granted,
    a_lease_that_was_not_renewed_lapses,
    a_renewed_lease_holds,
    a_released_claim_is_free_at_once_and_dead,
    epochs_grow_with_every_claim_and_an_old_one_is_fenced,
    a_write_at_a_wrong_seq_is_refused,
    a_write_with_a_gap_is_refused,
    the_log_is_read_back_from_any_seq,
    a_delivered_message_stays_until_a_write_takes_it,
    what_stands_beside_the_log_is_put_kept_and_deleted,
    the_end_of_the_log_is_read_backwards_by_tokens,
    call_ids_are_found_wherever_they_stand,
    totals_come_back_with_the_claim,
    jobs_stay_until_they_are_settled,
    a_job_is_taken_by_one_until_its_hold_lapses,
    what_nobody_does_is_due,
    letters_and_jobs_are_due,
    of_what_is_due_no_more_is_given_than_asked_and_nothing_of_sub_agents,
    records_are_kept_by_turn_in_order,
    a_refused_batch_leaves_no_trace,
    one_conversation_is_no_concern_of_another,
}

/// Puts a store through all promises, a fresh and empty one for each. Needs a tokio runtime.
///
/// # Panics
/// At the first promise that the store breaks; the line of the panic stands in the function that is named after it.
pub async fn check(store: impl Fn() -> Shelf) {
    for (_, promise) in PROMISES {
        promise(store()).await;
    }
}

const NOW: Timestamp = Timestamp::from_millis(1_769_860_800_000);

fn later(wait: Duration) -> Timestamp {
    NOW.after(wait)
}

fn ann() -> Actor {
    Scope::user("ann").role("editor").actor().clone()
}

fn id(text: &str) -> ConversationId {
    text.into()
}

fn said(turn: &str, seq: u64) -> Arc<Event> {
    let kind = EventKind::UserMessage { content: format!("{turn} {seq}").into(), by: By::User("ann".into()) };
    Arc::new(Event { seq, turn: turn.into(), at: NOW, kind })
}

fn message(turn: &str) -> Letter {
    Letter::message(&turn.into(), "hi".into(), ann(), NOW)
}

fn record(hook: &str) -> Record {
    Record {
        point: Point::OnStop,
        hook: hook.into(),
        decision: Cow::Borrowed("accept"),
        took: Duration::from_micros(1500),
        tokens: 3,
        shed: 1,
        call: Some("c1".into()),
        failure: None,
    }
}

fn job(hook: &str, kind: JobKind) -> Job {
    let (turn, hook) = ("t1".into(), hook.into());
    Job { turn, seq: 1, hook, kind, actor: ann(), tries: 0, error: None, due: Some(NOW) }
}

fn beside(turn: &str) -> Beside {
    Beside {
        turn: turn.into(),
        actor: ann(),
        agent: "a".into(),
        digest: "d".into(),
        limits: Limits { max_cost: 0.5, ..Limits::default() },
        injections: Vec::new(),
        regeneration: None,
        asked: None,
        approved: Some(By::Hook("policy".into())),
        answers: vec![("c1".into(), crate::store::Answer::Deny(Some("no".into())))],
        touched: vec!["a.rs".to_owned()],
        active: Duration::from_millis(1234),
        spent: crate::turn::Spent { calls: 2, cost: 0.5, ..Default::default() },
        advice: vec![("coach".into(), "shorter".into())],
        warnings: Vec::new(),
    }
}

/// A batch of these events and nothing else.
fn batch<'a>(id: &'a ConversationId, epoch: u64, expected_seq: u64, events: &'a [Arc<Event>]) -> Batch<'a> {
    Batch { events, ..Batch::new(id, epoch, expected_seq) }
}

async fn claim(store: &Shelf, id: &ConversationId, writer: &str, now: Timestamp) -> Result<Claim, StoreError> {
    store.claim(id, &writer.into(), now).await
}

/// A conversation `c`, claimed by `w` now.
async fn opened(store: &Shelf) -> (ConversationId, u64) {
    let id = id("c");
    store.open(&id, &ann(), NOW).await.unwrap();
    let epoch = claim(store, &id, "w", NOW).await.unwrap().epoch;
    (id, epoch)
}

async fn a_conversation_belongs_to_whoever_opened_it_first(store: Shelf) {
    let id = id("c");
    assert_eq!(store.owner(&id).await.unwrap(), None);
    assert_eq!(store.open(&id, &ann(), NOW).await.unwrap(), ann());
    assert_eq!(store.open(&id, &Actor::System, NOW).await.unwrap(), ann());
    assert_eq!(store.owner(&id).await.unwrap(), Some(ann()));
}

async fn what_was_never_opened_is_not_found(store: Shelf) {
    let id = id("c");
    fn missing<T>(result: Result<T, StoreError>) -> bool {
        matches!(result, Err(StoreError::NotFound { id }) if id.as_str() == "c")
    }
    assert!(missing(claim(&store, &id, "w", NOW).await));
    assert!(missing(store.deliver(&id, message("t1")).await));
    assert!(missing(store.renew(&id, 1, NOW).await));
    assert!(missing(store.append(batch(&id, 1, 0, &[])).await));
    assert!(missing(store.log(&id, 1, 99).await));
    assert!(store.list().await.unwrap().is_empty());
}

async fn conversations_are_listed_newest_first(store: Shelf) {
    for name in ["b", "a", "c"] {
        store.open(&id(name), &ann(), NOW).await.unwrap();
    }
    store.open(&id("b"), &ann(), NOW).await.unwrap();
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().map(|listed| listed.id.clone()).collect::<Vec<_>>(), [id("c"), id("a"), id("b")]);
    assert_eq!((listed[0].opened, listed[0].seq, &listed[0].owner), (NOW, 0, &ann()));
}

async fn while_a_lease_holds_no_other_writer_may_claim(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let nearly = later(LEASE - Duration::from_millis(1));
    for now in [NOW, nearly] {
        assert!(matches!(claim(&store, &id, "other", now).await, Err(StoreError::InUse { id: of }) if of == id));
    }
    store.append(batch(&id, epoch, 0, &[said("t1", 1)])).await.unwrap();
}

async fn of_many_claims_at_once_one_is_granted(store: Shelf) {
    let id = id("c");
    store.open(&id, &ann(), NOW).await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (store, id) = (store.clone(), id.clone());
            tokio::spawn(async move { claim(&store, &id, &format!("w{n}"), NOW).await.is_ok() })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += u32::from(task.await.unwrap());
    }
    assert_eq!(granted, 1);
}

async fn a_lease_that_was_not_renewed_lapses(store: Shelf) {
    let (id, old) = opened(&store).await;
    let new = claim(&store, &id, "other", later(LEASE)).await.unwrap().epoch;
    assert!(new > old);
    assert!(matches!(claim(&store, &id, "w", later(LEASE)).await, Err(StoreError::InUse { .. })));
}

async fn a_renewed_lease_holds(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    store.renew(&id, epoch, later(RENEW_EVERY)).await.unwrap();
    assert!(matches!(claim(&store, &id, "other", later(LEASE)).await, Err(StoreError::InUse { .. })));
    claim(&store, &id, "other", later(LEASE + RENEW_EVERY)).await.unwrap();
    let late = store.renew(&id, epoch, later(LEASE + RENEW_EVERY)).await;
    assert!(matches!(late, Err(StoreError::Fenced { epoch: of, .. }) if of == epoch));
}

async fn a_released_claim_is_free_at_once_and_dead(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let events = [said("t1", 1)];
    store.append(Batch { lease: Lease::Release, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    assert!(matches!(store.append(batch(&id, epoch, 1, &[])).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.renew(&id, epoch, NOW).await, Err(StoreError::Fenced { .. })));
    let next = claim(&store, &id, "other", NOW).await.unwrap();
    assert!(next.epoch > epoch);
    assert_eq!(next.seq, 1);
}

async fn epochs_grow_with_every_claim_and_an_old_one_is_fenced(store: Shelf) {
    let (id, first) = opened(&store).await;
    let again = claim(&store, &id, "w", NOW).await.unwrap().epoch;
    let taken = claim(&store, &id, "other", later(LEASE)).await.unwrap().epoch;
    assert!(first < again && again < taken);
    for old in [first, again, taken + 1, 0] {
        let zombie = store.append(batch(&id, old, 0, &[said("t1", 1)])).await;
        assert!(matches!(zombie, Err(StoreError::Fenced { epoch, .. }) if epoch == old), "{zombie:?}");
    }
    store.append(batch(&id, taken, 0, &[said("t1", 1)])).await.unwrap();
}

async fn a_write_at_a_wrong_seq_is_refused(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    store.append(batch(&id, epoch, 0, &[said("t1", 1), said("t1", 2)])).await.unwrap();
    for (expected, seq) in [(0, 1), (1, 2), (3, 4)] {
        let wrong = store.append(batch(&id, epoch, expected, &[said("t1", seq)])).await;
        assert!(matches!(wrong, Err(StoreError::WrongSeq { actual: 2, .. })), "{wrong:?}");
    }
    assert!(matches!(store.append(batch(&id, epoch, 1, &[])).await, Err(StoreError::WrongSeq { .. })));
    store.append(batch(&id, epoch, 2, &[said("t1", 3)])).await.unwrap();
}

async fn a_write_with_a_gap_is_refused(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    for events in [vec![said("t1", 2)], vec![said("t1", 1), said("t1", 3)], vec![said("t1", 1), said("t1", 1)]] {
        let gap = store.append(batch(&id, epoch, 0, &events)).await;
        assert!(matches!(gap, Err(StoreError::WrongSeq { .. })), "{gap:?}");
    }
    assert!(store.log(&id, 1, 99).await.unwrap().is_empty());
}

async fn the_log_is_read_back_from_any_seq(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let events: Vec<_> = (1..=5).map(|seq| said("t1", seq)).collect();
    store.append(batch(&id, epoch, 0, &events[..2])).await.unwrap();
    store.append(batch(&id, epoch, 2, &events[2..])).await.unwrap();
    assert_eq!(store.log(&id, 0, 99).await.unwrap(), events);
    for from in 1..=6 {
        assert_eq!(store.log(&id, from as u64, 99).await.unwrap(), events[from - 1..]);
    }
    assert!(store.log(&id, 99, 99).await.unwrap().is_empty());
}

async fn a_delivered_message_stays_until_a_write_takes_it(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    for turn in ["t1", "t2", "t3"] {
        store.deliver(&id, message(turn)).await.unwrap();
    }
    let taken = ["t2".into()];
    store.append(Batch { take: &taken, ..batch(&id, epoch, 0, &[said("t2", 1)]) }).await.unwrap();
    let claim = claim(&store, &id, "w", NOW).await.unwrap();
    assert_eq!(claim.inbox, [message("t1"), message("t3")]);
    assert_eq!(store.letters(&id).await.unwrap(), claim.inbox);
}

async fn what_stands_beside_the_log_is_put_kept_and_deleted(store: Shelf) {
    let (id, mut epoch) = opened(&store).await;
    let (first, second) = (beside("t1"), Beside { touched: Vec::new(), ..beside("t1") });
    let writes = [
        (BesideWrite::Keep, None),
        (BesideWrite::Put(&first), Some(&first)),
        (BesideWrite::Keep, Some(&first)),
        (BesideWrite::Put(&second), Some(&second)),
        (BesideWrite::Delete, None),
    ];
    for (write, expected) in writes {
        store.append(Batch { beside: write, ..batch(&id, epoch, 0, &[]) }).await.unwrap();
        let claim = claim(&store, &id, "w", NOW).await.unwrap();
        assert_eq!(claim.beside.as_ref(), expected, "after {write:?}");
        epoch = claim.epoch;
    }
}

async fn jobs_stay_until_they_are_settled(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let (ended, aside, other) =
        (job("memory", JobKind::Ended), job("memory", JobKind::Background), job("other", JobKind::Background));
    let jobs = vec![ended.clone(), aside.clone(), other.clone()];
    let events = [said("t1", 1)];
    store.append(Batch { jobs, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [ended.clone(), aside.clone(), other.clone()]);
    store.settle_job(&id, ended.clone(), JobDone::Removed).await.unwrap();
    let failed = Job { tries: 3, error: Some("no luck".to_owned()), due: None, ..aside };
    store.settle_job(&id, failed.clone(), JobDone::Kept).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [failed.clone(), other.clone()]);
    store.settle_job(&id, ended, JobDone::Kept).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [failed.clone(), other.clone()], "what is gone stays gone");
    store.append(Batch { done: &[other], ..batch(&id, epoch, 1, &[]) }).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [failed]);
}

async fn a_job_is_taken_by_one_until_its_hold_lapses(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let (now, soon) = (job("now", JobKind::Background), Job { due: Some(later(LEASE)), ..job("soon", JobKind::Ended) });
    let parked = Job { due: None, ..job("parked", JobKind::Background) };
    let (jobs, hold, events) = (vec![now.clone(), soon.clone(), parked], LEASE / 3, [said("t1", 1)]);
    store.append(Batch { jobs, hold, lease: Lease::Release, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    let take = async |at| {
        let hold = Hold { writer: &"w2".into(), from: at, lasts: LEASE };
        store.take_jobs(&id, hold).await.unwrap()
    };
    assert!(take(NOW).await.is_empty(), "whoever wrote them holds them");
    assert_eq!(take(later(LEASE / 3)).await, std::slice::from_ref(&now));
    assert!(take(later(LEASE / 2)).await.is_empty());
    assert_eq!(take(later(LEASE * 2)).await, [now.clone(), soon]);
    store.settle_job(&id, Job { due: Some(later(LEASE * 2)), ..now.clone() }, JobDone::Kept).await.unwrap();
    assert_eq!(take(later(LEASE * 2)).await.len(), 1, "whoever settles a job no longer holds it");
}

async fn the_end_of_the_log_is_read_backwards_by_tokens(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let events: Vec<_> = (1..=9).map(|seq| said("t1", seq)).collect();
    store.append(batch(&id, epoch, 0, &events)).await.unwrap();
    let each = crate::context::tokens::of_event(&events[0]);
    for (before, tokens, range) in [
        (u64::MAX, u64::MAX, 0..9),
        (10, each, 8..9),
        (10, each + 1, 7..9),
        (10, 0, 9..9),
        (5, 2 * each, 2..4),
        (3, 99 * each, 0..2),
        (1, each, 0..0),
    ] {
        let tail = store.tail(&id, before, tokens).await.unwrap();
        assert_eq!(tail, events[range.clone()], "before {before}, {tokens} tokens");
    }
}

async fn call_ids_are_found_wherever_they_stand(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let called = |seq, call: &str| {
        let kind = EventKind::ToolCall {
            call: call.into(),
            name: "add".into(),
            arguments: Arc::default(),
            executor: crate::tool::Executor::Server,
        };
        Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind })
    };
    let events = [called(1, "c1"), said("t1", 2), called(3, "c1~2")];
    store.append(batch(&id, epoch, 0, &events)).await.unwrap();
    for (call, there) in [("c1", true), ("c1~2", true), ("c1~3", false), ("c", false), ("", false)] {
        assert_eq!(store.has_call(&id, &call.into()).await.unwrap(), there, "{call:?}");
    }
}

async fn totals_come_back_with_the_claim(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let totals = Totals { model_calls: 7, tokens: 1 << 40 };
    store.append(Batch { totals: Some(totals), ..batch(&id, epoch, 0, &[]) }).await.unwrap();
    store.append(batch(&id, epoch, 0, &[])).await.unwrap();
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().totals, totals);
}

async fn what_nobody_does_is_due(store: Shelf) {
    let due = async |at| store.due(at, 9).await.unwrap();
    let (id, mut epoch) = opened(&store).await;
    let until = later(LEASE * 2);
    for (standing, now, then) in
        [(Standing::Idle, false, false), (Standing::Running, true, true), (Standing::Waiting { until }, false, true)]
    {
        let batch = Batch { standing: Some(standing), lease: Lease::Release, ..batch(&id, epoch, 0, &[]) };
        store.append(batch).await.unwrap();
        assert_eq!(due(NOW).await.len(), usize::from(now), "{standing:?}");
        assert_eq!(due(until).await.len(), usize::from(then), "{standing:?}");
        assert_eq!(store.list().await.unwrap()[0].standing, standing);
        epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
        assert!(due(NOW).await.is_empty(), "somebody does it");
    }
    assert_eq!(due(until).await, [id], "its writer is gone");
}

async fn letters_and_jobs_are_due(store: Shelf) {
    let due = async |at| store.due(at, 9).await.unwrap().len();
    let (id, epoch) = opened(&store).await;
    let waiting = Some(Standing::Waiting { until: later(LEASE * 9) });
    let batch = batch(&id, epoch, 0, &[]);
    store.append(Batch { standing: waiting, lease: Lease::Release, ..batch }).await.unwrap();
    store.deliver(&id, message("t2")).await.unwrap();
    assert_eq!(due(NOW).await, 0, "a message behind a turn that waits must wait");
    let says = Says::Cancel { turn: "t1".into() };
    store.deliver(&id, Letter { id: "l_1".into(), from: ann(), at: NOW, says }).await.unwrap();
    assert_eq!(due(NOW).await, 1);
    let epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
    let (jobs, take) = (vec![job("memory", JobKind::Background)], ["t2".into(), "l_1".into()]);
    let (standing, lease, events) = (Some(Standing::Idle), Lease::Release, [said("t1", 1)]);
    let batch = Batch { jobs, take: &take, standing, lease, hold: LEASE, ..self::batch(&id, epoch, 0, &events) };
    store.append(batch).await.unwrap();
    assert_eq!(due(NOW).await, 0, "whoever wrote the job holds it");
    assert_eq!(due(later(LEASE)).await, 1);
}

async fn of_what_is_due_no_more_is_given_than_asked_and_nothing_of_sub_agents(store: Shelf) {
    for name in ["a", "b", "c", "a/c1"] {
        store.open(&id(name), &ann(), NOW).await.unwrap();
        store.deliver(&id(name), message("t1")).await.unwrap();
    }
    assert_eq!(store.due(NOW, 2).await.unwrap().len(), 2);
    assert_eq!(store.due(NOW, 9).await.unwrap().len(), 3);
}

async fn records_are_kept_by_turn_in_order(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    for (turn, hooks) in [("t1", vec!["a", "c"]), ("t2", vec!["b"]), ("t1", vec!["a"])] {
        let (turn, records) = (TurnId::from(turn), hooks.into_iter().map(record).collect::<Vec<_>>());
        let batch = Batch { turn: Some(&turn), records: &records, ..batch(&id, epoch, 0, &[]) };
        store.append(batch).await.unwrap();
    }
    assert_eq!(store.records(&id, &"t1".into()).await.unwrap(), [record("a"), record("c"), record("a")]);
    assert_eq!(store.records(&id, &"t2".into()).await.unwrap(), [record("b")]);
    assert!(store.records(&id, &"t9".into()).await.unwrap().is_empty());
}

async fn a_refused_batch_leaves_no_trace(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    store.deliver(&id, message("t1")).await.unwrap();
    let (turn, put) = (TurnId::from("t1"), beside("t1"));
    let events = [said("t1", 1), said("t1", 3)];
    for (epoch, expected_seq) in [(epoch + 1, 0), (epoch, 7), (epoch, 0)] {
        let everything = Batch {
            take: &[turn.shared().clone()],
            beside: BesideWrite::Put(&put),
            records: &[record("a")],
            turn: Some(&turn),
            jobs: vec![job("memory", JobKind::Ended)],
            lease: Lease::Release,
            ..batch(&id, epoch, expected_seq, &events)
        };
        assert!(store.append(everything).await.is_err());
    }
    assert!(matches!(claim(&store, &id, "other", NOW).await, Err(StoreError::InUse { .. })), "the claim was released");
    assert!(store.log(&id, 1, 99).await.unwrap().is_empty());
    assert!(store.records(&id, &turn).await.unwrap().is_empty());
    assert!(store.jobs(&id).await.unwrap().is_empty());
    let claim = claim(&store, &id, "w", NOW).await.unwrap();
    assert_eq!((claim.seq, claim.inbox.len(), claim.beside), (0, 1, None));
}

async fn one_conversation_is_no_concern_of_another(store: Shelf) {
    let (id, epoch) = opened(&store).await;
    let other = self::id("d");
    store.open(&other, &Actor::System, NOW).await.unwrap();
    store.deliver(&id, message("t1")).await.unwrap();
    store.append(batch(&id, epoch, 0, &[said("t1", 1)])).await.unwrap();
    let claim = claim(&store, &other, "w2", NOW).await.unwrap();
    assert_eq!((claim.seq, claim.inbox.len()), (0, 0));
    assert!(store.log(&other, 1, 99).await.unwrap().is_empty());
    assert_eq!(store.owner(&other).await.unwrap(), Some(Actor::System));
}
