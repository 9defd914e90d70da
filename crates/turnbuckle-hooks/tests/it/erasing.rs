//! Deleting a conversation reaches what hooks keep of it in files of their own.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::conversation::Conversations;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::SideStore;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, ConversationId, Scope, Timestamp};
use turnbuckle_hooks::audit_log::{AuditFiles, AuditLogOptions};
use turnbuckle_hooks::memory::remember::RememberOptions;
use turnbuckle_hooks::memory::{Memories, MergedMemories};
use turnbuckle_hooks::{AuditLog, Remember};

const NOW: Timestamp = Timestamp::from_millis(0);

fn says(text: &str) -> Script {
    let mut script = Script::of([ScriptReply::says(text)]);
    script.on_exhausted = OnExhausted::Repeat;
    script
}

/// Files below `folder` that contain this text, in any case: an index keeps words in lower case.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap().to_ascii_lowercase();
        if bytes.windows(text.len()).any(|window| window == text.to_ascii_lowercase().as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn texts(memories: &Memories, user: &str) -> Vec<String> {
    memories.oldest(user, 100).await.unwrap().into_iter().map(|memory| memory.text).collect()
}

async fn keep(memories: &Memories, from: &str, text: &str) {
    memories.keep("ann", &from.into(), vec![text.to_owned()], NOW, 1000).await.unwrap();
}

#[tokio::test]
async fn memories_of_a_deleted_conversation_are_in_no_file_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let memories = Memories::in_file(folder.path().join("memories.db"));
    let conversations = |fact: &str| {
        let model = Arc::new(says(&format!("[{fact:?}]")));
        let hook = Remember::new(memories.clone(), model, RememberOptions::default()).unwrap();
        let agent = Agent::builder("a", says("Noted.")).hook(hook).build().unwrap();
        Conversations::builder(agent, MemoryStore::default()).build()
    };
    for n in 0..40 {
        let other = conversations(&format!("Ann has visited place number {n}."));
        other.turn(&format!("other{n}").into(), "hi", Scope::user("ann")).await.unwrap();
        other.drain(Duration::from_secs(60)).await;
    }
    let conversations = conversations("Ann was treated in Zanzibar.");
    let id = ConversationId::from("fix");
    conversations.turn(&id, "hi", Scope::user("ann")).await.unwrap();
    conversations.drain(Duration::from_secs(60)).await;
    assert_eq!(memories.count(&id).await.unwrap(), 1);
    assert!(!files_with(folder.path(), "zanzibar").is_empty());
    let deleted = conversations.delete(&id, Scope::user("ann")).await.unwrap();
    assert!(deleted.left.is_empty(), "{deleted:?}");
    assert_eq!(files_with(folder.path(), "zanzibar"), [""; 0]);
    assert_eq!(texts(&memories, "ann").await.len(), 40);
    assert_eq!(memories.find("ann", "place number", 100).await.unwrap().len(), 40, "the index still knows the others");
}

#[tokio::test]
async fn a_memory_that_was_made_in_two_conversations_stays_until_both_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let memories = Memories::in_file(folder.path().join("memories.db"));
    for from in ["c1", "c2", "c1", "c1/call_1"] {
        keep(&memories, from, "Ann likes tea.").await;
    }
    memories.erase(&"c1".into()).await.unwrap();
    assert_eq!(texts(&memories, "ann").await, ["Ann likes tea."]);
    memories.erase(&"c".into()).await.unwrap();
    assert_eq!(texts(&memories, "ann").await, ["Ann likes tea."], "c is another conversation than c2");
    memories.erase(&"c2".into()).await.unwrap();
    assert!(texts(&memories, "ann").await.is_empty());
}

#[tokio::test]
async fn a_memory_that_was_made_of_others_goes_with_any_of_their_conversations() {
    let folder = tempfile::tempdir().unwrap();
    let memories = Memories::in_file(folder.path().join("memories.db"));
    keep(&memories, "c1", "Ann drinks tea.").await;
    keep(&memories, "c2", "Ann drinks it with milk.").await;
    keep(&memories, "c3", "Ann lives in Rome.").await;
    let ids: BTreeSet<i64> = memories.oldest("ann", 2).await.unwrap().into_iter().map(|memory| memory.id).collect();
    let merged = MergedMemories { ids, text: "Ann drinks tea with milk.".to_owned() };
    memories.replace("ann", BTreeSet::new(), vec![merged], NOW).await.unwrap();
    assert_eq!(texts(&memories, "ann").await, ["Ann lives in Rome.", "Ann drinks tea with milk."]);
    memories.erase(&"c2".into()).await.unwrap();
    assert_eq!(texts(&memories, "ann").await, ["Ann lives in Rome."]);
}

#[tokio::test]
async fn all_memories_of_a_person_can_be_erased_also_those_of_unknown_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memories.db");
    older(&file);
    let memories = Memories::in_file(&file);
    assert_eq!(texts(&memories, "ann").await, ["Ann likes Zanzibar."]);
    assert_eq!(memories.find("ann", "Zanzibar", 9).await.unwrap().len(), 1);
    memories.erase_user("bob", &[]).await.unwrap();
    memories.erase_user("ann", &[]).await.unwrap();
    assert_eq!(files_with(folder.path(), "zanzibar"), [""; 0]);
}

#[tokio::test]
async fn memories_of_a_person_stay_if_they_were_made_from_a_conversation_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let memories = Memories::in_file(folder.path().join("memories.db"));
    keep(&memories, "held", "Ann likes tea.").await;
    keep(&memories, "held/call_1", "Ann lives in Rome.").await;
    keep(&memories, "held2", "Ann dreams of Zanzibar.").await;
    memories.erase_user("ann", &["held".into()]).await.unwrap();
    assert_eq!(texts(&memories, "ann").await, ["Ann likes tea.", "Ann lives in Rome."]);
    memories.erase_user("ann", &[]).await.unwrap();
    assert!(texts(&memories, "ann").await.is_empty());
}

/// A file as the first version left it: without origins, and for all to read.
fn older(file: &Path) {
    let db = rusqlite::Connection::open(file).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = wal;
         CREATE TABLE memory (id INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, text TEXT NOT NULL,
            at INTEGER NOT NULL, UNIQUE (user, text));
         CREATE VIRTUAL TABLE found USING fts5(
            text, content = 'memory', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
         CREATE TRIGGER memory_made AFTER INSERT ON memory BEGIN
            INSERT INTO found (rowid, text) VALUES (new.id, new.text);
         END;
         CREATE TRIGGER memory_gone AFTER DELETE ON memory BEGIN
            INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
         END;
         CREATE TABLE seen (user TEXT PRIMARY KEY, turn TEXT NOT NULL, at INTEGER NOT NULL, before INTEGER);
         INSERT INTO memory (user, text, at) VALUES ('ann', 'Ann likes Zanzibar.', 0), ('bob', 'Bob is tall.', 0);
         PRAGMA user_version = 1;",
    )
    .unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn files_of_memories_are_for_their_owner_alone_also_those_that_an_older_version_made() {
    use std::os::unix::fs::PermissionsExt as _;
    for made_before in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memories.db");
        if made_before {
            older(&file);
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
        let memories = Memories::in_file(&file);
        keep(&memories, "c1", "Ann likes tea.").await;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
            names.push(entry.file_name().into_string().unwrap());
        }
        names.sort();
        assert_eq!(names, ["memories.db", "memories.db-shm", "memories.db-wal"]);
    }
}

#[tokio::test]
async fn erasing_makes_no_file_and_touches_none_that_is_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Memories::in_file(folder.path().join("none.db"));
    missing.erase(&"c1".into()).await.unwrap();
    assert_eq!(missing.count(&"c1".into()).await.unwrap(), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let file = folder.path().join("other.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE mine (a); PRAGMA user_version = 1").unwrap();
    let before = std::fs::read(&file).unwrap();
    let error = Memories::in_file(&file).erase(&"c1".into()).await.unwrap_err();
    assert!(error.to_string().contains("no file of memories"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

fn audit_log(folder: &Path) -> AuditLog {
    // Small files: each turn fills some.
    let options = AuditLogOptions { content: true, max_bytes: 1024, keep: 50, ..Default::default() };
    AuditLog::new(folder.join("audit.jsonl"), options).unwrap()
}

#[tokio::test]
async fn lines_of_a_deleted_conversation_are_in_no_file_of_the_audit_log_and_all_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::builder("a", says("of course")).hook(audit_log(folder.path())).build().unwrap();
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    for (id, text) in [("fix", "I was in Zanzibar"), ("fix2", "I was in Rome"), ("fix", "Zanzibar is far")] {
        conversations.turn(&id.into(), text, Scope::user("ann")).await.unwrap();
    }
    let deleted = conversations.delete(&"fix".into(), Scope::user("ann")).await.unwrap();
    assert!(deleted.left.is_empty(), "{deleted:?}");
    assert_eq!(files_with(folder.path(), "zanzibar"), [""; 0]);
    assert!(!files_with(folder.path(), "rome").is_empty());
    // Every line is still JSON, and the log is written on.
    conversations.turn(&"fix2".into(), "and on", Scope::user("ann")).await.unwrap();
    conversations.drain(Duration::from_secs(60)).await;
    let mut erased = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        for line in std::fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            erased += usize::from(line["type"] == "erased");
            assert_ne!(line["conversation"], "fix");
        }
    }
    assert!(erased >= 6, "{erased}");
    assert!(!files_with(folder.path(), "and on").is_empty());
}

#[tokio::test]
async fn of_an_audit_log_only_its_own_files_and_lines_are_touched() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let (own, sub) = (r#"{"conversation":"fix","a":1}"#, r#"{"conversation":"fix/call_1","a":1}"#);
    let (other, says) =
        (r#"{"conversation":"fix2"}"#, r#"{"conversation":"x","reason":"fix \"conversation\":\"fix\""}"#);
    write("audit.jsonl", &format!("{own}\n{other}\nfix is no JSON\n{says}\n"));
    write("audit.jsonl.7", &format!("{sub}\n{{\"conversation\":\"fix\",\"cut\":\"off"));
    write("audit.jsonl.old", own);
    write("audit.jsonl2", own);
    let files = AuditFiles::new(folder.path().join("audit.jsonl"));
    assert_eq!(files.count(&"fix".into()).await.unwrap(), 3);
    files.erase(&"fix".into()).await.unwrap();
    files.erase(&"fix".into()).await.unwrap();
    assert_eq!(files.count(&"fix".into()).await.unwrap(), 0);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let lines = read("audit.jsonl");
    let lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
    assert_eq!(lines, [r#"{"type":"erased"}"#, other, "fix is no JSON", says]);
    assert_eq!(read("audit.jsonl").lines().next().unwrap().len(), own.len());
    assert!(!read("audit.jsonl.7").contains("fix"));
    assert_eq!((read("audit.jsonl.old"), read("audit.jsonl2")), (own.to_owned(), own.to_owned()));
    let nowhere = AuditFiles::new(folder.path().join("none/audit.jsonl"));
    nowhere.erase(&"fix".into()).await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_and_nothing_else_is_erased_while_an_audit_log_is_rotated() {
    const FILES: usize = 40;
    for round in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let name = |number: usize| folder.path().join(format!("audit.jsonl.{number}"));
        let base = folder.path().join("audit.jsonl");
        let line = |of: &str, n: usize| format!("{{\"conversation\":\"{of}\",\"n\":{n}}}\n");
        for n in 1..=FILES {
            // Files of different conversations, with lines at the same places.
            let of = if n % 2 == 0 { "fixed" } else { "other" };
            std::fs::write(name(n), line(of, 7).repeat(20)).unwrap();
        }
        let files = AuditFiles::new(&base);
        let (started, wait) = std::sync::mpsc::channel();
        let rotate = || {
            for turn in 0..30 {
                std::fs::write(&base, line("other", turn)).unwrap();
                for number in (1..=FILES + turn).rev() {
                    std::fs::rename(name(number), name(number + 1)).unwrap();
                }
                std::fs::rename(&base, name(1)).unwrap();
                // Fails if nobody waits any more.
                let _ = started.send(());
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(rotate);
            wait.recv().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let files = files.clone();
            let erase = move || runtime.block_on(files.erase(&"fixed".into())).unwrap();
            scope.spawn(erase);
        });
        assert_eq!(files_with(folder.path(), "fixed"), [""; 0], "round {round}");
        let all = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let others: usize = all.map(|path| std::fs::read_to_string(path).unwrap().matches("other").count()).sum();
        assert_eq!(others, FILES / 2 * 20 + 30, "round {round}");
    }
}
