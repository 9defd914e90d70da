//! What a handler said on stdout, and what its exit code makes of it.

use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::event::ClaudeEvent;
use super::stderr::{looks_like_a_failed_interpreter, telling_line};
use crate::command::process::{Kept, Ran};
use crate::json_text;
use crate::worker::last_lines;

/// How the run of a handler came out; records have it under these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    Blocked,
    /// Exit 2 that looks like the failure of an interpreter: `python missing.py`.
    BlockedSuspect,
    NonblockingError,
    Timeout,
    SpawnFailed,
    InvalidJson,
    Signalled,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Blocked => "blocked",
            Self::BlockedSuspect => "blocked_suspect",
            Self::NonblockingError => "nonblocking_error",
            Self::Timeout => "timeout",
            Self::SpawnFailed => "spawn_failed",
            Self::InvalidJson => "invalid_json",
            Self::Signalled => "signalled",
        }
    }
}

/// What a permission decision says, the most restrictive last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Permission {
    Allow,
    Ask,
    Defer,
    Deny,
}

impl Permission {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "allow" => Self::Allow,
            "ask" => Self::Ask,
            "defer" => Self::Defer,
            "deny" => Self::Deny,
            _ => return None,
        })
    }
}

/// What a handler said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// `"continue": false`, with its reason.
    pub(super) stop: Option<Option<String>>,
    /// A block, by exit 2 or by the answer, with its reason.
    pub(super) block: Option<Option<String>>,
    pub(super) permission: Option<(Permission, Option<String>)>,
    pub(super) updated_input: Option<Map<String, Value>>,
    pub(super) updated_output: Option<Value>,
    /// `additionalContext`, or plain text where that is context.
    pub(super) context: Option<String>,
    /// For the user.
    pub(super) message: Option<String>,
    /// Lines of shell for the environment of later commands.
    pub(super) env: Option<String>,
    /// What was said and is not used.
    pub(super) warnings: Vec<String>,
    /// Why `hookSpecificOutput` is not used. It may have held a decision, so that is a failure of the handler.
    pub(super) misaddressed: Option<String>,
}

/// What came of a handler's run: how it ended, what it said, and what went wrong if it failed.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) outcome: Outcome,
    pub(super) answer: Answer,
    pub(super) failure: Option<String>,
    /// The end of what a program wrote to stderr, for people.
    pub(super) stderr: String,
}

/// The answer is not of the shape that it must have.
type Misshapen = String;

/// Why an answer is not read.
enum Unread {
    Misshapen(Misshapen),
    /// It is in braces, and no JSON.
    NoJson(String),
    /// Longer, or nested deeper, than what is read.
    TooLarge(String),
}

impl From<Misshapen> for Unread {
    fn from(why: Misshapen) -> Self {
        Self::Misshapen(why)
    }
}

impl Unread {
    /// An answer that is too large may be a denial that repeats what the model wrote, so it blocks where it could: otherwise a model
    /// would get past a gate by writing more, or by nesting it. One of the wrong shape is the handler's own failure.
    fn reading(self, event: ClaudeEvent) -> Reading {
        match self {
            Self::TooLarge(why) if event.can_block() => Reading {
                outcome: Outcome::Blocked,
                answer: Answer { block: Some(Some(format!("{why}, so it counts as a block"))), ..Answer::default() },
                failure: None,
                stderr: String::new(),
            },
            Self::TooLarge(why) | Self::NoJson(why) | Self::Misshapen(why) => {
                Reading::failed(Outcome::InvalidJson, why)
            }
        }
    }
}

/// Reads an answer of a service of which only the beginning was kept, or one that is nested too deeply.
pub(super) fn read_too_long(event: ClaudeEvent, why: String) -> Reading {
    Unread::TooLarge(why).reading(event)
}

/// Reads what a program left.
pub(super) fn read(event: ClaudeEvent, dialect: &Dialect, ran: &Ran) -> Reading {
    Reading { stderr: last_lines(&ran.stderr.bytes), ..judged(event, dialect, ran) }
}

fn judged(event: ClaudeEvent, dialect: &Dialect, ran: &Ran) -> Reading {
    let stdout = String::from_utf8_lossy(&ran.stdout.bytes);
    let (code, stderr) = (ran.status.code(), text_of(&ran.stderr));
    let object = match dialect.json_on_every_exit || code == Some(0) {
        true => object(&stdout, ran.stdout.beyond, dialect),
        false => Ok(None),
    };
    let blocks = code == Some(2) && (event != ClaudeEvent::PermissionRequest || dialect.permission_request_exit_2);
    let reason = (!stderr.is_empty()).then(|| stderr.clone());
    let parsed = object.and_then(|object| Ok(object.map(|object| answer(event, &object)).transpose()?));
    if blocks && event.can_block() {
        let mut answer = parsed.unwrap_or_default().unwrap_or_default();
        let suspect = stdout.trim().is_empty() && looks_like_a_failed_interpreter(&stderr);
        // The answer's own reason is the finer one; a permission other than a denial cannot undo the block.
        answer.block = Some(answer.block.flatten().or(answer.permission.take().and_then(denial)).or(reason));
        answer.warnings.extend(answer.misaddressed.take());
        let outcome = if suspect { Outcome::BlockedSuspect } else { Outcome::Blocked };
        return Reading { outcome, answer, failure: None, stderr: String::new() };
    }
    let failed = Reading::failed;
    match (code, parsed) {
        (None, _) => failed(Outcome::Signalled, format!("it was ended by a signal ({})", ran.status)),
        (Some(_), Ok(Some(answer))) => Reading::of(answer),
        // By the protocol what is no JSON is text. Where text is nothing it may as well have been a decision.
        (Some(0), Err(Unread::NoJson(_))) if event.takes_text() && !may_decide(&stdout) => {
            Reading::of_text(event, &stdout, ran.stdout.beyond)
        }
        (Some(_), Err(why)) => why.reading(event),
        (Some(0), Ok(None)) => Reading::of_text(event, &stdout, ran.stdout.beyond),
        (Some(code), Ok(None)) => {
            failed(Outcome::NonblockingError, format!("exit code {code}: {}", telling_line(&stderr)))
        }
    }
}

/// Plain text is context at some events, and says nothing at the others.
fn plain_text(event: ClaudeEvent, text: &str) -> Answer {
    let context = (event.takes_text() && !text.trim().is_empty()).then(|| text.to_owned());
    Answer { context, ..Answer::default() }
}

/// Reads the text that a tool of a server answered with: like stdout.
pub(super) fn read_result(event: ClaudeEvent, dialect: &Dialect, text: &str) -> Reading {
    match object(text, 0, dialect).and_then(|object| Ok(object.map(|object| answer(event, &object)).transpose()?)) {
        Ok(Some(answer)) => Reading::of(answer),
        Ok(None) => Reading::of_text(event, text, 0),
        Err(why) => why.reading(event),
    }
}

/// Reads what a service answered to a post. It cannot block by its status.
pub(super) fn read_posted(event: ClaudeEvent, dialect: &Dialect, status: u16, body: &[u8]) -> Reading {
    if !(200..300).contains(&status) {
        return Reading::failed(Outcome::NonblockingError, format!("status {status}"));
    }
    let text = String::from_utf8_lossy(body);
    if text.trim().is_empty() {
        return Reading::of(Answer::default());
    }
    match object(&text, 0, dialect).and_then(|object| Ok(object.map(|object| answer(event, &object)).transpose()?)) {
        Ok(Some(answer)) => Reading::of(answer),
        Ok(None) => Reading::failed(Outcome::NonblockingError, "its answer is no JSON object".to_owned()),
        Err(why) => why.reading(event),
    }
}

impl Reading {
    /// An answer that was read.
    pub(super) fn of(mut answer: Answer) -> Self {
        let denied = answer.permission.as_ref().is_some_and(|(permission, _)| *permission == Permission::Deny);
        // A handler that ends the turn has stopped what the event is about as well.
        let blocked = answer.block.is_some() || denied || answer.stop.is_some();
        let mut failure = answer.misaddressed.take();
        if blocked {
            answer.warnings.extend(failure.take());
        }
        let outcome = match (blocked, &failure) {
            (true, _) => Outcome::Blocked,
            (false, Some(_)) => Outcome::InvalidJson,
            (false, None) => Outcome::Ok,
        };
        Self { outcome, answer, failure, stderr: String::new() }
    }

    /// Plain text. If an answer with a decision stands in it, the handler meant that, and the protocol does not read it: that is a
    /// failure of the handler, so that a gate is not gone in silence.
    fn of_text(event: ClaudeEvent, stdout: &str, beyond: usize) -> Self {
        let reading = Self::of(plain_text(event, &with_rest(stdout.trim(), beyond)));
        match holds_decision(stdout) {
            false => reading,
            true => {
                let why = "its answer is not read, because there is text before or behind the JSON on stdout";
                Self { outcome: Outcome::InvalidJson, failure: Some(why.to_owned()), ..reading }
            }
        }
    }

    pub(super) fn failed(outcome: Outcome, why: String) -> Self {
        Self { outcome, answer: Answer::default(), failure: Some(why), stderr: String::new() }
    }
}

fn denial((permission, reason): (Permission, Option<String>)) -> Option<String> {
    reason.filter(|_| permission == Permission::Deny)
}

fn with_rest(text: &str, beyond: usize) -> String {
    if beyond == 0 { text.to_owned() } else { format!("{text}\n[… {beyond} more bytes]") }
}

fn text_of(kept: &Kept) -> String {
    with_rest(String::from_utf8_lossy(&kept.bytes).trim(), kept.beyond)
}

/// The object on stdout, if there is one: text before it makes all of it plain text.
fn object(stdout: &str, beyond: usize, dialect: &Dialect) -> Result<Option<Map<String, Value>>, Unread> {
    let text = stdout.trim_start_matches('\u{feff}').trim();
    if text.is_empty() && beyond > 0 {
        return Err(Unread::TooLarge(format!(
            "its answer begins behind {} blank bytes, and is not read",
            stdout.len()
        )));
    }
    if !text.starts_with('{') || (beyond == 0 && dialect.object_ends_with_brace && !text.ends_with('}')) {
        return Ok(None);
    }
    if beyond > 0 {
        return Err(Unread::TooLarge(format!("its answer is longer than {} bytes, and is not read", stdout.len())));
    }
    json_text::read(text.as_bytes()).map(Some).map_err(|error| match too_deep(&error) {
        Some(why) => Unread::TooLarge(why),
        None => Unread::NoJson(format!("its answer is not JSON: {error}")),
    })
}

/// Why an answer is not read whose values are nested deeper than the parser goes.
pub(super) fn too_deep(error: &serde_json::Error) -> Option<String> {
    error.to_string().starts_with(TOO_DEEP).then(|| "its answer is nested too deeply, and is not read".to_owned())
}

/// How the parser says that values are nested deeper than it goes; it has no other word for it.
const TOO_DEEP: &str = "recursion limit exceeded";

/// Whether a text in braces that is no JSON was perhaps meant to decide something.
fn may_decide(text: &str) -> bool {
    ["decision", "Decision", "continue", "hookSpecificOutput"].iter().any(|key| text.contains(key))
}

/// Whether an object that decides something stands among other text.
fn holds_decision(text: &str) -> bool {
    // At the beginning of a line or behind other words; a text with more braces than this is no answer.
    const MOST: usize = 64;
    let decides = |object: &Map<String, Value>| {
        let is_decision = |value: &Value| matches!(value.as_str(), Some("block" | "approve"));
        object.get("hookSpecificOutput").is_some_and(Value::is_object)
            || object.get("decision").is_some_and(is_decision)
            || object.get("continue") == Some(&Value::Bool(false))
    };
    let mut rest = text;
    for _ in 0..MOST {
        let Some(at) = rest.find('{') else { return false };
        let mut objects = serde_json::Deserializer::from_str(&rest[at..]).into_iter::<Map<String, Value>>();
        match objects.next() {
            Some(Ok(object)) if decides(&object) => return true,
            // What stands inside of an object is no answer.
            Some(Ok(_)) => rest = &rest[at + objects.byte_offset()..],
            _ => rest = &rest[at + 1..],
        }
    }
    false
}

/// Fields of an answer that the protocol has, and that do nothing here.
const UNUSED: &[(&str, &str)] = &[
    ("terminalSequence", "hooks do not write to the terminal; `systemMessage` tells the user something"),
    ("async", "`\"async\": true` belongs on the handler in the settings"),
    ("additionalContext", "it belongs into `hookSpecificOutput`"),
];

/// The same inside `hookSpecificOutput`.
const UNUSED_SPECIFICS: &[(&str, &str)] = &[
    ("sessionTitle", "conversations have no titles here"),
    ("suppressOriginalPrompt", "a message is shown as it was sent"),
    ("initialUserMessage", "only a person sends messages"),
    ("watchPaths", "files are not watched"),
    ("reloadSkills", "there are no skills"),
    ("classifierContext", "there is no classifier"),
];

/// Whether something counts at an event.
type CountsAt = fn(ClaudeEvent) -> bool;

/// What the protocol has inside `hookSpecificOutput`, and at which events it counts.
const ELSEWHERE: &[(&str, CountsAt)] = &[
    ("additionalContext", ClaudeEvent::takes_context),
    ("permissionDecision", |event| event == ClaudeEvent::PreToolUse),
    ("updatedInput", |event| event == ClaudeEvent::PreToolUse),
    ("decision", |event| event == ClaudeEvent::PermissionRequest),
    ("updatedToolOutput", |event| event == ClaudeEvent::PostToolUse),
    ("updatedMCPToolOutput", |event| event == ClaudeEvent::PostToolUse),
];

fn answer(event: ClaudeEvent, object: &Map<String, Value>) -> Result<Answer, Misshapen> {
    let mut answer = Answer::default();
    let (reason, decision) = (string(object, "reason")?, string(object, "decision")?);
    let goes_on = match object.get("continue") {
        None | Some(Value::Null) => true,
        Some(goes_on) => goes_on.as_bool().ok_or("`continue` is not true or false")?,
    };
    let stop = (!goes_on).then(|| string(object, "stopReason")).transpose()?;
    if stop.is_some() && !event.can_end_turn() {
        answer.warnings.push(format!("its `continue` is not used: {} does not end a turn", event.name()));
    } else {
        answer.stop = stop;
    }
    answer.message = string(object, "systemMessage")?;
    for (key, why) in UNUSED {
        if object.get(*key).is_some_and(|value| !value.is_null()) {
            answer.warnings.push(format!("its `{key}` is not used: {why}"));
        }
    }
    match (decision.as_deref(), event) {
        (None, _) => {}
        (Some("block"), ClaudeEvent::PreToolUse) => answer.permission = Some((Permission::Deny, reason)),
        (Some("approve"), ClaudeEvent::PreToolUse) => answer.permission = Some((Permission::Allow, reason)),
        (Some("block"), event) if event.can_block() => answer.block = Some(reason),
        (Some("block"), event) => {
            answer.warnings.push(format!("its `decision` is not used: {} blocks nothing", event.name()));
        }
        (Some("approve"), _) => {}
        (Some(other), _) => return Err(format!("`decision` is {other:?}, and can be \"block\" or \"approve\"")),
    }
    let Some(specific) = map(object, "hookSpecificOutput")? else { return Ok(answer) };
    match specific.get("hookEventName").and_then(Value::as_str) {
        Some(name) if name == event.name() => specifics(event, &specific, &mut answer)?,
        Some(name) => {
            let what = format!("its `hookSpecificOutput` is for {name:?}, not for {}, and is not used", event.name());
            answer.misaddressed = Some(what);
        }
        None => {
            answer.misaddressed = Some("its `hookSpecificOutput` has no `hookEventName`, and is not used".to_owned());
        }
    }
    Ok(answer)
}

fn specifics(event: ClaudeEvent, specific: &Map<String, Value>, answer: &mut Answer) -> Result<(), Misshapen> {
    if event.takes_context() {
        answer.context = string(specific, "additionalContext")?.filter(|text| !text.trim().is_empty());
    }
    for (key, is_at) in ELSEWHERE {
        if specific.get(*key).is_some_and(|value| !value.is_null()) && !is_at(event) {
            answer.warnings.push(format!("its `{key}` is not used: it means nothing at {}", event.name()));
        }
    }
    for (key, why) in UNUSED_SPECIFICS {
        if specific.get(*key).is_some_and(|value| !value.is_null() && *value != false) {
            answer.warnings.push(format!("its `{key}` is not used: {why}"));
        }
    }
    match event {
        ClaudeEvent::PreToolUse => {
            if let Some(name) = string(specific, "permissionDecision")? {
                let permission = Permission::named(&name).ok_or(format!("`permissionDecision` is {name:?}"))?;
                let reason = string(specific, "permissionDecisionReason")?;
                // The old `decision` may stand beside it. The stricter of the two holds, as between handlers.
                match &answer.permission {
                    Some((old, _)) if *old > permission => {}
                    _ => answer.permission = Some((permission, reason)),
                }
            }
            answer.updated_input = map(specific, "updatedInput")?;
        }
        ClaudeEvent::PermissionRequest => {
            let Some(decision) = map(specific, "decision")? else { return Ok(()) };
            let message = string(&decision, "message")?;
            match string(&decision, "behavior")?.as_deref() {
                Some("allow") => answer.permission = Some((Permission::Allow, message)),
                Some("deny") => answer.permission = Some((Permission::Deny, message.clone())),
                other => return Err(format!("`behavior` is {other:?}, and can be \"allow\" or \"deny\"")),
            }
            if decision.get("interrupt").and_then(Value::as_bool) == Some(true) {
                answer.stop = Some(string(&decision, "message")?);
            }
            answer.updated_input = map(&decision, "updatedInput")?;
            if decision.contains_key("updatedPermissions") {
                answer
                    .warnings
                    .push("its `updatedPermissions` are not used: a hook grants nothing for later".to_owned());
            }
        }
        ClaudeEvent::PostToolUse => {
            let old = specific.get("updatedMCPToolOutput");
            answer.updated_output = specific.get("updatedToolOutput").or(old).cloned();
        }
        _ => {}
    }
    Ok(())
}

fn string(object: &Map<String, Value>, key: &str) -> Result<Option<String>, Misshapen> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` is not a text")),
    }
}

fn map(object: &Map<String, Value>, key: &str) -> Result<Option<Map<String, Value>>, Misshapen> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields.clone())),
        Some(_) => Err(format!("`{key}` is not an object")),
    }
}

#[cfg(test)]
mod tests;
