//! What a handler said on stdout, and what its exit code makes of it.

use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::event::ClaudeEvent;
use crate::command::process::{Kept, Ran};

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
    /// What was said and is not used.
    pub(super) warnings: Vec<String>,
}

/// What came of a handler's run: how it ended, what it said, and what went wrong if it failed.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) outcome: Outcome,
    pub(super) answer: Answer,
    pub(super) failure: Option<String>,
}

/// The answer is not of the shape that it must have.
type Misshapen = String;

/// Reads what a program left.
pub(super) fn read(event: ClaudeEvent, dialect: &Dialect, ran: &Ran) -> Reading {
    let stdout = String::from_utf8_lossy(&ran.stdout.bytes);
    let (code, stderr) = (ran.status.code(), text_of(&ran.stderr));
    let object = match dialect.json_on_every_exit || code == Some(0) {
        true => object(&stdout, ran.stdout.beyond, dialect),
        false => Ok(None),
    };
    let blocks = code == Some(2) && (event != ClaudeEvent::PermissionRequest || dialect.permission_request_exit_2);
    let reason = (!stderr.is_empty()).then(|| stderr.clone());
    let parsed = object.and_then(|object| object.map(|object| answer(event, &object)).transpose());
    if blocks && event.can_block() {
        let mut answer = parsed.unwrap_or_default().unwrap_or_default();
        let suspect = stdout.trim().is_empty() && looks_like_a_failed_interpreter(&stderr);
        // The answer's own reason is the finer one; a permission other than a denial cannot undo the block.
        answer.block = Some(answer.block.flatten().or(answer.permission.take().and_then(denial)).or(reason));
        let outcome = if suspect { Outcome::BlockedSuspect } else { Outcome::Blocked };
        return Reading { outcome, answer, failure: None };
    }
    let failed = |outcome, why: String| Reading { outcome, answer: Answer::default(), failure: Some(why) };
    match (code, parsed) {
        (None, _) => failed(Outcome::Signalled, format!("it was ended by a signal ({})", ran.status)),
        (Some(_), Ok(Some(answer))) => {
            let denied = answer.permission.as_ref().is_some_and(|(permission, _)| *permission == Permission::Deny);
            let outcome = if answer.block.is_some() || denied { Outcome::Blocked } else { Outcome::Ok };
            Reading { outcome, answer, failure: None }
        }
        (Some(_), Err(why)) => failed(Outcome::InvalidJson, why),
        (Some(0), Ok(None)) => {
            let text = stdout.trim();
            let context = (event.takes_text() && !text.is_empty()).then(|| with_rest(text, ran.stdout.beyond));
            Reading { outcome: Outcome::Ok, answer: Answer { context, ..Answer::default() }, failure: None }
        }
        (Some(code), Ok(None)) => {
            let first = stderr.lines().next().unwrap_or_default();
            failed(Outcome::NonblockingError, format!("exit code {code}: {first}"))
        }
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
fn object(stdout: &str, beyond: usize, dialect: &Dialect) -> Result<Option<Map<String, Value>>, Misshapen> {
    let text = stdout.trim();
    if !text.starts_with('{') || (beyond == 0 && dialect.object_ends_with_brace && !text.ends_with('}')) {
        return Ok(None);
    }
    if beyond > 0 {
        return Err(format!("its answer is longer than {} bytes", stdout.len()));
    }
    serde_json::from_str(text).map(Some).map_err(|error| format!("its answer is not JSON: {error}"))
}

fn answer(event: ClaudeEvent, object: &Map<String, Value>) -> Result<Answer, Misshapen> {
    let mut answer = Answer::default();
    let (reason, decision) = (string(object, "reason")?, string(object, "decision")?);
    if let Some(goes_on) = object.get("continue") {
        let goes_on = goes_on.as_bool().ok_or("`continue` is not true or false")?;
        answer.stop = (!goes_on).then(|| string(object, "stopReason")).transpose()?;
    }
    answer.message = string(object, "systemMessage")?;
    match (decision.as_deref(), event) {
        (None, _) => {}
        (Some("block"), ClaudeEvent::PreToolUse) => answer.permission = Some((Permission::Deny, reason)),
        (Some("approve"), ClaudeEvent::PreToolUse) => answer.permission = Some((Permission::Allow, reason)),
        (Some("block"), _) => answer.block = Some(reason),
        (Some("approve"), _) => {}
        (Some(other), _) => return Err(format!("`decision` is {other:?}, and can be \"block\" or \"approve\"")),
    }
    let Some(specific) = object.get("hookSpecificOutput") else { return Ok(answer) };
    let specific = specific.as_object().ok_or("`hookSpecificOutput` is not an object")?;
    match specific.get("hookEventName").and_then(Value::as_str) {
        Some(name) if name == event.name() => specifics(event, specific, &mut answer)?,
        Some(name) => {
            let what = format!("its `hookSpecificOutput` is for {name}, not for {}, and is not used", event.name());
            answer.warnings.push(what);
        }
        None => answer.warnings.push("its `hookSpecificOutput` has no `hookEventName`, and is not used".to_owned()),
    }
    Ok(answer)
}

fn specifics(event: ClaudeEvent, specific: &Map<String, Value>, answer: &mut Answer) -> Result<(), Misshapen> {
    answer.context = string(specific, "additionalContext")?.filter(|text| !text.trim().is_empty());
    match event {
        ClaudeEvent::PreToolUse => {
            if let Some(name) = string(specific, "permissionDecision")? {
                let permission = Permission::named(&name).ok_or(format!("`permissionDecision` is {name:?}"))?;
                answer.permission = Some((permission, string(specific, "permissionDecisionReason")?));
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

/// Interpreters exit 2 for a script that is not there, and shells for a syntax error.
fn looks_like_a_failed_interpreter(stderr: &str) -> bool {
    const SIGNS: &[&str] =
        &["can't open file", "No such file or directory", "Syntax error", "syntax error", "cannot open", "not found"];
    let last = stderr.lines().last().unwrap_or_default();
    stderr.lines().count() <= 3 && SIGNS.iter().any(|sign| last.contains(sign))
}
