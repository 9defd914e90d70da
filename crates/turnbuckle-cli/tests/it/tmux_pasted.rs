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
