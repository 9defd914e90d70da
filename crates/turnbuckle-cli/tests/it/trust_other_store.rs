//! No command acts on another database than the one that is meant: not through a link, and not because a file could not be judged.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};

const DATABASE: &str = ".turnbuckle/turnbuckle.db";
const HELLO: &str = r#"{ "text": "hello" }"#;
const WRITE: &str = r#"{ "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

fn database_of(folder: &Folder) -> String {
    let rows = folder.run(&["list", "--json"]).exits(0).out;
    rows.lines().map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn no_command_follows_a_link_to_another_projects_database_unasked() {
    let other = Folder::with_script(WRITE);
    other.run(&["run", "-c", "a", "hi"]).exits(4);
    let before = database_of(&other);
    let place = tempfile::tempdir().unwrap();
    symlink(other.path().join(".turnbuckle"), place.path().join(".turnbuckle")).unwrap();
    std::fs::write(place.path().join("mine.toml"), "[agent]\nmodel = \"demo\"\n").unwrap();
    std::fs::write(place.path().join("url.toml"), format!("[store]\nurl = \"sqlite:{DATABASE}\"\n")).unwrap();
    let at = |arguments: &[&str]| {
        let mut command = other.command(arguments);
        command.current_dir(place.path());
        Ran::of(command)
    };
    let looking: [&[&str]; 9] = [
        &["list"],
        &["list", "--acts"],
        &["show", "a"],
        &["trace", "a"],
        &["pending"],
        &["answer", "a", "c1", "--approve"],
        &["cancel", "a"],
        &["hold", "a"],
        &["export", "a"],
    ];
    let running: [&[&str]; 3] = [&["run", "-c", "mine", "hi"], &["resolve", "a", "c1", "--approve"], &["chat"]];
    for arguments in looking.iter().chain(&running).chain(&[&["delete", "a", "--yes"][..]]) {
        for more in [&[][..], &["--config", "mine.toml"], &["--config", "url.toml"]] {
            let refused = at(&[*arguments, more].concat()).exits(2).prints("");
            assert!(
                refused.err.contains("a link leads to") || refused.err.contains("it has: the database"),
                "{refused:?}"
            );
        }
    }
    // A relative path in the user's own file is another one in every project.
    other.users_file(&format!("[store]\nurl = \"sqlite:{DATABASE}\"\n"));
    for arguments in looking.iter().chain(&running) {
        at(arguments).exits(2).prints("");
    }
    assert_eq!(database_of(&other), before);
    // By its name it is what is meant, and so is a link that was accepted.
    let named = format!("sqlite:{}", other.path().join(DATABASE).display());
    assert_eq!(at(&["list", "--json", "--store", &named]).exits(0).out, before);
    at(&["trust", "--yes"]).exits(0);
    assert_eq!(at(&["list", "--json"]).exits(0).out, before);
    at(&["run", "-c", "mine", "--model", "demo", "hi"]).exits(0);
}

#[test]
fn a_path_of_the_users_own_file_may_lead_out_of_the_project_as_it_is_written() {
    let folder = Folder::with_script(HELLO);
    let below = folder.path().join("p");
    std::fs::create_dir_all(below.join(".turnbuckle")).unwrap();
    folder.users_file("[agent]\nmodel = \"demo\"\n[store]\nurl = \"sqlite:../shared.db\"\n");
    for arguments in [&["run", "hi"][..], &["list"]] {
        let mut command = folder.command(arguments);
        command.current_dir(&below);
        Ran::of(command).exits(0);
    }
    assert!(folder.path().join("shared.db").exists());
}

/// A file that is too large to be hashed; it takes no room.
fn huge(path: &Path) {
    std::fs::File::create(path).unwrap().set_len(70 << 20).unwrap();
}

#[test]
fn a_hook_that_cannot_be_judged_never_makes_a_command_use_another_database() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = format!("sqlite:{}", elsewhere.path().join("out.db").display());
    for url in [outside.as_str(), "sqlite:data/own.db"] {
        let folder = Folder::cloned(HELLO, "");
        folder.run(&["run", "-c", "x", "hi"]).exits(0);
        let hook = "[[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = \"cat big.bin > /dev/null\"\n";
        let config = format!("[agent]\nmodel = \"script:script.json\"\n[store]\nurl = \"{url}\"\n{hook}");
        folder.file("turnbuckle.toml", &config);
        folder.file("big.bin", "small");
        folder.run(&["trust", "--yes"]).exits(0);
        folder.run(&["run", "-c", "y", "hi"]).exits(0);
        // Accepted or not: what cannot be judged is not used, and nothing else is used in its place.
        huge(&folder.path().join("big.bin"));
        for round in ["accepted", "revoked"] {
            let commands: [&[&str]; 6] = [
                &["list"],
                &["show", "x"],
                &["delete", "x", "--yes"],
                &["cancel", "x"],
                &["export", "x"],
                &["pending"],
            ];
            for arguments in commands {
                let ran = folder.run(arguments);
                if round == "revoked" && url != outside {
                    // A store inside the project takes effect unasked, and `x` is not in it.
                    assert!(!ran.out.contains('x'), "{arguments:?} {}", ran.out);
                    continue;
                }
                let refused = ran.exits(2).prints("").says("names a store, and is not accepted");
                // Without an acceptance to compare with, files are not read: `trust` says what is wrong with them.
                if round == "accepted" {
                    refused.says("cannot be accepted as it is");
                }
            }
            if round == "accepted" {
                folder.run(&["trust", "revoke"]).exits(0);
            }
        }
        let default = format!("sqlite:{DATABASE}");
        folder.run(&["show", "x", "--store", &default]).exits(0);
    }
}

#[test]
fn a_second_project_above_is_reported_by_those_who_look() {
    let folder = Folder::foreign();
    for name in [".git", ".turnbuckle", "a/b"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    folder.file("a/turnbuckle.toml", "");
    for arguments in [&["list"][..], &["show", "x"], &["answer", "x", "c1", "--approve"], &["delete", "x", "--yes"]] {
        let mut command = folder.command(arguments);
        command.current_dir(folder.path().join("a/b"));
        let ran = Ran::of(command).exits(1).says("there is no database").says(".turnbuckle is not used:");
        assert_eq!(ran.err.matches("is not used:").count(), 1, "{}", ran.err);
    }
}

#[test]
fn a_pipe_in_the_place_of_a_database_is_refused_at_once() {
    let folder = Folder::with_script(HELLO);
    std::fs::create_dir(folder.path().join(".turnbuckle")).unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join(DATABASE)).status().unwrap();
    assert!(made.success());
    let commands: [&[&str]; 6] =
        [&["run", "hi"], &["chat"], &["list"], &["delete", "x", "--yes"], &["doctor"], &["trust", "--yes"]];
    for arguments in commands {
        let mut child = folder.command(arguments).stdin(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("{arguments:?} waits for the pipe");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let ran = Ran::from(child.wait_with_output().unwrap());
        // These two only look, and use no database.
        if !["doctor", "trust"].contains(&arguments[0]) {
            ran.exits(1).says("is not a file");
        }
    }
}
