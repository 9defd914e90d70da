//! Promises about the keys of messages.

use super::*;
use crate::store::{KeyedMessage, MessageKey};

pub(super) async fn a_key_makes_two_messages_one_for_a_day(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let under = |turn: &str, key: &str, digest: &str, at: Timestamp| {
        let key = MessageKey { key: key.into(), digest: digest.into() };
        InboxItem { at, ..message(turn) }.with_key(Some(key))
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let first = KeyedMessage { digest: "d1".into(), turn: "t1".into(), at: NOW };
    store.deliver(&id, under("t1", "k", "d1", NOW)).await.unwrap();
    for digest in ["d1", "d2"] {
        let refused = store.deliver(&id, under("t2", "k", digest, NOW)).await;
        assert!(matches!(refused, Err(StoreError::SentBefore { sent, .. }) if sent == first));
    }
    assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap().len(), 1);
    let mut of_bob = under("t3", "k", "d1", NOW);
    of_bob.from = Actor::User { id: "bob".into(), roles: [].into() };
    store.deliver(&id, of_bob).await.unwrap();
    let other = self::id("c2");
    store.open(&other, &ann(), NOW).await.unwrap();
    store.deliver(&other, under("t4", "k", "d1", NOW)).await.unwrap();
    // The message was taken up, and its key is known.
    let taken = ["t1".into(), "t3".into()];
    store.append(Batch { take: &taken, ..batch(&id, epoch, 0, &[said("t1", 1)]) }).await.unwrap();
    let known = |at| store.keyed_message(&id, "ann", "k", at);
    assert_eq!(known(NOW).await.unwrap(), Some(first));
    assert_eq!(store.keyed_message(&id, "ann", "other", NOW).await.unwrap(), None);
    assert_eq!(store.keyed_message(&id, "sue", "k", NOW).await.unwrap(), None);
    // A day later it is free again.
    assert_eq!(known(later(day)).await.unwrap(), None);
    store.deliver(&id, under("t5", "k", "d2", later(day))).await.unwrap();
    assert_eq!(known(later(day)).await.unwrap().map(|sent| sent.turn), Some("t5".into()));
}
