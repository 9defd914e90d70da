//! What leaves a context is told: while it happens, in `trace` and in `show`.

use crate::program::{Folder, Ran};

#[test]
fn history_that_leaves_the_context_is_told_and_trace_has_the_number_of_messages_that_was_sent() {
    let folder = Folder::new();
    folder.file("ok.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok" } ] }"#);
    let message = "word ".repeat(9_000);
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    let told: Vec<String> =
        (0..5).map(|_| folder.run_with_stdin(&run, message.as_bytes()).exits(0).prints("ok\n").err).collect();
    assert!(!told[1].contains("compact "), "two messages fit: {}", told[1]);
    assert!(told[2].contains("compact ") && told[2].contains("turns left out"), "{}", told[2]);

    let trace = folder.run(&["trace", "m"]).exits(0).out;
    let builds: Vec<&str> = trace.lines().filter_map(|line| line.strip_prefix("build     ")).collect();
    // Of 28,000 tokens, two messages of 11,000 fit. The third leaves only one of the older two, or none, below 60 %.
    assert_eq!(builds, ["1 message", "3 messages", "1 message", "3 messages", "1 message"], "{trace}");
    assert_eq!(trace.matches("compact   2 turns left out: ").count(), 2, "{trace}");
    let shown = folder.run(&["show", "m"]).exits(0).out;
    assert!(shown.contains("from here on the model does not see all of the above"), "{shown}");
}

#[test]
fn check_shows_what_contexts_hold_and_warns_of_reducers_that_cannot_keep_them_small() {
    let check = |config: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"])
    };
    let ran = check("").exits(0);
    assert!(ran.out.contains("context   32000 tokens, then tool_results, window, summary\n"), "{}", ran.out);
    check("[context]\nreducers = [\"tool_results\"]\n")
        .exits(0)
        .says("cannot keep contexts small")
        .says("turnbuckle.toml:2");
    check("[context]\nreducers = []\n").exits(0).says("cannot keep contexts small");
    check("[context]\nreducers = [\"window\"]\n").exits(0).says("cannot make results smaller");
    check("[context]\nreducers = [\"window\", \"tool_results\"]\n").exits(0).says("cheap ones first");
    check("[context]\nreducers = [\"windw\"]\n")
        .exits(2)
        .says("none of: tool_results, window")
        .says("did you mean `window`?");
    check("[context]\nreducers = [\"window\", \"window\"]\n").exits(2).says("names a reducer twice");
    check("[context]\nreducer = []\n").exits(2).says("unknown key `reducer`");
}

#[test]
fn a_known_model_has_contexts_of_three_quarters_of_its_window_and_more_is_cut_with_a_warning() {
    let check = |config: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        let mut check = folder.command(&["check", "--model", "anthropic:claude-haiku-4-5"]);
        check.env("ANTHROPIC_API_KEY", "sk-none");
        Ran::of(check).exits(0)
    };
    assert!(check("").out.contains("context   150000 tokens"));
    let cut = check("[limits]\ncontext_tokens = 180000\n");
    assert!(cut.out.contains("context   150000 tokens"), "{}", cut.out);
    cut.says("more than 75 % of what the model takes: 150000 is used");
    assert!(check("[limits]\ncontext_tokens = 20000\n").out.contains("context   20000 tokens"));
}

#[test]
fn run_makes_a_summary_that_is_due_shows_that_it_does_and_later_contexts_have_it() {
    let folder = Folder::new();
    folder.file("ok.json", r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok" } ] }"#);
    let notes = r###"{ "on_exhausted": "repeat", "replies": [], "agents": { "summary": [ { "text": "## Goal\nThe code word is heron.", "usage": {"input": 700, "output": 9} } ] } }"###;
    folder.file("notes.json", notes);
    folder.file("turnbuckle.toml", "[context]\nsummary_model = \"script:notes.json\"\nsummary_timeout = \"90s\"\n");
    let message = "word ".repeat(4_000);
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    let mut bare = run.to_vec();
    bare.push("--bare");
    let told: Vec<String> = (0..10)
        .map(|turn| {
            // Without background work it is left to the next process.
            let run = if turn == 4 { &bare[..] } else { &run[..] };
            folder.run_with_stdin(run, message.as_bytes()).exits(0).prints("ok\n").err
        })
        .collect();
    assert!(told.iter().any(|err| err.contains("summary")), "{told:?}");
    let trace = folder.run(&["trace", "m"]).exits(0).out;
    assert!(trace.contains(", summary ") && trace.contains(" shown: "), "{trace}");
    let left = folder.run(&["show", "m"]).exits(0).out;
    assert!(!left.contains("not done"), "{left}");
    let why = folder.run(&["why", "m"]).exits(0).out;
    let line = why.lines().find(|line| line.starts_with("summaries: ")).unwrap_or_default();
    let made = trace.matches("\nsummary   ").count();
    assert!(made > 0 && line.starts_with(&format!("summaries: {made} version")), "{made}: {why}");
    assert!(line.contains("00 tokens read, ") && line.ends_with("beside the calls"), "{line}");
}

#[test]
fn what_is_said_of_summaries_is_checked() {
    let check = |config: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"])
    };
    check("[context]\nsummary_timeout = \"10ms\"\n").exits(2).says("less than a second");
    check("[context]\nsummary_model = \"scirpt:x\"\n")
        .exits(2)
        .says("did you mean `script`?")
        .says("turnbuckle.toml:2");
    let idle = "[context]\nreducers = [\"tool_results\", \"window\"]\nsummary_model = \"demo\"\n";
    check(idle).exits(0).says("makes nothing");
}

#[test]
fn why_says_what_was_sent_what_left_and_what_took_a_text_out() {
    let folder = Folder::new();
    folder.file(
        "ok.json",
        r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok", "usage": {"input": 900, "output": 5} } ] }"#,
    );
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    folder.run_with_stdin(&run, format!("the code word is heron {}", "word ".repeat(7_000)).as_bytes()).exits(0);
    for _ in 0..5 {
        folder.run_with_stdin(&run, "word ".repeat(7_000).as_bytes()).exits(0);
    }
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(
        why.contains("call 1    1 message, about") && why.contains("0 earlier turns (0 tokens), this turn ("),
        "{why}"
    );
    assert!(why.contains("cut     made for this call: ") && why.contains("without a summary"), "{why}");
    assert!(why.contains("900 tokens read") && why.contains("not known: "), "{why}");
    let found = folder.run(&["why", "m", "--find", "heron"]).exits(0).out;
    assert!(
        found.contains("log       event 1, user_message") && found.contains("taken out by the cut before"),
        "{found}"
    );
    assert!(folder.run(&["why", "m", "--find", "ostrich"]).exits(0).out.contains("no event has this text"));
    folder.run(&["why", "m", "--find", ""]).exits(2).says("this one is empty");
    folder.run(&["why", "m", "t_none"]).exits(1).says("has no turn t_none");

    let turn = why.lines().next().unwrap().split([' ', ',']).nth(1).unwrap().to_owned();
    let shown = folder.run(&["show", "m", "--context", &format!("{turn}.1")]).exits(0).says("rebuilt from the log");
    let body: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(body["messages"][0]["role"], "user");
    assert!(body["messages"][0]["content"][0]["text"].as_str().unwrap().starts_with("the code word is heron"));
    folder.run(&["show", "m", "--context", &format!("{turn}.9")]).exits(1).says("is none of them");
    folder.run(&["show", "m", "--context", "t_none"]).exits(1).says("has no model call");
}
