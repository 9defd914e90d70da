//! What was written is there when the file is opened again.

use std::time::Duration;

use turnbuckle::store::{
    Batch, ConversationStatus, InboxItem, Job, JobKind, LEASE, Scratch, ScratchWrite, Store, StoreError, Totals,
};
use turnbuckle::{Actor, ConversationId, Limits, Scope, TurnId};

use crate::kit::{NOW, Place, batch, record, said};

#[tokio::test]
async fn everything_is_kept() {
    let place = Place::new();
    let (id, turn) = (ConversationId::from("c"), TurnId::from("t1"));
    let ann = Scope::user("ann").role("editor").actor().clone();
    let message = InboxItem::message(&"t2".into(), "and then?".into(), ann.clone(), NOW);
    let scratch = Scratch {
        turn: turn.clone(),
        actor: ann.clone(),
        agent: "a".into(),
        schema: None,
        model: "demo".into(),
        parts: None,
        project: "".into(),
        digest: "d".into(),
        limits: Limits::default(),
        injections: Vec::new(),
        steering: Vec::new(),
        regeneration: None,
        asked: None,
        approved_reply: None,
        answered_by: Vec::new(),
        answers: Vec::new(),
        effective: None,
        touched: vec!["a.rs".to_owned()],
        active: Duration::from_millis(1234),
        worked: Default::default(),
        unlogged: Default::default(),
        sub_agents: Vec::new(),
        last_answer: None,
        advice: Vec::new(),
        warnings: Vec::new(),
    };
    let record = record("lint");
    let job = Job {
        agent: "a".into(),
        turn: turn.clone(),
        hook: "lint".into(),
        kind: JobKind::Background,
        seq: 2,
        actor: ann.clone(),
        tries: 2,
        error: None,
        due: Some(NOW),
        used: None,
        reminder: None,
        spent: None,
        partial: None,
    };
    let events = [said(1, "one"), said(2, "two")];
    let (totals, status) =
        (Totals { model_calls: 3, tokens: 99 }, ConversationStatus::Waiting { until: NOW.after(LEASE * 9) });
    {
        let store = place.store();
        Store::open(&store, &id, &ann, NOW).await.unwrap();
        Store::open(&store, &"younger".into(), &ann, NOW).await.unwrap();
        store.claim(&id, &"w".into(), NOW).await.unwrap();
        store.deliver(&id, message.clone()).await.unwrap();
        let all = Batch {
            scratch: ScratchWrite::Put(&std::sync::Arc::new(scratch.clone())),
            records: vec![record.clone()],
            turn: Some(&turn),
            jobs: vec![job.clone()],
            totals: Some(totals),
            status: Some(status),
            ..batch(&id, 1, 0, &events)
        };
        store.append(all).await.unwrap();
    }
    let store = place.store();
    assert_eq!(store.owner(&id).await.unwrap(), Some(ann));
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), ["younger", "c"]);
    assert_eq!((listed[1].seq, listed[1].opened, listed[1].written, listed[1].status), (2, NOW, NOW, status));
    assert_eq!(store.log(&id, 1, usize::MAX).await.unwrap(), events);
    assert_eq!(store.records(&id, &turn).await.unwrap(), [record]);
    assert_eq!(store.jobs(&id).await.unwrap(), [job]);
    assert!(matches!(store.claim(&id, &"v".into(), NOW).await, Err(StoreError::InUse { .. })), "the lease is kept too");
    let claimed = store.claim(&id, &"w".into(), NOW).await.unwrap();
    assert_eq!((claimed.epoch, claimed.seq, claimed.totals), (2, 2, totals));
    assert_eq!((claimed.inbox, claimed.scratch), (vec![message], Some(std::sync::Arc::new(scratch))));
}

#[tokio::test]
async fn two_stores_of_one_process_see_each_others_writes() {
    let place = Place::new();
    let (one, two) = (place.store(), place.store());
    let id = ConversationId::from("c");
    crate::kit::claim(&one, &id, "w", NOW).await.unwrap();
    one.append(batch(&id, 1, 0, &[said(1, "one")])).await.unwrap();
    assert_eq!(two.log(&id, 1, usize::MAX).await.unwrap(), [said(1, "one")]);
    assert_eq!(crate::kit::claim(&two, &id, "w", NOW).await.unwrap().epoch, 2);
    assert!(matches!(one.append(batch(&id, 1, 1, &[])).await, Err(StoreError::Fenced { .. })));
}

#[cfg(unix)]
#[test]
fn an_empty_file_that_becomes_a_database_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    std::fs::write(place.file(), "").unwrap();
    std::fs::set_permissions(place.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(place.store());
    assert_eq!(std::fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_is_its_owners_alone_and_what_was_deleted_is_gone() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let store = place.store();
    let (id, turn) = ("c_1".into(), TurnId::from("t1"));
    Store::open(&store, &id, &Actor::System, NOW).await.unwrap();
    let item = InboxItem::message(&turn, "a secret that a hook erased".into(), Actor::System, NOW);
    store.deliver(&id, item.clone()).await.unwrap();
    let claim = store.claim(&id, &"w".into(), NOW).await.unwrap();
    store.append(Batch { take: &[item.id], ..Batch::new(&id, claim.epoch, 0) }).await.unwrap();
    for file in std::fs::read_dir(place.folder.path()).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
    drop(store);
    let kept = std::fs::read(place.file()).unwrap();
    assert!(!kept.windows(8).any(|bytes| bytes == b"a secret"));
}
