//! Leaving a chat: the terminal is closed, or a signal comes, while a turn waits or is at work.

use crate::program::Folder;
use crate::tmux_pane::Tmux;

const WRITE: &str = r#"{ "tool_calls": [ { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] },
    { "text": "done" }, { "text": "and more" }"#;

fn says(tmux: &Tmux, text: &str) {
    tmux.types(text);
    tmux.presses(&["Enter"]);
}

/// A chat whose turn asks whether a file may be written.
fn asked(folder: &Folder) -> Option<Tmux> {
    let tmux = Tmux::open(folder, &["chat", "-c", "w"], (100, 40), &[])?;
    tmux.rests();
    says(&tmux, "go");
    tmux.shows("a approves");
    Some(tmux)
}

/// A chat whose turn is in the middle of a reply.
fn at_work(folder: &Folder) -> Option<Tmux> {
    let tmux = Tmux::open(folder, &["chat", "-c", "w"], (100, 40), &[])?;
    tmux.rests();
    says(&tmux, "go");
    tmux.shows("word word");
    Some(tmux)
}

fn slow() -> Folder {
    let reply = format!(r#"{{ "chunks": [{}"end"], "delay_ms": 60 }}"#, "\"word \",".repeat(3000));
    Folder::with_script(&format!("{reply}, {reply}"))
}

#[track_caller]
fn outcomes(folder: &Folder) -> Vec<String> {
    let events = folder.run(&["show", "w", "--json"]).exits(0).events();
    let ended = events.iter().filter(|event| event["type"] == "turn_ended");
    ended.map(|event| event["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_question_stays_open_when_the_terminal_is_closed_or_a_signal_comes() {
    for how in ["close", "-HUP", "-TERM"] {
        let folder = Folder::with_script(WRITE);
        let Some(tmux) = asked(&folder) else { return };
        if how == "close" {
            tmux.closes();
        } else {
            tmux.sends(how);
            tmux.exits(130);
            tmux.shows("It waits: `turnbuckle resolve w c1");
        }
        assert!(folder.run(&["list"]).exits(0).out.contains("waiting"), "{how}");
        folder.run(&["resolve", "w", "c1", "--approve"]).exits(0);
        assert_eq!((folder.read("a.txt").as_str(), outcomes(&folder)), ("x", vec!["completed".to_owned()]), "{how}");
    }
}

#[test]
fn a_message_that_is_queued_behind_a_question_is_kept_when_the_terminal_is_closed() {
    let folder = Folder::with_script(&format!(
        r#"{{ "text": "x", "chunks": ["word ", "word ", "word"], "delay_ms": 700, {}"#,
        &WRITE[1..]
    ));
    let Some(tmux) = at_work(&folder) else { return };
    says(&tmux, "and then");
    tmux.shows("queued    and then");
    tmux.shows("a approves");
    tmux.closes();
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(0);
    folder.run(&["run", "-c", "w"]);
    let shown = folder.run(&["show", "w"]).exits(0).out;
    assert!(shown.contains("user      and then") && shown.contains("agent     and more"), "{shown}");
    assert_eq!(outcomes(&folder), ["completed", "completed"]);
}

#[test]
fn a_turn_at_work_and_what_is_queued_behind_it_are_cancelled_when_the_terminal_is_closed() {
    for how in ["close", "-HUP", "-TERM"] {
        let folder = slow();
        let Some(tmux) = at_work(&folder) else { return };
        says(&tmux, "and then");
        tmux.shows("queued    and then");
        if how == "close" {
            tmux.closes();
        } else {
            tmux.sends(how);
            tmux.exits(130);
        }
        assert_eq!(outcomes(&folder), ["cancelled", "cancelled"], "{how}");
    }
}

#[test]
fn a_question_that_was_cancelled_is_not_said_to_wait() {
    let folder = Folder::with_script(WRITE);
    let Some(tmux) = asked(&folder) else { return };
    tmux.sends("-INT");
    tmux.sends("-TERM");
    tmux.exits(130);
    assert!(!tmux.all().contains("It waits"), "{}", tmux.all());
    folder.run(&["run", "-c", "w"]);
    assert_eq!(outcomes(&folder), ["cancelled"]);
}
