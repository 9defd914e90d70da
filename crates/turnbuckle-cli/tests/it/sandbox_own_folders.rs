//! Commands of the shell tool cannot replace the folders in which Turnbuckle keeps what the user decided.

use std::fs;

use serde_json::json;

use crate::program::{Folder, Ran};

const FREE: &str = "[tools]\nbuiltin = [\"shell\"]\napprove = []\n";

fn replies(commands: &[&str]) -> String {
    let call = |(number, command): (usize, &&str)| {
        let arguments = json!({ "command": command });
        json!({ "tool_calls": [{ "id": format!("c{number}"), "name": "shell", "arguments": arguments }] }).to_string()
    };
    let calls: Vec<String> = commands.iter().enumerate().map(call).collect();
    format!("{}, {{ \"text\": \"done\" }}", calls.join(", "))
}

/// Runs with the home directory as the project.
fn run_at_home(commands: &[&str]) -> (Folder, Ran) {
    let folder = Folder::with_config(&replies(commands), FREE);
    let mut command = folder.command(&["run", "--json", "--trust-hooks", "go"]);
    command.env("HOME", folder.path());
    let ran = Ran::of(command).exits(0);
    (folder, ran)
}

const FAKE: &str =
    "echo 'system = \"forged\"' > ~/.config/turnbuckle/turnbuckle.toml; echo x > ~/.local/state/turnbuckle/accepted";

#[test]
fn a_missing_folder_of_the_user_is_not_made_by_a_command() {
    let (folder, ran) = run_at_home(&[&format!("mkdir -p ~/.config/turnbuckle ~/.local/state/turnbuckle; {FAKE}")]);
    let home = folder.path();
    assert!(!home.join(".config/turnbuckle/turnbuckle.toml").exists(), "{ran:?}");
    assert!(!home.join(".local/state/turnbuckle/accepted").exists(), "{ran:?}");
}

#[test]
fn no_folder_above_one_of_the_user_is_renamed_by_a_command() {
    let tricks = [
        "mv ~/.config ~/.c2; mv ~/.local ~/.l2; mv ~/.local/state ~/.local/s2",
        "rm -rf ~/.config ~/.local; ln -s x ~/.config",
        "mkdir -p ~/.config/turnbuckle ~/.local/state/turnbuckle",
        FAKE,
        "touch ~/.config/other && echo others work",
    ];
    let (folder, ran) = run_at_home(&tricks);
    let home = folder.path();
    assert!(home.join(".config/turnbuckle").is_dir() && !home.join(".c2").exists(), "{ran:?}");
    assert!(!home.join(".l2").exists() && !home.join(".local/s2").exists(), "{ran:?}");
    assert!(!home.join(".config/turnbuckle/turnbuckle.toml").exists(), "{ran:?}");
    assert!(!home.join(".local/state/turnbuckle/accepted").exists(), "{ran:?}");
    assert!(ran.out.contains("others work") && !ran.out.contains("made or replaced"), "{ran:?}");
}

#[test]
fn a_writable_folder_of_the_configuration_opens_no_folder_of_turnbuckles() {
    let trick = "mv ~/.local/state ~/.local/s2; mkdir -p ~/.local/state/turnbuckle && echo x > ~/.local/state/turnbuckle/accepted; \
                 touch ~/.local/other";
    let folder = Folder::with_config(&replies(&[trick]), &format!("{FREE}[tools.shell]\nwritable = [\"~/.local\"]\n"));
    fs::create_dir_all(folder.home().join(".local")).unwrap();
    let ran = folder.run(&["run", "--json", "go"]).exits(0);
    let local = folder.home().join(".local");
    assert!(!local.join("s2").exists() && !local.join("state/turnbuckle/accepted").exists(), "{ran:?}");
    assert!(local.join("other").exists(), "{ran:?}");
}

#[test]
fn no_variable_of_the_environment_opens_the_home_directory() {
    let readable =
        ["GOPATH", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "VOLTA_HOME", "JAVA_HOME", "GOROOT", "VIRTUAL_ENV"];
    let writable = ["GOCACHE", "GOMODCACHE", "PIP_CACHE_DIR", "npm_config_cache", "CARGO_HOME", "XDG_CACHE_HOME"];
    let trick = "cat ~/secret; for name in new registry git _cacache pip; do echo x > ~/$name/file; done; echo end";
    let folder = Folder::with_config(&replies(&[trick]), FREE);
    for name in ["registry", "git"] {
        fs::create_dir_all(folder.home().join(name)).unwrap();
    }
    fs::write(folder.home().join("secret"), "HUNTER2").unwrap();
    std::os::unix::fs::symlink(".", folder.home().join("link")).unwrap();
    for value in [folder.home().to_path_buf(), folder.home().join("link"), "/".into()] {
        let mut command = folder.command(&["run", "--json", "go"]);
        for name in readable.iter().chain(&writable) {
            command.env(name, &value);
        }
        let ran = Ran::of(command).exits(0);
        assert!(ran.out.contains("end") && !ran.out.contains("HUNTER2"), "{ran:?}");
        for name in ["registry", "git"] {
            assert_eq!(fs::read_dir(folder.home().join(name)).unwrap().count(), 0, "{value:?} {name}");
        }
    }
}
