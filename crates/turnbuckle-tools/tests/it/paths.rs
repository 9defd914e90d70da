//! Every spelling of a path is one path before anyone judges it, and what was judged is what is opened.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use turnbuckle_tools::Workspace;

use crate::desk::Desk;

#[tokio::test]
async fn hooks_see_the_normal_form_of_a_path() {
    let desk = Desk::new().await;
    desk.put("turnbuckle.toml", "");
    desk.put("src/deep/f", "");
    symlink("turnbuckle.toml", desk.inside("notes.txt")).unwrap();
    symlink("src/deep", desk.inside("short")).unwrap();
    let spellings = [
        ("turnbuckle.toml/", "turnbuckle.toml"),
        ("turnbuckle.toml/.", "turnbuckle.toml"),
        ("turnbuckle.toml//", "turnbuckle.toml"),
        ("./turnbuckle.toml", "turnbuckle.toml"),
        (".//turnbuckle.toml", "turnbuckle.toml"),
        ("src/../turnbuckle.toml", "turnbuckle.toml"),
        ("short/../../turnbuckle.toml", "turnbuckle.toml"),
        ("notes.txt", "turnbuckle.toml"),
        ("short/f", "src/deep/f"),
        ("short/new", "src/deep/new"),
        ("turnbuckle.toml", "turnbuckle.toml"),
        // Not a file: names are told apart byte by byte.
        ("turnbuckle.toml\u{200b}", "turnbuckle.toml\u{200b}"),
    ];
    for (given, normal) in spellings {
        for tool in Workspace::NAMES.into_iter().filter(|name| *name != "apply_patch") {
            let arguments = desk.normal(tool, json!({"path": given, "content": "x"})).await.unwrap();
            assert_eq!(arguments, json!({"path": normal, "content": "x"}), "{tool} {given}");
        }
    }
    let root = desk.inside("").to_str().unwrap().to_owned();
    let absolute = desk.normal("read_file", json!({"path": format!("{root}src/../turnbuckle.toml")})).await.unwrap();
    assert_eq!(absolute, json!({"path": "turnbuckle.toml"}));
    let elsewhere = desk.outside("turnbuckle.toml");
    let refused = desk.normal("read_file", json!({"path": elsewhere.to_str().unwrap()})).await.unwrap_err();
    assert!(refused.contains("not a path below the folder"), "{refused}");
}

#[tokio::test]
async fn arguments_without_a_path_are_left_to_validation() {
    let desk = Desk::new().await;
    for arguments in [json!({}), json!({"path": 1}), json!({"path": ""}), json!("text"), Value::Null, json!([1])] {
        assert_eq!(desk.normal("list_files", arguments.clone()).await.unwrap(), arguments);
    }
}

#[tokio::test]
async fn a_link_that_was_put_there_after_the_call_was_judged_is_not_followed() {
    let desk = Desk::new().await;
    desk.put("a/f", "theirs");
    desk.put("secret/f", "theirs");
    // Judged: a/f and b. By the time the call runs these are links to something else.
    fs::rename(desk.inside("a"), desk.inside("old")).unwrap();
    symlink("secret", desk.inside("a")).unwrap();
    symlink("secret/f", desk.inside("b")).unwrap();
    for path in ["a/f", "b"] {
        let calls = [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "mine"})),
            ("edit_file", json!({"path": path, "old": "theirs", "new": "mine"})),
            ("search_files", json!({"path": path, "pattern": "t"})),
        ];
        for (tool, arguments) in calls {
            let output = desk.run(tool, arguments).await;
            let said = output.content.text();
            assert!(
                !output.ok && said.contains("after the call was checked") && said.contains("secret/f"),
                "{tool}: {said}"
            );
        }
        let edit = json!({"path": path, "old": "ours", "new": "theirs"});
        assert_eq!(desk.reconcile("edit_file", edit).await, None);
    }
    assert!(!desk.run("list_files", json!({"path": "a"})).await.ok);
    assert_eq!(desk.text("secret/f"), "theirs");
    assert!(desk.turn.touched().is_empty());
}

#[tokio::test]
async fn the_own_folder_is_reached_through_no_link() {
    let desk = Desk::new().await;
    desk.put(".turnbuckle/audit.jsonl", "theirs");
    symlink(".turnbuckle", desk.inside("data")).unwrap();
    symlink(".turnbuckle/audit.jsonl", desk.inside("log")).unwrap();
    symlink(".turnbuckle/new", desk.inside("fresh")).unwrap();
    symlink("data", desk.inside("twice")).unwrap();
    for path in ["data", "data/audit.jsonl", "data/new", "twice/audit.jsonl", "log", "fresh", "data/../.turnbuckle/x"] {
        for tool in Workspace::NAMES.into_iter().filter(|name| *name != "apply_patch") {
            let arguments =
                json!({"path": path, "content": "forged", "old": "theirs", "new": "forged", "pattern": "."});
            let said = desk.refused(tool, arguments).await;
            assert!(said.contains("tools do not go there"), "{tool} {path}: {said}");
        }
    }
    assert_eq!(desk.text(".turnbuckle/audit.jsonl"), "theirs");
    assert_eq!(fs::read_dir(desk.inside(".turnbuckle")).unwrap().count(), 1);
}

#[tokio::test]
async fn an_own_folder_that_is_a_link_is_closed_where_it_leads() {
    let desk = Desk::new().await;
    desk.put("kept/turnbuckle.db", "theirs");
    desk.put("open", "mine");
    symlink("kept", desk.inside(".turnbuckle")).unwrap();
    for path in ["kept", "kept/turnbuckle.db", "kept/new", "KEPT/new"] {
        let said = desk.refused("write_file", json!({"path": path, "content": "forged"})).await;
        assert!(said.contains("tools do not go there"), "{path}: {said}");
    }
    assert!(!desk.ok("search_files", json!({"pattern": "theirs"})).await.contains("turnbuckle.db:"));
    assert!(!desk.ok("list_files", json!({})).await.contains("turnbuckle.db"));
}

#[tokio::test]
async fn the_files_of_a_store_are_closed_before_they_are_there() {
    let mut desk = Desk::new().await;
    desk.put("real/x", "");
    symlink("real/conv.db", desk.inside("linked.db")).unwrap();
    symlink("real", desk.inside("r")).unwrap();
    let closed = ["conv.db", "linked.db", "none/yet.db"].map(|file| desk.inside(file));
    desk.workspace = Workspace::open_without(desk.inside(""), closed.into()).unwrap();
    let names = ["conv.db", "./conv.db", "CONV.db", "real/conv.db", "r/conv.db", "none/yet.db"];
    for name in names {
        for end in ["", "-wal", "-shm", "-journal", "-journal/x"] {
            let said = desk.refused("write_file", json!({"path": format!("{name}{end}"), "content": "x"})).await;
            assert!(said.contains("keeps its conversations"), "{name}{end}: {said}");
        }
    }
    desk.refused("write_file", json!({"path": "linked.db", "content": "x"})).await;
    desk.ok("write_file", json!({"path": "conv.db.md", "content": "x"})).await;
    desk.ok("write_file", json!({"path": "real/conv.dbx", "content": "x"})).await;
}

#[tokio::test]
async fn a_folder_that_may_be_passed_but_not_listed_can_be_read_through() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = Desk::new().await;
    desk.put("blind/in/f", "mine");
    for folder in ["blind", "blind/in"] {
        fs::set_permissions(desk.inside(folder), fs::Permissions::from_mode(0o311)).unwrap();
    }
    assert_eq!(desk.ok("read_file", json!({"path": "blind/in/f"})).await, "mine");
    for folder in ["blind", "blind/in"] {
        fs::set_permissions(desk.inside(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
