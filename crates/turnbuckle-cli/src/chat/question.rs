//! What a turn asks of the person: shown in full, and a typed line as its answer.

use std::time::Duration;

use serde_json::Value;
use turnbuckle::event::Question;
use turnbuckle::message::Text;
use turnbuckle::projection::Pending;
use turnbuckle::store::Answer;
use turnbuckle::trace::in_order;

use crate::show::{Line, Tone, clean, columns, name};

/// How long a question must have been on the screen before a key, or a line where nothing is drawn, answers it: nobody approves with what was
/// meant for something else.
pub(super) const READ_FIRST: Duration = Duration::from_millis(500);

/// The most rows of one argument that a question shows at once: what is longer says how much is missing.
const ROWS: usize = 60;

/// How wide a screen is taken to be whose width is not known.
const WIDTH: usize = 80;

/// How much of one argument is shown.
#[derive(Clone, Copy)]
enum Room {
    All,
    /// In rows of so many columns.
    Rows {
        most: usize,
        width: usize,
    },
}

/// Arguments of the file tools that a diff shows better.
const IN_DIFF: [&str; 6] = ["old", "new", "all", "edits", "content", "patch"];

/// In the place of a diff that has no line.
pub(super) const NO_CHANGE: &str = "no change: the file holds this already";

/// Under arguments that are not those that run.
const REDACTED: &str =
    "redacted: parts of this are placeholders, and the call runs with what the model wrote in their place";

/// What is asked, for a person who decides about it.
pub(crate) fn shown(pending: &Pending) -> Vec<Line> {
    shown_beside(pending, Beside::Nothing, WIDTH)
}

/// The same with what is shown together with it.
pub(super) fn shown_beside(pending: &Pending, beside: Beside, width: usize) -> Vec<Line> {
    lines(pending, beside, Room::Rows { most: ROWS, width })
}

/// The same for a person who reads it at leisure: nothing is cut.
pub(crate) fn in_full(pending: &Pending) -> Vec<Line> {
    whole(pending, Beside::Nothing)
}

/// What is asked with what is shown together with it, and nothing is cut.
pub(super) fn whole(pending: &Pending, beside: Beside) -> Vec<Line> {
    lines(pending, beside, Room::All)
}

/// What is shown together with the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    /// What the diff shows is left out.
    Diff,
}

fn lines(pending: &Pending, beside: Beside, room: Room) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |label, tone, text: &str| lines.push(Line { label, tone, text: clean(text) });
    let call = name(pending.call.as_str());
    match &pending.question {
        Question::Approval { tool: Some(tool), arguments, why, again, redacted, .. } => {
            let once_more = if *again { " once more" } else { "" };
            line("ask", Tone::Hook, &format!("may {} run{once_more}? (call {call})", name(tool)));
            let is_in_diff = |key: &str| beside == Beside::Diff && IN_DIFF.contains(&key);
            fields(arguments, &is_in_diff, room).iter().for_each(|text| line("", Tone::Plain, text));
            if *redacted {
                line("", Tone::Hook, REDACTED);
            }
            if let Some(why) = why {
                line("", Tone::Hook, &format!("why: {why}"));
            }
            if *again {
                line("", Tone::Hook, "careful: it was started before, and may have happened already");
            }
        }
        Question::Approval { tool: None, arguments, why, .. } => {
            line("ask", Tone::Hook, &format!("may this reply stand? (call {call})"));
            fields(arguments, &|_| false, room).iter().for_each(|text| line("", Tone::Plain, text));
            if let Some(why) = why {
                line("", Tone::Hook, &format!("why: {why}"));
            }
        }
        Question::Elicitation { question, schema } => {
            line("ask", Tone::Hook, question);
            if let Some(schema) = schema {
                line("", Tone::Dim, &format!("as JSON that fits {schema}"));
            }
        }
        Question::ClientExec { tool, arguments } => {
            line("ask", Tone::Hook, &format!("what is the result of {}? (call {call})", name(tool)));
            fields(arguments, &|_| false, room).iter().for_each(|text| line("", Tone::Plain, text));
        }
        Question::Pause { hook, reason } => {
            line("ask", Tone::Hook, &format!("may the turn end? Hook {hook} wants a person to look: {reason}"));
        }
        _ => line("ask", Tone::Hook, &format!("call {call} waits for an answer")),
    }
    if let Some(rule) = &pending.rule {
        if rule.second_look {
            line(
                "",
                Tone::Hook,
                "a second look: these are the arguments that would run now, and nothing changes them again",
            );
        }
        if rule.n > 1 {
            let given: Vec<String> = pending.approvals.iter().map(ToString::to_string).collect();
            let given =
                if given.is_empty() { "none so far".to_owned() } else { format!("so far by {}", given.join(", ")) };
            line("", Tone::Hook, &format!("{} approvals are needed, {given}", rule.n));
        }
    }
    lines
}

/// `key: value`, whatever spans lines below its key.
fn fields(arguments: &Value, left_out: &dyn Fn(&str) -> bool, room: Room) -> Vec<String> {
    match arguments {
        Value::Object(fields) => {
            let shown = in_order(fields).into_iter().filter(|(key, _)| !left_out(key));
            shown.map(|(key, value)| field(key, value, room)).collect()
        }
        other => vec![other.to_string()],
    }
}

fn field(key: &str, value: &Value, room: Room) -> String {
    let key = key_shown(key);
    let text = match value {
        Value::String(text) => text.trim_end_matches('\n').to_owned(),
        other => other.to_string(),
    };
    let lines: Vec<&str> = text.lines().collect();
    let (whole, rest) = match room {
        Room::All => (lines.len(), None),
        Room::Rows { most, width } => fitting(&lines, most, width),
    };
    let mut shown = match lines.len() {
        0 | 1 if whole == lines.len() => return format!("{key}: {text}"),
        _ => format!("{key}:"),
    };
    lines.iter().take(whole).for_each(|line| shown.push_str(&format!("\n  {line}")));
    if let (Some(end), Some(line)) = (rest, lines.get(whole)) {
        let missing = line[end..].chars().count();
        shown.push_str(&format!("\n  {}\n  … {missing} more characters of this line, NOT shown", &line[..end]));
    }
    let missing = lines.len() - whole - usize::from(rest.is_some());
    if missing > 0 {
        shown.push_str(&format!("\n  … {missing} more lines, NOT shown"));
    }
    shown
}

/// How many lines fit into so many rows, and the end of what fits of the next one, if that alone is too long.
fn fitting(lines: &[&str], most: usize, width: usize) -> (usize, Option<usize>) {
    let width = width.max(1);
    let mut left = most;
    for (place, line) in lines.iter().enumerate() {
        let rows = line.chars().map(columns).sum::<usize>().div_ceil(width).max(1);
        if rows > left {
            let mut used = 0;
            let is_beyond = |ch: char| {
                used += columns(ch);
                used > left * width
            };
            let end = line.find(is_beyond).filter(|end| *end > 0);
            return (place, end);
        }
        left -= rows;
    }
    (lines.len(), None)
}

/// The name of an argument, which the model chose: one line, and quoted if it could be taken for something else.
fn key_shown(key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|ch| ch.is_alphanumeric() || "_-.".contains(ch));
    if is_plain { name(key) } else { format!("{:?}", name(key)) }
}

/// Whether a standing approval could answer such a question: none answers what a hook asks, what a rule wants several people or
/// another person for, or a command outside the sandbox.
pub(super) fn can_be_standing(question: &Question) -> bool {
    matches!(question, Question::Approval { tool: Some(_), standing: Some(_), redacted: false, .. })
}

/// What stands before the answer.
pub(super) fn label(question: &Question) -> &'static str {
    match question {
        Question::Approval { .. } | Question::Pause { .. } => "y, n, or why not › ",
        Question::Elicitation { .. } => "answer › ",
        _ => "JSON, or n › ",
    }
}

/// The answer that a line gives, or what is wrong with it.
pub(super) fn answer(question: &Question, line: &str) -> Result<Answer, &'static str> {
    let line = line.trim();
    let wants_json = !matches!(question, Question::Elicitation { schema: None, .. });
    match (question, line) {
        (Question::Approval { .. } | Question::Pause { .. }, "") => {
            Err("y approves, n refuses, any other text is the reason")
        }
        (_, "") => Err("an answer says something"),
        (Question::Approval { .. } | Question::Pause { .. }, line) if is_yes(line) => Ok(Answer::Approve),
        (Question::Elicitation { .. }, text) if !wants_json => Ok(Answer::Result(Value::String(text.to_owned()))),
        (_, line) if is_no(line) => Ok(Answer::Deny(None)),
        (Question::Approval { .. } | Question::Pause { .. }, reason) => Ok(Answer::Deny(Some(reason.into()))),
        (_, json) => serde_json::from_str(json)
            .map(Answer::Result)
            .map_err(|_| "that is not JSON: a text needs its quotes, \"blue\"; n refuses"),
    }
}

/// A plain yes, however it is written.
pub(crate) fn is_yes(line: &str) -> bool {
    ["y", "yes"].iter().any(|yes| line.eq_ignore_ascii_case(yes))
}

/// A plain no.
pub(super) fn is_no(line: &str) -> bool {
    ["n", "no"].iter().any(|no| line.eq_ignore_ascii_case(no))
}

/// What an approval is bound to.
pub(super) fn digest(question: &Question) -> Option<Text> {
    match question {
        Question::Approval { digest, .. } => Some(digest.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn approval(arguments: Value) -> Question {
        Question::Approval {
            tool: Some("write".into()),
            arguments: arguments.into(),
            digest: "d".into(),
            why: None,
            again: false,
            redacted: false,
            standing: None,
        }
    }

    #[test]
    fn only_a_plain_yes_approves() {
        let question = approval(json!({}));
        for yes in [" y ", "Y", "yes", "Yes", "YES", "yEs"] {
            assert_eq!(answer(&question, yes), Ok(Answer::Approve), "{yes}");
        }
        for no in ["n", "N", "no", "NO"] {
            assert_eq!(answer(&question, no), Ok(Answer::Deny(None)), "{no}");
        }
        assert_eq!(answer(&question, "yes but not there"), Ok(Answer::Deny(Some("yes but not there".into()))));
        assert!(answer(&question, "").is_err());
    }

    #[test]
    fn a_question_takes_words_and_one_with_a_schema_takes_json() {
        let question =
            |schema: Option<Value>| Question::Elicitation { question: "which?".into(), schema: schema.map(Into::into) };
        assert_eq!(answer(&question(None), "no"), Ok(Answer::Result(json!("no"))));
        assert_eq!(answer(&question(Some(json!({}))), "[1]"), Ok(Answer::Result(json!([1]))));
        assert!(answer(&question(Some(json!({}))), "blue").is_err());
    }

    const SCREEN: Room = Room::Rows { most: ROWS, width: WIDTH };

    #[test]
    fn what_is_not_shown_is_said() {
        let text = "x\n".repeat(100);
        assert!(field("content", &json!(text), SCREEN).ends_with("… 40 more lines, NOT shown"));
        assert_eq!(field("content", &json!(text), Room::All).matches('x').count(), 100);
        assert_eq!(field("path", &json!("a.txt\n"), SCREEN), "path: a.txt");
    }

    #[test]
    fn a_long_line_counts_as_the_rows_that_it_takes() {
        let long = format!("rm -rf / # {}", "é".repeat(10_000));
        let shown = field("command", &json!(long), SCREEN);
        assert!(shown.contains("rm -rf /") && shown.ends_with("more characters of this line, NOT shown"), "{shown}");
        assert_eq!(shown.matches('é').count(), ROWS * WIDTH - 11);
        assert_eq!(field("command", &json!(long), Room::All), format!("command: {long}"));
        let wide = Room::Rows { most: ROWS, width: 1000 };
        assert_eq!(field("command", &json!(long), wide), format!("command: {long}"));
        let after = field("content", &json!(format!("a\n{long}\nb\nc")), SCREEN);
        assert!(after.starts_with("content:\n  a\n  rm") && after.ends_with("… 2 more lines, NOT shown"), "{after}");
    }

    #[test]
    fn the_name_of_an_argument_forges_no_line() {
        let arguments = json!({ "command: ls\nwhy": "harmless", "": "x", "path": "a", "\u{1b}[2J": 1 });
        let shown = fields(&arguments, &|_| false, Room::All);
        assert!(shown.iter().all(|field| !field.contains(['\n', '\u{1b}'])), "{shown:?}");
        assert!(shown.contains(&"path: a".to_owned()), "{shown:?}");
        assert!(shown.contains(&"\"command: ls\u{fffd}why\": harmless".to_owned()), "{shown:?}");
    }
}
