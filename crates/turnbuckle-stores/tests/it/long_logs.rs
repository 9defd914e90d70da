//! A log of a million events is taken up as fast as one of a hundred.

use std::time::{Duration, Instant};

use turnbuckle::ConversationId;
use turnbuckle::store::Store;

use crate::kit::{NOW, Place, claim, said};

/// Fills the log of `id` with copies of one event, by one statement.
fn fill(place: &Place, id: &str, events: u32) {
    let body = serde_json::to_string(&*said(1, "a few words")).unwrap().replacen("\"seq\":1", "\"seq\":%d", 1);
    let db = rusqlite::Connection::open(place.file()).unwrap();
    // Nobody else has it open, and nobody misses it.
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").unwrap();
    db.execute(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
         INSERT INTO event (conversation, seq, turn, at, type, format, tokens, body)
         SELECT made, n, 't1', ?3, 'user_message', 1, 7, printf(?4, n) FROM conversation, number WHERE id = ?1",
        (id, events, NOW.as_millis() as i64, body),
    )
    .unwrap();
    db.execute("UPDATE conversation SET seq = ?2 WHERE id = ?1", (id, events)).unwrap();
}

#[tokio::test]
async fn a_million_events_are_revived_as_fast_as_a_hundred() {
    const MILLION: u32 = 1_000_000;
    let place = Place::new();
    let lengths = [("short", 100), ("long", MILLION)];
    for (name, events) in lengths {
        claim(&place.store(), &name.into(), "w", NOW).await.unwrap();
        fill(&place, name, events);
    }
    let store = place.store();
    let mut best = [Duration::MAX; 2];
    for _ in 0..20 {
        for ((name, events), best) in lengths.iter().zip(&mut best) {
            let id = ConversationId::from(*name);
            let began = Instant::now();
            let claimed = store.claim(&id, &"w".into(), NOW).await.unwrap();
            let tail = store.tail(&id, claimed.seq + 1, 400).await.unwrap();
            assert!(!store.has_call(&id, &"c1".into()).await.unwrap());
            *best = began.elapsed().min(*best);
            assert_eq!((claimed.seq, tail.len()), (u64::from(*events), 58));
            assert_eq!(*tail[57], *said(u64::from(*events), "a few words"));
        }
    }
    // Flat but for a level or two more of the tree, and the noise of a busy machine.
    assert!(best[1] < 3 * best[0], "{best:?}");
    let middle = store.log(&"long".into(), u64::from(MILLION) / 2, 3).await.unwrap();
    assert_eq!(middle.iter().map(|event| event.seq).collect::<Vec<_>>(), [500_000, 500_001, 500_002]);
}
