//! Which folder is the project, and what follows from it.

use std::path::Path;

use crate::program::{Folder, Ran};

const HI: &str = r#"{ "text": "hi" }"#;

fn at(folder: &Folder, path: &str, arguments: &[&str]) -> Ran {
    let path = folder.path().join(path);
    std::fs::create_dir_all(&path).unwrap();
    let mut command = folder.command(arguments);
    command.current_dir(path);
    Ran::of(command)
}

fn repository(folder: &Folder) {
    std::fs::create_dir_all(folder.path().join(".git")).unwrap();
}

#[test]
fn from_below_the_projects_folder_is_where_everything_is() {
    let read = r#"{ "tool_calls": [{ "id": "c1", "name": "read_file", "arguments": { "path": "top.txt" } }] }, { "text": "done" }"#;
    let hooks = "[[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = \"pwd > where\"\n";
    let folder = Folder::with_config(read, hooks);
    repository(&folder);
    folder.file("top.txt", "from the top");
    let ran = at(&folder, "a/b", &["run", "-c", "x", "--json", "hi"]).exits(0);
    let root = folder.path().canonicalize().unwrap();
    assert_eq!(ran.err.lines().next(), Some(&*format!("project   {}", root.display())));
    assert_eq!(folder.read("where").trim(), root.to_str().unwrap());
    assert!(ran.out.contains("from the top"), "{}", ran.out);
    assert!(folder.path().join(".turnbuckle/turnbuckle.db").exists());
    assert!(!folder.path().join("a/b/.turnbuckle").exists());
    for here in ["", "a", "a/b"] {
        let listed = at(&folder, here, &["list"]).exits(0);
        assert!(listed.out.starts_with("x "), "{here}: {}", listed.out);
        assert_eq!(listed.err.is_empty(), here.is_empty(), "{}", listed.err);
    }
    // Paths on the command line start where the person is.
    at(&folder, "a/b", &["run", "--store", "sqlite:own.db", "--model", "demo", "hi"]).exits(0);
    assert!(folder.path().join("a/b/own.db").exists());
}

#[test]
fn a_path_in_the_projects_file_starts_at_the_project() {
    let folder = Folder::with_config(HI, "[store]\nurl = \"sqlite:data/c.db\"\n");
    repository(&folder);
    at(&folder, "a", &["run", "hi"]).exits(0).prints("hi\n");
    assert!(folder.path().join("data/c.db").exists());
    // A file named on the command line does not move the project.
    let other = folder.file("a/other.toml", "[store]\nurl = \"sqlite:data/d.db\"\n");
    at(&folder, "a", &["run", "--config", other.to_str().unwrap(), "hi"]).exits(0);
    assert!(folder.path().join("data/d.db").exists());
}

#[test]
fn the_nearest_decides_and_a_second_one_is_reported() {
    let folder = Folder::cloned(HI, "[[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = \"touch outer\"\n");
    repository(&folder);
    folder.file("inner/turnbuckle.toml", "[agent]\nname = \"inner\"\n");
    let ran = at(&folder, "inner/x", &["run", "hi"]).exits(0);
    assert!(ran.err.contains("turnbuckle.toml is not used: "), "{}", ran.err);
    assert!(!folder.path().join("outer").exists());
    // What is accepted above is not accepted below, and the other way round.
    at(&folder, "", &["trust", "--folder", "--yes"]).exits(0);
    folder.file("inner/turnbuckle.toml", "[agent]\nsystem = \"obey\"\n");
    at(&folder, "inner", &["run", "hi"]).exits(2).says("not accepted");
    // A folder in which only conversations are kept is a project, too.
    folder.file("inner/other/.turnbuckle/.gitignore", "*\n");
    let ran = at(&folder, "inner/other/y", &["check"]).exits(0);
    assert!(ran.out.contains("files     none"), "{}", ran.out);
}

#[test]
fn outside_a_repository_and_outside_home_nothing_above_counts() {
    let folder = Folder::cloned(HI, "[[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = \"touch ran\"\n");
    let ran = at(&folder, "a", &["run", "hi"]).exits(0);
    assert!(!ran.err.contains("project "), "{}", ran.err);
    assert!(folder.path().join("a/.turnbuckle").exists() && !folder.path().join("ran").exists());
}

#[test]
fn the_home_directory_is_a_project_only_for_those_who_stand_in_it() {
    let folder = Folder::foreign();
    let home = |path: &str, arguments: &[&str]| {
        let path = folder.home().join(path);
        std::fs::create_dir_all(&path).unwrap();
        let mut command = folder.command(arguments);
        command.current_dir(path);
        Ran::of(command)
    };
    std::fs::write(folder.home().join("turnbuckle.toml"), "[agent]\nname = \"of-home\"\n").unwrap();
    assert!(home("", &["check"]).exits(0).out.contains("of-home"));
    assert!(!home("work", &["check"]).exits(0).out.contains("of-home"));
    std::fs::create_dir(folder.home().join(".git")).unwrap();
    assert!(!home("work", &["check"]).exits(0).out.contains("of-home"));
}

#[test]
fn tools_do_not_reach_what_was_accepted_in_a_project_around_it() {
    let path = ".local/state/turnbuckle/history.jsonl";
    let (config, state) = (".config/turnbuckle/turnbuckle.toml", path);
    for file in [config, state] {
        let call = format!(
            r#"{{ "tool_calls": [{{ "id": "c1", "name": "write_file", "arguments": {{ "path": "{file}", "content": "x" }} }}] }}"#
        );
        let folder = Folder::foreign();
        folder.users_file("[tools]\napprove = []\n");
        let script = folder.file("s.json", &format!("{{\"replies\": [{call}, {{ \"text\": \"done\" }}]}}"));
        let mut command = folder.command(&["run", "--json", "--model", &format!("script:{}", script.display()), "hi"]);
        command.current_dir(folder.home());
        let result = Ran::of(command).exits(0).event("tool_result");
        assert_eq!(result["ok"], false, "{result}");
    }
}

/// Only the administrator can give files away; as another user the unit tests of discovery show the same.
#[test]
fn a_file_above_that_belongs_to_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = Folder::cloned(HI, "");
    repository(&folder);
    std::os::unix::fs::chown(folder.path().join("turnbuckle.toml"), Some(4_242), None).unwrap();
    for arguments in [&["run", "hi"][..], &["list"], &["check"], &["chat"]] {
        at(&folder, "a", arguments).exits(2).says("belongs to another user").says(" && turnbuckle trust`");
    }
    // Accepting from below would accept the wrong folder.
    for arguments in [&["trust", "--yes"][..], &["trust", "--folder", "--yes"]] {
        at(&folder, "a", arguments).exits(2).says("belongs to another user");
    }
    at(&folder, "", &["trust", "list"]).exits(0).prints("");
    at(&folder, "a", &["run", "--ignore-project", "--store", "memory:", "hi"]).exits(0);
    at(&folder, "a", &["run", "--trust-hooks", "hi"]).exits(0).prints("hi\n");
    // Who stands beside it sees it.
    at(&folder, "", &["run", "hi"]).exits(0).prints("hi\n");
    // What the hint names is enough, although nothing in the file needs acceptance.
    at(&folder, "", &["trust", "--yes"]).exits(0);
    at(&folder, "a", &["run", "hi"]).exits(0).prints("hi\n");
}

#[test]
fn the_file_of_the_user_is_not_a_projects_file_as_well() {
    let folder = Folder::foreign();
    folder.users_file(
        "[scope]\nuser = \"ann\"\n[[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = \"echo x >> ran\"\n",
    );
    let own: &Path = &folder.home().join(".config/turnbuckle");
    let mut command = folder.command(&["run", "--json", "--store", "memory:", "hi"]);
    command.current_dir(own);
    let ran = Ran::of(command).exits(0);
    assert_eq!(ran.event("user_message")["by"]["user"], "ann");
    assert_eq!(std::fs::read_to_string(own.join("ran")).unwrap(), "x\n");
}
