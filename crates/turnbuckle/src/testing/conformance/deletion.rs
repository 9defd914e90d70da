//! Promises about deleting conversations, keeping them from it, and what is recorded of both.

use super::*;
use crate::message::Text;
use crate::scope::SystemAuthor;

fn by_ann() -> Author {
    Author::User("ann".into())
}

/// Deletes under this claim.
async fn delete(store: &SharedStore, id: &ConversationId, epoch: u64, left: &[Text]) -> Result<(), StoreError> {
    store.delete(Deletion { conversation: id, epoch, by: &by_ann(), at: NOW, left }).await
}

fn is_deleted<T>(result: Result<T, StoreError>, id: &ConversationId) -> bool {
    matches!(result, Err(StoreError::Deleted { id: of, at: NOW }) if of == *id)
}

/// A conversation `c` with a log, an inbox item, scratch, records, a cut and a job that nobody works on.
async fn filled(store: &SharedStore) -> (ConversationId, u64) {
    let (id, epoch) = opened(store).await;
    store.deliver(&id, message("t2")).await.unwrap();
    let (scratch, turn, events) = (scratch("t1"), TurnId::from("t1"), [said("t1", 1)]);
    let batch = Batch {
        scratch: ScratchWrite::Put(&Arc::new(scratch)),
        records: vec![record("lint")],
        turn: Some(&turn),
        cut: Some(&Arc::new(cut("t1", 1))),
        jobs: vec![Job { tries: 0, ..job("tell", JobKind::Ended) }],
        ..batch(&id, epoch, 0, &events)
    };
    store.append(batch).await.unwrap();
    (id, epoch)
}

pub(super) async fn a_deleted_conversation_is_gone_with_its_sub_agents(store: SharedStore) {
    let (id, epoch) = filled(&store).await;
    for other in ["c/call_1", "c/call_1/call_2", "c2"] {
        store.open(&self::id(other), &ann(), NOW).await.unwrap();
    }
    delete(&store, &id, epoch, &[]).await.unwrap();
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["c2"]);
    for gone in [&id, &self::id("c/call_1"), &self::id("c/call_1/call_2")] {
        assert_eq!(store.owner(gone).await.unwrap(), None);
        assert!(is_deleted(store.log(gone, 1, 99).await, gone));
        assert!(is_deleted(store.inbox(gone, InboxFilter::All).await, gone));
        assert!(is_deleted(store.scratch(gone).await, gone));
        assert!(is_deleted(store.records(gone, &"t1".into()).await, gone));
        assert!(is_deleted(store.cuts(gone).await, gone));
        assert!(is_deleted(store.summaries(gone).await, gone));
        assert!(is_deleted(store.title(gone).await, gone));
        assert!(is_deleted(store.set_title(gone, &"again".into()).await, gone));
        assert!(is_deleted(store.jobs(gone).await, gone));
    }
    assert!(store.due(later(LEASE), None, 99).await.unwrap().is_empty());
    assert_eq!(store.tombstone(&id).await.unwrap(), Some(Tombstone::new(id.clone(), by_ann(), NOW, Vec::new())));
    assert_eq!(store.tombstone(&self::id("c2")).await.unwrap(), None);
    assert_eq!(store.acts(9).await.unwrap(), [Act::new(ActKind::Deleted, "c", by_ann(), NOW)]);
}

pub(super) async fn a_deletion_by_the_system_names_the_owner(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let (owner, by) = (store.owner(&id).await.unwrap(), Author::System(SystemAuthor::Retention));
    store.delete(Deletion { conversation: &id, epoch, by: &by, at: NOW, left: &[] }).await.unwrap();
    let acts = store.acts(9).await.unwrap();
    assert_eq!(acts[0].owner.as_ref(), owner.unwrap().user_id());
    assert!(acts[0].owner.is_some());
}

pub(super) async fn a_deleted_id_cannot_be_used_again(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    delete(&store, &id, epoch, &[]).await.unwrap();
    let below = self::id("c/call_1");
    assert!(is_deleted(store.open(&id, &ann(), later(LEASE)).await, &id));
    assert!(is_deleted(store.open(&below, &ann(), later(LEASE)).await, &below));
    store.open(&self::id("c2"), &ann(), NOW).await.unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1);
}

pub(super) async fn a_writer_that_lost_its_claim_cannot_delete(store: SharedStore) {
    let (id, old) = opened(&store).await;
    let new = claim(&store, &id, "other", later(LEASE)).await.unwrap().epoch;
    let late = delete(&store, &id, old, &[]).await;
    assert!(matches!(late, Err(StoreError::Fenced { epoch, .. }) if epoch == old), "{late:?}");
    store.append(Batch { lease: Lease::Release, ..batch(&id, new, 0, &[]) }).await.unwrap();
    let released = delete(&store, &id, new, &[]).await;
    assert!(matches!(released, Err(StoreError::Fenced { .. })), "{released:?}");
    assert!(store.acts(9).await.unwrap().is_empty());
}

pub(super) async fn a_writer_that_does_not_know_of_a_deletion_cannot_bring_it_back(store: SharedStore) {
    let (id, old) = filled(&store).await;
    let new = claim(&store, &id, "other", later(LEASE)).await.unwrap().epoch;
    delete(&store, &id, new, &[]).await.unwrap();
    assert!(is_deleted(store.append(batch(&id, old, 1, &[said("t1", 2)])).await, &id));
    assert!(is_deleted(store.renew(&id, old, NOW).await, &id));
    assert!(is_deleted(claim(&store, &id, "w", later(LEASE)).await, &id));
    assert!(is_deleted(store.deliver(&id, message("t3")).await, &id));
    assert!(is_deleted(store.settle_job(&id, job("tell", JobKind::Ended), JobDisposition::Keep).await, &id));
    assert!(is_deleted(delete(&store, &id, new, &[]).await, &id));
    assert!(store.list().await.unwrap().is_empty());
}

pub(super) async fn a_conversation_on_hold_cannot_be_deleted_until_it_is_released(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let hold = Hold { by: by_ann(), at: NOW };
    assert!(store.place_hold(&id, &hold).await.unwrap());
    let again = Hold { by: Author::User("bob".into()), at: later(LEASE) };
    assert!(!store.place_hold(&id, &again).await.unwrap(), "the first hold stays");
    assert_eq!(store.list().await.unwrap()[0].hold, Some(hold.clone()));
    let refused = delete(&store, &id, epoch, &[]).await;
    assert!(matches!(&refused, Err(StoreError::Held { hold: of, .. }) if *of == hold), "{refused:?}");
    store.append(batch(&id, epoch, 0, &[said("t1", 1)])).await.unwrap();
    assert!(store.lift_hold(&id, &again.by, again.at).await.unwrap());
    assert!(!store.lift_hold(&id, &again.by, again.at).await.unwrap());
    assert_eq!(store.list().await.unwrap()[0].hold, None);
    delete(&store, &id, epoch, &[]).await.unwrap();
    let kinds: Vec<_> = store.acts(9).await.unwrap().iter().map(|act| act.kind).collect();
    assert_eq!(kinds, [ActKind::Deleted, ActKind::Released, ActKind::Held]);
    let missing = self::id("none");
    assert!(matches!(store.place_hold(&missing, &hold).await, Err(StoreError::NotFound { .. })));
    assert!(is_deleted(store.place_hold(&id, &hold).await, &id));
}

pub(super) async fn a_conversation_with_a_job_in_hand_is_not_deleted(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let inside = self::id("c/call_1");
    store.open(&inside, &ann(), NOW).await.unwrap();
    let inner = claim(&store, &inside, "w", NOW).await.unwrap().epoch;
    let events = [said("t1", 1)];
    let (turn, jobs) = (TurnId::from("t1"), vec![job("tell", JobKind::Background)]);
    let work = Batch { jobs, job_lease: LEASE, turn: Some(&turn), ..batch(&inside, inner, 0, &events) };
    store.append(work).await.unwrap();
    let refused = delete(&store, &id, epoch, &[]).await;
    assert!(matches!(&refused, Err(StoreError::InUse { id: of }) if *of == id), "{refused:?}");
    store.settle_job(&inside, job("tell", JobKind::Background), JobDisposition::Keep).await.unwrap();
    delete(&store, &id, epoch, &[]).await.unwrap();
}

pub(super) async fn standing_approvals_made_from_a_deleted_conversation_go_with_it(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    for (name, from) in [("s1", "c"), ("s2", "c/call_1"), ("s3", "c2")] {
        let mut approval = work::standing(name);
        approval.from = (from.into(), "c1".into());
        work::give(&store, &id, epoch, &approval).await;
    }
    delete(&store, &id, epoch, &[]).await.unwrap();
    let left: Vec<_> = store.standing().await.unwrap().iter().map(|approval| approval.id.clone()).collect();
    assert_eq!(left, ["s3".into()]);
}

pub(super) async fn what_a_deletion_left_is_known_until_it_is_erased(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let left: [Text; 2] = ["memories".into(), STORE_FILES.into()];
    delete(&store, &id, epoch, &left).await.unwrap();
    let unfinished = store.unfinished_deletions().await.unwrap();
    assert_eq!(unfinished, [Tombstone::new(id.clone(), by_ann(), NOW, left.to_vec())]);
    for name in ["memories", "nothing of this name", "memories"] {
        store.note_erased(&id, name).await.unwrap();
    }
    assert_eq!(*store.unfinished_deletions().await.unwrap()[0].left, [left[1].clone()]);
    let limits = PurgeLimits { wait: Duration::from_secs(10), max_bytes: None };
    assert_eq!(store.purge(limits).await.unwrap(), Purged::Done);
    store.note_erased(&id, STORE_FILES).await.unwrap();
    assert!(store.unfinished_deletions().await.unwrap().is_empty());
    assert!(store.tombstone(&id).await.unwrap().is_some(), "the tombstone stays");
}

pub(super) async fn unused_conversations_are_found_in_the_order_of_their_ids(store: SharedStore) {
    for (name, at) in [("b", NOW), ("a", NOW), ("a/call_1", NOW), ("new", later(LEASE)), ("held", NOW), ("open", NOW)] {
        store.open(&id(name), &ann(), at).await.unwrap();
    }
    store.place_hold(&id("held"), &Hold { by: by_ann(), at: NOW }).await.unwrap();
    let open = id("open");
    let epoch = claim(&store, &open, "w", NOW).await.unwrap().epoch;
    let events = [said("t1", 1)];
    let running = Batch { status: Some(ConversationStatus::Running), ..batch(&open, epoch, 0, &events) };
    store.append(running).await.unwrap();
    let found = store.unused_since(later(LEASE), None, 99).await.unwrap();
    assert_eq!(found, [id("a"), id("b")]);
    assert_eq!(store.unused_since(later(LEASE), None, 1).await.unwrap(), [id("a")]);
    assert_eq!(store.unused_since(later(LEASE), Some(&id("a")), 99).await.unwrap(), [id("b")]);
    assert!(store.unused_since(NOW, None, 99).await.unwrap().is_empty());
}

pub(super) async fn acts_are_kept_in_their_order(store: SharedStore) {
    let acts = [
        Act::new(ActKind::Accepted, "/home/ann/project", by_ann(), NOW),
        Act::new(ActKind::Insisted, "c", by_ann(), NOW),
        Act::new(ActKind::ReadAnothers, "c", Author::User("bob".into()), later(LEASE)),
    ];
    for act in &acts {
        store.record_act(act.clone()).await.unwrap();
    }
    let newest_first: Vec<_> = acts.iter().rev().cloned().collect();
    assert_eq!(store.acts(9).await.unwrap(), newest_first);
    assert_eq!(store.acts(2).await.unwrap(), newest_first[..2]);
}
