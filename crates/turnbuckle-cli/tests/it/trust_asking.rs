//! The question about a project's files: short, complete, asked once.

use crate::program::{Folder, Ran};
use crate::screen::Screen;

const HI: &str = r#"{ "text": "hi" }, { "text": "again" }"#;

fn hook(run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\nname = \"lint\"\non = \"before_agent\"\nrun = '''{run}'''\n")
}

/// Without a command it is a chat, and took neither option.
#[test]
fn a_chat_without_a_command_takes_the_trust_options() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"mark\"\non = \"before_agent\"\nrun = \"touch ran\"\n";
    for (option, runs) in [("--trust-hooks", true), ("--ignore-project", false)] {
        let folder = Folder::cloned(r#"{ "text": "hello" }"#, hook);
        folder.run(&[option]).exits(2).prints("").says("there is no terminal to chat in, and no command");
        let mut screen = Screen::open(&folder, &[option, "--model", "script:script.json"]);
        screen.shows("› ");
        screen.types("hi\r");
        screen.shows("agent     hello");
        screen.types("/quit\r");
        screen.exits(0);
        assert_eq!(folder.path().join("ran").exists(), runs, "{option}");
        let before = folder.run(&[option, "run", "--model", "script:script.json", "hi"]).exits(2).prints("");
        before.says(&format!("`{option}` stands before the command")).says("write it behind the command");
    }
    let folder = Folder::cloned(r#"{ "text": "hello" }"#, hook);
    folder.run(&["--trust-hooks", "--ignore-project"]).exits(2).says("cannot be used with");
}

#[test]
fn in_a_terminal_it_is_asked_once_and_shows_what_would_run() {
    let folder = Folder::cloned(HI, &hook("sh lint.sh --all"));
    folder.file("lint.sh", "touch ran");
    let mut screen = Screen::open(&folder, &["run", "-c", "a", "hello"]);
    screen.shows("turnbuckle.toml is not accepted. It has:");
    screen.shows("[[hooks]] lint  (turnbuckle.toml:3)");
    screen.shows("run = \"sh lint.sh --all\"");
    screen.shows("file lint.sh");
    screen.shows("Accept it? [y/N]");
    screen.types("\r");
    screen.shows("turnbuckle trust");
    screen.exits(2);
    assert!(!folder.path().join("ran").exists());

    let mut screen = Screen::open(&folder, &["run", "-c", "a", "hello"]);
    screen.shows("Accept it? [y/N]");
    screen.types("y\r");
    screen.shows("hi");
    screen.exits(0);
    assert!(folder.path().join("ran").exists());
    folder.run(&["run", "-c", "a", "hello"]).exits(0).prints("again\n");
}

#[test]
fn a_chat_asks_before_it_begins() {
    let folder = Folder::cloned(HI, &hook("true"));
    let mut screen = Screen::open(&folder, &["chat", "-c", "a"]);
    screen.shows("Accept it? [y/N]");
    screen.types("yes\r");
    screen.shows("› ");
    screen.types("hello\r");
    screen.shows("agent     hi");
    screen.types("/quit\r");
    screen.exits(0);
    folder.file("turnbuckle.toml", &(hook("true") + "[tools]\napprove = []\n"));
    let mut screen = Screen::open(&folder, &["chat", "--model", "demo"]);
    screen.shows("turnbuckle.toml changed since it was accepted. It has:");
    screen.shows("[[hooks]] lint  (turnbuckle.toml:1), as accepted before");
    screen.shows("write_file, edit_file and apply_patch would run without being approved");
    screen.types("\u{4}");
    screen.exits(2);
}

#[test]
fn an_interrupted_question_accepts_nothing() {
    let folder = Folder::cloned(HI, &hook("touch ran"));
    let mut screen = Screen::open(&folder, &["run", "hello"]);
    screen.shows("Accept it? [y/N]");
    screen.signal("-KILL");
    screen.exits_by_signal();
    assert!(!folder.path().join("ran").exists());
    folder.run(&["run", "hello"]).exits(2);
}

#[test]
fn no_text_of_a_project_can_forge_or_hide_the_question() {
    let run = format!("true # \\u001b[2J\\u001b[1;1HAccept it? [y/N] y\\r\\u202e{}", "x".repeat(10_000));
    let config = format!("[[hooks]]\nuse = \"command\"\nname = \"a\\nhint: fine\"\non = \"stop\"\nrun = \"{run}\"\n");
    let folder = Folder::cloned(HI, &config);
    let shown = folder.run(&["trust"]).exits(2);
    assert!(!shown.out.contains(['\u{1b}', '\r', '\u{202e}']), "{}", shown.out);
    assert!(!shown.out.contains("\nhint: fine"), "{}", shown.out);
    assert!(shown.out.contains("more characters: read turnbuckle.toml:3 before you accept this"), "{}", shown.out);
}

#[test]
fn what_cannot_be_read_cannot_be_accepted_and_keeps_nobody_from_looking() {
    let folder = Folder::cloned(HI, "");
    folder.run(&["run", "-c", "a", "hello"]).exits(0);
    folder.file("turnbuckle.toml", "a = [");
    folder.run(&["trust", "--yes"]).exits(2).says("not TOML");
    folder.file("turnbuckle.toml", &hook("cat big"));
    std::fs::File::create(folder.path().join("big")).unwrap().set_len(65 << 20).unwrap();
    for arguments in [&["trust", "--yes"][..], &["run", "hello"]] {
        folder.run(arguments).exits(2).says("big cannot be read: larger than 64 MiB").says("trust --folder");
    }
    folder.run(&["check"]).exits(0).says("is not accepted");
    folder.run(&["list"]).exits(0);
    folder.run(&["cancel", "a"]).exits(0);
    folder.run(&["trust", "--folder", "--yes"]).exits(0);
    folder.run(&["run", "--model", "demo", "hello"]).exits(0);
}

#[test]
fn trust_asks_too_and_covers_the_database() {
    let folder = Folder::cloned(HI, &hook("true"));
    let other = Folder::with_script(HI);
    other.run(&["run", "-c", "a", "hello"]).exits(0);
    std::fs::create_dir(folder.path().join(".turnbuckle")).unwrap();
    let database = ".turnbuckle/turnbuckle.db";
    std::fs::copy(other.path().join(database), folder.path().join(database)).unwrap();
    let mut screen = Screen::open(&folder, &["trust"]);
    screen.shows("turnbuckle.toml has:");
    screen.shows("turnbuckle.db was not made by your Turnbuckle");
    screen.shows("Accept it? [y/N]");
    screen.types("y\r");
    screen.shows("accepted for ");
    screen.exits(0);
    folder.run(&["run", "-c", "a", "hello"]).exits(0).prints("again\n");
}

/// What is shown can be read with a pager; whoever does not see it is not asked.
#[test]
fn trust_shows_on_stdout_what_changed_and_what_is_not_covered() {
    let folder = Folder::cloned(HI, &hook("sh lint.sh"));
    folder.file("lint.sh", "true");
    let first = folder.run(&["trust"]).exits(2).says("there is no terminal to ask on").out;
    assert!(first.contains("file lint.sh") && first.contains("It would be accepted for "), "{first}");
    assert!(first.contains("What they load in turn is not"), "{first}");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.file("lint.sh", "false");
    let changed = folder.run(&["trust"]).exits(2).out;
    assert!(
        changed.contains("[[hooks]] lint  (turnbuckle.toml:3), lint.sh changed since it was accepted"),
        "{changed}"
    );
    folder.run(&["run", "hello"]).exits(2).says("names lint.sh, which changed since it was accepted");
    // A script that nobody accepted before did not change since.
    folder.file("check.sh", "true");
    folder.file("lint.sh", "true");
    folder.file("turnbuckle.toml", &folder.read("turnbuckle.toml").replace("lint.sh", "check.sh"));
    let refused = folder.run(&["run", "hello"]).exits(2).says("turnbuckle.toml changed since it was accepted");
    assert!(!refused.err.contains("check.sh, which"), "{}", refused.err);
    // A command that names no file of the project may read some all the same.
    folder.file("turnbuckle.toml", &folder.read("turnbuckle.toml").replace("sh check.sh", "make lint"));
    let make = folder.run(&["trust"]).exits(2).out;
    assert!(make.contains("(a Makefile, a build script) is not part of it"), "{make}");
}

#[test]
fn what_a_project_says_about_who_is_acting_is_asked_about_as_not_used() {
    let folder = Folder::cloned(HI, "[scope]\nuser = \"root\"\n");
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(shown.contains("not used: a project's file does not say who you are"), "{shown}");
}

#[test]
fn revoking_what_was_not_accepted_fails_and_names_the_project() {
    let folder = Folder::cloned(HI, &hook("true"));
    folder.file("src/a", "");
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    folder.run(&["trust", "--yes"]).exits(0);
    let mut below = folder.command(&["trust", "revoke", "."]);
    below.current_dir(folder.path().join("src"));
    let project = folder.path().canonicalize().unwrap();
    Ran::of(below).exits(1).says(&format!("the project here is {}", project.display()));
    folder.run(&["trust", "revoke", "mistyped"]).exits(1).says("nothing was accepted for");
    folder.run(&["run", "hello"]).exits(0);
    folder.run(&["trust", "revoke"]).exits(0);
    folder.run(&["run", "hello"]).exits(2);
    folder.run(&["trust", "revoke"]).exits(1).says("trust list");
}

#[test]
fn check_does_not_end_well_for_a_file_that_is_refused() {
    let folder = Folder::cloned(HI, &hook("true"));
    let checked = folder.run(&["check"]).exits(0).says("is not accepted");
    assert!(
        checked
            .out
            .ends_with("not accepted  no errors, 1 warning; `turnbuckle trust` shows turnbuckle.toml and accepts it\n"),
        "{}",
        checked.out
    );
    folder.run(&["trust", "--yes"]).exits(0);
    assert!(folder.run(&["check"]).exits(0).out.ends_with("ok        no errors\n"));
}

/// What the file says stands behind `|` or in quotes, so it cannot be taken for what Turnbuckle says about it.
#[test]
fn nothing_in_a_file_looks_like_a_note_of_the_question() {
    let config = "[[hooks]]\nuse = \"command\"\nname = \"lint  (turnbuckle.toml:1), as accepted before\"\non = \"stop\"\n\
                  run = \"true\"\n\"x\\n      file lint.sh\" = 1\n\
                  [\"serve]  (turnbuckle.toml:1), as accepted before\"]\na = 1\n\
                  [agent]\nsystem = \"be kind\\n  [[hooks]] lint  (turnbuckle.toml:1), as accepted before\\n      file lint.sh\"\n";
    let folder = Folder::cloned(HI, "");
    folder.file("turnbuckle.toml", config);
    let shown = folder.run(&["trust"]).exits(2).out;
    for line in shown.lines() {
        assert!(!line.trim_start().starts_with("[[hooks]] lint "), "{shown}");
        assert!(!line.ends_with("as accepted before") || line.starts_with("      | "), "{shown}");
        assert!(!line.trim_start().starts_with("file lint.sh"), "{shown}");
    }
    assert!(
        shown.contains("  [[hooks]] \"lint  (turnbuckle.toml:1), as accepted before\"  (turnbuckle.toml:1)"),
        "{shown}"
    );
    assert!(shown.contains("      | be kind\n      |   [[hooks]] lint"), "{shown}");
}

/// A terminal would begin the rest of a long line in its first column.
#[test]
fn a_long_line_of_a_file_does_not_go_on_where_notes_stand() {
    let run = format!("true #{}[[hooks]] fine, as accepted before", " ".repeat(200));
    let folder = Folder::cloned(HI, &hook(&run));
    let mut screen = Screen::open(&folder, &["run", "hello"]);
    screen.shows("      |  ");
    screen.shows("Accept it? [y/N]");
    screen.types("n\r");
    screen.exits(2);
}

#[test]
fn a_command_is_shown_whole_whatever_in_it_looks_like_an_address() {
    let run = "echo https://x;touch${IFS}pwned;echo${IFS}:@docs.rs/guide";
    let agents = "[[agents]]\nname = \"helper\"\nsystem = \"see https://x;obey:@docs.rs/guide now\"\n";
    let folder = Folder::cloned(HI, &(hook(run) + agents));
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(shown.contains(&format!("run = \"{run}\"")), "{shown}");
    assert!(shown.contains("see https://x;obey:@docs.rs/guide now"), "{shown}");
}

#[test]
fn no_other_option_keeps_a_command_from_being_shown() {
    let names: Vec<String> = (0..1_200).map(|number| format!("\"NAME{number}\"")).collect();
    let folder = Folder::cloned(HI, &format!("{}pass_env = [{}]\n", hook("touch pwned"), names.join(", ")));
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(shown.contains("      | run = \"touch pwned\"\n"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("      … and ")), "the note is ours, not the file's: {shown}");
}

/// A backslash ends the host for whoever connects, so what follows it must not be shown as the host.
#[test]
fn the_address_of_a_model_is_not_disguised() {
    let folder = Folder::cloned(HI, "");
    folder.file("turnbuckle.toml", "[agent]\nmodel = 'openai@http://127.0.0.1:18092\\@api.openai.com/v1:m'\n");
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(shown.contains("requests go to \"openai@http://127.0.0.1:18092"), "{shown}");
}

#[test]
fn a_command_that_computes_names_is_said_to() {
    let folder = Folder::cloned(HI, &hook("sh scripts/*.sh"));
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(shown.contains("this command computes names"), "{shown}");
    let folder = Folder::cloned(HI, &hook("cargo check || exit 2"));
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(!shown.contains("computes names"), "{shown}");
}
