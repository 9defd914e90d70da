//! What a program said: its exit code, or a JSON object on stdout. Strict, since an answer that is misread passes what it
//! meant to stop.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use turnbuckle::hook::{AfterModel, BeforeTool, OnStop};
use turnbuckle::message::{Content, Part, Reply};

use super::process::{Kept, Ran};
use super::{CommandError, CommandLine, CommandPoint};
use crate::json_text;

/// Exit 0 with its answer, or exit 2 with its reason.
#[derive(Debug, PartialEq)]
pub(super) enum Said<A> {
    /// No objection.
    Nothing,
    /// Exit 2.
    Block(String),
    /// A JSON object.
    Answer(A),
}

/// What is wrong with an answer.
type Why = String;

pub(super) fn said<A: DeserializeOwned>(
    ran: &Ran,
    line: &CommandLine,
    on: CommandPoint,
) -> Result<Said<A>, CommandError> {
    match ran.status.code() {
        Some(0) => read(&ran.stdout).map_err(|why| CommandError::Answer { command: line.to_string(), on, why }),
        Some(2) if on != CommandPoint::Ended => Ok(Said::Block(reason(&ran.stderr))),
        _ => Err(CommandError::Status {
            command: line.to_string(),
            status: ran.status,
            stderr: first_lines(&ran.stderr),
        }),
    }
}

fn read<A: DeserializeOwned>(stdout: &Kept) -> Result<Said<A>, Why> {
    let text = stdout.bytes.trim_ascii();
    if !text.starts_with(b"{") {
        return Ok(Said::Nothing);
    }
    if stdout.beyond > 0 {
        return Err(format!("it is longer than {} bytes", stdout.bytes.len()));
    }
    // As a value first: `{}` is no objection at every point.
    let object: Map<String, Value> = json_text::read(text).map_err(|error| error.to_string())?;
    if object.is_empty() {
        return Ok(Said::Nothing);
    }
    // From the text again, since a map has forgotten keys that were given twice.
    json_text::read(text).map(Said::Answer).map_err(|error| {
        let is_other =
            object.contains_key("hookSpecificOutput") || object.get("decision").is_some_and(|it| it == "block");
        if is_other { format!("{error}; {OTHER_VOCABULARY}") } else { error.to_string() }
    })
}

const OTHER_VOCABULARY: &str = "`hookSpecificOutput` and \"decision\": \"block\" are words of Claude-style hooks; a hook with \
                                `use = \"claude\"` runs those of .claude/settings.json";

/// All of stderr that was kept, for the model or a person.
fn reason(stderr: &Kept) -> String {
    let text = String::from_utf8_lossy(&stderr.bytes);
    match (text.trim(), stderr.beyond) {
        ("", _) => NO_REASON.to_owned(),
        (text, 0) => text.to_owned(),
        (text, beyond) => format!("{text}\n[… {beyond} more bytes]"),
    }
}

const NO_REASON: &str = "no reason was given";

/// At most five lines of 200 characters, for a failure's message.
fn first_lines(stderr: &Kept) -> String {
    let text = String::from_utf8_lossy(&stderr.bytes);
    let lines = text.trim().lines().take(5).map(|line| line.chars().take(200).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

/// At `before_agent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentAnswer {
    pub(super) context: Option<String>,
    pub(super) prompt: Option<String>,
}

/// At `before_tool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolAnswer {
    decision: Option<ToolDecision>,
    reason: Option<String>,
    input: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolDecision {
    Allow,
    Deny,
    Ask,
}

impl ToolAnswer {
    pub(super) fn decide(self) -> Result<BeforeTool, Why> {
        let reason = self.reason.map_or_else(|| NO_REASON.into(), Into::into);
        match (self.decision, self.input) {
            (Some(ToolDecision::Allow), None) => Ok(BeforeTool::Continue),
            (Some(ToolDecision::Allow) | None, Some(input)) => Ok(BeforeTool::Rewrite(Value::Object(input))),
            (Some(ToolDecision::Deny), None) => Ok(BeforeTool::Deny(reason)),
            (Some(ToolDecision::Ask), None) => Ok(BeforeTool::Ask(reason)),
            (Some(_), Some(_)) => Err("`input` goes with \"allow\" only".to_owned()),
            (None, None) => Err("`decision` is missing".to_owned()),
        }
    }
}

/// At `after_tool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultAnswer {
    pub(super) context: Option<String>,
}

/// At `after_model`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplyAnswer {
    decision: ReplyDecision,
    reason: Option<String>,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReplyDecision {
    Reject,
    Regenerate,
    Modify,
}

impl ReplyAnswer {
    pub(super) fn decide(self, reply: &Reply) -> Result<AfterModel, Why> {
        let reason = self.reason.map_or_else(|| NO_REASON.into(), Into::into);
        match (self.decision, self.text) {
            (ReplyDecision::Reject, None) => Ok(AfterModel::Reject(reason)),
            (ReplyDecision::Regenerate, None) => Ok(AfterModel::Regenerate(reason)),
            (ReplyDecision::Modify, Some(text)) => Ok(AfterModel::Modify(Box::new(with_text(reply, text)))),
            (ReplyDecision::Modify, None) => Err("\"modify\" needs `text`".to_owned()),
            (_, Some(_)) => Err("`text` goes with \"modify\" only".to_owned()),
        }
    }
}

/// The reply with this for its text; thoughts and calls stay, and an object that was read from the old text goes.
pub(crate) fn with_text(reply: &Reply, text: String) -> Reply {
    let parts = reply.content.parts();
    let at = parts.iter().position(|part| part.as_text().is_some()).unwrap_or(parts.len());
    let others = |parts: &[Part]| parts.iter().filter(|part| part.as_text().is_none()).cloned().collect::<Vec<_>>();
    let mut content = others(&parts[..at]);
    content.push(Part::text(text));
    content.extend(others(&parts[at..]));
    Reply { content: Content::from(content), object: None, ..reply.clone() }
}

/// At `stop`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopAnswer {
    decision: StopDecision,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopDecision {
    Refuse,
    Advise,
    Pause,
    Prevent,
}

impl StopAnswer {
    pub(super) fn decide(self) -> OnStop {
        let reason = self.reason.map_or_else(|| NO_REASON.into(), Into::into);
        match self.decision {
            StopDecision::Refuse => OnStop::Refuse(reason),
            StopDecision::Advise => OnStop::Advise(reason),
            StopDecision::Pause => OnStop::Pause(reason),
            StopDecision::Prevent => OnStop::Prevent(reason),
        }
    }
}

/// At `ended` there is nothing to decide.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoAnswer {}

#[cfg(test)]
mod tests;
