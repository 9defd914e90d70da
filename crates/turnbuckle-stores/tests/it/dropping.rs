//! A caller that goes away leaves no half-done write, and none that was under way undone.

use futures_util::FutureExt;
use turnbuckle::ConversationId;
use turnbuckle::store::Store;

use crate::kit::{NOW, Place, batch, claim, message, said};

#[tokio::test]
async fn a_write_whose_caller_left_is_done() {
    let place = Place::new();
    let store = place.store();
    let ids: Vec<_> = (0..100).map(|n| ConversationId::from(format!("c{n}"))).collect();
    for id in &ids {
        claim(&store, id, "w", NOW).await.unwrap();
    }
    let events = [said(1, "one"), said(2, "two")];
    for id in &ids {
        // Polled once, which puts it into the queue; then dropped.
        assert!(store.append(batch(id, 1, 0, &events)).now_or_never().is_none());
    }
    drop(store);
    let store = place.store();
    for id in &ids {
        assert_eq!(store.log(id, 1, usize::MAX).await.unwrap(), events);
    }
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait_and_loses_nothing() {
    let place = Place::new();
    let store = place.store();
    // No inbox takes them all.
    let ids: Vec<_> = (0..10).map(|n| ConversationId::from(format!("c{n}"))).collect();
    for id in &ids {
        claim(&store, id, "w", NOW).await.unwrap();
    }
    let inbox = (0..5000).zip(ids.iter().cycle());
    let delivered =
        futures_util::future::join_all(inbox.map(|(n, id)| store.deliver(id, message(&format!("t{n}"))))).await;
    assert!(delivered.iter().all(Result::is_ok));
    for id in &ids {
        assert_eq!(claim(&store, id, "w", NOW).await.unwrap().inbox.len(), 500);
    }
}
