//! `-v` and `TURNBUCKLE_LOG`: what the runtime does, for operators.

use std::os::unix::fs::PermissionsExt as _;

use crate::program::{Folder, Ran};

fn folder() -> Folder {
    Folder::with_script(r#"{ "text": "hi" }"#)
}

fn run(folder: &Folder, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut command = folder.command(arguments);
    command.envs(variables.iter().copied());
    Ran::of(command)
}

#[test]
fn nothing_is_logged_unless_it_is_asked_for() {
    let ran = folder().run(&["run", "--quiet", "hi"]).exits(0).prints("hi\n");
    assert_eq!(ran.err, "");
}

#[test]
fn each_v_says_more_for_every_command() {
    let folder = folder();
    let info = folder.run(&["run", "--quiet", "-c", "a", "-v", "hi"]).exits(0).prints("hi\n");
    for event in ["configuration loaded files=\"turnbuckle.toml\" hooks=1", "model chosen model=\"script:script.json\""]
    {
        assert!(info.err.contains(event), "{}", info.err);
    }
    assert!(
        info.err.contains("INFO turnbuckle::cli: store opened store=sqlite:.turnbuckle/turnbuckle.db"),
        "{}",
        info.err
    );
    assert!(!info.err.contains("DEBUG"), "{}", info.err);
    let file = "DEBUG turnbuckle::cli: configuration file read file=turnbuckle.toml";
    folder.run(&["-vv", "list"]).exits(0).says(file).says("mode=\"read only\"");
    folder.run(&["show", "a", "-vvv"]).exits(0).says(file);
    folder.run(&["check", "-v"]).exits(0).says("configuration loaded");
    folder.run(&["cancel", "a", "--verbose"]).exits(0).says("store opened");
}

#[test]
fn the_environment_asks_for_a_level_or_for_targets() {
    let folder = folder();
    let log = |value: &str| run(&folder, &[("TURNBUCKLE_LOG", value)], &["check"]);
    log("info").exits(0).says("configuration loaded");
    assert_eq!(log("warn").exits(0).err, "");
    log("turnbuckle::cli=debug,error").exits(0).says("configuration file read");
    assert_eq!(log("turnbuckle::turn=trace").exits(0).err, "");
    log("loud").exits(2).says("TURNBUCKLE_LOG: \"loud\" is not a level").says("hint: levels: ");
    log("hyper=trace").exits(2).says("is no target of Turnbuckle");
}

#[test]
fn a_file_takes_the_log_instead_of_stderr_and_is_its_owners() {
    let folder = folder();
    let file = folder.path().join("log");
    let variables = [("TURNBUCKLE_LOG_FILE", file.to_str().unwrap())];
    for _ in 0..2 {
        assert_eq!(run(&folder, &variables, &["run", "--quiet", "-v", "hi"]).exits(0).err, "");
    }
    assert_eq!(folder.read("log").matches("store opened").count(), 2, "lines are added");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let nowhere = [("TURNBUCKLE_LOG_FILE", "none/log")];
    run(&folder, &nowhere, &["check", "-v"]).exits(2).says("TURNBUCKLE_LOG_FILE: none/log: ");
}

#[test]
fn no_field_steers_the_terminal_or_forges_a_line() {
    let folder = folder();
    let strange = "x\u{1b}[2J\u{9b}\n2026-11-16T00:00:00Z  INFO turnbuckle::cli: forged\u{202e}.toml";
    folder.file(strange, "[agent]\nmodel = \"demo\"\n");
    let ran = folder.run(&["check", "-vv", "--config", strange]).exits(0);
    assert!(ran.err.contains("forged") && !ran.err.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{}", ran.err);
    assert!(ran.err.lines().all(|line| !line.starts_with("2026-11-16T00:00:00Z")), "{}", ran.err);
}

#[test]
fn no_secret_is_logged() {
    let folder = folder();
    let model = "openai@http://ann:pass-word@127.0.0.1:9/v1:m";
    let ran = run(&folder, &[("OPENAI_API_KEY", "sk-secret")], &["run", "-vvv", "--model", model, "hi"]).exits(1);
    assert!(ran.err.contains("model chosen") && !ran.err.contains("sk-secret"), "{}", ran.err);
    assert!(
        ran.err.lines().all(|line| !line.contains("turnbuckle::cli") || !line.contains("pass-word")),
        "{}",
        ran.err
    );
}

#[test]
fn a_log_that_cannot_be_written_holds_up_no_turn() {
    let folder = folder();
    let mut shell = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_turnbuckle");
    shell.args(["-c", &format!("{program} run --quiet -vvv hi 2>/dev/full")]);
    shell
        .current_dir(folder.path())
        .env("HOME", folder.home())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME");
    Ran::of(shell).exits(0).prints("hi\n");
}
