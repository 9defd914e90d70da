//! A database is carried on only if the user's own Turnbuckle made it, or the user accepted it.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use turnbuckle::store::Answer;
use turnbuckle::{Conversations, Scope};
use turnbuckle_stores::SqliteStore;

use crate::program::{Folder, Ran};

const DATABASE: &str = ".turnbuckle/turnbuckle.db";
const WRITE: &str = r#"{ "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "forged.txt", "content": "x" } } ] }, { "text": "done" }"#;

/// A project whose database has a call that somebody approved, as another user left it.
fn with_forged_approval() -> Folder {
    let theirs = Folder::with_script(WRITE);
    theirs.run(&["run", "-c", "a", "hi"]).exits(4);
    let store = SqliteStore::open(theirs.path().join(DATABASE)).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let conversations = Conversations::without_agent(store).build();
        let answered = conversations.answer(&"a".into(), &"c1".into(), Answer::Approve, None, Scope::local()).await;
        answered.unwrap();
    });
    // Whoever is last to close it moves the write-ahead log into the file.
    drop(runtime);
    let mine = Folder::cloned(WRITE, "");
    bring(&theirs, &mine);
    mine
}

/// Copies the database of one project into another one.
fn bring(from: &Folder, to: &Folder) {
    std::fs::create_dir_all(to.path().join(".turnbuckle")).unwrap();
    std::fs::copy(from.path().join(DATABASE), to.path().join(DATABASE)).unwrap();
}

#[track_caller]
fn refused(ran: Ran) -> Ran {
    ran.exits(2).prints("").says("turnbuckle.db was").says("hint: `turnbuckle trust` accepts it")
}

#[test]
fn a_forged_approval_that_came_with_the_folder_is_not_carried_on() {
    let folder = with_forged_approval();
    let started = |folder: &Folder| folder.path().join("forged.txt").exists();
    refused(folder.run_with_stdin(&["chat"], b"hello\n")).says("was not made by your Turnbuckle");
    refused(folder.run(&["run", "hello"]));
    refused(folder.run(&["run", "-c", "a"]));
    refused(folder.run(&["resolve", "a", "c1", "--approve"]));
    refused(folder.run(&["run", "--ignore-project", "hello"]));
    // Looking needs no acceptance, and says how it stands.
    let listed = folder.run(&["list"]).exits(0);
    assert!(listed.out.starts_with("a "), "{}", listed.out);
    listed.says("`run`, `chat` and `resolve` do not go on with it");
    folder.run(&["show", "a"]).exits(0);
    folder.run(&["trace", "a"]).exits(0);
    let doctor = folder.run(&["doctor"]).exits(0).out;
    assert!(doctor.contains("not accepted: it was not made by your Turnbuckle"), "{doctor}");
    assert!(!started(&folder));
    // Accepted for one run, by its name or by the option, and then for good.
    let named = format!("sqlite:{}", folder.path().join(DATABASE).display());
    folder.run(&["run", "--store", &named, "-c", "other", "--model", "demo", "hello"]).exits(0);
    refused(folder.run(&["run", "hello"]));
    let asked = folder.run(&["trust"]).exits(2);
    assert!(asked.out.contains("was not made by your Turnbuckle"), "{}", asked.out);
    folder.run(&["trust", "--yes"]).exits(0);
    // The turn began in another folder, so a person must insist as well.
    folder.run(&["run", "-c", "a", "--accept-changes"]).exits(0).prints("done\n");
    assert!(started(&folder));
    folder.run(&["trust", "revoke"]).exits(0);
    refused(folder.run(&["run", "hello"]));
}

#[test]
fn the_option_accepts_a_database_for_one_run() {
    let folder = with_forged_approval();
    folder.run(&["run", "--trust-hooks", "-c", "a", "--accept-changes"]).exits(0).prints("done\n");
    refused(folder.run(&["run", "hello"]));
}

#[test]
fn a_database_of_ones_own_is_carried_on_and_a_moved_one_is_asked_about_once() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::foreign();
    let at = |name: &str, arguments: &[&str]| {
        let path = place.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut command = folder.command(arguments);
        command.current_dir(path);
        Ran::of(command)
    };
    at("one", &["run", "-c", "a", "hi"]).exits(0);
    at("one", &["run", "-c", "a", "hi"]).exits(0);
    std::fs::rename(place.path().join("one"), place.path().join("two")).unwrap();
    refused(at("two", &["run", "-c", "a", "hi"])).says("was moved or copied here from").says("one/.turnbuckle");
    at("two", &["trust", "--yes"]).exits(0);
    at("two", &["run", "-c", "a", "hi"]).exits(0);
    let listed = at("two", &["trust", "list", "--json"]).exits(0).events();
    let stores: Vec<_> = listed.iter().filter(|one| one["kind"] == "store").map(|one| &one["origin"]).collect();
    assert_eq!(stores, ["made", "accepted"]);
}

#[test]
fn a_link_to_another_projects_database_is_not_followed_unasked() {
    let other = Folder::with_script(WRITE);
    other.run(&["run", "-c", "a", "hi"]).exits(4);
    let elsewhere = other.path().join(".turnbuckle").canonicalize().unwrap();
    for (link, target) in [(".turnbuckle", elsewhere.clone()), (DATABASE, elsewhere.join("turnbuckle.db"))] {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join(link).parent().unwrap()).unwrap();
        symlink(&target, place.path().join(link)).unwrap();
        // The same user, who made that database: only the link is somebody else's.
        let at = |arguments: &[&str]| {
            let mut command = other.command(arguments);
            command.current_dir(place.path());
            Ran::of(command)
        };
        at(&["run", "hi"]).exits(2).says("it has: the database");
        at(&["run", "--ignore-project", "hi"]).exits(2).says("a link leads to").says("--store sqlite:");
        at(&["list"]).exits(2).says("a link leads to").says("hint: `turnbuckle trust` shows it, and asks");
        let asked = at(&["trust"]).exits(2).out;
        assert!(asked.contains("a link leads out of the project"), "{asked}");
        at(&["trust", "--yes"]).exits(0);
        at(&["run", "--model", "demo", "hi"]).exits(0);
        at(&["list"]).exits(0);
    }
    // A link to nothing would make a database somewhere else.
    let place = tempfile::tempdir().unwrap();
    symlink(place.path().join("there"), other.path().join("gone.db")).unwrap();
    other.run(&["trust", "revoke"]).exits(0);
    other.file("turnbuckle.toml", "[store]\nurl = \"sqlite:gone.db\"\n");
    other.run(&["run", "hi"]).exits(2).says("[store] url");
    assert!(!place.path().join("there").exists());
}

#[test]
fn a_store_that_a_projects_file_names_must_be_accepted_and_known() {
    let victim = Folder::with_script(WRITE);
    victim.run(&["run", "-c", "a", "hi"]).exits(4);
    let database = victim.path().join(DATABASE);
    let folder = Folder::cloned(WRITE, &format!("[store]\nurl = \"sqlite:{}\"\n", database.display()));
    folder.run(&["run", "hi"]).exits(2).says("[store] url");
    for arguments in [&["list"][..], &["show", "a"], &["trace", "a"]] {
        folder.run(arguments).exits(2).says("names a store, and is not accepted").says("--store URL");
    }
    folder.run(&["trust", "--folder", "--yes"]).exits(0);
    // The file is accepted, and the database is still somebody else's.
    refused(folder.run(&["run", "hi"]));
    folder.run(&["list"]).exits(0).says("was not made by your Turnbuckle");
}

#[test]
fn a_journal_that_came_with_the_folder_is_not_replayed() {
    let folder = Folder::cloned(WRITE, "");
    folder.run(&["run", "-c", "a", "hi"]).exits(4);
    // What another one left, with every page of it, checked out beside the user's own database.
    let theirs = Folder::with_script(WRITE);
    let mut other = theirs.command(&["chat", "-c", "a"]).stdin(Stdio::piped()).spawn().unwrap();
    let planted = folder.path().join(format!("{DATABASE}-wal"));
    let wal = theirs.path().join(format!("{DATABASE}-wal"));
    for _ in 0..2_000 {
        if wal.metadata().is_ok_and(|about| about.len() > 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::copy(&wal, &planted).unwrap();
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o644)).unwrap();
    let before = std::fs::read(folder.path().join(DATABASE)).unwrap();
    folder.run(&["run", "-c", "a"]).exits(2).says("was not made by the database beside it");
    for arguments in [&["cancel", "a"][..], &["hold", "a"], &["answer", "a", "c1", "--deny"], &["delete", "a", "--yes"]]
    {
        folder.run(arguments).exits(2).says("was not made by the database beside it");
    }
    assert_eq!(std::fs::read(folder.path().join(DATABASE)).unwrap(), before);
    std::fs::remove_file(&planted).unwrap();
    let _ = std::fs::remove_file(folder.path().join(format!("{DATABASE}-shm")));
    folder.run(&["resolve", "a", "c1", "--approve"]).exits(0).prints("done\n");
    drop(other.stdin.take());
    other.wait().unwrap();
}

/// Leaves a database as a process does that dies while it migrates it: pages are written, and the journal has what they were.
fn interrupt(database: &Path) {
    let (journal, kept) = (database.with_file_name("turnbuckle.db-journal"), tempfile::tempdir().unwrap());
    let db = rusqlite::Connection::open(database).unwrap();
    db.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).unwrap();
    db.execute_batch("PRAGMA cache_size = 1; BEGIN IMMEDIATE; CREATE TABLE half (text TEXT);").unwrap();
    for _ in 0..200 {
        db.execute("INSERT INTO half VALUES (?)", ["x".repeat(2_000)]).unwrap();
    }
    for file in [database, &journal] {
        std::fs::copy(file, kept.path().join(file.file_name().unwrap())).unwrap();
    }
    drop(db);
    for file in [database, &journal] {
        std::fs::copy(kept.path().join(file.file_name().unwrap()), file).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn a_database_whose_making_was_killed_is_set_right_and_one_that_came_so_is_not_touched() {
    let own = Folder::with_script(WRITE);
    own.run(&["run", "-c", "a", "hi"]).exits(4);
    interrupt(&own.path().join(DATABASE));
    own.run(&["resolve", "a", "c1", "--approve"]).exits(0).prints("done\n");
    // The same files in another folder, where nobody's Turnbuckle has noted a database.
    let theirs = Folder::with_script(WRITE);
    theirs.run(&["run", "-c", "a", "hi"]).exits(4);
    interrupt(&theirs.path().join(DATABASE));
    let mine = Folder::cloned(WRITE, "");
    std::fs::create_dir(mine.path().join(".turnbuckle")).unwrap();
    for name in [DATABASE.to_owned(), format!("{DATABASE}-journal")] {
        std::fs::copy(theirs.path().join(&name), mine.path().join(&name)).unwrap();
    }
    let before = std::fs::read(mine.path().join(DATABASE)).unwrap();
    assert_ne!(mine.run(&["resolve", "a", "c1", "--approve"]).code, 0);
    assert_eq!(std::fs::read(mine.path().join(DATABASE)).unwrap(), before);
}

/// Makes a database look as an older version left it.
fn age(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(
        "DROP TABLE database; DROP TABLE hold; DROP TABLE unerased; DROP TABLE tombstone; DROP TABLE act; DROP TABLE cut;
         DROP TABLE message_key; DROP TABLE calibration; DROP TABLE summary; DROP TABLE title; DROP TABLE cache_break; DROP TABLE audit_call;
         DROP TABLE audit_content; DROP TABLE audit_size; ALTER TABLE conversation DROP COLUMN sent;
         ALTER TABLE conversation DROP COLUMN sent_format; PRAGMA user_version = 4;",
    )
    .unwrap();
}

#[test]
fn a_database_of_an_older_version_is_adopted_where_it_can_only_be_the_users() {
    let aged = |mode: u32| {
        let (theirs, mine) = (Folder::with_script(WRITE), Folder::cloned(WRITE, ""));
        theirs.run(&["run", "-c", "a", "hi"]).exits(4);
        bring(&theirs, &mine);
        age(&mine.path().join(DATABASE));
        std::fs::set_permissions(mine.path().join(DATABASE), std::fs::Permissions::from_mode(mode)).unwrap();
        mine
    };
    // The first use of this version by this user: what is there was there before.
    let mine = aged(0o600);
    mine.run(&["list"]).exits(0);
    mine.run(&["resolve", "a", "c1", "--approve", "--accept-changes"]).exits(0).prints("done\n");
    mine.run(&["run", "-c", "a", "--model", "demo", "hi"]).exits(0);
    let listed = mine.run(&["trust", "list"]).exits(0).out;
    assert!(listed.contains("made by an older version"), "{listed}");
    // As git would check it out: readable by others.
    refused(aged(0o644).run(&["run", "-c", "a", "hi"]));
    // In another place.
    let elsewhere = aged(0o600);
    std::fs::rename(elsewhere.path().join(DATABASE), elsewhere.path().join("x.db")).unwrap();
    elsewhere.file("turnbuckle.toml", "[store]\nurl = \"sqlite:x.db\"\n");
    elsewhere.run(&["run", "-c", "a", "hi"]).exits(2).says("was not made by your Turnbuckle");
    // What came after this version was first used came from elsewhere: every database made since then has an id.
    let late = Folder::new();
    std::thread::sleep(Duration::from_millis(20));
    bring(&aged(0o600), &late);
    refused(late.run(&["run", "-c", "a", "hi"]));
}

#[test]
fn cancelling_in_a_database_of_an_older_version_keeps_it_the_users() {
    let (theirs, mine) = (Folder::with_script(WRITE), Folder::cloned(WRITE, ""));
    theirs.run(&["run", "-c", "a", "hi"]).exits(4);
    bring(&theirs, &mine);
    age(&mine.path().join(DATABASE));
    mine.run(&["cancel", "a"]).exits(0);
    mine.run(&["run", "-c", "a", "--model", "demo", "hi"]).exits(0);
}

#[test]
fn a_kill_while_a_database_is_made_leaves_none_that_nobody_knows() {
    let home = Folder::foreign();
    for round in 0..40_u64 {
        let project = tempfile::tempdir().unwrap();
        let command = || {
            let mut command = home.command(&["run", "-c", "a", "--model", "demo", "hi"]);
            command.current_dir(project.path());
            command
        };
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(2_000 + round * 700));
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = Ran::of(command());
        assert_ne!(ran.code, 2, "round {round}: {}", ran.err);
    }
}

#[test]
fn several_processes_that_make_a_database_at_once_all_know_it() {
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, "");
    let spawn = |number: usize| folder.command(&["run", "-c", &format!("c{number}"), "hi"]).spawn().unwrap();
    let children: Vec<_> = (0..8).map(spawn).collect();
    for child in children {
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(0);
    }
    folder.run(&["run", "-c", "c0", "--model", "demo", "hi"]).exits(0);
    let records: Vec<PathBuf> = std::fs::read_dir(folder.home().join(".local/state/turnbuckle/stores"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(records.len(), 1, "{records:?}");
}

#[test]
fn without_a_folder_to_note_it_in_a_new_database_is_made_and_later_named() {
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, "");
    let without = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env_remove("HOME");
        Ran::of(command)
    };
    without(&["run", "-c", "a", "hi"])
        .exits(0)
        .says("it cannot be noted that the database")
        .says("--store sqlite:PATH");
    for arguments in [&["run", "-c", "a", "--model", "demo", "hi"][..], &["list"]] {
        let ran = without(arguments).says("hint: `--store sqlite:PATH` names it for this run");
        assert!(!ran.err.contains("turnbuckle trust"), "{}", ran.err);
        if arguments[0] == "run" {
            ran.exits(2).prints("");
        }
    }
    without(&["run", "-c", "a", "--model", "demo", "--store", &format!("sqlite:{DATABASE}"), "hi"]).exits(0);
}

#[test]
fn doctor_says_what_is_accepted_whose_the_store_is_and_how_large() {
    let hooks = "[[hooks]]\nuse = \"audit_log\"\n[[hooks]]\nuse = \"remember\"\nmodel = \"demo\"\n";
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, hooks);
    let before = folder.run(&["doctor"]).exits(0).out;
    assert!(before.contains("not accepted: [[hooks]] audit_log, [[hooks]] remember"), "{before}");
    assert!(before.contains("(not there yet)"), "{before}");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    let after = folder.run(&["doctor"]).exits(0).out;
    assert!(after.contains("accepted              accepted at "), "{after}");
    assert!(
        after.contains("store                 sqlite:.turnbuckle/turnbuckle.db (made by your Turnbuckle, "),
        "{after}"
    );
    assert!(after.contains("audit log             .turnbuckle/audit.jsonl ("), "{after}");
    let report = folder.run(&["doctor", "--json"]).exits(0).events().remove(0);
    assert_eq!(report["here"]["accepted"], true);
    assert!(report["here"]["store"]["bytes"].as_u64().unwrap() > 4096, "{report}");
    assert_eq!(report["here"]["kept"][0]["what"], "audit log");
}

#[test]
fn doctor_finds_what_hooks_keep_in_files_of_their_own() {
    let hooks = "[[hooks]]\nuse = \"audit_log\"\nfile = \"logs/decided.jsonl\"\nmax_bytes = 1024\n";
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, hooks);
    folder.file("logs/decided.jsonl", "{}\n");
    let looked = folder.run(&["doctor"]).exits(0).out;
    assert!(!looked.contains("decided.jsonl"), "it is not accepted: {looked}");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    let bytes: u64 = std::fs::read_dir(folder.path().join("logs"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    let report = folder.run(&["doctor", "--json"]).exits(0).events().remove(0);
    let kept = report["here"]["kept"].as_array().unwrap();
    assert_eq!(kept.len(), 1, "{report}");
    assert_eq!((&kept[0]["path"], &kept[0]["bytes"]), (&"logs/decided.jsonl".into(), &bytes.into()), "{report}");
}

/// What is recorded in a database that came with a folder was written by whoever made it.
#[test]
fn show_prints_nothing_that_a_foreign_database_recorded() {
    let theirs = Folder::with_script(WRITE);
    let evil = theirs.file("evil.toml", "[agent]\nmodel = \"script:script.json\"\n");
    theirs.run(&["run", "--trust-hooks", "--config", evil.to_str().unwrap(), "-c", "a", "hi"]).exits(4);
    // Its maker is shown the command as it was.
    let own = theirs.run(&["show", "a"]).exits(0).out;
    assert!(own.contains("--trust-hooks") && own.contains("evil.toml"), "{own}");
    let mine = Folder::cloned(WRITE, "");
    bring(&theirs, &mine);
    let named = format!("sqlite:{}", mine.path().join(DATABASE).display());
    for arguments in [&["show", "a"][..], &["pending"], &["show", "a", "--store", &named]] {
        let shown = mine.run(arguments).exits(0).out;
        for recorded in ["--trust-hooks", "--config", "evil", "cd ", "script:"] {
            assert!(!shown.contains(recorded), "{arguments:?} {recorded}: {shown}");
        }
    }
    let shown = mine.run(&["show", "a"]).exits(0).out;
    assert!(shown.contains("`turnbuckle trust` accepts the database; then `turnbuckle resolve a c1"), "{shown}");
    let answered = mine.run(&["answer", "a", "c1", "--approve"]).exits(0);
    assert!(!format!("{}{}", answered.out, answered.err).contains("--trust-hooks"), "{answered:?}");
}

/// What one user accepted for a run, another one did not.
#[test]
fn an_option_that_accepts_is_not_printed_for_another_user() {
    let folder = Folder::with_config(WRITE, "[access]\nanswer = [\"manager\"]\n");
    let ann = ("ann", "");
    folder.run_as(ann, &["run", "--trust-hooks", "-c", "a", "hi"]).exits(4);
    assert!(folder.run_as(ann, &["show", "a"]).exits(0).out.contains("--trust-hooks"));
    let shown = folder.run_as(("mia", "manager"), &["show", "a"]).exits(0).out;
    assert!(shown.contains("turnbuckle resolve a c1") && !shown.contains("--trust-hooks"), "{shown}");
}

#[test]
fn those_who_only_answer_are_not_told_how_the_database_stands() {
    let theirs = Folder::with_script(WRITE);
    theirs.run(&["run", "-c", "a", "hi"]).exits(4);
    let mine = Folder::cloned(WRITE, "");
    bring(&theirs, &mine);
    mine.run(&["show", "a"]).exits(0).says("was not made by your Turnbuckle");
    for arguments in [&["pending"][..], &["answer", "a", "c1", "--deny"]] {
        let ran = mine.run(arguments).exits(0);
        assert!(!ran.err.contains("was not made by your Turnbuckle"), "{}", ran.err);
    }
}

#[test]
fn accepting_a_folder_covers_the_database_that_is_there_and_shows_what_is_there_now() {
    let theirs = Folder::with_script(WRITE);
    theirs.run(&["run", "-c", "a", "hi"]).exits(4);
    let mine = Folder::cloned(WRITE, "[[hooks]]\nuse = \"command\"\nname = \"lint\"\non = \"stop\"\nrun = \"true\"\n");
    bring(&theirs, &mine);
    let shown = mine.run(&["trust", "--folder", "--yes"]).exits(0).out;
    assert!(shown.contains("[[hooks]] lint") && shown.contains("was not made by your Turnbuckle"), "{shown}");
    mine.run(&["resolve", "a", "c1", "--approve", "--accept-changes"]).exits(0).prints("done\n");
}

#[test]
fn how_long_conversations_are_kept_keeps_nobody_from_looking() {
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, "");
    folder.run(&["run", "-c", "a", "hello"]).exits(0);
    folder.file("turnbuckle.toml", "[store]\nretain = \"90d\"\n");
    for arguments in [&["list"][..], &["show", "a"], &["pending"], &["export", "a"]] {
        folder.run(arguments).exits(0);
    }
    folder.run(&["run", "hello"]).exits(2).says("[store] retain");
}

#[test]
fn a_database_that_is_not_there_is_told_without_a_path_that_nobody_gave() {
    let folder = Folder::new();
    let missing = folder.run(&["show", "a"]).exits(1).says("there is no database .turnbuckle/turnbuckle.db");
    assert!(!missing.err.contains("current folder"), "{}", missing.err);
    folder.run(&["list", "--store", "sqlite:x.db"]).exits(1).says("starts at the current folder");
}

#[test]
fn where_nothing_can_be_noted_no_hint_says_that_it_can() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"x\"\non = \"stop\"\nrun = \"true\"\n";
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, hook);
    for arguments in [&["run", "hi"][..], &["check"]] {
        let mut command = folder.command(arguments);
        command.env("XDG_STATE_HOME", folder.path().join("script.json"));
        let ran = Ran::of(command).says("hint: `--trust-hooks` accepts");
        assert!(!ran.err.contains("turnbuckle trust"), "{}", ran.err);
    }
}

#[test]
fn a_folder_with_nothing_but_a_linked_database_is_not_said_to_have_a_file() {
    let (folder, other) = (Folder::foreign(), Folder::with_script(r#"{ "text": "hi" }"#));
    other.run(&["run", "-c", "a", "hi"]).exits(0);
    std::os::unix::fs::symlink(other.path().join(".turnbuckle"), folder.path().join(".turnbuckle")).unwrap();
    let ran = folder.run(&["run", "-c", "a", "--model", "demo", "hi"]).exits(2);
    let ran = ran
        .says("this folder is not accepted; it has: the database")
        .says("hint: `turnbuckle trust` shows where it leads");
    assert!(!ran.err.contains("turnbuckle.toml") && !ran.err.contains("--ignore-project"), "{}", ran.err);
}
