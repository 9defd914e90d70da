//! The sandbox where the launcher may make no namespaces and `bwrap` may: it makes the mounts, and everything else is as usual.
//!
//! A user namespace that allows no further ones is such a machine. Without `bwrap` nothing is tested, unless somebody insists on it.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::program::{Folder, Ran};

/// In this namespace the program is root, as far as mounts are concerned, and cannot make another one.
const WITHOUT_NAMESPACES: &str =
    "echo 0 > /proc/sys/user/max_user_namespaces && ! unshare -U true 2>/dev/null && exec \"$@\"";

fn inside(program: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-Ur", "sh", "-c", WITHOUT_NAMESPACES, "sh"]).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(program.get_current_dir().unwrap());
    command
}

/// Whether there is such a machine here.
fn is_possible() -> bool {
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "true"]).current_dir("/");
    let works = inside(&bwrap).output().is_ok_and(|output| output.status.success());
    assert!(works || std::env::var_os("TURNBUCKLE_TEST_BWRAP").is_none(), "bwrap is not installed, or may do nothing");
    works
}

fn results(commands: &[&str]) -> Option<(Folder, Vec<(bool, String)>)> {
    if !is_possible() {
        return None;
    }
    let calls = commands.iter().zip(1..).map(|(command, number)| {
        let arguments = json!({ "command": command });
        json!({ "tool_calls": [{ "id": format!("c{number}"), "name": "shell", "arguments": arguments }] }).to_string()
    });
    let replies = format!("{}, {{ \"text\": \"done\" }}", calls.collect::<Vec<_>>().join(", "));
    let config =
        "[tools]\nbuiltin = [\"shell\"]\napprove = []\n[tools.shell]\nsandbox = \"require\"\ntimeout = \"20s\"\n";
    let folder = Folder::with_config(&replies, config);
    fs::create_dir_all(folder.path().join(".claude")).unwrap();
    fs::write(folder.home().join("secret"), "HUNTER2").unwrap();
    let ran = Ran::of(inside(&folder.command(&["run", "--json", "go"]))).exits(0);
    let told = ran
        .events()
        .into_iter()
        .filter(|event| event["type"] == "tool_result")
        .map(|result| (result["ok"].as_bool().unwrap(), result["content"][0]["text"].as_str().unwrap().to_owned()));
    let told = told.collect();
    Some((folder, told))
}

#[test]
fn with_bwrap_files_sockets_and_the_home_directory_are_out_of_reach() {
    let tries = "echo x >> turnbuckle.toml; echo x > .claude/settings.json; touch /etc/turnbuckle-was-here; cat $HOME/secret; \
                 python3 -c 'import socket; socket.socket()'; umount turnbuckle.toml; mount -o remount,rw,bind turnbuckle.toml; \
                 echo x >> turnbuckle.toml; echo in-the-project > made && cat made; echo t > $TMPDIR/t && cat $TMPDIR/t";
    let Some((folder, told)) = results(&[tries]) else { return };
    let (ok, text) = &told[0];
    assert!(*ok && text.contains("in-the-project\nt\n"), "{text}");
    assert!(text.matches("Read-only file system").count() >= 3 && text.contains("PermissionError"), "{text}");
    assert!(!text.contains("HUNTER2") && folder.read("turnbuckle.toml").ends_with("20s\"\n"), "{text}");
    assert!(!folder.path().join(".claude/settings.json").exists());
}

#[test]
fn with_bwrap_commands_end_as_usual_and_the_next_one_is_confined_too() {
    let (folder, told) = match results(&["exit 7", "kill -9 $$", "echo x >> turnbuckle.toml", "sleep 100", "echo end"])
    {
        Some(done) => done,
        None => return,
    };
    assert_eq!(told[0], (false, "[exit status: 7]".to_owned()));
    assert!(!told[1].0, "{}", told[1].1);
    assert!(!told[2].0 && told[2].1.contains("Read-only file system"), "{}", told[2].1);
    assert!(!told[3].0 && told[3].1.contains("[killed: it took longer than 20 s]"), "{}", told[3].1);
    assert_eq!(told[4], (true, "end\n".to_owned()));
    assert!(folder.read("turnbuckle.toml").ends_with("20s\"\n"));
}
