//! Standing approvals and processes that are killed: an answer with `--always` is there with its standing approval or not at
//! all, and a limited one is used as often as the logs say and no more.

use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::Folder;

const WRITE: &str = r#"{ "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

/// Resolutions of a conversation that `wanted` picks. There may be no such conversation.
fn resolutions(folder: &Folder, id: &str, wanted: impl Fn(&Value) -> bool) -> usize {
    let shown = folder.run(&["show", id, "--json"]);
    match shown.code {
        0 => shown.events().iter().filter(|event| event["type"] == "resolution" && wanted(event)).count(),
        _ => 0,
    }
}

fn approvals(folder: &Folder) -> Vec<Value> {
    folder.run(&["approvals", "--json"]).exits(0).events()
}

fn kill_after(child: &mut Child, life: Duration) {
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_answer_with_always_that_was_killed_anywhere_left_both_or_neither() {
    let folder = Folder::with_script(WRITE);
    let (mut answered, mut usual) = ([0, 0], Duration::ZERO);
    for round in 0..24_u32 {
        let id = format!("k{round}");
        folder.run(&["run", "-c", &id, "write it"]).exits(4);
        let answer = ["answer", &id, "c1", "--approve", "--always"];
        if round < 2 {
            // How long an undisturbed one takes; the first may be slower.
            let began = Instant::now();
            folder.run(&answer).exits(0);
            usual = began.elapsed();
        } else {
            let mut child = folder.command(&answer).spawn().unwrap();
            // The first is killed at once: if the machine was busy meanwhile, a part of the usual time may be all that it takes.
            kill_after(&mut child, usual * (round - 2) / 20);
        }
        let (given, written) = (approvals(&folder), resolutions(&folder, &id, |_| true));
        assert_eq!(given.len(), written, "round {round}");
        answered[written] += 1;
        for approval in given {
            folder.run(&["approvals", "revoke", approval["id"].as_str().unwrap()]).exits(0);
        }
    }
    assert!(answered[0] > 0, "no kill came before the answer was written: {answered:?}");
}

#[test]
fn processes_that_run_at_once_and_are_killed_use_a_standing_approval_as_often_as_it_says() {
    const TIMES: usize = 5;
    let folder = Folder::with_script(WRITE);
    folder.run(&["run", "-c", "first", "write it"]).exits(4);
    folder.run(&["answer", "first", "c1", "--approve", "--always", "--times", "5"]).exits(0);
    let ids: Vec<String> = (0..14).map(|number| format!("k{number}")).collect();
    let uses = || ids.iter().map(|id| resolutions(&folder, id, |event| !event["standing"].is_null())).sum::<usize>();
    let left = || usize::try_from(approvals(&folder)[0]["uses_left"].as_u64().unwrap()).unwrap();
    let start = |id: &String| folder.command(&["run", "-c", id, "write it"]).spawn().unwrap();
    let mut children: Vec<Child> = ids.iter().map(start).collect();
    for (number, child) in children.iter_mut().enumerate() {
        match number % 2 {
            0 => kill_after(child, Duration::from_millis(20)),
            _ => drop(child.wait().unwrap()),
        }
    }
    assert_eq!(uses() + left(), TIMES, "what was counted is in the logs, and the other way round");
    // Whoever was killed goes on; what is left is used up, and the rest is asked about.
    for id in &ids {
        let ran = folder.run(&["run", "-c", id]);
        assert!([0, 1, 2, 4].contains(&ran.code), "{ran:?}");
        if !folder.run(&["list", "--json"]).exits(0).events().iter().any(|one| one["id"] == **id) {
            folder.run(&["run", "-c", id, "write it"]);
        }
    }
    assert_eq!((uses(), left()), (TIMES, 0));
    let third = folder.run(&["run", "-c", "another", "write it"]);
    third.exits(4);
}

#[test]
fn a_standing_approval_by_a_pattern_covers_no_file_that_decides_what_runs() {
    let write = |path: &str| serde_json::json!({ "path": path, "content": "x" });
    let patch = |path: &str| serde_json::json!({ "patch": format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n") });
    let calls = |tool: &str, of: &dyn Fn(&str) -> Value| {
        let call = |(path, id): (&str, i32)| {
            let call = serde_json::json!({ "id": format!("c{id}"), "name": tool, "arguments": of(path) });
            serde_json::json!({ "tool_calls": [call] }).to_string()
        };
        let calls: Vec<String> = ["a.txt", "b.txt", ".mcp.json"].into_iter().zip(1..).map(call).collect();
        format!("{}, {{ \"text\": \"done\" }}", calls.join(", "))
    };
    for (script, like) in [
        (calls("write_file", &write), r#"{"path": "*", "content": "*"}"#),
        (calls("write_file", &write), "write_file(**)"),
        (calls("apply_patch", &patch), "apply_patch"),
        (calls("apply_patch", &patch), r#"{"patch": "*"}"#),
    ] {
        let folder = Folder::with_script(&script);
        folder.run(&["run", "-c", "w", "go"]).exits(4);
        folder
            .run(&["answer", "w", "c1", "--approve", "--always", "--like", like])
            .exits(0)
            .says("not turnbuckle.toml");
        let ran = folder.run(&["run", "-c", "w"]).exits(4);
        assert!(folder.path().join("b.txt").exists(), "{like}: {ran:?}");
        assert!(!folder.path().join(".mcp.json").exists(), "{like}: {ran:?}");
        folder.run(&["answer", "w", "c3", "--approve"]).exits(0);
        folder.run(&["run", "-c", "w"]).exits(0);
        assert!(folder.path().join(".mcp.json").exists(), "{like}");
    }
}
