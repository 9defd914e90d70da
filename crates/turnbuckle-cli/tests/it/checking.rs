//! `check` judges and runs nothing.

use crate::program::Folder;

#[test]
fn a_good_configuration_is_summed_up() {
    let config = "[tools]\nbuiltin = [\"read_file\"]\n[[hooks]]\nuse = \"command\"\nname = \"lint\"\non = \"stop\"\nrun = \"touch ran\"\non_failure = \"block\"\n";
    let folder = Folder::with_config(r#"{ "text": "x" }"#, config);
    let ran = folder.run(&["check"]).exits(0);
    assert_eq!(ran.err, "");
    for line in ["files     turnbuckle.toml", "tools     read_file\n", "approve   none", "hooks     on_stop: lint"] {
        assert!(ran.out.contains(line), "{line:?} is not in:\n{}", ran.out);
    }
    assert!(!folder.path().join("ran").exists(), "nothing is run");
}

#[test]
fn suspicious_things_are_warnings_and_exit_0() {
    let config = r#"[limits]
max_stop_refusals = 0
[[hooks]]
use = "command"
name = "gate"
on = "before_tool"
run = ["true"]
on_failure = "ignore"
[[hooks]]
use = "command"
name = "lint"
on = "stop"
run = ["no-such-program"]
"#;
    let ran = Folder::with_config(r#"{ "text": "x" }"#, config).run(&["check", "--store", "memory:"]).exits(0);
    let ran = ran.says("warning: turnbuckle.toml:4: `max_stop_refusals = 0`");
    let ran = ran.says("warning: turnbuckle.toml:10: this gate fails open");
    let ran = ran.says("warning: turnbuckle.toml:11: the program \"no-such-program\" was not found");
    ran.says("warning: calls of write_file, edit_file, apply_patch, shell, fetch need approval");
}

#[test]
fn a_gate_whose_program_is_missing_would_fail() {
    let config = "[[hooks]]\nuse = \"command\"\non = \"before_tool\"\nrun = [\"no-such-program\"]\n";
    Folder::with_config(r#"{ "text": "x" }"#, config)
        .run(&["check"])
        .exits(2)
        .says("was not found: the hook would fail");
}

#[test]
fn a_stop_hook_whose_failure_lets_every_turn_end_is_told_of() {
    let hook = "[[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = \"cargo check\"\n";
    let told = "a broken program lets every turn end";
    let ran = Folder::with_config(r#"{ "text": "x" }"#, hook).run(&["check"]).exits(0);
    ran.says("warning: turnbuckle.toml:3: a stop hook without `on_failure`").says(told).says("exit 2 refuses");
    for policy in ["block", "ignore"] {
        let config = format!("{hook}on_failure = \"{policy}\"\n");
        let ran = Folder::with_config(r#"{ "text": "x" }"#, &config).run(&["check"]).exits(0);
        assert!(!ran.err.contains(told), "{}", ran.err);
    }
}

#[test]
fn a_model_that_could_configure_commands_for_itself_is_told_of() {
    let told = "the model could configure commands for itself";
    let check = |config: &str| Folder::with_config(r#"{ "text": "x" }"#, config).run(&["check"]).exits(0);
    check("[tools]\napprove = []\n")
        .says("warning: turnbuckle.toml:4: write_file, edit_file and apply_patch without")
        .says(told);
    check("[tools]\napprove = [\"edit_file\"]\n")
        .says("turnbuckle.toml:4: write_file and apply_patch without approval");
    let judged =
        "[[hooks]]\nuse = \"command\"\non = \"before_tool\"\nrun = \"true\"\ntools = [\"*_file\", \"apply_patch\"]\n";
    let judged = format!("[tools]\napprove = []\n{judged}");
    for fine in ["", "[tools]\napprove = []\nbuiltin = [\"read_file\"]\n", &judged] {
        let ran = check(fine);
        assert!(!ran.err.contains(told), "{}", ran.err);
    }
}

#[test]
fn a_sub_agent_that_the_script_does_not_know_is_told_of() {
    let config = "[[agents]]\nname = \"reviewer\"\n";
    let ran = Folder::with_config(r#"{ "text": "x" }"#, config).run(&["check"]).exits(0);
    ran.says("warning: turnbuckle.toml:4: the script has no replies for the sub-agent `reviewer`");
}

#[test]
fn shell_strings_are_judged_and_not_run() {
    let check = |on: &str, run: &str| {
        let config = format!("[[hooks]]\nuse = \"command\"\non = \"{on}\"\nrun = '{run}'\n");
        let folder = Folder::with_config(r#"{ "text": "x" }"#, &config);
        let ran = folder.run(&["check"]);
        assert!(!folder.path().join("ran").exists(), "nothing is run");
        ran
    };
    let ran = check("before_tool", "touch ran; if tru; then; fi").exits(2);
    ran.says("error: turnbuckle.toml:6: `run` is no shell command: ").says("the hook would fail, and a turn with it");
    let ran = check("before_tool", "nosuchcmd --flag").exits(2);
    ran.says("error: turnbuckle.toml:6: `run` begins with \"nosuchcmd\"");
    check("stop", "nosuchcmd --flag").exits(0).says("warning: turnbuckle.toml:6: `run` begins with \"nosuchcmd\"");
    check("before_tool", "nosuchcmd || exit 2").exits(0).says("warning: turnbuckle.toml:6: `run` begins with");
    for fine in ["test -e x || exit 2", "A=1 touch ran", "cat > /dev/null; exit 0", "f() { :; }; f"] {
        let ran = check("before_tool", fine).exits(0);
        assert!(!ran.err.contains("`run`"), "{}", ran.err);
    }
}

#[test]
fn a_hook_that_counts_per_process_is_told_of() {
    for hook in [
        "use = \"quota\"\nrequests = 2",
        "use = \"cache\"",
        "use = \"rate_limit\"\nlimit = 5\nevery = \"1m\"",
        "use = \"circuit_breaker\"",
        "use = \"concurrency\"\nlimit = 2",
        "use = \"monitor\"\nmax_refusal_rate = 0.5",
    ] {
        let folder = Folder::with_config(r#"{ "text": "x" }"#, &format!("[[hooks]]\n{hook}\n"));
        let ran = folder.run(&["check"]);
        assert!(ran.err.contains("works within one process") && ran.code == 0, "{hook}:\n{}", ran.err);
    }
}

#[test]
fn check_counts_its_warnings_and_says_nothing_of_acceptance_where_the_file_cannot_be_read() {
    let hook = "[[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = [\"no-such-program\"]\n";
    let folder = Folder::cloned(r#"{ "text": "x" }"#, hook);
    let ran = folder.run(&["check"]).exits(0).says("the hook would fail, and be ignored");
    assert!(
        ran.out.ends_with(
            "not accepted  no errors, 3 warnings; `turnbuckle trust` shows turnbuckle.toml and accepts it\n"
        ),
        "{}",
        ran.out
    );
    folder.run(&["trust", "--yes"]).exits(0);
    let ran = folder.run(&["check"]).exits(0);
    assert!(ran.out.ends_with("ok        no errors, 2 warnings\n"), "{}", ran.out);
    folder.file("turnbuckle.toml", "this is no TOML");
    let ran = folder.run(&["check"]).exits(2);
    assert!(!ran.err.contains("not accepted"), "{}", ran.err);
}

#[test]
fn hints_about_options_name_a_command_and_no_file_of_the_source() {
    let folder =
        Folder::with_config(r#"{ "text": "x" }"#, "[[hooks]]\nuse = \"rate_limit\"\nlimit = 0\nevery = \"1m\"\n");
    let ran = folder.run(&["check"]).exits(2).says("`turnbuckle schema` lists the options of `rate_limit`");
    assert!(!ran.err.contains("docs/"), "{}", ran.err);
    assert!(folder.run(&["schema"]).exits(0).out.contains("rate_limit"));
}

#[test]
fn redaction_that_leaves_out_what_the_model_says_is_a_warning() {
    let config = |on: &str| format!("[[hooks]]\nuse = \"redact\"\non = [{on}]\n");
    let check = |on: &str| Folder::with_config(r#"{ "text": "x" }"#, &config(on)).run(&["check"]).exits(0);
    check("\"tool_arguments\"").says("warning: turnbuckle.toml:5: `on` of `redact` does not name \"stream\"");
    assert!(!check("\"stream\", \"tool_arguments\"").err.contains("stream"));
}
