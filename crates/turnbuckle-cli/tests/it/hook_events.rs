//! `turnbuckle hooks test` with the events of Claude-style settings, and `turnbuckle hooks import`.

use crate::program::Folder;

const USE: &str = "[[hooks]]\nuse = \"claude\"\n";
const SETTINGS: &str = r#"{"permissions": {"allow": ["Bash(ls)"]}, "hooks": {
    "PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo 'no rm here' >&2; exit 2", "if": "Bash(rm *)"}]},
        {"hooks": [{"type": "command", "command": "echo '{\"systemMessage\":\"seen\"}'"}]}],
    "Stop": [{"hooks": [{"type": "command", "command": "npm run lint >&2 || exit 2", "timeout": 60}]}],
    "SessionStart": [{"matcher": "resume", "hooks": [{"type": "command", "command": "echo welcome back"}]}],
    "Setup": [{"hooks": [{"type": "command", "command": "true"}]}]}}"#;

fn folder() -> Folder {
    let folder = Folder::with_config("", USE);
    folder.file(".claude/settings.json", SETTINGS);
    folder.run(&["trust", "--yes"]).exits(0);
    folder
}

#[test]
fn a_slip_in_the_name_of_an_event_is_told_with_the_right_one_and_nothing_on_stdin_is_said_so() {
    let folder = Folder::new();
    folder.run_with_stdin(&["hooks", "test", "PreToolUsed"], b"{}").exits(2).says("did you mean `PreToolUse`?");
    for event in ["PreToolUse", "before_tool"] {
        folder.run_with_stdin(&["hooks", "test", event], b"").exits(2).says("stdin was empty");
    }
    folder.file(".claude/settings.json", r#"{ "hooks": { "PreToolUse": [] } }"#);
    let event = br#"{ "tool_name": "Bash", "tool_input": {} }"#;
    let ran = folder.run_with_stdin(&["hooks", "test", "PreToolUse"], event).exits(2);
    ran.says("settings.json do not run").says("use = \"claude\"");
}

#[test]
fn handlers_of_an_event_are_tried_and_their_verdict_is_explained() {
    let folder = folder();
    let rm = r#"{"tool_name": "Bash", "tool_input": {"command": "rm -rf x"}}"#;
    let ran = folder.run_with_stdin(&["hooks", "test", "PreToolUse"], rm.as_bytes()).exits(0);
    for part in [
        "no rm here' >&2; exit 2",
        "blocked",
        "blocks: no rm here",
        "tells the user: seen",
        "the call is denied, and the model reads why: no rm here",
    ] {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
    let ls = r#"{"tool_name": "Bash", "tool_input": {"command": "ls"}}"#;
    let ran = folder.run_with_stdin(&["hooks", "test", "PreToolUse", "--json"], ls.as_bytes()).exits(0);
    let line = &ran.events()[0];
    assert_eq!((line["event"].as_str(), line["handlers"].as_array().unwrap().len()), (Some("PreToolUse"), 1));
    let ran = folder.run_with_stdin(&["hooks", "test", "SessionStart"], br#"{"source": "resume"}"#).exits(0);
    assert!(ran.out.contains("the model reads what was added"), "{}", ran.out);
    folder
        .run_with_stdin(&["hooks", "test", "SessionStart"], br#"{"source": "startup"}"#)
        .exits(2)
        .says("no handler runs");
    folder.run_with_stdin(&["hooks", "test", "Sing"], b"{}").exits(2).says("PreToolUse");
    folder.run_with_stdin(&["hooks", "test", "PreToolUse"], br#"{"tool_nam": "Bash"}"#).exits(2).says("\"tool_name\"");
    folder.run_with_stdin(&["hooks", "test", "PreToolUse"], b"[]").exits(2).says("makes no sense");
}

#[test]
fn a_linter_becomes_lint_and_what_cannot_be_carried_over_is_said() {
    let folder = folder();
    let ran = folder.run(&["hooks", "import"]).exits(0);
    for part in [
        "use = \"lint\"",
        "run = \"npm run lint\"",
        "{ event = \"Stop\", command = \"npm run lint >&2 || exit 2\" }",
        "on_failure = \"block\"",
        "main_agent_only = true",
        "Setup is never fired",
        "`permissions` is not about hooks",
    ] {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
    let other = Folder::new();
    other.file(".claude/settings.json", SETTINGS);
    other.file("turnbuckle.toml", &ran.out);
    other.run(&["check"]).exits(0);
    let hooks = other.run(&["hooks"]).exits(0).out;
    assert!(hooks.contains("lint-1") && !hooks.contains("- Stop"), "the handler does not run twice: {hooks}");
    Folder::new().run(&["hooks", "import"]).exits(2).says("no .claude/settings.json");
}

/// What `hooks import` prints for these settings, which must be accepted as it is.
fn imported(settings: &str) -> Folder {
    let folder = Folder::new();
    folder.file(".claude/settings.json", settings);
    let printed = folder.run(&["hooks", "import"]).exits(0).out;
    folder.file("turnbuckle.toml", &printed);
    folder.run(&["check"]).exits(0);
    folder
}

#[test]
fn a_command_that_stands_at_several_events_is_replaced_at_stop_alone() {
    let lint = r#"{"type": "command", "command": "npm test || exit 2"}"#;
    let settings = format!(
        r#"{{"hooks": {{"Stop": [{{"hooks": [{lint}]}}, {{"hooks": [{lint}]}}], "SubagentStop": [{{"hooks": [{lint}]}}],
            "PostToolUse": [{{"matcher": "Write", "hooks": [{lint}]}}]}}}}"#
    );
    let hooks = imported(&settings).run(&["hooks"]).exits(0).out;
    assert!(hooks.contains("lint-1") && !hooks.contains("lint-2") && !hooks.contains("- Stop:"), "{hooks}");
    assert!(
        hooks.contains("- SubagentStop: npm test") && hooks.contains("- PostToolUse \"Write\": npm test"),
        "{hooks}"
    );
}

#[test]
fn what_is_imported_is_accepted_beside_handlers_that_cannot_run_and_broken_settings_are_an_error() {
    let agent = r#"{"hooks": {"Stop": [{"hooks": [{"type": "agent", "prompt": "x"}, {"type": "command", "command": "true"}]}]}}"#;
    let folder = imported(agent);
    assert!(folder.read("turnbuckle.toml").contains("leave_out = [\"agent\"]"), "{}", folder.read("turnbuckle.toml"));
    for (broken, why) in [
        ("{\"hooks\": ", "cannot be read"),
        (r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command"}]}]}}"#, "has no `command`"),
        (r#"{"hooks": {"Stop": "x"}}"#, "is not a list of groups"),
    ] {
        folder.file(".claude/settings.json", broken);
        let ran = folder.run(&["hooks", "import"]).exits(2).says(why);
        assert_eq!(ran.out, "", "nothing that looks like a result");
    }
}

#[test]
fn trying_an_event_follows_on_failure_pass_env_and_unreadable_matchers() {
    let hook = "[[hooks]]\nuse = \"claude\"\non_failure = \"block\"\npass_env = [\"OPENAI_API_KEY\"]\n";
    let folder = Folder::with_config("", hook);
    let try_with = |settings: &str| {
        folder.file(".claude/settings.json", settings);
        let mut command = folder.command(&["hooks", "test", "PreToolUse"]);
        command.env("OPENAI_API_KEY", "passed");
        crate::program::Ran::of_with_stdin(command, br#"{"tool_name": "Bash", "tool_input": {"command": "ls"}}"#)
    };
    let fails = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "exit 3"}]}]}}"#;
    let ran = try_with(fails).exits(1);
    assert!(ran.out.contains("its failure blocks") && ran.out.contains("the call is denied"), "{}", ran.out);
    let key = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "test \"$OPENAI_API_KEY\" = passed"}]}]}}"#;
    let ran = try_with(key).exits(0);
    assert!(ran.out.contains("no decision"), "{}", ran.out);
    let unreadable =
        r#"{"hooks": {"PreToolUse": [{"matcher": "Bash(", "hooks": [{"type": "command", "command": "true"}]}]}}"#;
    let ran = try_with(unreadable).exits(1);
    assert!(ran.out.contains("unreadable_matcher") && ran.out.contains("the call is denied"), "{}", ran.out);
    let listed = folder.run(&["hooks"]).exits(0).out;
    assert!(listed.contains("its matcher cannot be read: it blocks everything"), "{listed}");
}

#[test]
fn what_a_failed_handler_said_is_shown_to_its_end() {
    let folder = Folder::with_config("", USE);
    let fails = r#"{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "python3 -c 'int(\"x\")'"}]}]}}"#;
    folder.file(".claude/settings.json", fails);
    folder.run(&["trust", "--yes"]).exits(0);
    let ran = folder.run_with_stdin(&["hooks", "test", "Stop"], b"{}").exits(1).says("ValueError: invalid literal");
    assert!(ran.out.contains("stderr ended with") && ran.out.contains("Traceback (most recent"), "{}", ran.out);
}

#[test]
fn handlers_are_listed_in_the_order_in_which_they_are_fired() {
    let folder = Folder::with_config("", USE);
    let one = |name: &str| format!(r#"[{{"hooks": [{{"type": "command", "command": "echo {name}"}}]}}]"#);
    let events = ["SessionEnd", "SessionStart", "PermissionRequest", "PreToolUse", "PostCompact", "PreCompact"];
    let hooks: Vec<String> = events.iter().map(|event| format!("\"{event}\": {}", one(event))).collect();
    folder.file(".claude/settings.json", &format!("{{\"hooks\": {{{}}}}}", hooks.join(", ")));
    folder.run(&["trust", "--yes"]).exits(0);
    let listed = folder.run(&["hooks"]).exits(0).out;
    for (first, second) in
        [("SessionStart", "SessionEnd"), ("PreToolUse", "PermissionRequest"), ("PreCompact", "PostCompact")]
    {
        let at = |event: &str| listed.find(&format!("- {event}: ")).unwrap();
        assert!(at(first) < at(second), "{listed}");
    }
}

#[test]
fn an_entry_that_makes_no_sense_is_named_first() {
    let folder = Folder::with_config("", USE);
    folder.file(".claude/settings.json", r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command"}]}]}}"#);
    let file = folder.path().join(".claude/settings.json").display().to_string();
    let ran = folder.run(&["check"]).exits(2);
    assert!(
        ran.err.contains(&format!("error: turnbuckle.toml:3: {file}: a handler of PreToolUse has no `command`")),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("hint: bringing-your-hooks in the documentation"), "{}", ran.err);
}

#[test]
fn plugins_that_are_switched_on_and_do_not_run_are_told_before_each_run_and_in_what_is_imported() {
    let folder = Folder::with_config(r#"{ "text": "x" }"#, USE);
    folder.file(".claude/settings.json", r#"{"enabledPlugins": {"guard@m": true}, "hooks": {}}"#);
    folder.run(&["trust", "--yes"]).exits(0);
    for command in [&["check"][..], &["hooks"], &["run", "hi"]] {
        folder.run(command).exits(0).says("has guard@m: hooks of a plugin run only if `plugins = ");
    }
    let imported = folder.run(&["hooks", "import"]).exits(0).out;
    assert!(imported.contains("guard@m: hooks of a plugin") && !imported.contains("is not about hooks"), "{imported}");
}
