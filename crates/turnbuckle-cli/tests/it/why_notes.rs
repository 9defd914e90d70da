//! What `why` says of what was shortened, and of turns that failed because their context was too large.

use serde_json::json;

use crate::program::Folder;

fn read(n: usize) -> serde_json::Value {
    json!({"tool_calls": [{"id": format!("c{n}"), "name": "read_file", "arguments": {"path": "big.txt"}}]})
}

fn script(folder: &Folder, replies: Vec<serde_json::Value>) {
    folder.file("s.json", &json!({"replies": replies, "on_exhausted": "error"}).to_string());
}

/// What `why` says of the turn that this message opened.
fn of_turn<'w>(why: &'w str, message: &str) -> &'w str {
    let turn = why.split("\nturn ").find(|turn| turn.contains(&format!("{message:?}")));
    turn.unwrap_or_else(|| panic!("no turn {message}: {why}"))
}

#[test]
fn a_note_is_told_at_the_call_that_it_was_made_for_and_counted_at_later_ones() {
    let folder = Folder::new();
    folder.file("big.txt", &"some words of prose\n".repeat(2_000));
    script(&folder, (0..8).map(read).chain([json!({"text": "done"})]).collect());
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:s.json"], b"read").exits(0);
    let why = folder.run(&["why", "m"]).exits(0).out;
    let told: Vec<&str> = why.lines().filter(|line| line.contains("note    the result of read_file")).collect();
    assert!(told.len() >= 4, "{why}");
    let mut once = told.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), told.len(), "{why}");
    assert!(why.contains("were shortened before and still are"), "{why}");
}

#[test]
fn a_turn_that_failed_because_its_context_was_too_large_says_so_and_has_its_own_cut() {
    let folder = Folder::new();
    folder.file("big.txt", &"some words of prose\n".repeat(2_000));
    let mut long = read(1);
    long["text"] = "what the model said itself is not reduced ".repeat(3_500).into();
    script(
        &folder,
        vec![read(0), json!({"text": "fine"}), long, json!({"text": "not sent"}), json!({"text": "later"})],
    );
    let run = ["run", "-c", "m", "--model", "script:s.json"];
    folder.run_with_stdin(&run, b"first").exits(0);
    folder.run_with_stdin(&run, b"second").exits(1);
    let why = folder.run(&["why", "m"]).exits(0).out;
    let second = of_turn(&why, "second");
    assert!(second.contains("  cut       made for a call without a reply: "), "{why}");
    assert!(second.contains("  ended     failed: "), "{why}");
    assert!(!of_turn(&why, "first").contains("ended "), "{why}");
}

#[test]
fn a_text_that_only_what_is_not_stored_may_have_had_is_unknown() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[agent]\nsystem = \"You count herons.\"\n");
    script(&folder, vec![json!({"text": "fine"}), json!({"text": "blue"}), json!({"text": "fine"})]);
    let run = ["run", "-c", "m", "--model", "script:s.json"];
    for message in ["one", "two", "three"] {
        folder.run_with_stdin(&run, message.as_bytes()).exits(0);
    }
    let found = folder.run(&["why", "m", "--find", "count herons"]).exits(0).out;
    assert!(found.contains("unknown ") && !found.contains("not in") && found.contains("cannot be known"), "{found}");
    let found = folder.run(&["why", "m", "--find", "count herons", "--json"]).exits(0).events();
    assert!(found.iter().all(|line| line["presence"] == "unknown" && line["reason"] == "not_recorded"), "{found:?}");
    let found = folder.run(&["why", "m", "--find", "blue", "--json"]).exits(0).events();
    let presence: Vec<_> = found.iter().filter_map(|line| line.get("presence")).collect();
    assert_eq!(presence, ["not_sent", "not_sent", "sent"], "the log has it: {found:?}");
}

#[test]
fn a_text_that_a_hook_added_was_sent_and_where_not_all_of_it_is_stored_others_are_unknown() {
    for (more, presence) in [(String::new(), "not_sent"), ("and on ".repeat(2_000), "unknown")] {
        let folder = Folder::new();
        folder.file("AGENTS.md", &format!("Count the herons slowly. {more}"));
        script(&folder, vec![json!({"text": "blue"})]);
        folder.run_with_stdin(&["run", "-c", "m", "--model", "script:s.json"], b"go").exits(0);
        let found = |text: &str| {
            let found = folder.run(&["why", "m", "--find", text, "--json"]).exits(0).events();
            found.iter().find_map(|line| line.get("presence").cloned()).unwrap()
        };
        assert_eq!(found("herons slowly"), "sent");
        assert_eq!(found("blue"), presence, "the log has it");
        let sent = folder.run(&["why", "m", "--json"]).exits(0).events();
        let shown = format!("{}.1", sent[0]["turn"].as_str().unwrap());
        let context = folder.run(&["show", "m", "--context", &shown]).exits(0).says("what is stored of it");
        assert!(context.out.contains("herons slowly"), "{}", context.out);
    }
}

#[test]
fn run_counts_the_messages_that_are_left_after_a_cut_by_an_earlier_process() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[limits]\ncontext_tokens = 4000\ninjection_reserve = 100\n");
    folder.file("ok.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok" } ] }"#);
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    let message = "some words of prose ".repeat(60);
    let told: Vec<String> = (0..20).map(|_| folder.run_with_stdin(&run, message.as_bytes()).exits(0).err).collect();
    let calls = folder.run(&["why", "m", "--json"]).exits(0).events();
    let mut after_a_cut = 0;
    for (call, told) in calls.iter().zip(&told).filter(|(call, _)| call["cuts"].as_array().unwrap().is_empty()) {
        let words = if call["messages"] == 1 { "message" } else { "messages" };
        assert!(told.contains(&format!("build     {} {words},", call["messages"])), "{call}: {told}");
        after_a_cut += usize::from(call["last_cut"].is_object());
    }
    assert!(after_a_cut > 2, "{calls:?}");
}

#[test]
fn run_counts_messages_that_its_viewers_are_not_given_because_estimates_were_too_high() {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[limits]\ncontext_tokens = 6000\ninjection_reserve = 100\n");
    let usage = json!({"input": 400, "output": 5});
    let call = |n: usize| json!({"usage": usage, "tool_calls": [{"id": format!("c{n}"), "name": "list_files", "arguments": {}}]});
    script(&folder, (0..24).flat_map(|n| [call(n), json!({"text": "ok", "usage": usage})]).collect());
    let run = ["run", "-c", "m", "--model", "script:s.json"];
    let message = "some words of prose ".repeat(60);
    let told: Vec<String> = (0..24).map(|_| folder.run_with_stdin(&run, message.as_bytes()).exits(0).err).collect();
    let calls = folder.run(&["why", "m", "--json"]).exits(0).events();
    let built: Vec<&str> = told
        .iter()
        .flat_map(|told| told.lines())
        .filter_map(|line| line.trim_start().strip_prefix("build     "))
        .collect();
    assert_eq!(built.len(), calls.len());
    let mut after_a_cut = 0;
    for (call, built) in calls.iter().zip(built).filter(|(call, _)| call["cuts"].as_array().unwrap().is_empty()) {
        let words = if call["messages"] == 1 { "message" } else { "messages" };
        assert!(built.starts_with(&format!("{} {words},", call["messages"])), "{built}: {call}");
        after_a_cut += usize::from(call["last_cut"].is_object());
    }
    assert!(after_a_cut > 2, "{after_a_cut}");
}
