//! `delete`, `hold`, `export` and retention: what is deleted is in no file any more, and everything else is.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;

use crate::program::{Folder, Ran};

/// What the deleted conversation is about.
const SECRET: &str = "zanzibar";

const CONFIG: &str = r#"
[agent]
model = "script:script.json"
[tools]
approve = ["write_file"]
[[agents]]
name = "reviewer"
system = "You look."
[[hooks]]
use = "remember"
model = "script:notes.json"
[[hooks]]
use = "audit_log"
content = true
max_bytes = 2048
keep = 900
"#;

/// A folder with a configuration that keeps as much as it can: `--config` names it, so it is accepted.
fn folder() -> Folder {
    let folder = Folder::new();
    let script = r#"{"replies": [
        {"text": "let me look at Zanzibar", "tool_calls": [{"id": "s1", "name": "reviewer", "arguments": {"task": "Zanzibar"}}]},
        {"text": "Zanzibar is far"}],
        "agents": {"reviewer": [{"text": "an island, Zanzibar"}]}}"#;
    folder.file("script.json", script);
    folder.file("plain.json", r#"{"replies": [{"text": "Rome is near"}], "on_exhausted": "repeat"}"#);
    folder.file(
        "notes.json",
        r#"{"replies": [{"text": "[\"The user dreams of Zanzibar.\"]"}], "on_exhausted": "repeat"}"#,
    );
    folder.file("rome.json", r#"{"replies": [{"text": "[\"The user lives in Rome.\"]"}], "on_exhausted": "repeat"}"#);
    folder.file("c.toml", CONFIG);
    folder.file(
        "rome.toml",
        &CONFIG.replace("notes.json", "rome.json").replace("script:script.json", "script:plain.json"),
    );
    folder
}

fn run(folder: &Folder, arguments: &[&str]) -> Ran {
    folder.run(&[arguments, &["--config", "c.toml"]].concat())
}

/// Two conversations: one about the secret, one about something else.
fn two_conversations(folder: &Folder) {
    run(folder, &["run", "-c", "fix", "how far is Zanzibar?"]).exits(0);
    folder.run(&["run", "--config", "rome.toml", "-c", "other", "how far is Rome?"]).exits(0);
}

/// Files in the folder of the store that contain this text, in any case.
fn files_with(folder: &Folder, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.path().join(".turnbuckle")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap().to_ascii_lowercase();
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

#[track_caller]
fn is_gone(folder: &Folder) {
    assert_eq!(files_with(folder, SECRET), [""; 0]);
    assert!(files_with(folder, "rome").len() >= 3, "the other one is in the store, the memories and the audit log");
    let other = run(folder, &["show", "other", "--json"]).exits(0);
    assert_eq!(other.types().last().map(String::as_str), Some("turn_ended"));
}

#[test]
fn no_byte_of_a_deleted_conversation_is_left_in_any_file() {
    let folder = folder();
    two_conversations(&folder);
    assert!(files_with(&folder, SECRET).len() >= 3);
    let deleted = run(&folder, &["delete", "fix", "--yes"]).exits(0);
    let deleted = deleted.says("1 conversation of a sub-agent").says("also 1 entry: memories").says("audit log");
    assert_eq!(deleted.out, "");
    is_gone(&folder);
    run(&folder, &["show", "fix"]).exits(1).says("conversation fix was deleted at").says("list --acts");
    run(&folder, &["show", "fix/s1"]).exits(1);
    run(&folder, &["run", "-c", "fix", "again"]).exits(1).says("was deleted").says("choose another id");
    run(&folder, &["delete", "fix", "--yes"]).exits(0);
    run(&folder, &["delete", "none", "--yes"]).exits(1).says("there is no conversation none");
}

#[test]
fn without_a_terminal_nothing_is_deleted_unless_it_is_meant() {
    let folder = folder();
    two_conversations(&folder);
    run(&folder, &["delete", "fix"]).exits(2).says("--yes");
    run(&folder, &["delete", "--user", "local"]).exits(2).says("--yes");
    folder.run_with_stdin(&["delete", "fix", "--config", "c.toml"], b"y\n").exits(2);
    assert!(files_with(&folder, SECRET).len() >= 3);
    run(&folder, &["delete"]).exits(2);
    run(&folder, &["delete", "fix", "--user", "ann"]).exits(2);
}

#[test]
fn what_is_on_hold_or_busy_is_not_deleted() {
    let folder = folder();
    two_conversations(&folder);
    run(&folder, &["hold", "fix"]).exits(0).says("--release");
    run(&folder, &["hold", "fix"]).exits(0).says("already");
    assert!(run(&folder, &["list"]).exits(0).out.contains("[on hold]"));
    let listed = run(&folder, &["list", "--json"]).exits(0).events();
    let held = listed.iter().find(|line| line["id"] == "fix").unwrap();
    assert_eq!(held["hold"]["by"]["user"], "local");
    run(&folder, &["delete", "fix", "--yes"]).exits(1).says("is on hold").says("hold fix --release");
    run(&folder, &["delete", "--user", "local", "--yes"]).exits(1).says("conversation fix was not deleted");
    assert!(run(&folder, &["list"]).out.contains("fix"));
    run(&folder, &["hold", "fix", "--release"]).exits(0);
    folder.file("waits.json", r#"{"replies": [{"tool_calls": [{"id": "c1", "name": "write_file", "arguments": {"path": "a", "content": "b"}}]}]}"#);
    run(&folder, &["run", "--model", "script:waits.json", "-c", "open", "write"]).exits(4);
    // It is known before anybody is asked, so without a terminal it is not the missing `--yes` that is told.
    let busy = run(&folder, &["delete", "open"]).exits(1).says("busy").says("turnbuckle cancel open");
    assert!(!busy.err.contains("deleting"), "{}", busy.err);
    run(&folder, &["delete", "open", "--yes"]).exits(1).says("busy");
    run(&folder, &["delete", "fix", "--yes"]).exits(0);
}

#[test]
fn a_hook_that_lacks_its_secret_or_model_keeps_nobody_from_deleting() {
    let folder = folder();
    two_conversations(&folder);
    let audit = CONFIG.replace("content = true", "content = true\nfile = \"decided.jsonl\"");
    folder.file("audit.toml", &audit);
    folder.run(&["run", "--config", "audit.toml", "-c", "third", "how far is Zanzibar?"]).exits(0);
    assert!(folder.read("decided.jsonl").contains("Zanzibar"));
    let notify = "[[hooks]]\nuse = \"notify\"\nurl = \"http://127.0.0.1:9/\"\nsecret_env = \"NOT_SET_HERE\"\n";
    folder.file("audit.toml", &format!("{}{notify}", audit.replace("notes.json", "gone.json")));
    let lacking = |arguments: &[&str]| folder.run(&[arguments, &["--config", "audit.toml"]].concat());
    lacking(&["run", "-c", "third", "hi"]).exits(2);
    lacking(&["hold", "third"]).exits(0);
    lacking(&["hold", "third", "--release"]).exits(0);
    assert!(lacking(&["export", "third"]).exits(0).out.contains("Zanzibar"));
    lacking(&["delete", "third", "--yes"]).exits(0).says("audit log in");
    assert!(!folder.read("decided.jsonl").contains("Zanzibar"), "what other hooks keep is still found");
    // What cannot be understood may keep something.
    folder.file("audit.toml", "[[hooks]]\nuse = \"audit_log\"\nfiel = \"decided.jsonl\"\n");
    lacking(&["delete", "fix", "--yes"]).exits(2).says("unknown key `fiel`");
}

#[test]
fn files_of_another_configuration_are_reached_by_deleting_again_with_it() {
    let folder = folder();
    folder.file("audit.toml", &CONFIG.replace("content = true", "content = true\nfile = \"decided.jsonl\""));
    folder.run(&["run", "--config", "audit.toml", "-c", "fix", "how far is Zanzibar?"]).exits(0);
    folder.run(&["delete", "fix", "--yes"]).exits(0);
    assert!(folder.read("decided.jsonl").contains("Zanzibar"), "as SECURITY.md says");
    folder.run(&["delete", "fix", "--config", "audit.toml"]).exits(0);
    assert!(!folder.read("decided.jsonl").contains("Zanzibar"));
}

#[test]
fn a_hold_keeps_what_is_remembered_of_the_conversation() {
    let folder = folder();
    two_conversations(&folder);
    run(&folder, &["hold", "fix"]).exits(0);
    run(&folder, &["delete", "--user", "local", "--yes"]).exits(1).says("conversation other was deleted");
    let memories = Connection::open(folder.path().join(".turnbuckle/memories.db")).unwrap();
    let texts: String = memories.query_row("SELECT group_concat(text) FROM memory", [], |row| row.get(0)).unwrap();
    assert_eq!(texts, "The user dreams of Zanzibar.");
}

#[test]
fn all_of_a_person_goes_with_what_is_remembered_about_them() {
    let folder = folder();
    let as_ann = format!("{CONFIG}[scope]\nuser = \"ann\"\n");
    folder.file("ann.toml", &as_ann);
    two_conversations(&folder);
    folder.run(&["run", "--config", "ann.toml", "-c", "anns", "how far is Zanzibar?"]).exits(0);
    let mine =
        run(&folder, &["delete", "--user", "ann", "--yes"]).exits(1).says("no conversation of user ann that you may");
    assert!(!mine.err.contains("cleaning the files"), "{}", mine.err);
    run(&folder, &["delete", "--user", "local", "--yes"]).exits(0).says("conversation fix was deleted");
    let memories = Connection::open(folder.path().join(".turnbuckle/memories.db")).unwrap();
    let users: String = memories.query_row("SELECT group_concat(user) FROM memory", [], |row| row.get(0)).unwrap();
    assert_eq!(users, "ann");
    drop(memories);
    folder.run(&["delete", "--config", "ann.toml", "--user", "ann", "--yes"]).exits(0);
    assert_eq!(files_with(&folder, SECRET), [""; 0]);
    assert_eq!(files_with(&folder, "rome"), [""; 0]);
}

#[test]
fn an_export_has_the_lines_of_show_and_of_its_sub_agents() {
    let folder = folder();
    two_conversations(&folder);
    let other = run(&folder, &["export", "other"]).exits(0);
    assert_eq!(other.out, run(&folder, &["show", "other", "--json"]).out);
    let fix = run(&folder, &["export", "fix"]).exits(0);
    let inside = run(&folder, &["show", "fix/s1", "--json"]).exits(0).out;
    assert_eq!(fix.out, run(&folder, &["show", "fix", "--json"]).out + &inside);
    let all = run(&folder, &["export", "--user", "local"]).exits(0);
    assert_eq!(all.out, fix.out + &other.out);
    assert_eq!(run(&folder, &["export", "--user", "ann"]).exits(0).out, "");
    run(&folder, &["export", "none"]).exits(1);
    run(&folder, &["export"]).exits(2);
}

#[test]
fn acts_say_who_did_what() {
    let folder = folder();
    two_conversations(&folder);
    run(&folder, &["hold", "fix"]).exits(0);
    run(&folder, &["hold", "fix", "--release"]).exits(0);
    run(&folder, &["delete", "fix", "--yes"]).exits(0);
    let acts = run(&folder, &["list", "--acts", "--json"]).exits(0).events();
    let kinds: Vec<_> = acts.iter().map(|act| act["act"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["deleted", "released", "held"]);
    assert!(acts.iter().all(|act| act["by"]["user"] == "local" && act["about"] == "fix" && act["left"].is_null()));
    let text = run(&folder, &["list", "--acts"]).exits(0).out;
    assert!(text.lines().next().unwrap().ends_with("deleted   fix by user local"), "{text}");
}

#[test]
fn a_reader_that_does_not_stop_is_told_and_the_next_deletion_finishes_the_first() {
    let folder = folder();
    two_conversations(&folder);
    let reader = Connection::open(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
    let deleted = run(&folder, &["delete", "fix", "--yes"]).exits(1);
    deleted.says("conversation fix was deleted").says("not erased yet: the files of the store").says("tries again");
    run(&folder, &["show", "fix"]).exits(1);
    let acts = run(&folder, &["list", "--acts", "--json"]).exits(0).events();
    assert_eq!(acts[0]["left"], serde_json::json!(["the files of the store"]));
    drop(reader);
    // Another conversation; its deletion cleans up for both.
    run(&folder, &["run", "--model", "script:plain.json", "-c", "third", "hi"]).exits(0);
    run(&folder, &["delete", "third", "--yes"]).exits(0);
    is_gone(&folder);
    let acts = run(&folder, &["list", "--acts", "--json"]).exits(0).events();
    assert!(acts.iter().all(|act| act["left"].is_null()), "{acts:?}");
}

#[test]
fn a_file_that_cannot_be_erased_does_not_keep_the_conversation() {
    let folder = folder();
    two_conversations(&folder);
    let memories = folder.path().join(".turnbuckle/memories.db");
    let sound = std::fs::read(&memories).unwrap();
    std::fs::write(&memories, "not a database").unwrap();
    let deleted = run(&folder, &["delete", "fix", "--yes"]).exits(1);
    deleted.says("cannot be looked at").says("conversation fix was deleted").says("not erased yet: memories in");
    run(&folder, &["show", "fix"]).exits(1);
    std::fs::write(&memories, sound).unwrap();
    run(&folder, &["delete", "fix", "--yes"]).exits(0);
    is_gone(&folder);
}

#[test]
fn what_a_hook_keeps_that_is_not_accepted_is_noted_and_erased_once_it_is() {
    let hook = "[[hooks]]\nuse = \"audit_log\"\nfile = \"logs/audit.jsonl\"\ncontent = true\n";
    let folder = Folder::cloned(r#"{ "text": "zanzibar is far" }"#, hook);
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "-c", "x", "how far?"]).exits(0);
    let kept = || folder.read("logs/audit.jsonl").contains(SECRET);
    assert!(kept());
    folder.file("turnbuckle.toml", &format!("{}name = \"audit\"\n", folder.read("turnbuckle.toml")));
    let deleted = folder.run(&["delete", "x", "--yes"]).exits(1).says("conversation x was deleted");
    deleted.says("not erased yet: audit log in ").says("`turnbuckle trust` shows the hook, and asks");
    assert!(kept(), "a file that was not accepted decides what is opened");
    assert!(folder.run(&["list", "--acts"]).exits(0).out.contains("[not erased yet: audit log in "));
    // Nor is it forgotten by repeating it.
    folder.run(&["delete", "x", "--yes"]).exits(1).says("not erased yet");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["delete", "x", "--yes"]).exits(0);
    assert!(!kept());
    assert!(!folder.run(&["list", "--acts"]).exits(0).out.contains("not erased yet"));
}

#[test]
fn delete_and_export_say_that_they_take_a_person_instead() {
    for command in ["delete", "export"] {
        folder().run(&[command]).exits(2).says("--user <NAME>");
        folder().run(&[command, "a", "--user", "ann"]).exits(2);
    }
}

#[test]
fn a_deletion_that_was_killed_anywhere_is_finished_by_repeating_it() {
    let folder = folder();
    folder.run(&["run", "--config", "rome.toml", "-c", "other", "how far is Rome?"]).exits(0);
    // How long an undisturbed one takes.
    run(&folder, &["run", "-c", "timed", "how far is Zanzibar?"]).exits(0);
    let began = Instant::now();
    run(&folder, &["delete", "timed", "--yes"]).exits(0);
    let usual = began.elapsed();
    let mut cut_short = 0;
    for round in 0..20_u32 {
        let id = format!("fix{round}");
        run(&folder, &["run", "-c", &id, "how far is Zanzibar?"]).exits(0);
        let mut child = folder.command(&["delete", &id, "--yes", "--config", "c.toml"]).spawn().unwrap();
        std::thread::sleep(usual * round / 16);
        child.kill().unwrap();
        child.wait().unwrap();
        cut_short += usize::from(!files_with(&folder, SECRET).is_empty());
        run(&folder, &["delete", &id, "--yes"]).exits(0);
        is_gone(&folder);
    }
    assert!(cut_short > 0, "no kill came before the end");
    let acts = run(&folder, &["list", "--acts", "--json"]).exits(0).events();
    assert_eq!(acts.len(), 21, "each was deleted once: {acts:?}");
}

#[test]
fn a_chat_deletes_what_was_not_used_for_long_enough() {
    let folder = folder();
    two_conversations(&folder);
    folder.file("keep.toml", &format!("{CONFIG}[store]\nretain = \"90d\"\n"));
    let day = 24 * 60 * 60 * 1000_i64;
    let db = Connection::open(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
    for (id, days) in [("fix", 91), ("other", 89)] {
        let aged =
            db.execute("UPDATE conversation SET written = written - ?1 WHERE id = ?2", (days * day, id)).unwrap();
        assert_eq!(aged, 1);
    }
    drop(db);
    let mut chat = folder.command(&["chat", "--config", "keep.toml", "--model", "script:plain.json", "-c", "now"]);
    let mut chat = chat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        // Looked at in this order: a deletion notes what is left to erase in the same transaction, so a conversation
        // that is gone has its note already. The other way round, one that is deleted between two looks seems done.
        let listed = run(&folder, &["list"]);
        let gone = listed.code == 0 && !listed.out.contains("Zanzibar");
        let db = Connection::open(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
        let unerased: i64 = db.query_row("SELECT count(*) FROM unerased", [], |row| row.get(0)).unwrap();
        if gone && unerased == 0 || Instant::now() > give_up {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Asked when it is over: the deletion may come between two looks.
    let acts = run(&folder, &["list", "--acts", "--json"]).exits(0);
    chat.stdin.take().unwrap().write_all(b"/quit\n").unwrap();
    chat.wait().unwrap();
    let acts: Vec<Value> = acts.events();
    assert_eq!((&acts[0]["about"], &acts[0]["by"]["system"]), (&"fix".into(), &"retention".into()));
    // The owner is told, and nobody else.
    run(&folder, &["show", "fix"]).exits(1).says("conversation fix was deleted at");
    folder.file("max.toml", "[scope]\nuser = \"max\"\n");
    folder.run(&["list", "--acts", "--config", "max.toml"]).exits(0).prints("");
    folder.run(&["show", "fix", "--config", "max.toml"]).exits(1).says("there is no conversation fix");
    let checked = folder.run(&["check", "--config", "keep.toml"]).exits(0).out;
    assert!(checked.contains("not used for 90 days are deleted while a chat runs"), "{checked}");
    is_gone(&folder);
    let db = Connection::open(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
    let by: String = db.query_row("SELECT author FROM tombstone WHERE id = 'fix'", [], |row| row.get(0)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&by).unwrap(), serde_json::json!({"system": "retention"}));
    folder.file("bad.toml", "[store]\nretain = \"5s\"\n");
    folder.run(&["check", "--config", "bad.toml"]).exits(2).says("less than a minute");
}

#[cfg(unix)]
#[test]
fn every_file_with_text_of_conversations_is_for_its_owner_alone_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let quoted = |command: &Command| format!("'{}'", command.get_program().to_str().unwrap());
    // A process that has the files open, so that those which SQLite keeps beside them exist as well.
    let script = format!("umask 000; {} chat --config c.toml -c fix", quoted(&folder.command(&[])));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path()).env("HOME", folder.path().join("home"));
    let mut chat = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = chat.stdin.take().unwrap();
    stdin.write_all(b"how far is Zanzibar?\n").unwrap();
    let data = folder.path().join(".turnbuckle");
    let names =
        ["turnbuckle.db", "turnbuckle.db-wal", "turnbuckle.db-shm", "memories.db", "memories.db-wal", "audit.jsonl"];
    let give_up = Instant::now() + Duration::from_secs(60);
    let is_there = |name: &&str| data.join(name).exists();
    while !names.iter().all(is_there) && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with(".gitignore") {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    assert!(names.iter().all(is_there));
    drop(stdin);
    chat.wait().unwrap();
}
