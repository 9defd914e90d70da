//! Promises about conversations and who may write to them.

use super::*;

pub(super) async fn a_conversation_belongs_to_whoever_opened_it_first(store: SharedStore) {
    let id = id("c");
    assert_eq!(store.owner(&id).await.unwrap(), None);
    assert_eq!(store.open(&id, &ann(), NOW).await.unwrap(), ann());
    assert_eq!(store.open(&id, &Actor::System, NOW).await.unwrap(), ann());
    assert_eq!(store.owner(&id).await.unwrap(), Some(ann()));
}

pub(super) async fn what_was_never_opened_is_not_found(store: SharedStore) {
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

pub(super) async fn conversations_are_listed_newest_first(store: SharedStore) {
    for name in ["b", "a", "c"] {
        store.open(&id(name), &ann(), NOW).await.unwrap();
    }
    store.open(&id("b"), &ann(), NOW).await.unwrap();
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().map(|listed| listed.id.clone()).collect::<Vec<_>>(), [id("c"), id("a"), id("b")]);
    assert_eq!((listed[0].opened, listed[0].seq, &listed[0].owner), (NOW, 0, &ann()));
}

pub(super) async fn a_part_of_the_list_is_like_the_list(store: SharedStore) {
    for name in ["a", "b", "c", "d"] {
        store.open(&id(name), &ann(), NOW).await.unwrap();
    }
    store.set_title(&id("c"), &"a title".into()).await.unwrap();
    let epoch = claim(&store, &id("b"), "w", NOW).await.unwrap().epoch;
    let (open, events) = (id("b"), [said("t1", 1)]);
    let running = Some(ConversationStatus::Running);
    store.append(Batch { status: running, ..batch(&open, epoch, 0, &events) }).await.unwrap();
    let all = store.list().await.unwrap();
    let page = async |before: Option<ConversationId>, most| {
        store.list_part(ListPart::Page { before: before.as_ref(), most }).await.unwrap()
    };
    let found = async |id: ConversationId| store.list_part(ListPart::One(&id)).await.unwrap();
    assert_eq!(store.list_part(ListPart::Open).await.unwrap(), all[2..3]);
    assert_eq!(page(None, 3).await, all[..3]);
    assert_eq!(page(None, 9).await, all);
    assert_eq!(page(Some(id("c")), 1).await, all[2..3]);
    assert_eq!(page(Some(id("a")), 9).await, []);
    assert_eq!(page(Some(id("none")), 9).await, []);
    assert_eq!(found(id("c")).await, all[1..2]);
    assert_eq!(found(id("none")).await, []);
}

pub(super) async fn while_a_lease_holds_no_other_writer_may_claim(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let nearly = later(LEASE - Duration::from_millis(1));
    for now in [NOW, nearly] {
        assert!(matches!(claim(&store, &id, "other", now).await, Err(StoreError::InUse { id: of }) if of == id));
    }
    store.append(batch(&id, epoch, 0, &[said("t1", 1)])).await.unwrap();
}

pub(super) async fn of_many_claims_at_once_one_is_granted(store: SharedStore) {
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

pub(super) async fn a_lease_that_was_not_renewed_lapses(store: SharedStore) {
    let (id, old) = opened(&store).await;
    let new = claim(&store, &id, "other", later(LEASE)).await.unwrap().epoch;
    assert!(new > old);
    assert!(matches!(claim(&store, &id, "w", later(LEASE)).await, Err(StoreError::InUse { .. })));
}

pub(super) async fn a_renewed_lease_holds(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    store.renew(&id, epoch, later(RENEW_EVERY)).await.unwrap();
    assert!(matches!(claim(&store, &id, "other", later(LEASE)).await, Err(StoreError::InUse { .. })));
    claim(&store, &id, "other", later(LEASE + RENEW_EVERY)).await.unwrap();
    let late = store.renew(&id, epoch, later(LEASE + RENEW_EVERY)).await;
    assert!(matches!(late, Err(StoreError::Fenced { epoch: of, .. }) if of == epoch));
}

pub(super) async fn a_released_claim_is_free_at_once_and_dead(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let events = [said("t1", 1)];
    store.append(Batch { lease: Lease::Release, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    assert!(matches!(store.append(batch(&id, epoch, 1, &[])).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.renew(&id, epoch, NOW).await, Err(StoreError::Fenced { .. })));
    let next = claim(&store, &id, "other", NOW).await.unwrap();
    assert!(next.epoch > epoch);
    assert_eq!(next.seq, 1);
}

pub(super) async fn epochs_grow_with_every_claim_and_an_old_one_is_fenced(store: SharedStore) {
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

pub(super) async fn one_conversation_is_no_concern_of_another(store: SharedStore) {
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
