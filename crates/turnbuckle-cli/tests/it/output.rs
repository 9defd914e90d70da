//! What goes where: the answer to stdout, the rest to stderr; and what happens when nobody reads.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::program::{Folder, Ran};

const TWO_STEPS: &str = r#"{ "text": "Let me look. ", "tool_calls": [
    { "id": "c1", "name": "list_files", "arguments": {} } ] }, { "text": "Nothing there." }"#;

#[test]
fn only_the_final_answer_is_on_stdout() {
    let ran = Folder::with_script(TWO_STEPS).run(&["run", "look"]).exits(0).prints("Nothing there.\n");
    for line in
        ["call      Let me look.", "call      → list_files()", "dispatch  list_files() = ", "end       completed"]
    {
        assert!(ran.err.contains(line), "{line:?} is not in:\n{}", ran.err);
    }
    assert!(!ran.err.contains("Nothing there."), "the answer stands on stdout already:\n{}", ran.err);
}

#[test]
fn quiet_leaves_only_the_answer_and_errors() {
    let folder = Folder::with_script(TWO_STEPS);
    let ran = folder.run(&["run", "--quiet", "look"]).exits(0).prints("Nothing there.\n");
    assert_eq!(ran.err, "");
    Folder::with_script("").run(&["run", "--quiet", "look"]).exits(1).says("error: ");
}

#[test]
fn no_colour_without_a_terminal() {
    let ran = Folder::with_script(TWO_STEPS).run(&["run", "look"]);
    assert!(!ran.err.contains('\u{1b}') && !ran.out.contains('\u{1b}'));
}

#[test]
fn without_a_model_the_demo_model_answers_and_it_is_said() {
    let ran = Folder::new().run(&["run", "hi"]).exits(0).says("note: no model was chosen");
    assert!(ran.out.starts_with("I am the demo model"));
}

#[test]
fn quiet_hides_no_failure_of_a_hook_that_was_ignored() {
    let hook = |on: &str, more: &str| {
        format!("[[hooks]]\nuse = \"command\"\nname = \"broken\"\non = \"{on}\"\nrun = \"exit 7\"\n{more}")
    };
    for on in ["stop", "ended"] {
        let folder = Folder::with_config(r#"{ "text": "fine" }"#, &hook(on, ""));
        let ran = folder.run(&["run", "--quiet", "hi"]).exits(0).prints("fine\n");
        assert!(
            ran.err.starts_with("warning: hook broken failed at on_") && ran.err.lines().count() == 1,
            "{}",
            ran.err
        );
    }
    let suggest = "[[hooks]]\nuse = \"suggest\"\nname = \"idle\"\nmodel = \"script:none.json\"\n";
    let folder = Folder::with_config(r#"{ "text": "fine" }"#, suggest);
    folder.file("none.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "nothing" } ] }"#);
    let ran = folder.run(&["run", "--quiet", "hi"]).exits(0).prints("fine\n");
    assert_eq!(ran.err.matches("warning: hook idle failed at background").count(), 1, "{}", ran.err);
    let folder = Folder::with_config(r#"{ "text": "fine" }"#, &hook("stop", "on_failure = \"block\"\n"));
    let ran = folder.run(&["run", "--quiet", "hi"]).exits(1);
    assert!(ran.err.starts_with("error: ") && !ran.err.contains("warning"), "{}", ran.err);
}

#[test]
fn quiet_tells_of_a_refusal_that_was_overruled() {
    let config = "[[hooks]]\nuse = \"command\"\nname = \"never\"\non = \"stop\"\nrun = \"echo no >&2; exit 2\"\n";
    let folder = Folder::with_config(r#"{ "text": "done" }, { "text": "done" }"#, config);
    let ran = folder.run(&["run", "--quiet", "hi"]).exits(0).prints("done\n");
    ran.says("warning: hook never was overruled: the same refusal twice");
}

#[test]
fn quiet_hides_no_warning_of_the_configuration_or_the_turn_and_tells_each_once() {
    let config = "[[hooks]]\nuse = \"fallback\"\nmodels = [\"script:other.json\"]\n\
                  [[hooks]]\nuse = \"command\"\nname = \"never\"\non = \"stop\"\nrun = \"echo no >&2; exit 2\"\n";
    let folder = Folder::with_config(
        r#"{ "error": { "status": 400, "message": "broken" } }, { "text": "x" }, { "text": "x" }"#,
        config,
    );
    folder.file("other.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "other" } ] }"#);
    let mut command = folder.command(&["run", "--quiet", "--trust-hooks", "hi"]);
    command.env("HOME", folder.path());
    let ran = Ran::of(command).exits(0);
    for warning in ["the project is your home directory", "is asked instead: ", "hook never was overruled: "] {
        let told = ran.err.lines().filter(|line| line.contains("warning: ") && line.contains(warning));
        assert_eq!(told.count(), 1, "{warning:?} in:\n{}", ran.err);
    }
    assert!(!ran.err.contains("completed") && !ran.err.contains("note: "), "{}", ran.err);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_quietly() {
    let folder = Folder::with_script(&format!(r#"{{ "chunks": [{}"x"], "delay_ms": 5 }}"#, "\"x\",".repeat(2000)));
    let mut child = folder.command(&["run", "--json", "hi"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    drop(lines);
    let status = child.wait().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(line.starts_with('{'));
    assert!(!err.contains("panicked") && !err.contains("Broken pipe"), "{err}");
    assert_eq!(status.code(), Some(130), "the turn was cancelled: {err}");
    assert!(err.contains("error: stdout was closed, so the turn was cancelled"), "{err}");
}

#[test]
fn head_reads_one_line_and_nobody_panics() {
    let folder = Folder::with_script(r#"{ "text": "hello" }"#);
    for arguments in ["run --json hi", "--help", "check", ""] {
        let mut shell = Command::new("sh");
        let line = format!("\"$0\" {arguments} | head -1 >/dev/null");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_turnbuckle")]).current_dir(folder.path());
        shell.env("HOME", folder.path()).stdin(Stdio::null());
        let ran = Ran::of(shell);
        assert!(!ran.err.contains("panicked"), "{arguments}: {}", ran.err);
    }
}

#[test]
fn a_full_disk_is_an_error_and_not_a_lost_answer() {
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let folder = Folder::with_script(r#"{ "text": "hello" }"#);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = folder.command(&["run", "hi"]);
    command.stdout(full);
    Ran::of(command).exits(1).says("error: writing to stdout");
}

#[test]
fn a_reader_that_is_slow_loses_nothing() {
    let folder = Folder::with_script(&format!(r#"{{ "chunks": [{}"x"] }}"#, "\"x\",".repeat(20_000)));
    let mut child = folder.command(&["run", "--json", "--quiet", "hi"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(6));
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(text.lines().filter(|line| line.contains("\"text_delta\"")).count(), 20_001);
    assert!(text.contains("\"turn_ended\""));
}
