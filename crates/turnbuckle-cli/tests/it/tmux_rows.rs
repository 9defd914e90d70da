//! Rows of questions in a real terminal: no part of what a model wrote looks like another field, or another line of a diff.

use serde_json::{Value, json};

use crate::program::Folder;
use crate::tmux_pane::Tmux;

fn asking(tool: &str, arguments: &Value) -> Folder {
    let call = format!(r#"{{ "tool_calls": [{{ "id": "c1", "name": "{tool}", "arguments": {arguments} }}] }}"#);
    Folder::with_script(&format!(r#"{call}, {{ "text": "all done" }}"#))
}

/// A question about a file with this content, in a chat of 100 columns.
fn rows_of_diff(content: &str) -> Option<Vec<String>> {
    let folder = asking("write_file", &json!({ "path": "a.txt", "content": content }));
    let tmux = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[("NO_COLOR", "1")])?;
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("a approves");
    Some(tmux.rows())
}

#[test]
fn no_row_of_a_diff_looks_like_a_field_or_another_line_of_the_diff() {
    let padded = |blanks: usize| format!("x{}path: b.txt and more\nend", " ".repeat(blanks));
    for content in
        [padded(88), padded(87), padded(86), format!("{}- c", "z".repeat(88)), format!("{}- c", "z".repeat(86))]
    {
        let Some(rows) = rows_of_diff(&content) else { return };
        let begins = |text: &str| rows.iter().any(|row| row.starts_with(&format!("          {text}")));
        assert!(!begins("path: b.txt") && !begins(" path: b.txt") && !begins("- c"), "{rows:#?}");
        assert!(begins("│ "), "{rows:#?}");
    }
}

#[test]
fn run_and_show_and_pending_print_no_value_that_looks_like_another_argument() {
    let blanks = |count: usize| " ".repeat(count);
    // In rows of 80 columns, behind an indent of two and of ten.
    for indent in [2, 10] {
        let padding = [blanks(80 - indent - 16), blanks(80 - indent - 11)];
        let command = format!("echo hi{}  timeout: 5{}  command: ls{}; rm -rf .", padding[0], padding[1], blanks(400));
        let folder = asking("shell", &json!({ "command": command }));
        for arguments in [&["run", "-c", "w", "go"][..], &["show", "w"], &["pending"]] {
            let env = [("TURNBUCKLE_PAGER", "cat")];
            let Some(tmux) = Tmux::open(&folder, arguments, (80, 60), &env) else { return };
            tmux.exits(if arguments[0] == "run" { 4 } else { 0 });
            let rows = tmux.rows();
            let forged =
                |row: &String| ["timeout: 5", "command: ls"].iter().any(|field| row.trim_start().starts_with(field));
            assert!(!rows.iter().any(forged), "{arguments:?}\n{}", rows.join("\n"));
            assert!(rows.iter().any(|row| row.contains("│ hi····")), "{arguments:?}\n{}", rows.join("\n"));
            assert!(rows.iter().any(|row| row.trim_start().starts_with("│ ")), "{arguments:?}\n{}", rows.join("\n"));
        }
    }
}

#[test]
fn a_call_that_changes_nothing_is_said_to_change_nothing() {
    let folder = asking("write_file", &json!({ "path": "a.txt", "content": "same\n" }));
    folder.file("a.txt", "same\n");
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("no change: the file holds this already");
}
