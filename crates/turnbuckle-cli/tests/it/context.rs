//! What leaves a context is told: while it happens, in `trace` and in `show`.

use crate::program::Folder;

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
