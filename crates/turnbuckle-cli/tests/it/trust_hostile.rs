//! What a repository may try against acceptance itself: spellings, shapes, sizes, and the files in which it is noted.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use crate::program::Folder;

const HI: &str = r#"{ "text": "hi" }"#;

fn hook(run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = '''{run}'''\n")
}

#[test]
fn a_script_that_changed_does_not_run_however_the_command_spells_it() {
    for run in [
        "sh <>a.sh",
        "sh a\\\n.sh",
        "sh -c 'sh a.sh' >> a.sh",
        "sh /dev/fd/3 3>> a.sh",
        "\"$PWD\"/a.sh",
        "\"$(pwd)\"/a.sh",
        ": # >\n./a.sh",
        ": # it's\nsh 'my script' # it's over",
        "cat <<X >/dev/null\nit's\nX\nsh 'my script'",
        "cd sub && sh b.sh",
        "sh link/../b.sh",
    ] {
        let folder = Folder::cloned(HI, &hook(run));
        let scripts = ["a.sh", "my script", "sub/b.sh"];
        let first = folder.path().join("first");
        for name in scripts {
            let path = folder.file(name, &format!("#!/bin/sh\ntouch {}\n", first.display()));
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::create_dir(folder.path().join("sub/deep")).unwrap();
        std::os::unix::fs::symlink("sub/deep", folder.path().join("link")).unwrap();
        folder.run(&["trust", "--yes"]).exits(0);
        folder.run(&["run", "hi"]).exits(0);
        assert!(first.exists(), "{run}: the command does not run the script at all");
        let second = folder.path().join("second");
        for name in scripts {
            folder.file(name, &format!("#!/bin/sh\ntouch {}\n", second.display()));
        }
        let refused = folder.run(&["run", "hi"]);
        assert!(refused.err.contains("changed since it was accepted"), "{run}: {}", refused.err);
        assert!(refused.code == 2 && !second.exists(), "{run}");
    }
}

#[test]
fn a_file_that_a_command_writes_and_runs_is_shown_and_has_to_be_accepted_again() {
    let folder = Folder::cloned(HI, &hook("sh log; echo true >> log"));
    folder.file("log", "true\n");
    let shown = folder.run(&["trust", "--yes"]).exits(0).out;
    assert!(shown.contains("file log, which the command writes to as well"), "{shown}");
    folder.run(&["run", "hi"]).exits(0);
    folder.run(&["run", "hi"]).exits(2).says("names log, which changed since it was accepted");
    // A log that is only written to is no part of what was accepted.
    let folder = Folder::cloned(HI, &hook("date >> \"$PWD\"/log; date >> log"));
    folder.file("log", "\n");
    folder.run(&["trust", "--yes"]).exits(0);
    for _ in 0..3 {
        folder.run(&["run", "hi"]).exits(0);
    }
}

#[test]
fn a_setting_in_an_odd_shape_is_an_error_or_needs_acceptance() {
    let mut shapes = Vec::new();
    for section in ["hooks", "agents", "tools", "scope", "access", "serve", "agent", "store", "limits", "context"] {
        for value in ["[]", "[[]]", "[{}]", "[\"x\"]", "[{}, \"x\"]", "\"x\"", "1", "true", "[1979-05-27]"] {
            shapes.push(format!("{section} = {value}\n"));
        }
        shapes.push(format!("[[{section}]]\n"));
        shapes.push(format!("\"{section}\" = [[{{ use = \"command\", run = \"touch ran\" }}]]\n"));
        shapes.push(format!("{section}.x.y = 1\n"));
        shapes.push(format!("\" {section}\" = {{ run = \"touch ran\" }}\n"));
        shapes.push(format!("{} = {{ run = \"touch ran\" }}\n", section.to_uppercase()));
    }
    for section in ["hooks", "agents", "scope", "access", "serve"] {
        shapes.push(format!("{section} = {{}}\n"));
        shapes.push(format!("[{section}]\n"));
    }
    for value in ["\"shell\"", "{ shell = true }", "[[\"shell\"]]", "[\"shell\", 1]", "[{ name = \"shell\" }]"] {
        shapes.push(format!("tools.builtin = {value}\n"));
        shapes.push(format!("tools = {{ approve = {value} }}\n"));
        shapes.push(format!("agent.system = {value}\n"));
        shapes.push(format!("[agent]\nname = \"x\"\nmodel = [{value}]\n"));
        shapes.push(format!("store.url = {value}\n"));
    }
    let folder = Folder::foreign();
    folder.file("script.json", &format!("{{\"replies\": [{HI}]}}"));
    for shape in shapes {
        folder.file("turnbuckle.toml", &shape);
        let ran = folder.run(&["run", "--model", "script:script.json", "hi"]);
        assert!(ran.code == 2 && ran.out.is_empty(), "{shape}: {} {}", ran.code, ran.err);
    }
    assert!(!folder.path().join("ran").exists());
    // A heading with nothing below it says nothing.
    folder.file("turnbuckle.toml", "[agent]\n[limits]\n[store]\n[tools]\n");
    folder.run(&["run", "--model", "script:script.json", "hi"]).exits(0);
}

/// The limit is an order of magnitude above what it takes in a debug build, and below what it took without bounds.
#[test]
fn looking_at_a_large_file_of_a_stranger_takes_a_short_time() {
    let many = |count: usize, run: &str| hook(run).repeat(count);
    let links: String = (0..250).map(|number| hook(&format!("sh l{number}"))).collect();
    let unknown: String = (0..50_000).map(|number| format!("k{number} = 1\n")).collect();
    let wide = format!("[[hooks]]\nuse = \"{}\"\n", "x".repeat(1_000_000));
    let cases = [
        (
            "many hooks that name a large file",
            many(10_000, "sh big"),
            "there are 10000 [[hooks]], and 256 are the most",
        ),
        ("as many as may be", many(256, "sh big"), ""),
        ("links to a large file", links, ""),
        ("a long command", hook(&"> a ".repeat(200_000)), "16384 are the most"),
        ("many lines", hook(&"'\"`\n".repeat(4_000)), "128 are the most"),
        ("many keys", format!("[scope]\n{unknown}"), "1024 are the most"),
        ("a long name", wide, ""),
        ("addresses", format!("[agent]\nsystem = '{}'\n", "http://u:p@h ".repeat(70_000)), ""),
    ];
    for (what, config, said) in cases {
        let folder = Folder::cloned(HI, "");
        folder.run(&["run", "-c", "a", "hi"]).exits(0);
        folder.file("turnbuckle.toml", &config);
        std::fs::File::create(folder.path().join("big")).unwrap().set_len(10 << 20).unwrap();
        (0..250).for_each(|n| std::os::unix::fs::symlink("big", folder.path().join(format!("l{n}"))).unwrap());
        for arguments in [&["list"][..], &["check"], &["hooks"], &["trust"], &["run", "hi"]] {
            let began = Instant::now();
            let ran = folder.run(arguments);
            let took = began.elapsed();
            assert!(took < Duration::from_secs(20), "{what}: {arguments:?} took {took:?}");
            assert!(ran.code == 0 || ran.code == 2, "{what}: {arguments:?}: {} {}", ran.code, ran.err);
            let told: String = ran.err.chars().take(600).collect();
            // Those two go on without what cannot be accepted.
            let says = ["list", "hooks"].contains(&arguments[0]) || ran.err.contains(said);
            assert!(says, "{what}: {arguments:?}: {told}");
        }
    }
}

#[test]
fn what_others_could_have_written_in_the_users_folder_does_not_count() {
    let folder = Folder::cloned(HI, &hook("touch ran"));
    let state = folder.home().join(".local/state/turnbuckle");
    folder.run(&["trust", "--yes"]).exits(0);
    let record = std::fs::read_dir(state.join("projects")).unwrap().next().unwrap().unwrap().path();
    for path in [state.clone(), state.join("projects"), state.join("stores"), record] {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}", path.display());
        for open in [0o020, 0o002] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode | open)).unwrap();
            let refused = folder.run(&["run", "hi"]).exits(2);
            assert!(refused.err.contains("not only yours to write"), "{}: {}", path.display(), refused.err);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    assert!(!folder.path().join("ran").exists());
    folder.run(&["run", "hi"]).exits(0);
    assert!(folder.path().join("ran").exists());
}
