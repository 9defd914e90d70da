//! `--json` of the commands that people use less often with a program behind them: one JSON object a line on stdout, and the same exit codes.

use serde_json::json;

use crate::program::Folder;

const ASKS: &str = r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "b.txt", "content": "x" } }] }, { "text": "over" }"#;

#[test]
fn check_says_what_was_found_and_what_would_run() {
    let folder = Folder::with_config(
        ASKS,
        "[[hooks]]\nuse = \"command\"\nname = \"gate\"\non = \"before_tool\"\nrun = [\"true\"]\non_failure = \"ignore\"\n",
    );
    let ran = folder.run(&["check", "--json"]).exits(0);
    assert_eq!(ran.err, "");
    let found = &ran.events()[0];
    assert_eq!((&found["ok"], &found["agent"]), (&json!(true), &json!("turnbuckle")));
    assert!(found["tools"].as_array().unwrap().contains(&json!("write_file")), "{found}");
    assert!(
        found["hooks"].as_array().unwrap().contains(&json!({ "point": "before_tool", "hook": "gate", "agent": null })),
        "{found}"
    );
    let warning = &found["problems"][0];
    assert_eq!((&warning["severity"], warning["line"].is_u64()), (&json!("warning"), true), "{found}");
    folder.file("turnbuckle.toml", "[agent]\nmodle = \"demo\"\n");
    let wrong = &folder.run(&["check", "--json"]).exits(2).events()[0];
    assert_eq!((&wrong["ok"], &wrong["problems"][0]["line"]), (&json!(false), &json!(2)), "{wrong}");
}

#[test]
fn cancel_hold_and_delete_say_what_became_of_it() {
    let folder = Folder::with_script(ASKS);
    folder.run(&["run", "-c", "a", "go"]).exits(4);
    let cancelled = folder.run(&["cancel", "a", "--json"]).exits(0).events();
    assert_eq!((&cancelled[0]["conversation"], &cancelled[0]["outcome"]), (&json!("a"), &json!("cancelled")));
    assert!(cancelled[0]["turn"].is_string());
    let nothing = folder.run(&["cancel", "a", "--json"]).exits(0).events();
    assert_eq!(nothing[0], json!({ "conversation": "a", "turn": null }));
    let held = folder.run(&["hold", "a", "--json"]).exits(0).events();
    assert_eq!(held[0], json!({ "conversation": "a", "on_hold": true, "changed": true }));
    folder.run(&["delete", "a", "--yes", "--json"]).exits(1).prints("");
    folder.run(&["delete", "a", "--json"]).exits(2);
    let kept = folder.run(&["delete", "--user", "local", "--yes", "--json"]).exits(1).events();
    assert_eq!((&kept[0]["conversation"], &kept[0]["deleted"]), (&json!("a"), &json!(false)));
    let released = folder.run(&["hold", "a", "--release", "--json"]).exits(0).events();
    assert_eq!(released[0], json!({ "conversation": "a", "on_hold": false, "changed": true }));
    let deleted = folder.run(&["delete", "a", "--yes", "--json"]).exits(0).events();
    assert_eq!(deleted[0], json!({ "conversation": "a", "deleted": true, "left": [] }));
}

#[test]
fn export_and_init_take_it_like_every_command_that_prints() {
    let folder = Folder::with_script(r#"{ "text": "blue" }"#);
    folder.run(&["run", "-c", "a", "which colour?"]).exits(0);
    let plain = folder.run(&["export", "a"]).exits(0).out;
    folder.run(&["export", "a", "--json"]).exits(0).prints(&plain);
    let folder = Folder::foreign();
    let written = folder.run(&["init", "--yes", "--json", "--check", "true", "--model", "demo"]).exits(0);
    let expected = json!({
        "file": "turnbuckle.toml", "schema": ".turnbuckle/turnbuckle.schema.json", "model": "demo", "tools": "ask",
        "check": "true", "replaced": false
    });
    assert_eq!((written.events(), written.err.as_str()), (vec![expected], ""));
    let again = &folder.run(&["init", "--yes", "--json", "--force"]).exits(0).events()[0];
    assert_eq!((&again["replaced"], &again["model"], &again["check"]), (&json!(true), &json!(null), &json!(null)));
}

#[test]
fn why_has_a_line_for_each_call_and_says_where_a_text_was() {
    let folder = Folder::with_script(r#"{ "text": "blue" }, { "text": "green" }"#);
    folder.run(&["run", "-c", "a", "which colour?"]).exits(0);
    folder.run(&["run", "-c", "a", "and the other?"]).exits(0);
    let calls = folder.run(&["why", "a", "--json"]).exits(0).events();
    assert_eq!(calls.len(), 2);
    assert_eq!(
        (&calls[1]["call"], &calls[1]["messages"], &calls[1]["earlier_turns"]),
        (&json!(1), &json!(3), &json!(1))
    );
    assert!(calls[1]["tokens"].as_u64() > calls[0]["tokens"].as_u64(), "{calls:?}");
    let found = folder.run(&["why", "a", "--find", "blue", "--json"]).exits(0).events();
    assert_eq!(found[0]["type"], "assistant_message");
    let presence: Vec<_> = found.iter().filter_map(|line| line.get("presence")).collect();
    assert_eq!(presence, ["not_sent", "sent"]);
}

#[test]
fn trust_shows_what_it_is_about_and_accepts_only_if_told_to() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"x\"\non = \"ended\"\nrun = \"./x.sh\"\n";
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, hook);
    folder.file("x.sh", "#!/bin/sh\n");
    let shown = folder.run(&["trust", "--json"]).exits(2).events();
    assert_eq!(shown[0]["accepted"], false);
    assert!(shown[0]["items"].to_string().contains("./x.sh"), "{}", shown[0]);
    folder.run(&["run", "hello"]).exits(2);
    let accepted = folder.run(&["trust", "--json", "--yes"]).exits(0).events();
    assert_eq!((accepted.len(), &accepted[0]["accepted"]), (1, &json!(true)));
    folder.run(&["run", "hello"]).exits(0);
    let again = folder.run(&["trust", "--json"]).exits(0).events();
    assert_eq!((&again[0]["accepted"], &again[0]["items"]), (&json!(true), &json!([])));
    assert_eq!(folder.run(&["trust", "revoke", "--json"]).exits(0).events()[0]["revoked"], true);
}

#[test]
fn a_conversation_is_listed_by_its_first_words_without_a_hook_that_makes_titles() {
    let folder = Folder::with_script(r#"{ "text": "a" }, { "text": "b" }"#);
    folder.run(&["run", "-c", "a", "mend the parser"]).exits(0);
    folder.run(&["run", "-c", "a", "thanks"]).exits(0);
    let listed = folder.run(&["list"]).exits(0);
    assert!(listed.out.contains("mend the parser") && !listed.out.contains("thanks"), "{}", listed.out);
    let line = &folder.run(&["list", "--json"]).exits(0).events()[0];
    assert_eq!((&line["title"], &line["message"]), (&json!("mend the parser"), &json!("thanks")));
    folder.run_with_stdin(&["run", "-c", "b", "what broke?"], b"a log").exits(0);
    let listed = folder.run(&["list", "--json"]).exits(0).events();
    assert_eq!(listed[0]["title"], "what broke?", "what came through a pipe is no part of it");
}
