//! `check` judges and runs nothing.

use crate::program::Folder;

#[test]
fn a_good_configuration_is_summed_up() {
    let config = "[tools]\nbuiltin = [\"read_file\"]\n[[hooks]]\nuse = \"command\"\nname = \"lint\"\non = \"stop\"\nrun = \"touch ran\"\n";
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
    let ran = Folder::with_config(r#"{ "text": "x" }"#, config).run(&["check"]).exits(0);
    let ran = ran.says("warning: turnbuckle.toml:4: `max_stop_refusals = 0`");
    let ran = ran.says("warning: turnbuckle.toml:10: this gate fails open");
    let ran = ran.says("warning: turnbuckle.toml:11: the program \"no-such-program\" was not found");
    ran.says("warning: calls of write_file, edit_file need approval");
}

#[test]
fn a_gate_whose_program_is_missing_would_fail() {
    let config = "[[hooks]]\nuse = \"command\"\non = \"before_tool\"\nrun = [\"no-such-program\"]\n";
    Folder::with_config(r#"{ "text": "x" }"#, config)
        .run(&["check"])
        .exits(2)
        .says("was not found: the hook would fail");
}
