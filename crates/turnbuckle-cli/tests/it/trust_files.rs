//! Files that a hook's command names: those that it writes to, and those that are not what they were.

use crate::program::{Folder, Ran};

fn hook(on: &str, run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\nname = \"h-{on}\"\non = \"{on}\"\nrun = '''{run}'''\n")
}

/// Refused with the command that accepts.
#[track_caller]
fn refused(ran: Ran) -> Ran {
    ran.exits(2).prints("").says("accepted").says("hint: `turnbuckle trust`")
}

/// A log is a word of the command and changes with each run.
#[test]
fn a_hook_that_writes_what_its_command_names_is_accepted_once() {
    for run in [
        "date +%N | tee lint.log",
        "date 2>&1 | tee -a lint.log; true",
        "touch stamp; date +%N > x",
        "cd logs && date +%N | tee -a log",
        "date +%N >> hooks.log; tail -1 hooks.log",
        "date +%N > out; test -s out || { cat out >&2; exit 2; }",
    ] {
        let folder = Folder::cloned(r#"{ "text": "hi" }, { "text": "hi" }"#, &hook("stop", run));
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        folder.run(&["trust", "--yes"]).exits(0);
        for _ in 0..3 {
            let ran = folder.run_with_stdin(&["chat"], b"one\ntwo\n").exits(0);
            assert!(!ran.err.contains("was not started"), "{run}: {}", ran.err);
        }
        let users = Folder::foreign();
        users.file("script.json", r#"{"replies": [{ "text": "hi" }, { "text": "hi" }]}"#);
        std::fs::create_dir(users.path().join("logs")).unwrap();
        users.users_file(&hook("stop", run));
        let ran = users.run_with_stdin(&["chat", "--model", "script:script.json"], b"one\ntwo\n").exits(0);
        assert!(!ran.err.contains("was not started"), "{run}: {}", ran.err);
    }
}

#[test]
fn it_is_said_which_file_of_which_hook_is_another_one() {
    let folder =
        Folder::cloned(r#"{ "text": "hi" }, { "text": "hi" }"#, &hook("stop", "date +%N | dd of=report status=none"));
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    let ran = refused(folder.run(&["run", "hi"]));
    let ran =
        ran.says("[[hooks]] h-stop, which names report, which is new: it was not there when the hook was accepted");
    assert!(!ran.err.contains("turnbuckle.toml changed"), "{}", ran.err);
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    refused(folder.run(&["run", "hi"]))
        .says("[[hooks]] h-stop, which names report, which changed since it was accepted");
    std::fs::remove_file(folder.path().join("report")).unwrap();
    refused(folder.run(&["run", "hi"])).says("which names report, which is gone since it was accepted");
}
