//! The question about a project's files: short, complete, asked once.

use crate::program::Folder;
use crate::screen::Screen;

const HI: &str = r#"{ "text": "hi" }, { "text": "again" }"#;

fn hook(run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\nname = \"lint\"\non = \"before_agent\"\nrun = '''{run}'''\n")
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
    screen.shows("write_file and edit_file would run without being approved");
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
    assert!(!shown.err.contains(['\u{1b}', '\r', '\u{202e}']), "{}", shown.err);
    assert!(!shown.err.contains("\nhint: fine"), "{}", shown.err);
    shown.says("more characters: read turnbuckle.toml:3 before you accept this");
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
