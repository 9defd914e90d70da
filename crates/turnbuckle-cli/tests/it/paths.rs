//! The gates that the docs show hold against every spelling of a path.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::program::Folder;

const PROGRAM: &str = include_str!("../../../../docs/program.md");
const CATALOGUE: &str = include_str!("../../../../docs/catalogue.md");

/// The block of TOML that has this text, as it is.
fn shown(page: &str, text: &str) -> String {
    let mut blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains(text)).unwrap().to_owned()
}

/// Other spellings of `turnbuckle.toml`.
const SPELLINGS: [&str; 14] = [
    "turnbuckle.toml",
    "turnbuckle.toml/",
    "turnbuckle.toml//",
    "turnbuckle.toml/.",
    "turnbuckle.toml/./",
    "./turnbuckle.toml",
    ".//turnbuckle.toml",
    "./././turnbuckle.toml/.//",
    "src/../turnbuckle.toml",
    "src/deep/../../turnbuckle.toml",
    "up/turnbuckle.toml",
    "link",
    "link/",
    "chain",
];

fn folder(gate: &str, tool: &str, path: &str) -> Folder {
    let arguments = match tool {
        "write_file" => json!({ "path": path, "content": "taken" }),
        _ => json!({ "path": path, "old": "[tools]", "new": "taken" }),
    };
    let call = json!({ "tool_calls": [{ "id": "c1", "name": tool, "arguments": arguments }] });
    let folder =
        Folder::with_config(&format!("{call}, {{ \"text\": \"done\" }}"), &format!("[tools]\napprove = []\n{gate}"));
    folder.file("src/deep/f", "");
    symlink("turnbuckle.toml", folder.path().join("link")).unwrap();
    symlink("src/../link", folder.path().join("chain")).unwrap();
    symlink("src/..", folder.path().join("up")).unwrap();
    folder
}

fn result(events: &[Value]) -> (bool, String) {
    let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
    (result["ok"].as_bool().unwrap(), result["content"].to_string())
}

#[test]
fn the_command_hook_of_the_docs_holds_against_every_spelling() {
    let gate = shown(PROGRAM, "hands-off");
    for tool in ["write_file", "edit_file"] {
        for path in SPELLINGS {
            let folder = folder(&gate, tool, path);
            let before = folder.read("turnbuckle.toml");
            let events = folder.run(&["run", "--json", "go"]).exits(0).events();
            let (ok, text) = result(&events);
            assert!(!ok && text.contains("the configuration is not yours"), "{tool} {path}: {text}");
            assert_eq!(folder.read("turnbuckle.toml"), before, "{tool} {path}");
        }
    }
}

#[test]
fn the_approval_rule_of_the_docs_holds_against_every_spelling() {
    let gate = shown(CATALOGUE, "is not yours");
    let into_git =
        ["sub/.git/hooks/x", "sub//.git/hooks/x", "sub/./.git/hooks/x", "git/hooks/x", "src/../sub/.git/hooks/x"];
    for path in SPELLINGS.into_iter().chain(into_git) {
        let folder = folder(&gate, "write_file", path);
        folder.file("sub/.git/hooks/y", "");
        symlink("sub/.git", folder.path().join("git")).unwrap();
        let events = folder.run(&["run", "--json", "go"]).exits(0).events();
        let (ok, text) = result(&events);
        assert!(!ok && text.contains("is not yours"), "{path}: {text}");
        assert_eq!(folder.read("sub/.git/hooks/x"), "");
    }
}

#[test]
fn a_person_is_asked_about_the_normal_form_and_the_call_keeps_what_the_model_wrote() {
    let folder = folder("", "write_file", "src/./deep//../new.txt/");
    let config = folder.read("turnbuckle.toml").replace("approve = []", "");
    folder.file("turnbuckle.toml", &config);
    let ran = folder.run(&["run", "-c", "a", "--json", "go"]).exits(4).says("write_file(src/new.txt, taken)");
    assert_eq!(ran.event("tool_call")["arguments"]["path"], "src/./deep//../new.txt/");
    assert_eq!(ran.event("suspension")["prompt"]["arguments"]["path"], "src/new.txt");
    let ran = folder.run(&["resolve", "a", "c1", "--approve", "--json"]).exits(0);
    assert_eq!(ran.event("tool_started")["arguments"]["path"], "src/new.txt");
    assert_eq!(folder.read("src/new.txt"), "taken");
}

#[test]
fn a_link_that_is_put_there_while_a_person_decides_is_refused() {
    let folder = folder("", "write_file", "src/new.txt");
    let config = folder.read("turnbuckle.toml").replace("approve = []", "");
    folder.file("turnbuckle.toml", &config);
    folder.run(&["run", "-c", "a", "go"]).exits(4);
    symlink("../turnbuckle.toml", folder.path().join("src/new.txt")).unwrap();
    let ran = folder.run(&["resolve", "a", "c1", "--approve", "--json"]).exits(0);
    let (ok, text) = result(&ran.events());
    assert!(!ok && text.contains("after the call was checked"), "{text}");
    assert_eq!(folder.read("turnbuckle.toml"), config);
}

#[test]
fn the_files_beside_a_store_cannot_be_made() {
    for path in ["conv.db-journal", "conv.db-wal", "./conv.db-shm", "conv.db", "linked/../conv.db-journal/"] {
        let folder = folder("", "write_file", path);
        folder.file("linked/f", "");
        let store = ["--store", "sqlite:conv.db"];
        let events = folder.run(&[&["run", "-c", "a", "--json"], &store[..], &["go"]].concat()).exits(0).events();
        let (ok, text) = result(&events);
        assert!(!ok && text.contains("keeps its conversations"), "{path}: {text}");
        folder.run(&[&["show", "a"], &store[..]].concat()).exits(0);
    }
}
