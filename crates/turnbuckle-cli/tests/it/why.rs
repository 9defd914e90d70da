//! What was sent, exactly: the audit, cache breaks, and the page.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::Folder;

const OK: &str =
    r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok", "usage": {"input": 900, "output": 5} } ] }"#;

/// A key of a known form, put together here so that nobody takes it for a real one.
fn key() -> String {
    format!("AKIA{}", "ABCDEFGHIJKLMNOP")
}

fn first_turn(folder: &Folder) -> String {
    let why = folder.run(&["why", "m"]).exits(0).out;
    why.lines().next().unwrap().split([' ', ',']).nth(1).unwrap().to_owned()
}

#[test]
fn an_audited_request_is_printed_as_it_was_sent_with_secrets_marked() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.file(
        "turnbuckle.toml",
        "[agent]\nsystem = \"You count herons.\"\n[store]\naudit = true\n[[hooks]]\nuse = \"instructions\"\ntext = \"Mind the marsh.\"\nfiles = []\n",
    );
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    let message = format!("the key is {} and \"[key]\" is no key", key());
    folder.run_with_stdin(&run, message.as_bytes()).exits(0);
    folder.run_with_stdin(&run, b"and now?").exits(0);
    assert!(folder.run(&["check"]).exits(0).out.contains("audit     what models are sent is recorded for 7days"));
    let turn = first_turn(&folder);
    let shown =
        folder.run(&["show", "m", "--context", &turn]).exits(0).says("as it was sent").says("one secret was redacted");
    let body: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(body["system"], "You count herons.");
    assert!(body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "read_file"), "{body}");
    let content = &body["messages"][0]["content"];
    assert_eq!(content[0]["text"], "the key is [redacted: key] and \"[key]\" is no key");
    assert_eq!(content[1]["text"], "Mind the marsh.");
    let found = folder.run(&["why", "m", "--find", "Mind the marsh"]).exits(0).out;
    assert!(found.contains("no event has this text") && found.contains("sent in"), "{found}");
    assert!(!found.contains("not known"), "{found}");
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("audit   recorded as it was sent") && why.contains("hook    instructions added"), "{why}");
    assert!(why.contains("what instructions had added for the turn before left with that turn"), "{why}");
}

#[test]
fn without_an_audit_what_is_not_known_is_said() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], b"hello").exits(0);
    let turn = first_turn(&folder);
    folder.run(&["show", "m", "--context", &turn]).exits(0).says("rebuilt from the log").says("audit = true");
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("beside  tools ") && why.contains("not known: "), "{why}");
}

#[test]
fn a_changed_system_prompt_is_a_cache_break_that_why_and_trace_name() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    for system in ["You count herons.", "You count herons.", "You count cranes."] {
        folder.file("turnbuckle.toml", &format!("[agent]\nsystem = \"{system}\"\n"));
        folder.run_with_stdin(&run, b"how many?").exits(0);
    }
    let why = folder.run(&["why", "m"]).exits(0).out;
    let broke = "broke in the system prompt, at or behind byte ";
    assert_eq!(why.matches("cache   broke in the ").count(), 1, "{why}");
    assert!(why.contains(broke) && why.contains("the system setting of the agent has changed"), "{why}");
    assert!(why.contains("cache: broke once, "), "{why}");
    let trace = folder.run(&["trace", "m"]).exits(0).out;
    assert!(trace.contains(&format!("cache     {broke}")), "{trace}");
}

#[test]
fn check_finds_what_would_break_the_cache_before_anything_is_sent() {
    let check = |config: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"])
    };
    check("[agent]\nsystem = \"It is {time}.\"\n").exits(0).says("has {time}").says("turnbuckle.toml:2");
    check("[[hooks]]\nuse = \"trim\"\n").exits(0).says("prompt cache breaks");
    let fine = check("[[hooks]]\nuse = \"instructions\"\ntext = \"It is {time}.\"\nfiles = []\n").exits(0);
    assert!(!fine.err.contains("cache"), "{}", fine.err);
    check("[store]\naudit = true\naudit_ttl = \"5s\"\n").exits(2).says("less than a minute");
    check("[store]\naudit = true\naudit_rows = 0\n").exits(2).says("nothing would be kept");
}

#[test]
fn check_warns_of_an_audit_that_cannot_hold_one_request() {
    let check = |config: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"]).exits(0)
    };
    let warning = "one request can have 128000 bytes";
    check("[store]\naudit = true\naudit_bytes = 100000\n").says(warning).says("turnbuckle.toml:3");
    for fine in [
        "[store]\naudit = true\naudit_bytes = 128000\n",
        "[store]\naudit = true\n",
        "[store]\naudit = false\naudit_bytes = 100000\n",
        "[store]\naudit = true\naudit_bytes = 100000\n[limits]\ncontext_tokens = 20000\n",
    ] {
        let ran = check(fine);
        assert!(!ran.err.contains("one request can have"), "{fine}: {}", ran.err);
    }
}

#[test]
fn the_page_loads_nothing_runs_nothing_and_shows_hostile_text_as_text() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    let hostile =
        "<script>alert(1)</script><img src=x onerror=alert(2)> \" onmouseover='x' \u{1b}[31m https://evil.example/";
    folder.file(
        "turnbuckle.toml",
        "[store]\naudit = true\n[[hooks]]\nuse = \"instructions\"\nname = \"<b>evil</b>\"\ntext = \"<script>alert(3)</script>\"\nfiles = []\n",
    );
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    for _ in 0..3 {
        folder.run_with_stdin(&run, hostile.as_bytes()).exits(0);
    }
    folder.run(&["why", "m", "--html", "window.html"]).exits(0).says("the page is in window.html");
    let path = folder.path().join("window.html");
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"));
    for forbidden in ["<script", "<img", "<b>evil", " src=\"", "href=\"", "url(", "@import", "\u{1b}", " onmouseover='"]
    {
        assert!(!page.contains(forbidden), "{forbidden} is in the page");
    }
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&lt;b&gt;evil&lt;/b&gt;"));
    assert_eq!(page.matches("class=\"call").count(), 3);
    assert!(page.contains("class=\"brk small\"") && page.contains("prefers-color-scheme: dark"));
    folder.run(&["why", "m", "--html", "no/such/folder.html"]).exits(1).says("writing no/such/folder.html");
}

#[test]
fn text_with_quotes_line_ends_and_backslashes_is_found_in_the_arguments_of_calls() {
    for config in ["", "[store]\naudit = true\n"] {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        let pattern = r#"say \"heron\"\nC:\\marsh"#;
        folder.file(
            "call.json",
            &format!(
                r#"{{ "replies": [ {{ "tool_calls": [ {{ "id": "c1", "name": "search_files", "arguments": {{ "pattern": "{pattern}" }} }} ] }}, {{ "text": "ok" }} ] }}"#
            ),
        );
        folder.run_with_stdin(&["run", "-c", "m", "--model", "script:call.json"], b"look").exits(0);
        for wanted in ["say \"heron\"", "heron\"\nC:", r"C:\marsh", pattern, r#"{"pattern":"say"#] {
            let found = folder.run(&["why", "m", "--find", wanted]).exits(0).out;
            assert!(found.contains(", tool_call in turn ") && found.contains("sent in"), "{wanted}: {found}");
        }
    }
}

#[test]
fn of_a_text_that_the_audit_redacted_it_is_said_that_it_cannot_be_known() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.file("turnbuckle.toml", "[store]\naudit = true\n");
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    folder.run_with_stdin(&run, b"hello").exits(0);
    folder.run_with_stdin(&run, format!("the key is {}", key()).as_bytes()).exits(0);
    folder.run_with_stdin(&run, b"and now?").exits(0);
    let found = folder.run(&["why", "m", "--find", &key()]).exits(0).out;
    let states: Vec<&str> = found.lines().filter(|line| line.contains(" call")).map(|line| &line[..9]).collect();
    assert_eq!(states, ["not in   ", "unknown  "], "{found}");
    assert!(found.contains("(2 calls)\n          redaction hides it: ") && found.contains("user_message"), "{found}");
    let found = folder.run(&["why", "m", "--find", "the key is"]).exits(0).out;
    assert!(found.contains("sent in") && !found.contains("unknown"), "{found}");
    let found = folder.run(&["why", "m", "--find", "ostrich"]).exits(0).out;
    let states: Vec<&str> = found.lines().filter(|line| line.contains(" call")).map(|line| &line[..9]).collect();
    // Of the two requests that secrets were taken out of, nobody can say that it was not one of them.
    assert_eq!(states, ["not in   ", "not found"], "{found}");
    assert!(found.contains("(1 call)\nnot found ") && found.contains("(2 calls)"), "{found}");
    assert!(!found.contains("is over") && !found.contains("unknown"), "nothing took it out: {found}");
}

#[test]
fn of_a_text_that_only_a_redaction_can_hide_it_is_said_that_it_may_have_been_there() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    let hook = format!("[[hooks]]\nuse = \"instructions\"\ntext = \"The key is {}.\"\nfiles = []\n", key());
    folder.file("turnbuckle.toml", &format!("[store]\naudit = true\n{hook}"));
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], b"hello").exits(0);
    // The hook sent it, the log does not have it, and the audit has taken it out.
    let found = folder.run(&["why", "m", "--find", &key()]).exits(0).out;
    assert!(found.contains("no event has this text") && found.contains("not found "), "{found}");
    assert!(found.contains("it may have been there") && !found.contains("not in "), "{found}");
    let json = folder.run(&["why", "m", "--find", &key(), "--json"]).exits(0).out;
    assert!(json.contains("\"unknown\"") && json.contains("\"redacted\""), "{json}");
    // What the log has and a call was not sent is told as before.
    let found = folder.run(&["why", "m", "--find", "hello"]).exits(0).out;
    assert!(found.contains("sent in") && !found.contains("may have been"), "{found}");
}

#[test]
fn shortened_arguments_are_said_to_be_arguments_and_of_which_tool() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[context.tool_results]\nturns = 1\n");
    let pattern = "word ".repeat(16_000);
    folder.file(
        "call.json",
        &format!(
            r#"{{ "on_exhausted": "repeat", "replies": [ {{ "tool_calls": [ {{ "id": "c1", "name": "search_files", "arguments": {{ "pattern": "{pattern}" }} }} ] }}, {{ "text": "ok" }} ] }}"#
        ),
    );
    folder.file("ok.json", OK);
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:call.json"], b"look").exits(0);
    let message = "word ".repeat(11_000);
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], message.as_bytes()).exits(0);
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("note    the arguments of search_files at event 3 ("), "{why}");
    assert!(why.contains(" bytes) are shortened to the beginnings of their strings from here on"), "{why}");
}

/// The examples of the catalogue: each a file with `[[hooks]]`, and the names of its hooks.
fn examples() -> Vec<(String, Vec<String>)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = ["catalogue.md", "catalogue-services.md"].map(|page| std::fs::read_to_string(docs.join(page)).unwrap());
    let pages = pages.concat();
    let blocks = pages.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let named = blocks.filter_map(|block| {
        let table = block.parse::<toml::Table>().ok()?;
        let hooks = table.get("hooks")?.as_array()?;
        let names = hooks.iter().filter_map(|hook| Some(hook.get("use")?.as_str()?.to_owned())).collect();
        Some((block.to_owned(), names))
    });
    named.collect()
}

/// Three turns with calls of tools, with these hooks: what broke the cache, but for what left with its turn. `None` if `check`
/// refuses the configuration.
fn breaks_with(config: &str) -> Option<Vec<String>> {
    let folder = Folder::new();
    folder.file("AGENTS.md", "Be brief.");
    let hooks: serde_json::Map<String, Value> = ["SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolBatch"]
        .into_iter()
        .map(|event| {
            let said =
                json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": "mind the pond" } });
            (event.to_owned(), json!([{ "hooks": [{ "type": "command", "command": format!("echo '{said}'") }] }]))
        })
        .collect();
    folder.file(".claude/settings.json", &json!({ "hooks": hooks }).to_string());
    folder.file(
        "ok.json",
        r#"{ "on_exhausted": "repeat", "replies": [
            { "tool_calls": [ { "id": "c1", "name": "list_files", "arguments": {} } ] }, { "text": "one" },
            { "tool_calls": [ { "id": "c2", "name": "list_files", "arguments": {} } ] }, { "text": "two" }, { "text": "three" } ] }"#,
    );
    folder.file("turnbuckle.toml", config);
    if folder.run(&["check"]).code != 0 {
        return None;
    }
    let run = ["run", "-c", "m", "--model", "script:ok.json", "--bare"];
    (0..3).for_each(|_| drop(folder.run_with_stdin(&run, b"look around")));
    let why = folder.run(&["why", "m"]).exits(0).out;
    let is_fine = |line: &&str| line.contains("left with that turn") || line.contains("halted or rejected");
    let broke = why.lines().filter(|line| line.contains("cache   broke") && !is_fine(line));
    Some(broke.map(str::to_owned).collect())
}

/// `trim` does; `check` says so.
#[test]
fn no_other_ready_made_hook_breaks_the_cache() {
    // Those that need a service or a program beside them, and one that asks another model. docs/context.md names them.
    let skipped = ["trim", "worker", "http", "notify", "telemetry", "fallback"];
    let (mut tried, mut refused): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (config, names) in examples() {
        if names.iter().any(|name| skipped.contains(&name.as_str()) || tried.contains(name)) {
            continue;
        }
        match breaks_with(&config) {
            Some(broke) => {
                assert!(broke.is_empty(), "{names:?}: {broke:#?}");
                tried.extend(names);
            }
            // An example may name a model or a file of its reader.
            None => refused.extend(names),
        }
    }
    refused.retain(|name| !tried.contains(name));
    refused.sort_unstable();
    refused.dedup();
    assert!(tried.len() >= 12, "{tried:?}");
    assert_eq!(refused, [] as [&str; 0], "docs/context.md names those that are not tried");
    let others = ["claude", "command", "lint", "persist", "remember", "recall"];
    assert!(others.iter().all(|name| tried.iter().any(|one| one == name)), "{tried:?}");
}

#[test]
fn commands_that_add_text_at_each_point_do_not_break_the_cache() {
    let hook = |on: &str, run: &str| {
        format!("[[hooks]]\nuse = \"command\"\nname = \"{on}\"\non = \"{on}\"\nrun = {}\n", json!(run))
    };
    let context = r#"echo '{"context": "mind the pond"}'"#;
    let config = [
        hook("before_agent", context),
        hook("before_tool", "exit 0"),
        hook("after_tool", context),
        hook("after_model", "exit 0"),
        hook("stop", "test -e once || { touch once; echo look again >&2; exit 2; }"),
        hook("ended", "exit 0"),
    ];
    assert_eq!(breaks_with(&config.concat()), Some(Vec::new()));
}

#[test]
fn steps_that_a_long_turn_left_out_are_told_by_why_find_the_page_trace_and_show() {
    let folder = Folder::new();
    let step = |n: usize| {
        serde_json::json!({ "text": format!("stone {n}, and then the next one of the garden"),
            "tool_calls": [ { "id": format!("c{n}"), "name": "list_files", "arguments": {} } ] })
    };
    let replies: Vec<_> = (0..120).map(step).chain([serde_json::json!({ "text": "done" })]).collect();
    folder.file("long.json", &serde_json::json!({ "replies": replies }).to_string());
    folder.file("turnbuckle.toml", "[limits]\ncontext_tokens = 8000\ninjection_reserve = 500\nmax_model_calls = 500\n");
    let run = folder.run_with_stdin(&["run", "-c", "m", "--model", "script:long.json"], b"look at them").exits(0);
    assert!(run.err.contains(" steps of this turn left out"), "{}", run.err);
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("calls (list_files ") && why.contains(": a note stands in their place"), "{why}");
    let found = folder.run(&["why", "m", "--find", "stone 7,"]).exits(0).out;
    assert!(
        found.contains("taken out by the cut before ") && found.contains("steps of the open turn left out"),
        "{found}"
    );
    for command in ["trace", "show"] {
        let told = folder.run(&[command, "m"]).exits(0).out;
        assert!(told.contains("steps of the open turn left out"), "{command}: {told}");
    }
    folder.run(&["why", "m", "--html", "window.html"]).exits(0);
    let page = std::fs::read_to_string(folder.path().join("window.html")).unwrap();
    assert!(page.contains("a note stands in their place") && page.contains("✂"));
    // 121 bars of 7 pixels and 1 between two.
    assert!(page.contains("min-width:967px;max-width:967px"), "a turn is as wide as its bars");
}

#[test]
fn what_a_hook_adds_to_one_call_is_shown_at_that_call() {
    let list =
        |n: usize| format!(r#"{{ "tool_calls": [{{ "id": "c{n}", "name": "list_files", "arguments": {{}} }}] }}"#);
    let write =
        r#"{ "tool_calls": [{ "id": "w", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } }] }"#;
    let replies = [list(1), write.to_owned(), list(2), r#"{ "text": "done" }"#.to_owned()].join(", ");
    let folder = Folder::with_config(&replies, "[[hooks]]\nuse = \"claude\"\n");
    // The handler speaks while the second call's tool is held back.
    folder.file(
        ".claude/settings.json",
        r#"{"hooks": {
            "PreToolUse": [{"matcher": "Write", "hooks": [
                {"type": "command", "command": "echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"allow\"}}'"},
                {"type": "command", "asyncRewake": true, "command": "echo wake up >&2; touch woken; exit 2"}]}],
            "PostToolUse": [{"matcher": "Write", "hooks": [
                {"type": "command", "command": "while ! test -e woken; do sleep 0.02; done; sleep 0.5"}]}]}}"#,
    );
    folder.run(&["run", "-c", "m", "go"]).exits(0);
    let why = folder.run(&["why", "m"]).exits(0).out;
    let adding: Vec<&str> = why.split("\n  call ").filter(|call| call.contains("hook    claude added")).collect();
    let is_late = |call: &&str| call.starts_with('3') || call.starts_with('4');
    assert!(!adding.is_empty() && adding.iter().all(is_late), "before that nothing was added: {why}");
}
