//! Commands that are printed for a person to paste: nobody acts as another person by them, and none is printed that is known to
//! be refused.

use crate::program::{Folder, Ran};

const WRITE: &str = r#"{ "text": "I will write it. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

const ANN: (&str, &str) = ("ann", "");
const BOB: (&str, &str) = ("bob", "manager");

const GUARD: &str = "[[hooks]]\nuse = \"command\"\nname = \"guard\"\non = \"before_tool\"\nrun = \"true\"\n";

/// A project whose managers may read, say and answer.
fn shared() -> Folder {
    Folder::with_config(WRITE, "[access]\nread = [\"manager\"]\nanswer = [\"manager\"]\nsay = [\"manager\"]\n")
}

fn config(folder: &Folder, name: &str, scope: &str) -> String {
    let rest = "[access]\nread = [\"manager\"]\nanswer = [\"manager\"]\nsay = [\"manager\"]\n";
    let text = format!("[agent]\nname = \"till\"\nmodel = \"script:script.json\"\n{scope}{rest}");
    folder.file(name, &text).to_str().unwrap().to_owned()
}

fn who_answered(folder: &Folder, person: (&str, &str), id: &str) -> String {
    let resolution = folder.run_as(person, &["show", id, "--json"]).exits(0).event("resolution");
    resolution["by"]["user"].as_str().unwrap_or_default().to_owned()
}

fn paste_as(folder: &Folder, person: (&str, &str), command: &str) -> Ran {
    let home = folder.path().join(format!("homes/{}-{}", person.0, person.1));
    folder.paste(&format!("export HOME='{}'; {command}", home.display()))
}

#[test]
fn with_a_file_that_names_nobody_everyone_acts_as_themselves() {
    let folder = shared();
    let file = config(&folder, "team.toml", "");
    folder.run_as(ANN, &["run", "-c", "w", "--config", &file, "write it"]).exits(4);
    let owner = folder.run_as(ANN, &["show", "w", "--json"]).exits(0).event("user_message");
    assert_eq!(owner["by"]["user"], "ann", "{owner}");
    let command = folder.run_as(BOB, &["show", "w"]).exits(0).command_shown("resolve");
    assert!(command.contains("--config "), "{command}");
    paste_as(&folder, BOB, &command).exits(0).prints("done\n").says("approved by user bob");
    assert_eq!(who_answered(&folder, BOB, "w"), "bob");
    // The user's own file is not read for anything else, and not guessed if it has errors.
    let home = folder.path().join("homes/ann-/.config/turnbuckle/turnbuckle.toml");
    std::fs::write(&home, "[agent]\nname = \"own\"\n[scope]\nuser = \"ann\"\n[[hooks]]\nuse = \"nonsense\"\n").unwrap();
    let list = || paste_as(&folder, ANN, &format!("turnbuckle list --config {file}"));
    assert!(list().exits(0).out.contains("w "));
    std::fs::write(&home, "[scope]\nuser = 7\n").unwrap();
    list().exits(2).prints("").says("turnbuckle.toml:2");
}

#[test]
fn a_file_that_names_a_user_is_printed_for_that_user_alone() {
    let folder = shared();
    let file = config(&folder, "ann.toml", "[scope]\nuser = \"ann\"\n");
    folder.run_as(ANN, &["run", "-c", "w", "--config", &file, "write it"]).exits(4);
    let shown = folder.run_as(ANN, &["show", "w"]).exits(0);
    assert!(shown.command_shown("resolve").contains("--config "), "{}", shown.out);
    let shown = folder.run_as(BOB, &["show", "w"]).exits(0);
    let command = shown.command_shown("c1 --digest");
    assert!(command.starts_with("turnbuckle answer w c1") && !command.contains("--config"), "{command}");
    let ran = paste_as(&folder, BOB, &command).exits(0).says("approved by user bob");
    ran.says("agent till carries the turn on with `--config ").says("which is for user ann");
    assert_eq!(who_answered(&folder, BOB, "w"), "bob");
    folder.run_as(ANN, &["run", "-c", "w", "--config", &file]).exits(0).prints("done\n");
    // Where the file is gone, no command that names it works.
    folder.run_as(ANN, &["run", "-c", "v", "--config", &file, "write it"]).exits(4);
    std::fs::remove_file(&file).unwrap();
    let command = folder.run_as(ANN, &["show", "v"]).exits(0).command_shown("c1 --digest");
    paste_as(&folder, ANN, &command).exits(0).says("which cannot be read here");
}

/// Two turns that wait and one that was answered, of an agent with a guard.
fn guarded() -> Folder {
    let folder = Folder::with_config(WRITE, GUARD);
    for id in ["a", "b", "c"] {
        folder.run(&["run", "-c", id, "write it"]).exits(4);
    }
    folder.run(&["answer", "b", "c1", "--approve"]).exits(0);
    folder
}

#[test]
fn of_an_agent_that_has_changed_what_is_printed_insists_or_only_records() {
    let folder = guarded();
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n");
    let waits = folder.run(&["show", "a"]).exits(0);
    assert!(waits.out.contains("it lacks hook guard"), "{}", waits.out);
    let busy = folder.run(&["run", "-c", "a"]).exits(1);
    for shown in [&waits, &busy] {
        assert!(shown.command_shown("resolve").contains("--accept-changes"), "{shown:?}");
    }
    folder
        .paste(&waits.command_shown("answer"))
        .exits(0)
        .says("give the agent back what it lacks")
        .says("--accept-changes`");
    folder.paste(&folder.run(&["show", "c"]).exits(0).command_shown("resolve")).exits(0).prints("done\n");
    for id in ["a", "b"] {
        let left = folder.run(&["show", id]).exits(0).command_shown("run -c");
        folder.paste(&left).exits(0).prints("done\n");
    }
}

#[test]
fn who_may_not_insist_is_not_told_to() {
    let folder = Folder::with_config(WRITE, &format!("[access]\nanswer = [\"manager\"]\n{GUARD}"));
    folder.run_as(ANN, &["run", "-c", "w", "write it"]).exits(4);
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[access]\nanswer = [\"manager\"]\n");
    let shown = folder.run_as(BOB, &["show", "w"]).exits(0);
    assert!(!shown.out.contains("--accept-changes"), "{}", shown.out);
    paste_as(&folder, BOB, &shown.command_shown("c1 --digest")).exits(0);
}

#[test]
fn of_a_configuration_with_errors_what_is_printed_only_records() {
    let folder = guarded();
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[[hooks]]\nuse = \"nonsense\"\n");
    let shown = folder.run(&["show", "a"]).exits(0).command_shown("c1 --digest");
    folder.paste(&shown).exits(0).says("once its configuration has no errors: `turnbuckle check`");
    let left = folder.run(&["show", "b"]).exits(0).out;
    assert!(!left.contains("turnbuckle run"), "{left}");
}

#[test]
fn a_question_that_expired_is_left_and_what_is_printed_carries_the_turn_on() {
    let folder = Folder::with_config(WRITE, "[limits]\napproval_timeout = \"1s\"\n");
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let listed = folder.run(&["list", "--json"]).exits(0).events().remove(0);
    assert_eq!((&listed["left"], &listed["left_reason"]), (&true.into(), &"expired".into()), "{listed}");
    let listed = folder.run(&["list"]).exits(0).out;
    assert!(listed.contains("left     write it  [nobody answered in time, and it is not taken up yet]"), "{listed}");
    let shown = folder.run(&["show", "w"]).exits(0);
    assert!(shown.out.contains("nobody answered in time") && !shown.out.contains("resolve w"), "{}", shown.out);
    folder.paste(&shown.command_shown("run -c")).exits(0).prints("done\n");
}

#[test]
fn of_a_turn_of_another_project_what_is_printed_goes_there() {
    let folder = Folder::with_script(WRITE);
    let store = format!("sqlite:{}", folder.path().join("shared.db").display());
    folder.run(&["run", "-c", "w", "--store", &store, "write it"]).exits(4);
    let other = folder.another();
    other.file("script.json", "{\"replies\": []}");
    other.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n");
    let ran = other.run(&["resolve", "w", "c1", "--approve", "--store", &store]).exits(1).prints("");
    ran.says("it is a turn of project ").says("works in this folder then");
    let busy = other.run(&["run", "-c", "w", "--store", &store]).exits(1);
    let command = busy.command_shown("resolve");
    assert!(command.starts_with("cd "), "{command}");
    other.paste(&command).exits(0).prints("done\n");
    assert_eq!((folder.read("a.txt").as_str(), other.read("a.txt").as_str()), ("x", ""));
}

#[test]
fn who_must_approve_is_no_change_of_the_agent() {
    let rules = "answer = [\"manager\"]\napprove = [ { tool = \"write_file\", by = [\"manager\"] } ]\n";
    let folder = Folder::with_config(WRITE, &format!("[access]\n{rules}"));
    folder.run_as(ANN, &["run", "-c", "w", "write it"]).exits(4);
    for person in [ANN, BOB] {
        let shown = folder.run_as(person, &["show", "w"]).exits(0).out;
        assert!(!shown.contains("has changed") && !shown.contains("--accept-changes"), "{shown}");
    }
    let answered = folder.run_as(BOB, &["answer", "w", "c1", "--approve"]).exits(0);
    assert!(!answered.err.contains("--accept-changes"), "{}", answered.err);
    folder.run_as(ANN, &["run", "-c", "w"]).exits(0).prints("done\n");
}

#[test]
fn nobody_insists_on_a_turn_that_still_waits() {
    let folder = Folder::with_config(WRITE, GUARD);
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n");
    folder.run(&["run", "-c", "w", "--accept-changes"]).exits(1).says("waits");
    let acts = folder.run(&["list", "--acts"]).exits(0).out;
    assert!(!acts.contains("insisted"), "{acts}");
}
