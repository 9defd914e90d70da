//! A writer that was thought dead comes back: it writes nothing and runs nothing any more, and says so.

use std::io::{BufRead, BufReader, Read};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};

fn script(delay_ms: u32, content: &str) -> String {
    let first =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "one", "content": "1" } }] }"#;
    let write =
        format!(r#"{{ "id": "c2", "name": "write_file", "arguments": {{ "path": "two", "content": "{content}" }} }}"#);
    let second = format!(r#"{{ "chunks": ["a ", "b ", "c "], "delay_ms": {delay_ms}, "tool_calls": [{write}] }}"#);
    format!(r#"{{ "replies": [{first}, {second}, {{ "text": "by the {content}" }}] }}"#)
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_writer_that_was_taken_over_writes_nothing_more_and_says_so() {
    let folder = Folder::with_config("", "[tools]\napprove = []\n");
    // The first stands still while its model speaks, with a tool to run next.
    folder.file("script.json", &script(1_000, "first"));
    let mut first = folder.command(&["run", "-c", "z", "--json", "go"]).spawn().unwrap();
    let (mut lines, mut told) = (BufReader::new(first.stdout.take().unwrap()), String::new());
    while !told.contains("text_delta") {
        assert_ne!(lines.read_line(&mut told).unwrap(), 0, "{told}");
    }
    assert_eq!(folder.read("one"), "1");
    signal(first.id(), "-STOP");

    // It lives, so nobody may take over before its lease is up.
    folder.file("script.json", &script(0, "second"));
    let stopped = Instant::now();
    folder.run(&["run", "-c", "z"]).exits(1).prints("").says("z is busy: another process carries its turn on");
    let second = loop {
        let ran = folder.run(&["run", "-c", "z"]);
        if ran.code != 1 || stopped.elapsed() > Duration::from_secs(60) {
            break ran;
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    second.exits(0).prints("by the second\n");
    assert_eq!(folder.read("two"), "second");
    let log = folder.run(&["show", "z", "--json"]).exits(0).out;

    signal(first.id(), "-CONT");
    lines.read_to_string(&mut told).unwrap();
    let output = first.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let first = Ran { code: output.status.code().unwrap_or(-1), out: told, err }.exits(1);
    let first = first.says("error: the turn stopped: conversation z was taken over").says("hint: another process took");
    assert_eq!(folder.read("two"), "second", "the zombie's tool did not run");
    assert_eq!(folder.run(&["show", "z", "--json"]).exits(0).out, log, "nothing of the zombie is in the log");
    // Nor did it tell of anything that is not.
    let told = first.events().into_iter().filter(|event| event["plane"] == "log");
    let seqs: Vec<u64> = told.map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5], "what it had written before it stood still");
}
