//! `init`, `completions`, `man`, `schema`, and carets in `check`.

use serde_json::Value;

use crate::program::{Folder, Ran};
use crate::screen::Screen;

fn schema(folder: &Folder) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&folder.run(&["schema"]).exits(0).out).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn as_json(config: &str) -> Value {
    serde_json::to_value(config.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn init_writes_a_file_that_is_good_accepted_and_fits_its_schema() {
    for arguments in [
        &["init", "--yes"][..],
        &["init", "--tools", "read", "--check", "grep -q \"a 'b'\" c.txt"],
        &["init", "--model", "script:script.json", "--tools", "ask", "--check", ""],
    ] {
        let folder = Folder::foreign();
        folder.file("script.json", r#"{ "replies": [{ "text": "hi" }] }"#);
        folder.run(arguments).exits(0).says("turnbuckle.toml is written, and accepted");
        let config = folder.read("turnbuckle.toml");
        assert!(config.starts_with("#:schema .turnbuckle/turnbuckle.schema.json\n"), "{config}");
        let written: Value = serde_json::from_str(&folder.read(".turnbuckle/turnbuckle.schema.json")).unwrap();
        assert!(jsonschema::validator_for(&written).unwrap().is_valid(&as_json(&config)));
        let ran = folder.run(&["check"]).exits(0);
        assert!(!ran.err.contains("error") && !ran.err.contains("not accepted"), "{}", ran.err);
        folder.run(&["run", "--quiet", "hello"]);
        folder.run(arguments).exits(2).says("is there already; it was left as it is");
        assert_eq!(folder.read("turnbuckle.toml"), config);
    }
}

#[test]
fn the_hook_that_init_writes_refuses_with_what_the_command_said() {
    let folder = Folder::foreign();
    folder.file("script.json", r#"{ "replies": [{ "text": "one" }, { "text": "two" }], "on_exhausted": "repeat" }"#);
    // Outside the project: a file of the project that the command names is part of what is accepted.
    let check = "test -e $HOME/done || { echo 'not done yet'; touch $HOME/done; false; }";
    folder.run(&["init", "--model", "script:script.json", "--check", check]).exits(0);
    folder.run(&["run", "go"]).exits(0).prints("two\n").says("not done yet");
}

#[test]
fn init_asks_three_questions_on_a_terminal() {
    let folder = Folder::foreign();
    folder.file("Cargo.toml", "");
    let mut screen = Screen::open(&folder, &["init"]);
    screen.shows("1/3");
    screen.types("nonsense:\n");
    screen.shows("hint:");
    screen.types("ollama:llama3.2\n");
    screen.shows("2/3");
    screen.types("n\n");
    screen.shows("3/3");
    screen.shows("[cargo check --quiet]");
    screen.types("\n");
    screen.shows("is written, and accepted");
    let config = folder.read("turnbuckle.toml");
    assert!(
        config.contains("model = \"ollama:llama3.2\"") && config.contains("\nbuiltin = [\"read_file\""),
        "{config}"
    );
    assert!(config.contains("{ cargo check --quiet; } >&2 || exit 2"), "{config}");
}

#[test]
fn init_does_not_take_a_command_that_cannot_succeed_without_a_word() {
    let folder = Folder::foreign();
    let mut screen = Screen::open(&folder, &["init", "--model", "demo", "--tools", "read"]);
    screen.shows("3/3");
    screen.types("if true\n");
    screen.shows("this is no command of the shell");
    screen.types("no-such-command x\n");
    screen.shows("begins with \"no-such-command\"");
    assert!(!folder.path().join("turnbuckle.toml").exists());
    screen.types("no-such-command x\n");
    screen.shows("is written, and accepted");
    assert!(folder.read("turnbuckle.toml").contains("{ no-such-command x; }"));
    let init = |check: &str| Folder::foreign().run(&["init", "--yes", "--check", check]);
    init("if true").exits(2).says("this is no command of the shell");
    init("no-such-command x").exits(0).says("warning: the command begins with \"no-such-command\"");
}

#[test]
fn init_keeps_the_old_file_and_follows_no_link() {
    let folder = Folder::foreign();
    folder.file("turnbuckle.toml", "# mine\n");
    folder.run(&["init", "--yes", "--force"]).exits(0);
    assert_eq!(folder.read("turnbuckle.toml.old"), "# mine\n");
    let linked = Folder::foreign();
    let target = linked.file("elsewhere", "untouched");
    std::os::unix::fs::symlink(&target, linked.path().join("turnbuckle.toml")).unwrap();
    linked.run(&["init", "--yes"]).exits(2);
    assert_eq!(linked.read("elsewhere"), "untouched");
    Folder::foreign().run(&["init", "--model", "nobody", "--yes"]).exits(2).says("hint: ");
}

#[test]
fn every_shell_has_completions_and_the_man_page_names_every_command() {
    let folder = Folder::foreign();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.run(&["completions", shell]).exits(0).out;
        assert!(script.contains("turnbuckle") && script.contains("resolve") && script.contains("allow"), "{shell}");
    }
    let bash = folder.run(&["completions", "bash"]).out;
    let path = folder.file("completions.bash", &bash);
    let line = format!(
        ". {}; COMP_WORDS=(turnbuckle re); COMP_CWORD=1; _turnbuckle turnbuckle re; echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let offered = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(String::from_utf8_lossy(&offered.stdout).contains("resolve"), "{offered:?}");
    let page = folder.run(&["man"]).exits(0).out;
    assert!(page.contains(".TH") && page.contains("resolve") && page.contains("Exit codes"), "{page}");
    folder.run(&["man", "--folder", "man1"]).exits(0);
    for name in ["turnbuckle.1", "turnbuckle-run.1", "turnbuckle-init.1"] {
        assert!(folder.read(&format!("man1/{name}")).contains(".TH"), "{name}");
    }
    assert!(folder.read("man1/turnbuckle-run.1").contains("cargo test"), "examples are in it");
    folder.run(&["completions", "tcsh"]).exits(2);
}

#[test]
fn every_configuration_of_the_docs_fits_the_schema_and_slips_do_not() {
    let folder = Folder::foreign();
    let schema = schema(&folder);
    let configs = crate::docs::configurations();
    assert!(configs.len() > 20);
    for config in &configs {
        let errors: Vec<String> = schema.iter_errors(&as_json(config)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{config}\n{errors:?}");
    }
    for slip in [
        "[agent]\nmodle = \"demo\"",
        "[agent]\ntemperature = \"hot\"",
        "[agent]\neffort = \"huge\"",
        "[limits]\nturn_timeout = 5",
        "[tools.shell]\nsandbox = \"maybe\"",
        "[[agents]]\nsystem = \"nameless\"",
        "[[agents]]\nname = \"a\"\n[agents.limits]\nmax_model_call = 1",
        "[[hooks]]\nuse = \"retri\"",
        "[[hooks]]\nuse = \"retry\"\nmax_attempt = 3",
        "[[hooks]]\nname = \"without use\"",
        "[[tools.mcp]]\ncommand = [\"x\"]",
        "[nonsense]\n",
    ] {
        assert!(!schema.is_valid(&as_json(slip)), "{slip}");
        let refused = Folder::foreign();
        refused.file("turnbuckle.toml", slip);
        // The reader agrees.
        refused.run(&["check"]).exits(2);
    }
}

#[test]
fn check_shows_the_line_and_a_caret() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[agent]\nmodle = \"demo\"\n[tools]\nbuiltin = [\"read_file\", \"shel\"]\n");
    let ran: Ran = folder.run(&["check"]).exits(2);
    let ran = ran.says("turnbuckle.toml:2: unknown key `modle` in [agent]\n  2 | modle = \"demo\"\n    | ^^^^^\nhint: did you mean `model`?");
    ran.says("\n  4 | builtin = [\"read_file\", \"shel\"]\n    |                         ^^^^^^\nhint: did you mean `shell`?");
}
