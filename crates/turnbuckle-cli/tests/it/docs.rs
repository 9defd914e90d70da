//! What the docs show can be copied: every block of TOML is a good configuration, every script runs, every event is JSON.

use serde_json::Value;

use crate::program::{Folder, Ran};

const README: &str = include_str!("../../../../README.md");
const CATALOGUE: &str = include_str!("../../../../docs/catalogue.md");
const SERVICES: &str = include_str!("../../../../docs/catalogue-services.md");
const APPROVALS: &str = include_str!("../../../../docs/guide/approvals.md");
const PROGRAM: &str = include_str!("../../../../docs/program.md");

fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Every configuration that the docs show.
pub(crate) fn configurations() -> Vec<String> {
    [README, PROGRAM, CATALOGUE, SERVICES, include_str!("../../../../docs/bringing-your-hooks.md")]
        .map(|page| blocks(page, "toml"))
        .concat()
}

#[test]
fn every_configuration_shown_is_good() {
    let shown = configurations();
    assert!(shown.len() > 8);
    for config in &shown {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        let mut check = folder.command(&["check"]);
        check.env("WEBHOOK_SECRET", "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=");
        let ran = Ran::of(check).exits(0);
        assert!(!ran.err.contains("on_failure"), "{config}\n{}", ran.err);
    }
    let all = Folder::new();
    all.file("turnbuckle.toml", &shown.iter().find(|config| config.contains("max_cost")).unwrap().clone());
    all.run(&["run", "--quiet", "hi"]).exits(0);
}

#[test]
fn the_defaults_shown_are_the_defaults() {
    let shown = blocks(PROGRAM, "toml").into_iter().find(|config| config.contains("max_cost")).unwrap();
    let (with, without) = (Folder::new(), Folder::new());
    with.file("turnbuckle.toml", &shown);
    // Which files there are, and how they stand, is not part of what they say; nor is the warning of a project's `[scope]`.
    let lines = |folder: &Folder| {
        let out = folder.run(&["check"]).exits(0).out.replace(" (nobody chose one)", "").replace(", 1 warning", "");
        let is_about = |line: &&str| !line.starts_with("files ") && !line.starts_with("trust ");
        out.lines().filter(is_about).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&with), lines(&without));
    let limits: turnbuckle::Limits = {
        let table: toml::Table = shown.parse().unwrap();
        let mut limits = serde_json::to_value(&table["limits"]).unwrap();
        for key in ["turn_timeout", "approval_timeout"] {
            let text = limits[key].as_str().unwrap().to_owned();
            limits[key] = serde_json::to_value(humantime::parse_duration(&text).unwrap()).unwrap();
        }
        serde_json::from_value(limits).unwrap()
    };
    assert_eq!(limits, turnbuckle::Limits::default());
}

#[test]
fn every_json_shown_is_json_and_the_script_runs() {
    let (scripts, lines): (Vec<_>, Vec<_>) =
        blocks(PROGRAM, "json").into_iter().partition(|block| block.contains("replies"));
    for line in lines.iter().flat_map(|block| block.lines()) {
        assert!(serde_json::from_str::<Value>(line).unwrap().is_object(), "{line}");
    }
    let folder = Folder::new();
    folder.file("talk.json", &scripts[0]);
    folder.file("turnbuckle.toml", "[[agents]]\nname = \"reviewer\"\n");
    folder.run(&["run", "--model", "script:talk.json", "hi"]).exits(0).prints("Hello there\n");
}

/// An unknown key's hint lists the known ones.
fn known(config: &str) -> Vec<String> {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", config);
    let err = folder.run(&["check"]).exits(2).err;
    let list = err.split("possible here: ").nth(1).unwrap_or_else(|| panic!("{err}")).lines().next().unwrap();
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_that_is_known_is_documented() {
    let sections = [
        "",
        "[agent]\n",
        "[limits]\n",
        "[store]\n",
        "[context]\n",
        "[scope]\n",
        "[access]\n",
        "[tools]\n",
        "[tools.shell]\n",
        "[[tools.mcp]]\nname = \"a\"\ncommand = [\"a\"]\n",
        "[[agents]]\nname = \"a\"\n",
    ];
    let hook = "[[hooks]]\nuse = \"command\"\n";
    for section in sections.into_iter().chain([hook]) {
        for key in known(&format!("{section}zzzzzzzz = 1\n")) {
            assert!(PROGRAM.contains(&format!("`{key}`")) || PROGRAM.contains(&key), "{key} is not in docs/program.md");
        }
    }
}

#[test]
fn every_ready_made_hook_has_its_section_with_all_its_options() {
    let common = known("[[hooks]]\nuse = \"command\"\nzzzzzzzz = 1\n");
    let available = Folder::new().run(&["hooks", "--available", "--json"]).exits(0).events();
    assert!(available.len() > 1);
    for hook in &available {
        let name = hook["use"].as_str().unwrap();
        let mut sections = CATALOGUE.split("\n## ").chain(SERVICES.split("\n## "));
        let section = sections.find(|section| section.lines().next() == Some(name));
        let section = section.unwrap_or_else(|| panic!("docs/catalogue*.md have no section for {name}"));
        let keys = known(&format!("[[hooks]]\nuse = \"{name}\"\nzzzzzzzz = 1\n"));
        for key in keys.iter().filter(|key| !common.contains(key)) {
            assert!(section.contains(&format!("`{key}`")), "{key} of {name} is not in docs/catalogue*.md");
        }
    }
}

#[test]
fn every_section_of_the_catalogue_has_one_shape() {
    for section in [CATALOGUE, SERVICES].iter().flat_map(|page| page.split("\n## ").skip(1)) {
        let headings: Vec<&str> =
            section.lines().filter(|line| line.starts_with("**") && line.contains("**:")).collect();
        let names: Vec<&str> = headings.iter().map(|line| line.split("**").nth(1).unwrap()).collect();
        assert_eq!(names, ["Points", "Options", "Example"], "{section}");
        assert!(section.lines().nth(2).is_some_and(|what| !what.is_empty() && !what.starts_with("**")), "{section}");
        let name = section.lines().next().unwrap();
        let example = section.split("**Example**:").nth(1).unwrap();
        assert!(example.contains(&format!("use = \"{name}\"")) || name == "tower", "{section}");
    }
}

/// Runs a block of a page in a shell, in this folder, with the program on the path.
fn shell(folder: &Folder, block: &str) -> Ran {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_turnbuckle"));
    let path = std::env::join_paths([program.parent().unwrap(), "/usr/bin".as_ref(), "/bin".as_ref()]).unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", block]).current_dir(folder.path()).env("PATH", path).env("HOME", folder.home());
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        shell.env_remove(name);
    }
    Ran::of(shell)
}

#[test]
fn the_hook_shown_before_tools_can_be_tried_with_the_command_shown() {
    let hook = blocks(PROGRAM, "toml").into_iter().find(|block| block.contains("hands-off")).unwrap();
    let command = blocks(PROGRAM, "sh").into_iter().find(|block| block.contains("hooks test before_tool")).unwrap();
    let folder = Folder::new();
    folder.file("turnbuckle.toml", &hook);
    let ran = shell(&folder, &command).exits(0);
    assert!(ran.out.starts_with("hook      before_tool hands-off for c1: deny, "), "{}", ran.out);
    assert!(ran.out.contains("the configuration is not yours"), "{}", ran.out);
}

#[test]
fn the_first_hook_of_the_readme_runs_after_the_command_that_it_shows() {
    let hook = blocks(README, "toml").into_iter().find(|block| block.contains("# turnbuckle.toml")).unwrap();
    let shown = blocks(README, "sh").into_iter().find(|block| block.contains("turnbuckle trust")).unwrap();
    let folder = Folder::foreign();
    folder.file("turnbuckle.toml", &hook.replace("cargo check --quiet", "test -d ."));
    folder.run(&["run", "hi"]).exits(2).says("`turnbuckle trust`");
    assert!(shown.starts_with("turnbuckle trust "), "{shown}");
    // There is no terminal here to ask on.
    let trusted = shell(&folder, &shown.replace("turnbuckle trust", "turnbuckle trust --yes")).exits(0);
    assert!(trusted.out.contains("test -d . || exit 2"), "{}", trusted.out);
    folder.run(&["run", "hi"]).exits(0);
}

#[test]
fn what_the_guide_and_the_program_page_show_of_approvals_can_be_followed() {
    let script = blocks(README, "sh").into_iter().find(|block| block.contains("pay.json <<")).unwrap();
    let script = script.split("turnbuckle run").next().unwrap().to_owned();
    for page in [PROGRAM, APPROVALS] {
        let shown = blocks(page, "sh").into_iter().find(|block| block.contains("--approve")).unwrap();
        let folder = Folder::new();
        let ran = shell(&folder, &(script.clone() + &shown)).exits(0).says("waiting: the turn waits for c1");
        assert!(ran.out.contains("open      c1 (approval of write_file(paid.txt"), "{}", ran.out);
        assert!(ran.out.ends_with("\nPaid.\n"), "{}", ran.out);
        assert_eq!(folder.read("paid.txt"), "12 EUR");
    }
}

#[test]
fn what_the_readme_shows_of_approvals_can_be_followed() {
    let shown = blocks(README, "sh").into_iter().find(|block| block.contains("--approve")).unwrap();
    let folder = Folder::new();
    let ran = shell(&folder, &shown).exits(0);
    assert_eq!(folder.read("paid.txt"), "12 EUR");
    for text in
        ["waiting  Pay it back.", "open      c1 (approval of write_file(paid.txt", "\nPaid.\n", "end       completed"]
    {
        assert!(ran.out.contains(text), "{text:?} is not in:\n{}", ran.out);
    }
    ran.says("waiting: the turn waits for c1").says("resolve till c1 --digest ").says(" --model script:pay.json`");
}

#[test]
fn existing_hooks_are_brought_along_with_the_commands_shown() {
    let page = include_str!("../../../../docs/bringing-your-hooks.md");
    let folder = Folder::foreign();
    folder.file("turnbuckle.toml", &blocks(page, "toml")[0]);
    let settings = r#"{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}"#;
    folder.file(".claude/settings.json", settings);
    // Where nobody can be asked, `--yes` answers.
    let ran = shell(&folder, &blocks(page, "sh")[0].replace("turnbuckle trust", "turnbuckle trust --yes")).exits(0);
    assert!(ran.out.contains("Stop: true"), "{}", ran.out);
    folder.run(&["run", "--model", "demo", "--quiet", "hi"]).exits(0);
}

#[test]
fn the_table_of_events_has_every_event_with_its_point_and_the_example_explains_its_verdict() {
    let page = include_str!("../../../../docs/bringing-your-hooks.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for event in turnbuckle_tools::claude::ClaudeEvent::ALL {
        let row = rows.iter().find(|row| row.split('|').nth(1).unwrap().contains(&format!("`{}`", event.name())));
        let cells: Vec<&str> = row.unwrap_or_else(|| panic!("no row for {}", event.name())).split('|').collect();
        let is_point = cells[2].contains(&format!("`{}`", event.point()));
        assert!(
            is_point || event == turnbuckle_tools::claude::ClaudeEvent::SessionEnd,
            "{}: {}",
            event.name(),
            cells[2]
        );
        assert_eq!(
            cells[3].trim() != "nothing",
            event.can_block() && event.name() != "PermissionRequest",
            "{}",
            event.name()
        );
    }
    let folder = Folder::with_config("", &blocks(page, "toml")[0]);
    let settings = r#"{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
        {"type": "command", "if": "Bash(git push *)", "command": "echo 'pushes are for people' >&2; exit 2"}]}]}}"#;
    folder.file(".claude/settings.json", settings);
    let example = blocks(page, "sh").into_iter().find(|block| block.contains("hooks test")).unwrap();
    let ran = shell(&folder, &example).exits(0);
    assert!(ran.out.contains("the call is denied, and the model reads why: pushes are for people"), "{}", ran.out);
}
