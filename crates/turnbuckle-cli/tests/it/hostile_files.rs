//! Files of a stranger's folder are read with a limit, and devices and pipes not at all.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::program::Folder;

/// A folder in which `name` is a link to an endless device, then one in which it is a pipe that nobody writes to.
fn traps(name: &str, config: &str) -> [Folder; 2] {
    [true, false].map(|endless| {
        let folder = Folder::with_config(r#"{ "text": "hi" }"#, config);
        let path = folder.path().join(name);
        drop(std::fs::remove_file(&path));
        match endless {
            true => symlink("/dev/zero", path).unwrap(),
            false => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        }
        folder
    })
}

#[test]
fn devices_and_pipes_are_refused_wherever_a_file_is_named() {
    let system = "system_file = \"trap\"\n";
    let cases: [(&str, &str, &[&str]); 6] = [
        ("turnbuckle.toml", "", &["check"]),
        ("trap", "", &["check", "--config", "trap"]),
        ("trap", system, &["check"]),
        ("script.json", "", &["check"]),
        ("trap", "", &["run", "--model", "script:trap", "hi"]),
        ("trap", "", &["run", "--schema", "trap", "hi"]),
    ];
    for (name, config, arguments) in cases {
        for folder in traps(name, config) {
            let ran = folder.run(arguments).exits(2).says("hint: give a regular file");
            assert!(ran.err.contains("it is a device") || ran.err.contains("it is a pipe"), "{}", ran.err);
        }
    }
}

#[test]
fn the_users_own_file_is_read_with_the_same_care() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    std::fs::create_dir_all(folder.home().join(".config/turnbuckle")).unwrap();
    symlink("/dev/zero", folder.home().join(".config/turnbuckle/turnbuckle.toml")).unwrap();
    folder.run(&["run", "hi"]).exits(2).says("turnbuckle.toml: cannot be read: it is a device");
}

#[test]
fn files_that_are_too_large_are_refused() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    folder.file("large.toml", &"#\n".repeat(600_000));
    folder.run(&["check", "--config", "large.toml"]).exits(2).says("it is larger than 1 MiB");
    folder.file("large.json", &" ".repeat(17 << 20));
    folder.run(&["run", "--model", "script:large.json", "hi"]).exits(2).says("it is larger than 16 MiB");
    folder.run(&["run", "--schema", "large.json", "hi"]).exits(2).says("it is larger than 1 MiB");
}

#[test]
fn a_file_with_too_many_sections_is_refused() {
    let hooks = |count: usize| "[[hooks]]\nuse = \"redact\"\n".repeat(count);
    Folder::with_config(r#"{ "text": "hi" }"#, &hooks(256)).run(&["check"]).exits(0);
    let refused = Folder::with_config(r#"{ "text": "hi" }"#, &hooks(30_000)).run(&["check"]).exits(2);
    refused.says("turnbuckle.toml:515: there are 30000 [[hooks]], and 256 are the most");
    let agents = "[[agents]]\nname = \"a\"\n".repeat(65);
    Folder::with_config("", &agents).run(&["check"]).exits(2).says("there are 65 [[agents]], and 64 are the most");
}

#[test]
fn of_many_unknown_keys_a_few_are_named() {
    let keys: String = (0..60_000).map(|number| format!("k{number} = 1\n")).collect();
    let ran = Folder::with_config("", &keys).run(&["check"]).exits(2).says("and 59984 more unknown keys");
    assert!(ran.err.lines().count() < 50);
    let ran = Folder::with_config("", &format!("[[hooks]]\nuse = \"redact\"\n{keys}")).run(&["check"]).exits(2);
    assert!(ran.err.matches("unknown key `k").count() == 16, "{}", ran.err);
}
