//! What a turn asks of the person: shown in full, and a typed line as its answer.

use serde_json::Value;
use turnbuckle::event::Question;
use turnbuckle::message::Text;
use turnbuckle::projection::Pending;
use turnbuckle::store::Answer;
use turnbuckle::trace::in_order;

use crate::show::{Line, Tone, clean, name};

/// The most lines of one argument: what is longer says how much is missing.
const LINES: usize = 60;

/// Under arguments that are not those that run.
const REDACTED: &str =
    "redacted: parts of this are placeholders, and the call runs with what the model wrote in their place";

/// What is asked, for a person who decides about it.
pub(crate) fn shown(pending: &Pending) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |label, tone, text: &str| lines.push(Line { label, tone, text: clean(text) });
    let call = name(pending.call.as_str());
    match &pending.question {
        Question::Approval { tool: Some(tool), arguments, why, again, redacted, .. } => {
            let once_more = if *again { " once more" } else { "" };
            line("ask", Tone::Hook, &format!("may {} run{once_more}? (call {call})", name(tool)));
            fields(arguments).iter().for_each(|text| line("", Tone::Plain, text));
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
            fields(arguments).iter().for_each(|text| line("", Tone::Plain, text));
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
            fields(arguments).iter().for_each(|text| line("", Tone::Plain, text));
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
fn fields(arguments: &Value) -> Vec<String> {
    match arguments {
        Value::Object(fields) => in_order(fields).into_iter().map(|(key, value)| field(key, value)).collect(),
        other => vec![other.to_string()],
    }
}

fn field(key: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.trim_end_matches('\n').to_owned(),
        other => other.to_string(),
    };
    let lines: Vec<&str> = text.lines().collect();
    match lines.len() {
        0 | 1 => format!("{key}: {text}"),
        total => {
            let mut shown = format!("{key}:");
            lines.iter().take(LINES).for_each(|line| shown.push_str(&format!("\n  {line}")));
            if total > LINES {
                shown.push_str(&format!("\n  … {} more lines, NOT shown", total - LINES));
            }
            shown
        }
    }
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

    #[test]
    fn what_is_not_shown_is_said() {
        let text = "x\n".repeat(100);
        assert!(field("content", &json!(text)).ends_with("… 40 more lines, NOT shown"));
        assert_eq!(field("path", &json!("a.txt\n")), "path: a.txt");
    }
}
