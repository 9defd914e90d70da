//! Lines that come faster than they can be sent.

use crate::program::Folder;
use crate::tmux_pane::Tmux;

#[test]
fn lines_that_find_no_room_stay_in_the_line_being_typed_and_are_told_of_once() {
    let folder = Folder::with_script("");
    folder.file(
        "script.json",
        r#"{ "on_exhausted": "repeat", "replies": [ { "chunks": ["one ", "two "], "delay_ms": 2000 }, { "text": "ok" } ] }"#,
    );
    let line = |number: usize| format!("line-{number:03}");
    let pasted: String = (1..=500).map(|number| line(number) + "\n").collect();
    let file = folder.file("paste.txt", &pasted);
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    assert!(tmux.tmux(&["load-buffer", file.to_str().unwrap()]).status.success());
    // Without brackets around it: each line end is the key Enter.
    assert!(tmux.tmux(&["paste-buffer"]).status.success());
    tmux.shows("not sent: Enter sends them as one message");
    assert_eq!(tmux.all().matches("not sent").count(), 1, "{}", tmux.all());
    tmux.presses(&["Enter"]);
    tmux.until("all of it is in the conversation", |_| {
        let shown = folder.run(&["show", "w", "--json"]).exits(0).events();
        let said = shown.iter().filter(|event| event["type"] == "user_message");
        let texts = said.map(|event| event["content"][0]["text"].as_str().unwrap());
        // The store may have had room again for a message behind one that it refused.
        let mut lines: Vec<String> = texts.flat_map(str::lines).map(str::to_owned).collect();
        lines.sort();
        lines.into_iter().eq((1..=500).map(line))
    });
    assert_eq!(tmux.all().matches("not sent").count(), 1, "{}", tmux.all());
}

/// One marked paste: how a person's terminal gives what is in its clipboard.
fn pastes(tmux: &Tmux, folder: &Folder, text: &str) {
    let file = folder.file("paste.txt", text);
    assert!(tmux.tmux(&["load-buffer", file.to_str().unwrap()]).status.success());
    assert!(tmux.tmux(&["paste-buffer", "-p"]).status.success());
}

#[test]
fn ten_thousand_long_lines_are_one_paste_and_one_message() {
    let folder = Folder::with_config(r#"{ "text": "thank you" }"#, "[limits]\ncontext_tokens = 4000000\n");
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    pastes(&tmux, &folder, &("x".repeat(160) + "\n").repeat(10_000));
    tmux.shows("[10000 pasted lines]");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     thank you");
    let shown = folder.run(&["show", "w", "--json"]).exits(0);
    assert_eq!(shown.event("user_message")["content"][0]["text"].as_str().unwrap().len(), 1_609_999);
}

#[test]
fn the_end_of_a_paste_that_is_too_long_is_told_of_and_never_typed() {
    let folder = Folder::with_script(r#"{ "text": "thank you" }"#);
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    let long = ("x".repeat(1_023) + "\n").repeat(16 << 10);
    pastes(&tmux, &folder, &format!("{long}\nhello\n!touch {}\n", folder.path().join("owned").display()));
    tmux.shows("a paste is taken up to 16 MiB");
    tmux.shows("[16384 pasted lines]");
    assert_eq!(tmux.all().matches("a paste is taken up to").count(), 1, "{}", tmux.all());
    tmux.presses(&["C-u"]);
    tmux.types("hi");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     thank you");
    assert!(!folder.path().join("owned").exists(), "{}", tmux.all());
    let shown = folder.run(&["show", "w", "--json"]).exits(0);
    assert_eq!(shown.event("user_message")["content"][0]["text"], "hi");
}

#[test]
fn a_long_message_that_the_store_refuses_comes_back_folded() {
    let folder = Folder::with_script(r#"{ "text": "thank you" }"#);
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    pastes(&tmux, &folder, &("x".repeat(160) + "\n").repeat(10_000));
    tmux.shows("[10000 pasted lines]");
    tmux.presses(&["Enter"]);
    tmux.shows("not sent: Enter sends them as one message");
    tmux.shows("› [10000 pasted lines]");
    tmux.presses(&["BSpace", "BSpace"]);
    tmux.lacks("› [10000 pasted lines]");
    tmux.types("hi");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     thank you");
}
