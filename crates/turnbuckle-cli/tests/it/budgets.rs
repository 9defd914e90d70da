//! The budget of a turn, `search_history` and the retention of results, as the program has them.

use serde_json::{Value, json};

use crate::program::Folder;

/// Calls a tool in every reply, and says something with it.
fn busy(folder: &Folder) {
    let replies: Vec<Value> = (0..9)
        .map(|n| json!({ "text": "so far: 42", "tool_calls": [{ "id": format!("c{n}"), "name": "list_files", "arguments": {} }] }))
        .collect();
    folder.file("busy.json", &json!({ "replies": replies }).to_string());
}

#[test]
fn a_turn_that_is_used_up_prints_its_last_answer_and_exits_with_5() {
    let folder = Folder::new();
    busy(&folder);
    folder.file("turnbuckle.toml", "[limits]\nmax_model_calls = 3\non_budget = \"answer\"\n");
    let ran =
        folder.run(&["run", "-c", "m", "--model", "script:busy.json", "how many?"]).exits(5).prints("so far: 42\n");
    ran.says("max_model_calls").says("last answer");
    let shown = folder.run(&["show", "m", "--json"]).exits(0).out;
    let ended: Value = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|line: &Value| line["type"] == "turn_ended")
        .unwrap();
    assert_eq!((&ended["outcome"], &ended["result"]), (&json!("exhausted"), &json!("so far: 42")));
    assert_eq!(ended["cause"], json!({"kind": "limit", "limit": "max_model_calls"}));
    assert_eq!(ended["model_calls"], 3);

    folder.file("turnbuckle.toml", "[limits]\nmax_model_calls = 3\n");
    folder.run(&["run", "--model", "script:busy.json", "how many?"]).exits(5).prints("");
}

#[test]
fn what_is_left_is_told_to_command_hooks_and_if_asked_for_to_the_model() {
    let folder = Folder::new();
    busy(&folder);
    let config = "[limits]\nmax_model_calls = 4\nmax_tokens = 90000\nshow_budget = true\n\
                  [[hooks]]\nuse = \"command\"\nname = \"watch\"\non = \"before_tool\"\nrun = \"cat >> seen.jsonl\"\n";
    folder.file("turnbuckle.toml", config);
    folder.run(&["run", "-c", "m", "--trust-hooks", "--model", "script:busy.json", "go"]).exits(5);
    let seen = std::fs::read_to_string(folder.path().join("seen.jsonl")).unwrap();
    let calls: Vec<Value> = seen
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["budget"]["model_calls"].clone())
        .collect();
    assert_eq!(calls, [json!(3), json!(2), json!(1)]);
    assert!(seen.contains("\"tokens\":90000"), "{seen}");
}

#[test]
fn mistakes_in_limits_and_retention_are_found() {
    let check = |config: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"])
    };
    check("[limits]\non_budget = \"anwser\"\n")
        .exits(2)
        .says("must be \"stop\" or \"answer\"")
        .says("turnbuckle.toml:2");
    check("on_budget = \"answer\"\n").exits(2).says("[limits]");
    check("[context.tool_results]\nturns = 3\ntools = [{ name = \"read_file\", last = 2 }, { name = \"shell\", keep = true }]\n").exits(0);
    check("[context.tool_results]\nturns = 3\nlast = 2\n").exits(2).says("only one of them can count");
    check("[context.tool_results]\ntools = [{ name = \"read_file\" }]\n").exits(2).says("says nothing");
    check("[context.tool_results]\ntools = [{ last = 2 }]\n").exits(2).says("`name`").says("is missing");
    check("[context.tool_results]\ntools = [{ name = \"raed_file\", last = 2 }]\n").exits(0).says("no such tool");
    check("[context.tool_results]\nkeep = true\n").exits(0).says("keeps the results of most tools");
    check("[context.tool_results]\ntruns = 2\n").exits(2).says("did you mean `turns`?");
    check("[context]\nreducers = [\"window\"]\n[context.tool_results]\nturns = 1\n")
        .exits(0)
        .says("says nothing to anyone");
}

#[test]
fn check_finds_a_budget_that_system_prompt_and_tools_fill() {
    let check = |context: u64, words: usize| {
        let folder = Folder::new();
        let system = "word ".repeat(words);
        let config =
            format!("[agent]\nsystem = \"{system}\"\n[limits]\ncontext_tokens = {context}\ninjection_reserve = 1000\n");
        folder.file("turnbuckle.toml", &config);
        folder.run(&["check"])
    };
    check(9_000, 9_000).exits(2).says("every turn would fail");
    check(9_000, 4_000).exits(0).says("no reducer can get a context down to 60 %");
    let fine = check(90_000, 4_000).exits(0);
    assert!(!fine.err.contains("system prompt and tools have"), "{}", fine.err);
}

#[test]
fn a_budget_in_which_only_the_reserve_does_not_fit_is_a_warning_and_turns_complete() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[limits]\ncontext_tokens = 5000\n");
    folder.file("ok.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok" } ] }"#);
    folder.run(&["check"]).exits(0).says("no call would have history").says("turnbuckle.toml:2");
    for _ in 0..2 {
        let run = ["run", "-c", "m", "--model", "script:ok.json"];
        let ran = folder.run_with_stdin(&run, b"hello").exits(0).prints("ok\n");
        assert_eq!(ran.err.matches("no call would have history").count(), 1, "{}", ran.err);
    }
    // A reserve that leaves next to nothing is none of the tools' doing, and no better.
    let next_to_nothing = "[tools]\nbuiltin = []\n[limits]\ncontext_tokens = 4000\ninjection_reserve = 3999\n";
    folder.file("turnbuckle.toml", next_to_nothing);
    folder.run(&["check"]).exits(0).says("no call would have history").says("turnbuckle.toml:4");
    // There is no history to summarise, so nothing is paid for it.
    folder
        .file("turnbuckle.toml", "[context]\nsummary_model = \"script:notes.json\"\n[limits]\ncontext_tokens = 5000\n");
    folder.file("notes.json", r###"{ "on_exhausted": "repeat", "replies": [], "agents": { "summary": [ { "text": "## Goal\nTo say hello." } ] } }"###);
    for _ in 0..4 {
        folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], b"hello").exits(0);
    }
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("without a summary") && !why.contains("summaries:"), "{why}");
}

#[test]
fn search_history_is_there_only_if_it_is_named() {
    let folder = Folder::new();
    let tools = |folder: &Folder| folder.run(&["check"]).exits(0).out;
    folder.file("turnbuckle.toml", "");
    assert!(!tools(&folder).contains("search_history"));
    folder.file("turnbuckle.toml", "[tools]\nbuiltin = [\"read_file\", \"search_history\"]\n");
    assert!(tools(&folder).contains("search_history"));
    let replies = json!({ "on_exhausted": "repeat", "replies": [
        { "text": "the heron is noted" }, { "text": "ok" }, { "text": "ok" }, { "text": "ok" },
        { "tool_calls": [{ "id": "s1", "name": "search_history", "arguments": { "query": "heron" } }] },
        { "text": "done" } ] });
    folder.file("talk.json", &replies.to_string());
    let run = ["run", "-c", "m", "--model", "script:talk.json"];
    folder.run_with_stdin(&run, b"remember the grey heron").exits(0);
    for _ in 0..4 {
        folder.run_with_stdin(&run, "word ".repeat(9_000).as_bytes()).exits(0);
    }
    let shown = folder.run(&["show", "m", "--json"]).exits(0).out;
    let result = shown.lines().find(|line| line.contains("\"tool_result\"")).unwrap();
    assert!(result.contains("remember the grey heron") && result.contains("<foreign source="), "{result}");
}

#[test]
fn what_summaries_cost_is_the_conversations_and_trace_shows_it() {
    let folder = Folder::new();
    folder.file(
        "ok.json",
        r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok", "usage": {"input": 7, "output": 1} } ] }"#,
    );
    let notes = json!({ "on_exhausted": "repeat", "replies": [], "agents": { "summary": [
        { "text": "## Goal\nThe code word is heron.", "usage": { "input": 4321, "output": 21 } } ] } });
    folder.file("notes.json", &notes.to_string());
    folder.file("turnbuckle.toml", "[context]\nsummary_model = \"script:notes.json\"\n");
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    for _ in 0..6 {
        folder.run_with_stdin(&run, "word ".repeat(4_000).as_bytes()).exits(0);
    }
    let trace = folder.run(&["trace", "m"]).exits(0).out;
    let line = trace.lines().find(|line| line.starts_with("summary   1 of ")).unwrap_or_else(|| panic!("{trace}"));
    // The four messages are read whole, in two calls.
    assert!(line.contains("8642 tokens read, 42 written"), "{line}");
    let shown = folder.run(&["show", "m", "--json"]).exits(0).out;
    assert!(!shown.contains("4321") && !shown.contains("8642"), "no turn has it: {shown}");
}
