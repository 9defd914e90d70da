//! Every exit code, as the help says.

use crate::program::Folder;

#[test]
fn completed_is_0_and_the_answer_is_on_stdout_once() {
    let folder = Folder::with_script(r#"{ "chunks": ["Hel", "lo"] }"#);
    folder.run(&["run", "hi"]).exits(0).prints("Hello\n").says("accept    hi");
}

#[test]
fn failed_is_1_with_the_reason_and_a_hint() {
    let folder = Folder::with_script(r#"{ "error": { "status": 500, "message": "broken" } }"#);
    let ran = folder.run(&["run", "hi"]).exits(1).prints("");
    ran.says("error: the turn failed").says("broken").says("hint: ");
}

#[test]
fn a_script_that_runs_out_is_1_and_says_so() {
    let folder = Folder::with_script("");
    folder.run(&["run", "hi"]).exits(1).says("the script has 0 replies").says("on_exhausted");
}

#[test]
fn bad_usage_is_2() {
    let folder = Folder::with_script(r#"{ "text": "never" }"#);
    for bad in [
        &["nonsense"][..],
        &["run", "a", "b"],
        &["run", "--schema", "x", "hi"],
        &["serve", "--listen", "x"],
        &["run", "--jsn", "x"],
    ] {
        folder.run(bad).exits(2).prints("").says("error: ");
    }
}

#[test]
fn a_bad_conversation_id_is_2() {
    let folder = Folder::with_script(r#"{ "text": "never" }"#);
    for bad in ["a b", "", "a/b", "ä", &"x".repeat(65)] {
        folder.run(&["run", "-c", bad, "hi"]).exits(2).prints("").says("hint: ");
    }
    let ran = folder.run(&["run", "-c", "Az_9-", "--json", "hi"]).exits(0);
    assert!(ran.events().iter().all(|event| event["conversation"] == "Az_9-"));
}

#[test]
fn halted_is_3() {
    let hook =
        "[[hooks]]\nuse = \"command\"\nname = \"door\"\non = \"before_agent\"\nrun = \"echo go away >&2; exit 2\"\n";
    let folder = Folder::with_config(r#"{ "text": "never" }"#, hook);
    folder.run(&["run", "hi"]).exits(3).prints("").says("error: the turn was halted by hook door: go away");
}

#[test]
fn rejected_is_3() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"critic\"\non = \"after_model\"\nrun = \"echo no >&2; exit 2\"\n";
    let folder = Folder::with_config(r#"{ "text": "a" }, { "text": "b" }, { "text": "c" }"#, hook);
    let ran = folder.run(&["run", "--json", "hi"]).exits(3);
    assert_eq!(ran.event("turn_ended")["outcome"], "rejected");
    assert_eq!(ran.types().iter().filter(|kind| *kind == "attempt_discarded").count(), 3);
}

#[test]
fn exhausted_is_5() {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "list_files", "arguments": {} }] }"#;
    let folder = Folder::with_config(call, "[limits]\nmax_model_calls = 1\n");
    folder.run(&["run", "hi"]).exits(5).prints("").says("error: the turn reached its limit").says("[limits]");
}

#[test]
fn help_is_0_and_teaches() {
    let ran = Folder::new().run(&["--help"]).exits(0);
    for text in ["Examples:", "Exit codes:", "130  cancelled", "[[hooks]]", "script:FILE"] {
        assert!(ran.out.contains(text), "{text}");
    }
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100));
    Folder::new().run(&["run", "--help"]).exits(0);
    Folder::new().run(&["--version"]).exits(0);
}

#[test]
fn a_message_that_is_taken_for_a_command_is_answered_with_the_right_line() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    for (arguments, hint) in [
        (&["What is in this folder?"][..], "hint: `turnbuckle run \"What is in this folder?\"` says it to the model"),
        (
            &["run", "Hello", "what", "is", "this"],
            "hint: put the message into quotes: `turnbuckle run \"Hello what is this\"`",
        ),
        (&["-c", "k4"], "hint: `turnbuckle chat -c k4` goes on with a conversation"),
        (&["run", "--allow", "shel(*)", "hi"], "`shel` is no tool that takes a pattern: did you mean `shell`?"),
        (&["serve", "--listen", "7878"], "an address has a host as well: write `127.0.0.1:7878`"),
    ] {
        folder.run(arguments).exits(2).prints("").says(hint);
    }
}
