//! Who may do what, through the program: every actor at every command, also where another process has the conversation and
//! where a sub-agent works.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::program::{Folder, Ran};

/// Who holds which role. The conversation is ann's.
const ACTORS: &[(&str, &str)] = &[
    ("ann", ""),
    ("bob", ""),
    ("rita", "reader"),
    ("sam", "speaker"),
    ("mia", "manager"),
    ("otto", "operator"),
    ("ada", "admin"),
];

const ACCESS: &str = r#"[access]
read = ["reader"]
say = ["speaker"]
answer = ["manager"]
cancel = ["operator"]
delete = ["admin"]
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    Say,
    Answer,
    Cancel,
    Delete,
}

/// What a command says to an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    Forbidden,
    NotFound,
}

/// The commands by the action that they need. `CALL` is replaced. The turn of conversation `w` waits, and `d` has no open turn.
const COMMANDS: &[(&[&str], Action)] = &[
    (&["list"], Action::Read),
    (&["show", "w"], Action::Read),
    (&["show", "w", "--json"], Action::Read),
    (&["trace", "w"], Action::Read),
    (&["show", "w/s1"], Action::Read),
    (&["trace", "w/s1"], Action::Read),
    (&["pending"], Action::Answer),
    (&["answer", "w", "CALL", "--deny"], Action::Answer),
    (&["answer", "w", "CALL", "--approve", "--always"], Action::Answer),
    (&["answer", "w", "CALL", "--approve", "--always", "--like", "{}"], Action::Answer),
    (&["answer", "w", "CALL", "--deny", "--digest", "DIGEST"], Action::Answer),
    (&["resolve", "w", "CALL", "--deny"], Action::Answer),
    (&["cancel", "w"], Action::Cancel),
    (&["run", "-c", "w", "hi"], Action::Say),
    (&["run", "-c", "w"], Action::Say),
    (&["run", "-c", "w", "--accept-changes"], Action::Say),
    (&["chat", "-c", "w"], Action::Say),
    (&["export", "w"], Action::Read),
    (&["export", "d"], Action::Read),
    (&["export", "--user", "ann"], Action::Read),
    (&["delete", "w", "--yes"], Action::Delete),
    (&["delete", "d", "--yes"], Action::Delete),
    (&["delete", "--user", "ann", "--yes"], Action::Delete),
    (&["hold", "w"], Action::Delete),
    (&["hold", "d"], Action::Delete),
    (&["hold", "d", "--release"], Action::Delete),
];

/// The rule in one place: the owner, or the role of the action; every role reads.
fn expected((user, role): (&str, &str), command: &str, action: Action) -> Verdict {
    let own = match action {
        Action::Read => !role.is_empty(),
        Action::Say => role == "speaker",
        Action::Answer => role == "manager",
        Action::Cancel => role == "operator",
        Action::Delete => role == "admin",
    };
    match (user == "ann" || own, role) {
        (true, _) => Verdict::Yes,
        (false, "") => Verdict::NotFound,
        // What is not theirs to answer is not listed.
        (false, _) if command == "pending" => Verdict::NotFound,
        (false, _) => Verdict::Forbidden,
    }
}

fn verdict(command: &[&str], ran: &Ran) -> Verdict {
    let lists = ["list", "pending", "export"].contains(&command[0]);
    match ran.code {
        0 if lists && ran.out.is_empty() => Verdict::NotFound,
        1 if ["w", "d", "of user ann"].iter().any(|id| ran.err.contains(&format!("there is no conversation {id}"))) => {
            Verdict::NotFound
        }
        1 if ran.err.contains("you may not ") || ran.err.contains("may not be answered by you") => Verdict::Forbidden,
        0 | 4 => Verdict::Yes,
        1 if ran.err.contains("is busy: its turn waits") => Verdict::Yes,
        1 if ran.err.contains("is busy: another process") => Verdict::Yes,
        1 if ran.err.contains("was not deleted: it is busy") => Verdict::Yes,
        code => panic!("{command:?}: {code}\n{}\n{}", ran.out, ran.err),
    }
}

fn check(folder: &Folder, command: &[&str], action: Action, actor: (&str, &str)) {
    let ran = folder.run_as(actor, command);
    let said = verdict(command, &ran);
    assert_eq!(said, expected(actor, command[0], action), "{actor:?} at {command:?}:\n{}\n{}", ran.out, ran.err);
    match said {
        // Whoever may not read it learns nothing of it.
        Verdict::NotFound => assert!(!format!("{}{}", ran.out, ran.err).contains("pay"), "{ran:?}"),
        Verdict::Forbidden => assert!(ran.err.contains("owner") || ran.err.contains("user ann"), "who could: {ran:?}"),
        Verdict::Yes => {}
    }
}

fn with_calls(calls: &[serde_json::Value], reviewer: &serde_json::Value) -> Folder {
    let folder = Folder::new();
    let script =
        json!({ "replies": [{ "tool_calls": calls }, { "text": "done" }], "agents": { "reviewer": [reviewer] } });
    folder.file("script.json", &script.to_string());
    let config = format!("[agent]\nmodel = \"script:script.json\"\n{ACCESS}[[agents]]\nname = \"reviewer\"\n");
    folder.file("turnbuckle.toml", &config);
    folder
}

fn write(call: &str) -> serde_json::Value {
    json!({ "id": call, "name": "write_file", "arguments": { "path": format!("{call}.txt"), "content": "pay" } })
}

fn review() -> serde_json::Value {
    json!({ "id": "s1", "name": "reviewer", "arguments": { "task": "pay" } })
}

#[test]
fn every_actor_at_every_command_may_what_the_rule_says() {
    let folder = with_calls(&[write("c1"), review()], &json!({ "text": "fine" }));
    folder.run_as(("ann", ""), &["run", "-c", "d", "pay me"]).exits(4);
    folder.run_as(("ann", ""), &["cancel", "d"]).exits(0);
    folder.run_as(("ann", ""), &["run", "-c", "w", "pay me"]).exits(4);
    let pending = folder.run_as(("ann", ""), &["pending", "--json"]).exits(0).events();
    let digest = pending[0]["prompt"]["digest"].as_str().unwrap();
    let database = folder.path().join(".turnbuckle/turnbuckle.db");
    let waiting = std::fs::read(&database).unwrap();
    for (command, action) in COMMANDS {
        for actor in ACTORS {
            let replaced = |word: &&'static str| match *word {
                "CALL" => "c1",
                "DIGEST" => digest,
                word => word,
            };
            let command: Vec<&str> = command.iter().map(replaced).collect();
            check(&folder, &command, *action, *actor);
            std::fs::write(&database, &waiting).unwrap();
        }
    }
    // What they did was done, and what they may not was not.
    check(&folder, &["delete", "d", "--yes"], Action::Delete, ("bob", ""));
    check(&folder, &["show", "d"], Action::Read, ("ann", ""));
    check(&folder, &["hold", "d"], Action::Delete, ("ada", "admin"));
    folder.run_as(("ann", ""), &["delete", "d", "--yes"]).exits(1).says("is on hold");
    check(&folder, &["hold", "d", "--release"], Action::Delete, ("ann", ""));
    check(&folder, &["delete", "d", "--yes"], Action::Delete, ("ada", "admin"));
    folder.run_as(("rita", "reader"), &["export", "d"]).exits(1).prints("").says("there is no conversation d");
    // A sub-agent's conversation can only be looked at.
    for command in [
        &["answer", "w/s1", "c1", "--deny"][..],
        &["resolve", "w/s1", "c1", "--deny"],
        &["cancel", "w/s1"],
        &["delete", "w/s1", "--yes"],
        &["hold", "w/s1"],
        &["export", "w/s1"],
    ] {
        for actor in ACTORS {
            folder.run_as(*actor, command).exits(2).prints("");
        }
    }
}

/// Each actor has calls of their own, so that one answer does not make the next one stale.
#[test]
fn every_actor_may_the_same_while_another_process_has_the_conversation() {
    let calls = |kind: &str| ACTORS.iter().map(|(user, _)| write(&format!("{kind}_{user}"))).collect::<Vec<_>>();
    // The sub-agent speaks until the turn is cancelled.
    let slow = json!({ "chunks": vec!["x "; 2_000], "delay_ms": 100 });
    let folder = with_calls(&[calls("answer"), calls("resolve"), vec![review()]].concat(), &slow);
    let holder = folder.command_as(("ann", ""), &["run", "-c", "w", "--json", "pay me"]).stdin(Stdio::null()).spawn();
    let mut holder = holder.unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (mut asked, mut speaks) = (0, false);
    while asked < 2 * ACTORS.len() || !speaks {
        let line = lines.next().expect("it ended");
        asked += usize::from(line.contains("\"suspension\""));
        speaks |= line.contains("tool_progress");
    }
    for actor in ACTORS {
        let (answer, resolve) = (format!("answer_{}", actor.0), format!("resolve_{}", actor.0));
        check(&folder, &["answer", "w", &answer, "--deny"], Action::Answer, *actor);
        check(&folder, &["resolve", "w", &resolve, "--deny"], Action::Answer, *actor);
        check(&folder, &["run", "-c", "w", "hi"], Action::Say, *actor);
        check(&folder, &["show", "w"], Action::Read, *actor);
        check(&folder, &["pending"], Action::Answer, *actor);
        check(&folder, &["export", "w"], Action::Read, *actor);
        check(&folder, &["delete", "w", "--yes"], Action::Delete, *actor);
        check(&folder, &["hold", "w"], Action::Delete, *actor);
        check(&folder, &["hold", "w", "--release"], Action::Delete, *actor);
        if actor.0 != "ann" && actor.1 != "operator" {
            check(&folder, &["cancel", "w"], Action::Cancel, *actor);
        }
    }
    check(&folder, &["cancel", "w"], Action::Cancel, ("otto", "operator"));
    let rest: Vec<String> = lines.collect();
    assert_eq!(holder.wait().unwrap().code(), Some(130), "{rest:#?}");
    let log = folder.run_as(("ann", ""), &["show", "w", "--json"]).exits(0).events();
    let denied = log.iter().filter(|event| event["type"] == "resolution" && event["decision"] == "denied");
    let by: Vec<_> =
        denied.map(|event| (event["call"].as_str().unwrap(), event["by"]["user"].as_str().unwrap())).collect();
    let wanted = [("answer_ann", "ann"), ("resolve_ann", "ann"), ("answer_mia", "mia"), ("resolve_mia", "mia")];
    assert_eq!(by, wanted, "each in the name of the one who gave it");
    assert_eq!(log.last().unwrap()["by"]["user"], "otto");
}

/// B3: nobody but the owner could approve, and the way round it wrote a false name into the log.
#[test]
fn someone_else_than_the_owner_approves_in_their_own_name() {
    for command in ["answer", "resolve"] {
        let folder = with_calls(&[write("c1")], &json!({ "text": "fine" }));
        folder.run_as(("ann", ""), &["run", "-c", "w", "pay me"]).exits(4);
        folder.run_as(("boss", "manager"), &[command, "w", "c1", "--approve"]).exits(0);
        if command == "answer" {
            folder.run_as(("ann", ""), &["run", "-c", "w"]).exits(0).prints("done\n");
        }
        let shown = folder.run_as(("ann", ""), &["show", "w", "--json"]).exits(0);
        assert_eq!(shown.event("resolution")["by"], json!({ "user": "boss" }));
        assert_eq!(shown.event("tool_started")["approved_by"], json!({ "user": "boss" }));
        assert_eq!(shown.event("user_message")["by"], json!({ "user": "ann" }));
        assert_eq!(folder.read("c1.txt"), "pay");
    }
}

#[test]
fn two_people_must_approve_and_the_one_who_asked_is_none_of_them() {
    let rule = r#"[access]
approve = [ { tool = "write_file", by = ["manager"], not_requester = true, n = 2 } ]
[tools]
approve = []
"#;
    let folder = with_calls(&[write("c1")], &json!({ "text": "fine" }));
    folder.file("turnbuckle.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{rule}"));
    let ran = folder.run_as(("ann", "manager"), &["run", "-c", "w", "pay me"]).exits(4);
    ran.says("c1 is for others to answer: role manager, but not user ann, who asked for it; 2 of them must approve");
    let answer = |user: &str, how: &[&str]| folder.run_as((user, "manager"), &[&["answer", "w", "c1"], how].concat());
    let own = answer("ann", &["--approve"]).exits(1);
    own.says("may not be answered by you, but by role manager, but not user ann")
        .says("hint: you are user ann, with role manager; who you are");
    answer("mia", &["--approve"]).exits(0).says("others must approve it as well");
    answer("mia", &["--approve"]).exits(1).says("stale");
    assert_eq!(folder.run_as(("mia", "manager"), &["pending"]).exits(0).out, "");
    let shown = folder.run_as(("max", "manager"), &["pending"]).exits(0).out;
    assert!(shown.contains("2 approvals are needed, so far by user mia"), "{shown}");
    // Other arguments are another question: mia must look again.
    let edited = answer("max", &["--approve", "--arguments", r#"{ "path": "b.txt", "content": "pay" }"#, "--json"]);
    assert_eq!(edited.exits(0).events()[0]["open"], true);
    answer("mia", &["--approve"]).exits(0).says("carries the turn on");
    folder.run_as(("ann", "manager"), &["run", "-c", "w"]).exits(0).prints("done\n");
    let started = folder.run_as(("ann", ""), &["show", "w", "--json"]).event("tool_started");
    assert_eq!(started["approvals"], json!([{ "user": "max" }, { "user": "mia" }]));
    assert_eq!((folder.read("c1.txt"), folder.read("b.txt")), (String::new(), "pay".to_owned()));
}

#[test]
fn a_command_that_is_refused_has_read_nothing_and_is_not_recorded_as_reading() {
    let write = r#"{ "tool_calls": [ { "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } } ] },
                   { "text": "done" }"#;
    let folder = Folder::with_config(write, "[access]\nread = [\"support\"]\n");
    let (ann, sue) = (("ann", ""), ("sue", "support"));
    folder.run_as(ann, &["run", "-c", "w", "write it"]).exits(4);
    for refused in
        [&["run", "-c", "w"][..], &["run", "-c", "w", "hi"], &["chat", "-c", "w"], &["resolve", "w", "c1", "--approve"]]
    {
        folder.run_as(sue, refused).exits(1).prints("").says("may not");
    }
    assert_eq!(folder.run_as(ann, &["list", "--acts"]).exits(0).out, "");
    folder.run_as(sue, &["show", "w"]).exits(0);
    let acts = folder.run_as(ann, &["list", "--acts"]).exits(0).out;
    assert!(acts.contains("read      w by user sue"), "{acts}");
}
