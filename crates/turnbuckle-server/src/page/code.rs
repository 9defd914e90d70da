//! Code and diffs as HTML: one `span` for each piece that has a colour.

use maud::{Markup, PreEscaped, html};
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices};

use super::highlight::{Highlighter, Token, diff_line};
use super::safe::escape;

/// The longest text that is taken apart for colours. What is longer is shown plainly: a page of hundred thousands of elements
/// is slow to read and to scroll.
const LONGEST_COLOURED: usize = 64 * 1024;

/// A block of code. `language` is the word behind the fence, or the end of a file's name.
pub(super) fn block(language: &str, text: &str) -> Markup {
    let name: String = language.chars().take_while(|ch| ch.is_ascii_alphanumeric() || "+-#_".contains(*ch)).collect();
    let class =
        if name.is_empty() { "code".to_owned() } else { format!("code lang-{}", name.replace(['+', '#'], "p")) };
    let mut lines = String::new();
    match text.len() <= LONGEST_COLOURED {
        true => {
            let mut highlighter = Highlighter::of(language);
            for (number, line) in text.trim_end_matches('\n').split('\n').enumerate() {
                if number > 0 {
                    lines.push('\n');
                }
                highlighter.line(line.trim_end_matches('\r')).into_iter().for_each(|piece| token(piece, &mut lines));
            }
        }
        false => escape(text, &mut lines),
    }
    // It scrolls sideways, so the keyboard must reach it.
    html! { pre class=(class) tabindex="0" { code { (PreEscaped(lines)) } } }
}

/// A diff in the unified format.
pub(super) fn diff(text: &str) -> Markup {
    let mut lines = String::new();
    for line in text.trim_end_matches('\n').split('\n') {
        diff_row(line, diff_line(line), &mut lines);
    }
    diff_box(lines)
}

/// What was and what will be, whole: lines that stay stand there once.
pub(super) fn replaced(old: &str, new: &str) -> Markup {
    let mut rows = String::new();
    let (old, new) = (lines(old), lines(new));
    let parts = match old.len().saturating_mul(new.len()) <= MOST_COMPARED {
        true => capture_diff_slices(Algorithm::Myers, &old, &new),
        false => vec![DiffOp::Replace { old_index: 0, old_len: old.len(), new_index: 0, new_len: new.len() }],
    };
    for part in parts {
        let (tag, was, becomes) = part.as_tag_tuple();
        let (was, becomes) = (old.get(was).unwrap_or_default(), new.get(becomes).unwrap_or_default());
        if tag == DiffTag::Equal {
            was.iter().for_each(|line| diff_row(&format!(" {line}"), Token::Plain, &mut rows));
            continue;
        }
        was.iter().for_each(|line| diff_row(&format!("-{line}"), Token::Removed, &mut rows));
        becomes.iter().for_each(|line| diff_row(&format!("+{line}"), Token::Added, &mut rows));
    }
    diff_box(rows)
}

/// The most pairs of lines that are compared. Of larger texts all lines count as replaced.
const MOST_COMPARED: usize = 1_000_000;

fn lines(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.trim_end_matches('\n').split('\n').collect() }
}

fn diff_box(lines: String) -> Markup {
    html! { pre.code.diff tabindex="0" { code { (PreEscaped(lines)) } } }
}

/// A line of a diff is an element of its own, so that its whole width has the colour.
fn diff_row(line: &str, what: Token, out: &mut String) {
    token((line, what), out);
    out.push('\n');
}

fn token((text, token): (&str, Token), out: &mut String) {
    let class = match token {
        Token::Plain => return escape(text, out),
        Token::Comment => "t-comment",
        Token::String => "t-string",
        Token::Number => "t-number",
        Token::Keyword => "t-keyword",
        Token::Function => "t-function",
        Token::Added => "t-added",
        Token::Removed => "t-removed",
        Token::Place => "t-place",
        Token::File => "t-file",
    };
    out.push_str("<span class=\"");
    out.push_str(class);
    out.push_str("\">");
    escape(text, out);
    out.push_str("</span>");
}

/// What a result says, and the diff behind it.
pub(super) fn split_diff(text: &str) -> (&str, Option<&str>) {
    match text.find("\n--- ").filter(|at| text[*at..].contains("\n+++ ")) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}
