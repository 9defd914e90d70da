//! SIGINT, SIGTERM and SIGHUP cancel the turn and close its books.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};

fn slow() -> Folder {
    Folder::with_script(&format!(r#"{{ "chunks": [{}"x"], "delay_ms": 50 }}"#, "\"x \",".repeat(400)))
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Starts, waits for the model to speak, sends the signal.
fn cut_off(arguments: &[&str], signal: &str) -> Ran {
    let folder = slow();
    let mut child = folder.command(arguments).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut out = String::new();
    while !out.contains("text_delta") {
        assert_ne!(lines.read_line(&mut out).unwrap(), 0, "{out}");
    }
    let began = Instant::now();
    send(&child, signal);
    lines.read_to_string(&mut out).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(40));
    let err = String::from_utf8(output.stderr).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out, err }
}

#[test]
fn a_signal_cancels_the_turn_and_closes_its_books() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let ran = cut_off(&["run", "--json", "hi"], signal).exits(130).says("error: the turn was cancelled");
        let ended = ran.event("turn_ended");
        assert_eq!(ended["outcome"], "cancelled");
        assert_eq!(ended["by"], serde_json::json!({ "user": "local" }));
        assert_eq!(ran.event("assistant_message")["stop_reason"], "cancelled", "what was let through is logged");
        assert_eq!(ran.events().pop().unwrap()["state"], "idle");
    }
}

#[test]
fn a_hook_that_hangs_does_not_keep_a_signal_from_being_heard() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"hang\"\non = \"stop\"\nrun = \"sleep 60\"\n";
    let folder = Folder::with_config(r#"{ "text": "done" }"#, hook);
    let mut child = folder.command(&["run", "--json", "hi"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut out = String::new();
    while !out.contains("\"hook_started\"") {
        assert_ne!(lines.read_line(&mut out).unwrap(), 0, "{out}");
    }
    send(&child, "-INT");
    lines.read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(out.contains("\"outcome\":\"cancelled\""));
}

#[test]
fn without_json_nothing_of_a_cancelled_answer_is_on_stdout() {
    let folder = slow();
    let child = folder.command(&["run", "hi"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    send(&child, "-INT");
    Ran::from(child.wait_with_output().unwrap()).exits(130).prints("").says("end       cancelled");
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"slow\"\non = \"ended\"\nrun = \"touch ending; sleep 60\"\n";
    let folder = Folder::with_config(r#"{ "chunks": ["a", "b"], "delay_ms": 60000 }"#, hook);
    let mut child = folder.command(&["run", "hi"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    send(&child, "-INT");
    while !folder.path().join("ending").exists() {
        assert!(began.elapsed() < Duration::from_secs(10), "the books are closed and hooks are told");
        std::thread::sleep(Duration::from_millis(20));
    }
    send(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_reader_that_is_stuck_does_not_keep_a_signal_from_being_heard() {
    let folder = Folder::with_script(&format!(r#"{{ "chunks": [{}"x"] }}"#, "\"x\",".repeat(5000)));
    let mut child = folder.command(&["run", "--json", "hi"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "more than a pipe holds is waiting to be read");
    send(&child, "-INT");
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Waits until a hook has made this file.
fn wait_for(folder: &Folder, name: &str) {
    let began = Instant::now();
    while !folder.path().join(name).exists() {
        assert!(began.elapsed() < Duration::from_secs(10), "{name} is not there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_second_signal_takes_the_hooks_programs_along() {
    // Everybody in the group holds the pipe; its end is heard when the last of them is gone.
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"slow\"\non = \"ended\"\nrun = \"exec 3>pipe; (sleep 1000; true) & touch ending; wait\"\n";
    let folder = Folder::with_config(r#"{ "text": "done" }"#, hook);
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (sender, gone) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(std::fs::read(pipe).unwrap()));
    let mut child = folder.command(&["run", "hi"]).spawn().unwrap();
    wait_for(&folder, "ending");
    send(&child, "-INT");
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("waiting for hooks that run after the turn; again to stop at once") {
        assert_ne!(err.read_line(&mut said).unwrap(), 0, "{said}");
    }
    assert!(gone.try_recv().is_err(), "the first signal lets the hook go on");
    send(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    gone.recv_timeout(Duration::from_secs(10)).unwrap();
}

#[test]
fn without_a_terminal_on_purpose_a_hang_up_is_nothing() {
    let folder = Folder::with_script(r#"{ "chunks": ["a", "b"], "delay_ms": 500 }"#);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" run hi", env!("CARGO_BIN_EXE_turnbuckle")]);
    shell
        .current_dir(folder.path())
        .env("HOME", folder.home())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME");
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = shell.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "-HUP");
    Ran::from(child.wait_with_output().unwrap()).exits(0).prints("ab\n");
}

const TO_SUMMARISE: [&str; 5] = ["run", "-c", "m", "--model", "script:ok.json"];

/// Each call to make a summary takes so many milliseconds from now on.
fn summaries_take(folder: &Folder, delay: u64) {
    let text = r#"{ "on_exhausted": "repeat", "replies": [], "agents": { "summary": [ { "text": "Goal\nnotes", "delay_ms": DELAY } ] } }"#;
    folder.file("notes.json", &text.replace("DELAY", &delay.to_string()));
}

/// A conversation of which a summary is due that would take minutes.
fn summary_is_due() -> Folder {
    let folder = Folder::new();
    folder.file("ok.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok" } ] }"#);
    folder.file("turnbuckle.toml", "[context]\nsummary_model = \"script:notes.json\"\n");
    summaries_take(&folder, 600_000);
    let message = "word ".repeat(4_000);
    let bare = [&TO_SUMMARISE[..], &["--bare"]].concat();
    for _ in 0..5 {
        folder.run_with_stdin(&bare, message.as_bytes()).exits(0);
    }
    folder
}

#[test]
fn a_signal_leaves_a_summary_that_is_being_made_to_the_next_process() {
    let folder = summary_is_due();
    // Its message is small: what is due was asked for by a turn before it.
    let mut command = folder.command(&[&TO_SUMMARISE[..], &["go on"]].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    while !(err.contains("summary works") && err.contains("completed")) {
        assert_ne!(lines.read_line(&mut err).unwrap(), 0, "{err}");
    }
    let mut out = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut out).unwrap();
    assert_eq!(out, "ok\n", "the answer comes first");
    send(&child, "-TERM");
    lines.read_to_string(&mut err).unwrap();
    child.wait().unwrap();
    assert!(err.contains("it stays in the outbox"), "{err}");
    assert!(!folder.run(&["trace", "m"]).exits(0).out.contains("summary   1 of"));
    summaries_take(&folder, 0);
    folder.run(&[&TO_SUMMARISE[..], &["and on"]].concat()).exits(0).prints("ok\n");
    assert!(folder.run(&["trace", "m"]).exits(0).out.contains("summary   1 of"), "the next process made it");
}

#[test]
fn a_summary_of_a_process_that_was_killed_is_made_by_the_next_one_at_once_which_says_what_it_waits_for() {
    let folder = summary_is_due();
    let mut child = folder.command(&[&TO_SUMMARISE[..], &["go on"]].concat()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains("waiting for the summary of the oldest turns, at most ") {
        assert_ne!(lines.read_line(&mut err).unwrap(), 0, "{err}");
    }
    send(&child, "-KILL");
    child.wait().unwrap();
    assert!(!folder.run(&["trace", "m"]).exits(0).out.contains("summary   1 of"));
    summaries_take(&folder, 700);
    let began = Instant::now();
    // Made in two calls.
    let ran = folder.run(&[&TO_SUMMARISE[..], &["--quiet"]].concat()).exits(0);
    assert!(began.elapsed() < Duration::from_secs(10), "nobody waits for the lease of a process that is gone");
    assert!(!ran.err.contains("waiting for"), "{}", ran.err);
    assert!(folder.run(&["trace", "m"]).exits(0).out.contains("summary   1 of"), "the next process made it");
}
