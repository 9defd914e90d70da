//! Files of older versions: brought up to date with everything in them.

use turnbuckle::store::{Answer, InboxFilter, InboxItem, InboxKind, Job, JobLease, LEASE, Store, StoreError};
use turnbuckle::{Actor, ConversationId};
use turnbuckle_stores::{DatabaseId, SqliteError, SqliteStore};

use crate::kit::{NOW, Place, claim, hooks, job, message, record, said};

/// A file as the first version left it: a conversation with an event, an inbox item, hook records, and a job that is leased to a lost process.
pub fn first_version(place: &Place) -> ConversationId {
    let db = rusqlite::Connection::open(place.file()).unwrap();
    db.execute_batch(include_str!("../../src/sqlite/v1.sql")).unwrap();
    let json = |value: serde_json::Value| value.to_string();
    let owner = json(serde_json::to_value(turnbuckle::Actor::System).unwrap());
    let now = i64::try_from(NOW.as_millis()).unwrap();
    db.execute(
        "INSERT INTO conversation (id, format, owner, opened, written, seq) VALUES ('c', 1, ?, ?2, ?2, 1)",
        (owner, now),
    )
    .unwrap();
    let event = json(serde_json::to_value(&*said(1, "one")).unwrap());
    db.execute(
        "INSERT INTO event (conversation, seq, turn, at, type, format, tokens, body) VALUES (1, 1, 't1', ?, 'user_message', 1, 9, ?)",
        (now, event),
    )
    .unwrap();
    let item = json(serde_json::to_value(message("t2")).unwrap());
    db.execute("INSERT INTO inbox (conversation, letter, opens, format, body) VALUES (1, 't2', 1, 1, ?)", [item])
        .unwrap();
    for hook in ["first", "second"] {
        let record = json(serde_json::to_value([record(hook)]).unwrap());
        db.execute("INSERT INTO record (conversation, turn, format, body) VALUES (1, 't1', 1, ?)", [record]).unwrap();
    }
    let left = json(serde_json::to_value(Job { tries: 0, ..job("memory") }).unwrap());
    db.execute(
        "INSERT INTO job (conversation, turn, hook, kind, due, held_until, process, format, body)
         VALUES (1, 't1', 'memory', 'background', ?1, ?2, 'elsewhere 7 7', 1, ?3)",
        (now, now + 15_000, left),
    )
    .unwrap();
    db.execute_batch("PRAGMA application_id = 0x54624B6C; PRAGMA user_version = 1;").unwrap();
    "c".into()
}

#[tokio::test]
async fn a_file_of_the_first_version_is_migrated_with_all_that_is_in_it() {
    let place = Place::new();
    let id = first_version(&place);
    let looked = SqliteStore::open_read_only(place.file()).unwrap_err();
    assert!(matches!(looked, SqliteError::Older { found: 1, known: SqliteStore::SCHEMA_VERSION, .. }), "{looked:?}");
    let store = place.store();
    assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
    assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap(), [message("t2")]);
    assert_eq!(store.records(&id, &"t1".into()).await.unwrap(), [record("first"), record("second")]);
    let take = async |from| {
        let lease = JobLease { writer: &"w".into(), from, lasts: LEASE };
        store.take_job(&id, &hooks("memory"), lease).await.unwrap()
    };
    assert_eq!(take(NOW).await, None, "the lease of the older program counts");
    assert_eq!(take(NOW.after(LEASE)).await.unwrap().tries, 1);
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().seq, 1);
    drop(store);
    assert_eq!(place.store().log(&id, 1, 9).await.unwrap().len(), 1, "and once is enough");
    let version: i64 = rusqlite::Connection::open(place.file())
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, SqliteStore::SCHEMA_VERSION);
}

/// Brings a file of the first version to the second, by the statements that an older program had.
pub fn second_version(place: &Place) -> ConversationId {
    let id = first_version(place);
    let db = rusqlite::Connection::open(place.file()).unwrap();
    db.execute_batch(include_str!("../../src/sqlite/v2.sql")).unwrap();
    let answer = |item: &str, call: &str| {
        let kind =
            InboxKind::Answer { call: call.into(), answer: Answer::Approve, digest: None, via: None, standing: None };
        InboxItem { id: item.into(), from: Actor::System, at: NOW, kind }
    };
    let cancel = InboxItem { kind: InboxKind::Cancel { turn: "t1".into() }, ..answer("l4", "") };
    for item in [answer("l1", "c1"), answer("l2", "c1"), answer("l3", "c2"), cancel] {
        let body = serde_json::to_string(&item).unwrap();
        db.execute(
            "INSERT INTO inbox (conversation, letter, opens, format, body) VALUES (1, ?, 0, 1, ?)",
            (item.id.as_str(), body),
        )
        .unwrap();
    }
    db.execute("INSERT INTO inbox (conversation, letter, opens, format, body) VALUES (1, 'l5', 0, 1, 'not JSON')", [])
        .unwrap();
    db.execute_batch("PRAGMA user_version = 2;").unwrap();
    id
}

/// What the column `answers` says of each order in the inbox.
fn answers(place: &Place) -> Vec<(String, Option<String>)> {
    let db = rusqlite::Connection::open(place.file()).unwrap();
    let mut query = db.prepare("SELECT letter, answers FROM inbox WHERE opens = 0 ORDER BY place").unwrap();
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_file_of_the_second_version_learns_which_calls_its_answers_are_for() {
    let place = Place::new();
    let id = second_version(&place);
    let store = place.store();
    let of = |item: &str, call: Option<&str>| (item.to_owned(), call.map(str::to_owned));
    assert_eq!(
        answers(&place),
        [of("l1", Some("c1")), of("l2", None), of("l3", Some("c2")), of("l4", None), of("l5", None)],
        "the first answer to a call has its key, and what cannot be read has none"
    );
    let late =
        InboxKind::Answer { call: "c2".into(), answer: Answer::Deny(None), digest: None, via: None, standing: None };
    let late = InboxItem { id: "l6".into(), from: Actor::System, at: NOW, kind: late };
    let late = store.deliver(&id, late).await;
    assert!(matches!(late, Err(StoreError::AlreadyAnswered { .. })), "{late:?}");
    assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
}

#[tokio::test]
async fn a_file_of_the_second_version_can_be_looked_at_before_it_is_migrated() {
    let place = Place::new();
    let id = second_version(&place);
    let store = SqliteStore::open_read_only(place.file()).unwrap();
    assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
    assert_eq!(store.list().await.unwrap().len(), 1);
    assert!(store.due(NOW, None, 9).await.unwrap().len() <= 1);
    assert_eq!(store.jobs(&id).await.unwrap().len(), 1);
    drop(store);
    let version: i64 = rusqlite::Connection::open(place.file())
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 2, "and stays as it is");
}

#[tokio::test]
async fn a_file_without_an_id_is_told_apart_and_gets_one_when_it_is_migrated() {
    let place = Place::new();
    second_version(&place);
    assert_eq!(SqliteStore::id_of(place.file()).unwrap(), None);
    let chosen = DatabaseId::random().unwrap();
    let store = SqliteStore::open_as(place.file(), &chosen).unwrap();
    assert_eq!(store.id(), Some(&chosen));
    drop(store);
    assert_eq!(SqliteStore::id_of(place.file()).unwrap(), Some(chosen));
}
