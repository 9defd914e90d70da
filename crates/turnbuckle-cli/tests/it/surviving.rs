//! An approval outlives everything: the turn waits, every process is gone, another one answers, the tool runs once.

use crate::program::Folder;

#[test]
fn an_approval_given_when_everything_was_killed_runs_the_tool_once() {
    let call = r#"{ "id": "c1", "name": "write_file", "arguments": { "path": "paid.txt", "content": "12 EUR" } }"#;
    let replies = format!(r#"{{ "text": "I pay it back.", "tool_calls": [{call}] }}, {{ "text": "Paid." }}"#);
    let folder = Folder::with_script(&replies);
    // What a process that was killed leaves: its log, its claim, its write-ahead log.
    let mut chat = folder.command(&["chat", "-c", "till"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = chat.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"pay it back\n").unwrap();
    let mut said = std::io::BufReader::new(chat.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains("resolve till c1 --digest ") {
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut err).unwrap(), 0, "{err}");
    }
    chat.kill().unwrap();
    chat.wait().unwrap();

    folder.run(&["run", "-c", "till", "hello?"]).exits(1).says("hint: `turnbuckle resolve till c1 --digest ");
    folder.run(&["resolve", "till", "c1", "--approve"]).exits(0).prints("Paid.\n");
    assert_eq!(folder.read("paid.txt"), "12 EUR");
    folder.run(&["resolve", "till", "c1", "--approve"]).exits(1).says("stale");
    let events = folder.run(&["show", "till", "--json"]).exits(0).types();
    assert_eq!(events.iter().filter(|kind| *kind == "tool_started").count(), 1);

    let shown = folder.run(&["show", "till"]).exits(0).out;
    let expected = "user      pay it back
agent     I pay it back.
call      → write_file(paid.txt, \"12 EUR\")
wait      c1: approval of write_file(paid.txt, \"12 EUR\")
resolve   c1: approved by user local
dispatch  write_file(paid.txt, …) = created paid.txt (6 bytes)
agent     Paid.
end       completed (2 model calls, ";
    assert!(shown.starts_with(expected), "{shown}");
    let traced = folder.run(&["trace", "till"]).exits(0).out;
    for line in ["wait      c1: approval of write_file(", "resolve   c1: approved by user local", "end       completed"]
    {
        assert!(traced.contains(line), "{line:?} is not in:\n{traced}");
    }
}

const JOURNAL: &str =
    "[[hooks]]\nuse = \"command\"\nname = \"journal\"\non = \"ended\"\nrun = \"cat >> turns.jsonl\"\n";

#[test]
fn what_is_done_after_a_turn_by_another_agent_names_the_agent_of_the_turn() {
    let write = r#"{ "tool_calls": [ { "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } } ] },
                   { "text": "hello" }"#;
    let folder = Folder::with_config(write, &format!("name = \"till\"\n{JOURNAL}"));
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    folder.run(&["cancel", "w"]).exits(0);
    // Nobody has done it yet, and an agent without the hook does not.
    let listed = folder.run(&["list"]).exits(0).out;
    assert!(listed.contains("[1 job not done]"), "{listed}");
    let listed = folder.run(&["list", "--json"]).exits(0).events().remove(0);
    assert_eq!(listed["jobs"], serde_json::json!({ "parked": 0, "failing": 0, "not_done": 1 }));
    let config = |rest: &str| format!("[agent]\nmodel = \"script:script.json\"\nname = \"shop\"\n{rest}");
    folder.file("turnbuckle.toml", &config(JOURNAL));
    folder.run(&["run", "-c", "w"]).exits(0);
    let told: serde_json::Value = serde_json::from_str(&folder.read("turns.jsonl")).unwrap();
    assert_eq!((&told["agent"], &told["outcome"]), (&"till".into(), &"cancelled".into()), "{told}");
    assert!(!folder.run(&["list"]).exits(0).out.contains("job"));
}
