//! Ready-made hooks, named in `turnbuckle.toml` and run by the program.

use crate::program::Folder;

const WRITE: &str = r#"{ "tool_calls": [ { "id": "c1", "name": "write_file", "arguments": { "path": "a.rs", "content": "dbg!(1)" } } ] }"#;

fn folder(replies: &str, config: &str) -> Folder {
    Folder::with_config(replies, &format!("[tools]\napprove = []\n{config}"))
}

/// Every failed attempt goes straight to the hooks that are tested.
fn folder_without_retry(replies: &str, config: &str) -> Folder {
    Folder::with_config(replies, &format!("default_retry = false\n{config}"))
}

#[test]
fn a_critic_of_another_script_sends_work_back_and_nothing_of_it_is_printed() {
    let replies = r#"{ "text": "first" }, { "text": "second" }"#;
    let critic = "[[hooks]]\nuse = \"critic\"\nmodel = \"script:critic.json\"\nbrief = \"Is it good?\"\n";
    let folder = folder(replies, critic);
    folder.file(
        "critic.json",
        r#"{ "replies": [ { "text": "{\"verdict\": \"regenerate\", \"critique\": \"too short\"}" },
                          { "text": "{\"verdict\": \"approve\"}" } ] }"#,
    );
    let ran = folder.run(&["run", "--json", "-c", "x", "write"]).exits(0);
    assert!(!ran.out.contains("first"), "{}", ran.out);
    assert_eq!(ran.event("assistant_message")["content"][0]["text"], "second");
    let finished = ran.event("hook_finished");
    assert_eq!((&finished["decision"], &finished["reason"]), (&"regenerate".into(), &"critic: too short".into()));
    let trace = folder.run(&["trace", "x"]).exits(0).out;
    assert!(trace.contains("after_model critic: regenerate") && trace.contains("too short"), "{trace}");
    folder.run(&["run", "-c", "x2", "write"]).says("too short");
}

#[test]
fn a_guard_rejects_with_exit_code_3() {
    let guard = "[[hooks]]\nuse = \"guard\"\nrules = [ { phrases = [\"Risk-Free\"], then = \"reject\" } ]\n";
    folder(r#"{ "text": "it is risk-free" }"#, guard).run(&["run", "invest?"]).exits(3).says("risk-free");
}

#[test]
fn approval_and_permit_and_dry_run_stand_before_the_tool() {
    let replies = format!("{WRITE}, {{ \"text\": \"done\" }}");
    let ask = "[[hooks]]\nuse = \"approval\"\nrules = [ { where = { \"/path\" = \"[.]rs$\" }, explain = \"code: {/path}\" } ]\n";
    folder(&replies, ask).run(&["run", "--json", "go"]).exits(4).says("a.rs");
    let permit = "[[hooks]]\nuse = \"permit\"\nrules = [ { allow = [\"read_*\"] } ]\n";
    let denied = folder(&replies, permit);
    let ran = denied.run(&["run", "--json", "go"]).exits(0);
    assert!(ran.event("tool_result").to_string().contains("not permitted"), "{}", ran.out);
    let dry = folder(&replies, "[[hooks]]\nuse = \"dry_run\"\n");
    dry.run(&["run", "go"]).exits(0).prints("done\n");
    assert_eq!((denied.read("a.rs"), dry.read("a.rs")), (String::new(), String::new()));
}

#[test]
fn a_linter_refuses_the_end_and_its_output_is_read() {
    let fix = WRITE.replace("c1", "c2").replace("dbg!(1)", "1");
    let replies = format!("{WRITE}, {{ \"text\": \"done\" }}, {fix}, {{ \"text\": \"fixed\" }}");
    let lint = "[[hooks]]\nuse = \"lint\"\nrun = '! grep -n \"dbg!\" \"$@\"'\nfiles = [\"*.rs\"]\n";
    let ran = folder(&replies, lint).run(&["run", "--json", "go"]).exits(0);
    let feedback = ran.event("stop_feedback").to_string();
    assert!(feedback.contains("dbg!(1)"), "{feedback}");
}

#[test]
fn input_is_validated_instructions_are_read_and_results_are_formatted_and_kept() {
    let config = r#"[[hooks]]
use = "validate_input"
max_chars = 20
[[hooks]]
use = "instructions"
files = ["RULES.md"]
durable = true
[[hooks]]
use = "format"
template = "<{/answer}>"
[[hooks]]
use = "persist"
file = "out/{agent}.txt"
"#;
    let folder = folder(r#"{ "text": "{\"answer\": 42}" }"#, config);
    folder.file("RULES.md", "Be brief.");
    folder.run(&["run", "a message that is much too long"]).exits(3).says("20 are the most");
    let ran = folder.run(&["run", "--json", "what?"]).exits(0);
    assert!(ran.event("injection").to_string().contains("Be brief."), "{}", ran.out);
    assert_eq!(ran.event("turn_ended")["result"], "<42>");
    assert_eq!(folder.read("out/turnbuckle.txt"), "<42>\n");
}

#[test]
fn suggestions_are_told() {
    let folder = folder(r#"{ "text": "hello" }"#, "[[hooks]]\nuse = \"suggest\"\nmodel = \"script:next.json\"\n");
    folder.file("next.json", r#"{ "replies": [ { "text": "[\"And now?\"]" } ] }"#);
    let ran = folder.run(&["run", "--json", "hi"]).exits(0);
    assert_eq!(ran.event("suggestion")["text"], "And now?", "{}", ran.out);
}

#[test]
fn another_model_is_asked_when_one_fails() {
    let fallback = "[[hooks]]\nuse = \"fallback\"\nmodels = [\"script:spare.json\"]\n";
    let folder = folder_without_retry(r#"{ "error": { "status": 500, "message": "down" } }"#, fallback);
    folder.file("spare.json", r#"{ "replies": [ { "text": "not this" }, { "text": "from the spare" } ] }"#);
    folder.run(&["run", "hi"]).exits(0).prints("from the spare\n");
}

#[test]
fn a_model_that_was_not_asked_is_named_as_the_configuration_names_it() {
    let fallback = "[[hooks]]\nuse = \"fallback\"\nmodels = [\"script:second.json\", \"script:third.json\"]\n";
    let folder = folder_without_retry(r#"{ "error": { "status": 529, "message": "full" } }"#, fallback);
    let unused = r#"{ "text": "not this" }"#;
    let broken = r#"{ "chunks": ["half ", "way"], "fail_after_chunks": 1 }"#;
    folder.file("second.json", &format!(r#"{{ "replies": [ {unused}, {broken} ] }}"#));
    folder.file("third.json", r#"{ "replies": [], "on_exhausted": "echo" }"#);
    let ran =
        folder.run(&["run", "hi"]).exits(1).says("2 of 3 models failed").says("script:second.json: the connection");
    ran.says("(after_text = false): script:third.json").says("hint: `after_text = true` in the `fallback` hook");
}

#[test]
fn a_hook_speaks_under_the_name_it_was_given() {
    let error = r#"{ "error": { "status": 500, "message": "down" } }"#;
    let retry = "[[hooks]]\nuse = \"retry\"\nname = \"again\"\nbackoff = \"1ms\"\n";
    let ran = folder(&format!(r#"{error}, {{ "text": "up" }}"#), retry).run(&["run", "--json", "hi"]).exits(0);
    assert_eq!(ran.event("notice")["hook"], "again", "{}", ran.out);
    let spare = "[[hooks]]\nuse = \"fallback\"\nname = \"spare\"\nmodels = [\"script:spare.json\"]\n";
    let folder = folder_without_retry(error, spare);
    folder.file("spare.json", r#"{ "replies": [ { "text": "no" }, { "text": "yes" } ] }"#);
    let ran = folder.run(&["run", "--json", "hi"]).exits(0);
    assert_eq!(ran.event("notice")["hook"], "spare", "{}", ran.out);
}

#[test]
fn what_redact_blocks_on_the_stream_is_not_answered_with_a_hint_that_changes_nothing() {
    let block = "[[hooks]]\nuse = \"redact\"\nstrategy = \"block\"\n";
    let ran = folder(r#"{ "text": "ask ann@example.com" }"#, block).run(&["run", "whom?"]).exits(1).prints("");
    assert!(ran.err.contains("strategy") && !ran.err.contains("on_failure"), "{}", ran.err);
}

#[test]
fn a_permit_goes_by_the_roles_of_the_scope() {
    let replies = format!("{WRITE}, {{ \"text\": \"done\" }}");
    let permit = "[[hooks]]\nuse = \"permit\"\nrules = [ { role = \"editor\", allow = [\"*\"] } ]\n";
    for (scope, written) in [("", ""), ("[scope]\nuser = \"ann\"\nroles = [\"editor\"]\n", "dbg!(1)")] {
        let folder = folder(&replies, permit);
        folder.users_file(scope);
        let ran = folder.run(&["run", "--json", "go"]).exits(0);
        assert_eq!(folder.read("a.rs"), written, "{}", ran.out);
        let user = if scope.is_empty() { "local" } else { "ann" };
        assert_eq!(ran.event("user_message")["by"]["user"], user);
    }
}

#[test]
fn a_title_is_listed_and_goes_with_its_conversation() {
    let folder = folder(r#"{ "text": "hello" }, { "text": "bye" }"#, "[[hooks]]\nuse = \"title\"\n");
    folder.run(&["run", "-c", "x", "Mend the parser\nof numbers"]).exits(0);
    folder.run(&["run", "-c", "x", "thanks"]).exits(0);
    let listed = folder.run(&["list"]).exits(0).out;
    assert!(listed.contains("Mend the parser") && !listed.contains("thanks"), "{listed}");
    assert_eq!(folder.run(&["list", "--json"]).exits(0).events()[0]["title"], "Mend the parser");
    folder.run(&["delete", "x", "--yes"]).exits(0);
    let database = std::fs::read(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap();
    assert!(!database.windows(15).any(|bytes| bytes == b"Mend the parser"), "the title is still in the file");
}
