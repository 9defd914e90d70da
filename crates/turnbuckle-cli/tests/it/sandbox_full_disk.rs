//! A command that fills the disk on which the conversation is kept, too.
//!
//! The disk is a small file system in memory, mounted in a namespace of its own.

use std::process::Command;

use serde_json::json;

use crate::program::{Folder, Ran};

/// Copies the project onto a disk of 4 MB, runs the program there, makes room, and runs it again. The exit codes go to stderr.
const ON_A_SMALL_DISK: &str = "set -e; mkdir disk; mount -t tmpfs -o size=4m tmpfs disk; cp turnbuckle.toml script.json disk; cd disk; \
    set +e; \"$@\" go; echo \"first: $?\" >&2; rm -f big; \"$@\"; echo \"second: $?\" >&2";

#[test]
fn a_command_that_fills_the_disk_stops_the_turn_with_the_reason_and_it_goes_on_once_there_is_room() {
    let line = "dd if=/dev/zero of=big bs=1M count=64; yes | head -c 300000; echo over";
    let call = json!({ "tool_calls": [{ "id": "c1", "name": "shell", "arguments": { "command": line } }] });
    let folder = Folder::with_config(
        &format!("{call}, {{ \"text\": \"done\" }}"),
        "[tools]\nbuiltin = [\"shell\"]\napprove = []\n",
    );
    let program = folder.command(&["run", "-c", "a", "--trust-hooks"]);
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", ON_A_SMALL_DISK, "sh"]).arg(program.get_program()).args(program.get_args());
    command.current_dir(folder.path());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ran = Ran::of(command).exits(0).says("no room for the database").says("first: 1").says("second: 0");
    // Nobody knows what became of the command, and it is not run again.
    let ran = ran.says("whether it happened is unknown");
    assert!(ran.out.ends_with("done\n") && ran.err.matches("→ shell(").count() == 1, "{ran:?}");
}
