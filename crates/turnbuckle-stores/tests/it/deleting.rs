//! What is deleted is in no file of the store any more.

use std::collections::BTreeSet;
use std::time::Duration;

use turnbuckle::id::ItemId;
use turnbuckle::scope::Author;
use turnbuckle::store::{
    Batch, Deletion, InboxItem, Lease, PurgeLimits, Purged, Scratch, ScratchWrite, Store, StoreError, Tombstone,
};
use turnbuckle::{Actor, ConversationId, Scope};
use turnbuckle_stores::{SqliteError, SqliteStore};

use crate::kit::{NOW, Place, claim, record, said};

const LIMITS: PurgeLimits = PurgeLimits { wait: Duration::from_secs(10), max_bytes: None };
const AT_ONCE: PurgeLimits = PurgeLimits { wait: Duration::ZERO, max_bytes: None };

/// Names of files in the store's folder that contain this text.
fn files_with(place: &Place, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(place.folder.path()).unwrap() {
        let file = file.unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(file.file_name().into_string().unwrap());
        }
    }
    found
}

/// The numbers of all markers in all files.
fn markers_found(place: &Place) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(place.folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let marked = bytes.windows(10).filter(|window| window.starts_with(b"SECRET"));
        found.extend(marked.filter_map(|window| std::str::from_utf8(&window[6..]).ok()?.parse::<u64>().ok()));
    }
    found
}

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_of(&mut self, sizes: &[usize]) -> usize {
        sizes[usize::try_from(self.below(sizes.len() as u64)).unwrap()]
    }
}

fn marker(number: u64) -> String {
    format!("SECRET{number:04}x")
}

/// Text of about this many bytes that is recognised wherever a piece of it stands.
fn text(number: u64, size: usize) -> String {
    marker(number).repeat(size / 11 + 1)
}

async fn delete(store: &SqliteStore, id: &ConversationId) -> Result<(), StoreError> {
    let epoch = claim(store, id, "deleter", NOW).await?.epoch;
    let by = Author::User("ann".into());
    store.delete(Deletion { conversation: id, epoch, by: &by, at: NOW, left: &["x".into()] }).await
}

fn scratch(advice: String) -> Scratch {
    Scratch {
        turn: "t1".into(),
        actor: Actor::System,
        agent: "a".into(),
        model: "demo".into(),
        digest: "d".into(),
        parts: None,
        schema: None,
        limits: turnbuckle::Limits::default(),
        injections: Vec::new(),
        steering: Vec::new(),
        regeneration: None,
        asked: None,
        approved_reply: None,
        project: Default::default(),
        answers: Vec::new(),
        answered_by: Vec::new(),
        effective: None,
        touched: Vec::new(),
        active: Duration::ZERO,
        worked: Duration::ZERO,
        unlogged: Default::default(),
        sub_agents: Vec::new(),
        last_answer: None,
        advice: vec![("coach".into(), advice.into())],
        warnings: Vec::new(),
    }
}

/// Conversations whose rows lie between each other's, of all sizes, with everything that a store keeps of them.
async fn fill(store: &SqliteStore, conversations: u64, steps: u64) {
    let mut numbers = Numbers(7);
    let ann = Scope::user("ann").actor().clone();
    for number in 0..conversations {
        Store::open(store, &format!("c{number}").into(), &ann, NOW).await.unwrap();
    }
    for step in 0..steps {
        let number = numbers.below(conversations);
        let id = ConversationId::from(format!("c{number}"));
        let size = numbers.one_of(&[20, 100, 300, 1000, 3000, 9000]);
        let claim = claim(store, &id, "w", NOW).await.unwrap();
        let item = format!("t{step}");
        let events = [said(claim.seq + 1, &text(number, size))];
        let scratch = scratch(text(number, numbers.one_of(&[20, 700, 2500, 6000])));
        let (turn, mut record) = ("t1".into(), record("lint"));
        record.reason = Some(text(number, size / 2).into());
        let added = serde_json::json!({"injected": [{"text": text(number, size), "for": "this_turn"}]});
        record.change = serde_json::from_value(added).unwrap();
        let take: Vec<ItemId> = claim.inbox.into_iter().map(|item| item.id).collect();
        let batch = Batch {
            events: if step % 3 == 0 { &events } else { &[] },
            scratch: if step % 2 == 0 {
                ScratchWrite::Put(&std::sync::Arc::new(scratch.clone()))
            } else {
                ScratchWrite::Delete
            },
            records: if step % 5 == 0 { vec![record] } else { Vec::new() },
            turn: Some(&turn),
            take: if step % 4 == 0 { &take } else { &[] },
            lease: Lease::Release,
            ..Batch::new(&id, claim.epoch, claim.seq)
        };
        store.append(batch).await.unwrap();
        if step % 7 == 0 {
            let message = InboxItem::message(&item.as_str().into(), text(number, size).into(), ann.clone(), NOW);
            store.deliver(&id, message).await.unwrap();
        }
    }
}

/// A database as months of use leave it: rows of many conversations came and went between each other, and SQLite moved them from
/// page to page. That leaves copies in parts of pages that are not in use. Written without the store, which would take minutes.
fn used_for_long(place: &Place, conversations: u64, steps: u64) {
    drop(place.store());
    let db = rusqlite::Connection::open(place.file()).unwrap();
    db.execute_batch("PRAGMA secure_delete = ON; PRAGMA synchronous = OFF;").unwrap();
    let (mut numbers, mut seqs) = (Numbers(7), vec![0_i64; usize::try_from(conversations).unwrap()]);
    for number in 0..conversations {
        db.execute(
            "INSERT INTO conversation (made, id, format, owner, opened, written) VALUES (?1, ?2, 1, '\"system\"', 0, 0)",
            (i64::try_from(number + 1).unwrap(), format!("c{number}")),
        )
        .unwrap();
    }
    for step in 0..steps {
        let number = numbers.below(conversations);
        let (key, size) = (i64::try_from(number + 1).unwrap(), numbers.one_of(&[20, 100, 300, 1000, 3000, 9000]));
        let text = text(number, size);
        let done = match numbers.below(20) {
            0..8 => {
                let seq = &mut seqs[usize::try_from(number).unwrap()];
                *seq += 1;
                let call = (step % 3 == 0).then(|| marker(number));
                db.execute("UPDATE conversation SET seq = ?2, beside = ?3 WHERE made = ?1", (key, *seq, &text))
                    .unwrap();
                let insert = "INSERT INTO event VALUES (?1, ?2, 't', 0, 'user_message', ?3, 1, 1, ?4)";
                db.execute(insert, (key, *seq, call, &text))
            }
            8..12 => db.execute("UPDATE conversation SET beside = NULL WHERE made = ?1", [key]),
            12..14 => {
                let insert = "INSERT INTO inbox (conversation, letter, opens, format, body) VALUES (?, ?, 1, 1, ?)";
                db.execute(insert, (key, marker(number), &text))
            }
            14..16 => db.execute("DELETE FROM inbox WHERE conversation = ?", [key]),
            16..18 => {
                let insert = "INSERT INTO record (conversation, turn, format, body) VALUES (?, 't', 1, ?)";
                db.execute(insert, (key, &text))
            }
            18 => {
                let insert =
                    "INSERT INTO job (conversation, turn, hook, kind, format, body) VALUES (?, 't', ?, 'k', 1, ?)";
                db.execute(insert, (key, step.to_string(), &text[..text.len().min(400)]))
            }
            _ => db.execute("DELETE FROM job WHERE conversation = ?", [key]),
        };
        done.unwrap();
    }
    // No turn is open, and nothing waits: only such conversations are deleted.
    db.execute_batch("UPDATE conversation SET beside = NULL; DELETE FROM inbox;").unwrap();
}

#[tokio::test]
async fn no_byte_of_a_deleted_conversation_is_left_in_any_file() {
    const CONVERSATIONS: u64 = 120;
    let place = Place::new();
    used_for_long(&place, CONVERSATIONS, 12_000);
    let store = place.store();
    let is_gone = |number: u64| number.is_multiple_of(2);
    for number in (0..CONVERSATIONS).filter(|number| is_gone(*number)) {
        delete(&store, &format!("c{number}").into()).await.unwrap();
    }
    assert_eq!(store.purge(LIMITS).await.unwrap(), Purged::Done);
    assert_eq!(markers_found(&place), (0..CONVERSATIONS).filter(|number| !is_gone(*number)).collect());
    assert_eq!(store.list().await.unwrap().len() as u64, CONVERSATIONS / 2);
    drop(store);
    let integrity: String = rusqlite::Connection::open(place.file())
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(integrity, "ok");
}

#[tokio::test]
async fn a_reader_prevents_the_cleaning_until_it_is_done() {
    let place = Place::new();
    let store = place.store();
    fill(&store, 2, 40).await;
    // A process that reads for a long time.
    let reader = rusqlite::Connection::open(place.file()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
    delete(&store, &"c0".into()).await.unwrap();
    assert_eq!(store.purge(AT_ONCE).await.unwrap(), Purged::InUse);
    assert_eq!(store.purge(AT_ONCE).await.unwrap(), Purged::InUse);
    assert!(!files_with(&place, &marker(0)).is_empty(), "what the reader sees is still there");
    // Meanwhile others write.
    claim(&store, &"c1".into(), "w", NOW).await.unwrap();
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(store.purge(AT_ONCE).await.unwrap(), Purged::Done);
    assert_eq!(files_with(&place, &marker(0)), [""; 0]);
}

#[tokio::test]
async fn readers_that_come_and_go_do_not_prevent_it() {
    let place = Place::new();
    let store = place.store();
    fill(&store, 4, 200).await;
    delete(&store, &"c0".into()).await.unwrap();
    let other = SqliteStore::open_read_only(place.file()).unwrap();
    let reading = tokio::spawn(async move {
        loop {
            assert!(!other.log(&"c1".into(), 1, 9_999).await.unwrap().is_empty());
        }
    });
    assert_eq!(store.purge(LIMITS).await.unwrap(), Purged::Done);
    reading.abort();
    assert_eq!(files_with(&place, &marker(0)), [""; 0]);
}

#[tokio::test]
async fn a_store_that_is_too_large_is_left_for_later() {
    let place = Place::new();
    let store = place.store();
    fill(&store, 2, 20).await;
    let small = PurgeLimits { max_bytes: Some(1_000), ..LIMITS };
    assert!(matches!(store.purge(small).await.unwrap(), Purged::TooLarge { bytes } if bytes > 1_000));
}

#[tokio::test]
async fn a_deletion_and_what_is_left_of_it_outlive_the_process() {
    let place = Place::new();
    let (id, by) = (ConversationId::from("c0"), Author::User("ann".into()));
    let store = place.store();
    fill(&store, 1, 20).await;
    delete(&store, &id).await.unwrap();
    drop(store);
    let store = place.store();
    let tombstone = Tombstone::new(id.clone(), by, NOW, vec!["x".into()]);
    assert_eq!(store.unfinished_deletions().await.unwrap(), [tombstone]);
    let again = Store::open(&store, &id, &Actor::System, NOW).await;
    assert!(matches!(again, Err(StoreError::Deleted { .. })), "{again:?}");
}

/// A database that an older program made is listed without being migrated.
#[tokio::test]
async fn a_database_without_the_new_tables_is_read() {
    let place = Place::new();
    fill(&place.store(), 1, 20).await;
    let db = rusqlite::Connection::open(place.file()).unwrap();
    db.execute_batch(
        "DROP TABLE act; DROP TABLE unerased; DROP TABLE tombstone; DROP TABLE hold; DROP TABLE title;
         DROP TABLE cache_break; DROP TABLE audit_call; DROP TABLE audit_content; DROP TABLE audit_size;
         ALTER TABLE conversation DROP COLUMN sent; ALTER TABLE conversation DROP COLUMN sent_format;
         PRAGMA user_version = 4;",
    )
    .unwrap();
    drop(db);
    let store = SqliteStore::open_read_only(place.file()).unwrap();
    let listed = store.list().await.unwrap();
    assert_eq!(listed[0].hold, None);
    let id = &listed[0].id;
    assert_eq!((store.title(id).await.unwrap(), store.sent(id).await.unwrap()), (None, None));
    assert!(store.cache_breaks(id).await.unwrap().is_empty() && store.audited_calls(id).await.unwrap().is_empty());
    assert!(store.audit_contents(id).await.unwrap().is_empty());
    assert!(matches!(store.log(&"none".into(), 1, 1).await, Err(StoreError::NotFound { .. })));
    assert_eq!(store.tombstone(&"none".into()).await.unwrap(), None);
    assert!(store.acts(9).await.unwrap().is_empty() && store.unfinished_deletions().await.unwrap().is_empty());
    let refused = store.purge(LIMITS).await.unwrap_err();
    let cause = std::error::Error::source(&refused).and_then(|cause| cause.downcast_ref());
    assert!(matches!(cause, Some(SqliteError::OpenedToRead { .. })), "{refused:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let store = place.store();
    fill(&store, 1, 20).await;
    delete(&store, &"c0".into()).await.unwrap();
    assert_eq!(store.purge(LIMITS).await.unwrap(), Purged::Done);
    fill(&store, 0, 0).await;
    for file in std::fs::read_dir(place.folder.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
}
