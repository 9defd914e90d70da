//! Texts cut to what a person wants to see of them.

use serde_json::Value;
use turnbuckle::event::Question;
use turnbuckle::message::{Content, Part};
use turnbuckle::projection::Pending;
use turnbuckle::trace::in_order;

use super::asked::with_blanks_shown;
use super::safe;

/// The longest text of a line.
const BRIEF: usize = 160;
/// How long a title of first words is.
const TITLE: usize = 60;
/// The longest argument of a call.
const ARGUMENT: usize = 48;
/// The most lines of a refusal.
const LINES: usize = 12;

/// A number of things: "1 turn", "2 turns".
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// On one line, the beginning.
pub(crate) fn brief(text: &str) -> String {
    cut(&one_line(text), BRIEF)
}

/// A title for what a person said: the first words, without what was given along with them, such as the text of a pipe.
pub(crate) fn title(said: &Content) -> String {
    let own = said.parts().iter().find_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(&**text),
        _ => None,
    });
    opening(own.unwrap_or_default(), TITLE)
}

/// On one line, its first words in so many letters.
pub(crate) fn opening(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = line.char_indices().nth(most) else { return line };
    let whole = line[..end].rfind(' ').filter(|space| *space > end / 2).unwrap_or(end);
    format!("{}…", &line[..whole])
}

/// The first lines.
pub(crate) fn few_lines(text: &str) -> String {
    let text = text.trim_end();
    let total = text.lines().count();
    let mut lines: Vec<String> = text.lines().take(LINES).map(|line| cut(line, 4 * BRIEF)).collect();
    if total > LINES {
        lines.push(format!("… {} more", count(total - LINES, "line")));
    }
    lines.join("\n")
}

/// A tool's result: all of it if it is one line, else its beginning and how much there is.
pub(crate) fn result(text: &str) -> String {
    let text = text.trim_end();
    match text.lines().count() {
        0 | 1 => brief(text),
        lines => format!("{} … {}", cut(text.lines().next().unwrap_or_default(), BRIEF), count(lines, "line")),
    }
}

/// The result of a call that failed: why it failed mostly stands at its end.
pub(super) fn failure(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    match lines.as_slice() {
        [first, .., before, last] if lines.len() > 3 => {
            let end = cut(&format!("{before}⏎{last}"), BRIEF);
            format!("{} … {end} ({})", cut(first, BRIEF / 2), count(lines.len(), "line"))
        }
        _ => brief(text),
    }
}

/// The last lines, and how many stand before them.
pub(crate) fn last_lines(text: &str, most: usize) -> (usize, Vec<String>) {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let before = lines.len().saturating_sub(most);
    (before, lines[before..].iter().map(|line| cut(line, 2 * BRIEF)).collect())
}

/// `read_file(prices.py)`: the values, each cut short.
pub(crate) fn called(name: &str, arguments: &Value) -> String {
    format!("{}({})", safe::name(name), values(arguments).join(", "))
}

/// The same with the first value only: enough to recognise a call that was shown in full.
pub(super) fn recalled(name: &str, arguments: &Value) -> String {
    let values = values(arguments);
    let more = if values.len() > 1 { ", …" } else { "" };
    format!("{}({}{more})", safe::name(name), values.first().map_or("", String::as_str))
}

fn values(arguments: &Value) -> Vec<String> {
    match arguments {
        Value::Object(fields) => in_order(fields).into_iter().map(|(_, field)| value(field)).collect(),
        other => vec![value(other)],
    }
}

fn value(value: &Value) -> String {
    let plain = |ch: char| ch.is_alphanumeric() || "_-./".contains(ch);
    match value {
        Value::String(text) if text.lines().count() > 1 => format!("[{}]", count(text.lines().count(), "line")),
        Value::String(text) if !text.is_empty() && text.chars().all(plain) => cut(text, ARGUMENT),
        Value::String(text) => {
            format!("\"{}\"", cut(&with_blanks_shown(&text.replace('\n', "⏎")), ARGUMENT))
        }
        other => cut(&other.to_string(), ARGUMENT),
    }
}

/// Whether [`called`] shows these arguments as they are, and nothing of them is missing.
pub(crate) fn is_shown_whole(arguments: &Value) -> bool {
    let is_whole = |one: &Value| match one {
        Value::String(text) => {
            text.chars().count() <= ARGUMENT && safe::name(text) == *text && with_blanks_shown(text) == *text
        }
        other => {
            let text = other.to_string();
            text.chars().count() <= ARGUMENT && safe::name(&text) == text
        }
    };
    match arguments {
        Value::Object(fields) => fields.values().all(is_whole),
        other => is_whole(other),
    }
}

/// What a suspended call asks.
pub(super) fn asked(question: &Question) -> String {
    match question {
        Question::Approval { tool: Some(tool), arguments, .. } => format!("approval of {}", called(tool, arguments)),
        Question::Approval { tool: None, why, .. } => {
            format!("approval of the reply: {}", brief(why.as_deref().unwrap_or("no reason given")))
        }
        Question::Elicitation { question, .. } => format!("an answer to: {}", brief(question)),
        Question::ClientExec { tool, arguments } => format!("a client that runs {}", called(tool, arguments)),
        Question::Pause { hook, reason } => format!("a person's look, says hook {hook}: {}", brief(reason)),
        _ => "an answer".to_owned(),
    }
}

/// `c2 (approval of write_file(a.txt))`
pub(crate) fn pending(pending: &Pending) -> String {
    format!("{} ({})", safe::name(pending.call.as_str()), asked(&pending.question))
}

fn one_line(text: &str) -> String {
    text.trim_end().replace("\r\n", "⏎").replace('\n', "⏎")
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Names in a sentence: "a", "a and b", "a, b and c".
pub(crate) fn and_list<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_shows_its_path_first_and_its_values_short() {
        let arguments = json!({ "content": "x".repeat(100), "path": "a.txt" });
        assert_eq!(called("write_file", &arguments), format!("write_file(a.txt, {}…)", "x".repeat(48)));
        assert_eq!(recalled("write_file", &arguments), "write_file(a.txt, …)");
        assert_eq!(called("f", &json!("not raw\n")), "f(\"not raw⏎\")");
        assert_eq!(called("f", &json!({ "text": "a\nb\nc" })), "f([3 lines])");
        assert_eq!(result("a\nb\n"), "a … 2 lines");
        let padded = json!({ "command": "a      b" });
        assert!(called("f", &padded) == "f(\"a······b\")" && !is_shown_whole(&padded));
    }

    #[test]
    fn a_failure_shows_how_it_ended() {
        let text = "compiling\nmore\nerror: no such thing\n[exit status: 101]\n";
        assert_eq!(failure(text), "compiling … error: no such thing⏎[exit status: 101] (4 lines)");
        assert_eq!(failure("a\nb\n"), "a⏎b");
        assert_eq!(last_lines(text, 2), (2, vec!["error: no such thing".to_owned(), "[exit status: 101]".to_owned()]));
        assert_eq!(last_lines("a", 2), (0, vec!["a".to_owned()]));
    }

    #[test]
    fn long_texts_say_how_much_is_missing() {
        let text = "line\n".repeat(20);
        assert!(few_lines(&text).ends_with("… 8 lines more"));
        assert_eq!(brief("a\nb\n"), "a⏎b");
        assert_eq!(opening("one two\n three four", 12), "one two…");
        assert_eq!(opening(" short\n", 12), "short");
    }
}
