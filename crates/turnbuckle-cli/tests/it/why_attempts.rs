//! What `why` and `show --context` say of requests that came to nothing: attempts that failed or were sent back, and summaries.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::program::Folder;

const OK: &str =
    r#"{ "on_exhausted": "repeat", "replies": [ { "text": "ok", "usage": {"input": 900, "output": 5} } ] }"#;

/// The ids of the turns, in order.
fn turns(folder: &Folder) -> Vec<String> {
    let why = folder.run(&["why", "m"]).exits(0).out;
    let opened = why.lines().filter_map(|line| line.strip_prefix("turn "));
    opened.map(|line| line.split(',').next().unwrap_or_default().to_owned()).collect()
}

/// What stands below the line that begins like this.
fn below(text: &str, line: &str) -> String {
    let mut lines = text.lines().skip_while(|one| !one.starts_with(line));
    lines.nth(1).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_reply_that_was_sent_back_is_priced_printed_and_blamed_on_who_sent_it_back() {
    let folder = Folder::new();
    let replies = r#"{ "on_exhausted": "repeat", "replies": [
        { "text": "an ostrich", "usage": {"input": 700, "output": 7} }, { "text": "good", "usage": {"input": 900, "output": 5} } ] }"#;
    folder.file("script.json", replies);
    let config = "[store]\naudit = true\n[[hooks]]\nuse = \"command\"\nname = \"zoo\"\non = \"after_model\"\n\
                  run = \"grep -q good && exit 0; echo no such bird >&2; exit 2\"\n";
    folder.file("turnbuckle.toml", config);
    let run = ["run", "-c", "m", "--model", "script:script.json"];
    folder.run_with_stdin(&run, b"which bird?").exits(0);
    folder.run_with_stdin(&run, b"and now?").exits(0);
    let turn = turns(&folder).remove(0);
    let why = folder.run(&["why", "m"]).exits(0).out;
    let attempt =
        format!("attempt   {turn}.1.1 by script:script.json, its reply was discarded, 700 tokens read, 7 written");
    assert!(why.contains(&attempt), "{why}");
    assert!(why.contains("beside    the replies, 700 tokens read, 7 written: attempts that were discarded"), "{why}");
    assert!(why.contains("in all: 2 calls, 2500 tokens read"), "{why}");
    let first =
        folder.run(&["show", "m", "--context", &format!("{turn}.1.1")]).exits(0).says("its reply was discarded");
    let body: Value = serde_json::from_str(&first.out).unwrap();
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(1), "{body}");
    let second = folder.run(&["show", "m", "--context", &format!("{turn}.1.2")]).exits(0).out;
    assert_eq!(second, folder.run(&["show", "m", "--context", &turn]).exits(0).out);
    assert!(second.contains("an ostrich") && second.contains("no such bird"), "{second}");
    folder.run(&["show", "m", "--context", &format!("{turn}.1.9")]).exits(1).says("1 other attempts");
    for (text, why) in [("ostrich", "it was in a reply that zoo sent back"), ("no such bird", "it was what zoo said")] {
        let found = folder.run(&["why", "m", "--find", text]).exits(0).out;
        assert!(below(&found, "not in").starts_with(why), "{found}");
    }
}

#[test]
fn a_request_that_failed_is_searched_and_printed() {
    let folder = Folder::new();
    folder.file("bad.json", r#"{ "replies": [ { "error": { "status": 400, "message": "bad request" } } ] }"#);
    folder.file("turnbuckle.toml", "[store]\naudit = true\n");
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:bad.json"], b"where is the heron?").exits(1);
    let turn = turns(&folder).remove(0);
    let found = folder.run(&["why", "m", "--find", "the heron"]).exits(0).out;
    assert!(found.contains(&format!("sent in   {turn}.1.1: failed: ")) && found.contains("bad request"), "{found}");
    for name in [format!("{turn}.1.1"), format!("{turn}.1"), turn.clone()] {
        let shown = folder.run(&["show", "m", "--context", &name]).exits(0).says("attempt 1: failed");
        assert!(shown.out.contains("where is the heron?"), "{}", shown.out);
    }
    folder.run(&["show", "m", "--context", &format!("{turn}.2")]).exits(1).says("is none of them");
}

#[test]
fn what_was_added_for_one_turn_leaves_with_the_turn_also_where_a_cut_is_made() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    let message = format!("the code word is heron {}", "word ".repeat(7_000));
    let audit = "[store]\naudit = true\n[context]\nreducers = [\"window\"]\n";
    let hook = "[[hooks]]\nuse = \"instructions\"\ntext = \"Mind the marsh.\"\nfiles = []\n";
    for (nth, config) in
        [audit.to_owned(), audit.to_owned(), format!("{audit}{hook}"), audit.to_owned()].iter().enumerate()
    {
        folder.file("turnbuckle.toml", config);
        folder.run_with_stdin(&run, message.replace("heron", &format!("heron-{nth}")).as_bytes()).exits(0);
    }
    let turns = turns(&folder);
    let found = folder.run(&["why", "m", "--find", "Mind the marsh"]).exits(0).out;
    let why = found.lines().last().unwrap().trim();
    assert_eq!(
        why,
        format!("turn {} is over, and what instructions had added for that turn or one of its calls only", turns[2])
    );
    let found = folder.run(&["why", "m", "--find", "heron-0"]).exits(0).out;
    assert!(below(&found, "not in").starts_with("taken out by the cut before "), "{found}");
}

#[test]
fn a_summary_that_fails_is_priced_its_requests_are_printed_and_nobody_waits_for_another_try() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    let notes = r#"{ "on_exhausted": "repeat", "replies": [], "agents": { "summary": [ { "text": " ", "usage": {"input": 300, "output": 2} } ] } }"#;
    folder.file("notes.json", notes);
    folder.file("turnbuckle.toml", "[store]\naudit = true\n[context]\nsummary_model = \"script:notes.json\"\n");
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    let mut told = String::new();
    for _ in 0..12 {
        told = folder.run_with_stdin(&run, "word ".repeat(4_000).as_bytes()).exits(0).err;
        if told.contains("summary") {
            break;
        }
    }
    assert!(told.contains("work that is not done stays in the outbox: summary"), "{told}");
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("summaries that could not be made: 1 call, 300 tokens read, 2 written"), "{why}");
    assert!(why.contains("  summary.1 for version 1, "), "{why}");
    let shown = folder.run(&["show", "m", "--context", "summary.1"]).exits(0);
    assert!(shown.out.contains("You keep the notes of a long conversation"), "{}", shown.out);
    folder.run(&["show", "m", "--context", "summary.2"]).exits(1).says("has 1 requests for summaries");
    let found = folder.run(&["why", "m", "--find", "You keep the notes"]).exits(0).out;
    assert!(found.contains("sent in   summary.1, to make version 1"), "{found}");
}

#[test]
fn a_page_takes_the_place_of_a_file_or_a_link_and_is_for_its_user_alone() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], b"hello").exits(0);
    let (old, other) = (folder.file("old.html", "old"), folder.file("other.txt", "mine"));
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).unwrap();
    let link = folder.path().join("link.html");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    for page in [&old, &link] {
        let name = page.file_name().unwrap().to_str().unwrap();
        folder.run(&["why", "m", "--html", name]).exits(0);
        let about = page.symlink_metadata().unwrap();
        assert!(about.is_file(), "{name}");
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{name}");
        assert!(std::fs::read_to_string(page).unwrap().starts_with("<!DOCTYPE html>"));
    }
    assert_eq!(folder.read("other.txt"), "mine", "what the link led to is as it was");
    std::fs::create_dir(folder.path().join("folder.html")).unwrap();
    folder.run(&["why", "m", "--html", "folder.html"]).exits(1).says("not a file");
    let left = std::fs::read_dir(folder.path()).unwrap().flatten();
    assert!(
        !left.map(|one| one.file_name()).any(|name| name.to_string_lossy().starts_with(".why-")),
        "nothing is left"
    );
}

/// A server that says how many tokens its model takes and answers nothing else. What it was asked for comes back.
fn narrow_server() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length == 1) {
                head.push(byte[0]);
            }
            let body = r#"{"data":[{"id":"m","max_model_len":2048}]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = asked.send(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, seen)
}

#[test]
fn the_server_of_a_summary_model_is_asked_how_many_tokens_it_takes_and_check_asks_nobody() {
    let (address, seen) = narrow_server();
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.users_file(&format!("[context]\nsummary_model = \"openai@http://{address}/v1:m\"\n"));
    folder.run(&["check", "--model", "script:ok.json"]).exits(0);
    assert!(seen.try_recv().is_err(), "check connects to nothing");
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], b"hello").exits(0);
    assert_eq!(seen.try_recv().unwrap(), "GET /v1/models HTTP/1.1");
}

#[test]
fn servers_of_fallback_models_and_of_sub_agents_are_asked_how_many_tokens_they_take() {
    let down = r#"{ "replies": [ { "error": { "status": 503, "message": "down" } } ] }"#;
    let (hook, agent) =
        ("[[hooks]]\nuse = \"fallback\"\nmodels = [\"MODEL\"]\n", "[[agents]]\nname = \"scout\"\nmodel = \"MODEL\"\n");
    // What is left of so small a window is less than hooks may inject, unless that is set.
    let limits = "[agents.limits]\ninjection_reserve = 100\n";
    for (section, limits, exit) in [(hook, "", 1), (agent, limits, 0), (agent, "", 2)] {
        let (address, seen) = narrow_server();
        let folder = Folder::new();
        folder.file("s.json", if exit == 1 { down } else { OK });
        let section = section.replace("MODEL", &format!("openai@http://{address}/v1:m"));
        folder.users_file(&format!("[agent]\ndefault_retry = false\n{section}{limits}"));
        folder.run(&["check", "--model", "script:s.json"]);
        assert!(seen.try_recv().is_err(), "check connects to nothing");
        let message = "some words of prose ".repeat(900);
        let run = ["run", "-c", "m", "--model", "script:s.json"];
        let ran = folder.run_with_stdin(&run, message.as_bytes()).exits(exit);
        if exit == 2 {
            ran.says("turnbuckle.toml:5: injection_reserve (4000) must be smaller than context_tokens (1536)");
        }
        let asked: Vec<String> = seen.try_iter().collect();
        assert_eq!(asked, ["GET /v1/models HTTP/1.1"], "what it cannot take is not sent: {section}");
    }
}

#[test]
fn of_calls_that_were_removed_from_an_audit_it_is_not_said_that_the_audit_is_off() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.file("turnbuckle.toml", "[store]\naudit = true\naudit_rows = 1\n");
    for message in [b"one", b"two"] {
        folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], message).exits(0);
    }
    let turn = turns(&folder).remove(0);
    let shown = folder.run(&["show", "m", "--context", &turn]).exits(0).says("rebuilt from the log");
    let why = folder.run(&["why", "m"]).exits(0).out;
    for text in [&shown.err, &why] {
        assert!(
            text.contains("or were removed to keep it within") && !text.contains("records them from then on"),
            "{text}"
        );
    }
}

#[test]
fn a_line_about_the_budget_is_counted_where_the_audit_has_it() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.file("turnbuckle.toml", "[store]\naudit = true\n[limits]\nmax_tokens = 90000\nshow_budget = true\n");
    let run = ["run", "-c", "m", "--model", "script:ok.json"];
    for message in [b"one", b"two"] {
        folder.run_with_stdin(&run, message).exits(0);
    }
    let turns = turns(&folder);
    for (turn, call) in turns.iter().zip(folder.run(&["why", "m", "--json"]).exits(0).events()) {
        let sent: Value = serde_json::from_str(&folder.run(&["show", "m", "--context", turn]).exits(0).out).unwrap();
        assert_eq!(call["messages"].as_u64(), sent["messages"].as_array().map(|sent| sent.len() as u64), "{call}");
    }
}

#[test]
fn sizes_that_are_not_corrected_are_said_to_be_estimates() {
    let folder = Folder::new();
    folder.file("ok.json", OK);
    folder.run_with_stdin(&["run", "-c", "m", "--model", "script:ok.json"], b"hello").exits(0);
    let why = folder.run(&["why", "m"]).exits(0).out;
    assert!(why.contains("sizes: those of calls before the first cut are estimates without the correction"), "{why}");
}
