//! Redaction of what is stored: the log has another form of a call's arguments, and the tool gets the arguments themselves.
//!
//! [`redact`] is part of every write, so no event gets past it. What a call runs with is kept in the scratch until the call has
//! its result; [`decide`](super::decide) takes it from there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Value, json};

use super::active::ActiveTurn;
use crate::agent::Agent;
use crate::digest::CallDigest;
use crate::event::{Arguments, Cause, Event, EventKind, Executor, Question};
use crate::hook::{HookFailure, Point};
use crate::id::CallId;
use crate::message::Text;

/// Puts the redacted form in the place of arguments, and notes what the calls run with.
pub(super) fn redact(active: &mut ActiveTurn, events: &mut [Arc<Event>]) {
    if events.iter().any(|event| matches!(event.kind, EventKind::ToolCall { .. })) {
        forget_results(active);
    }
    for event in events {
        if !has_arguments(&event.kind) {
            continue;
        }
        // It was made for this write, and nobody else has it: nothing is copied.
        match &mut Arc::make_mut(event).kind {
            // The model's host has run it.
            EventKind::ToolCall { name, arguments, executor: Executor::Provider, .. } => {
                if let Some(stored) = stored_form(active, Some(name), &arguments.value()) {
                    *arguments = stored.into();
                }
            }
            EventKind::ToolCall { call, name, arguments, .. } => {
                put_logged(active, call, name, arguments);
            }
            EventKind::ToolStarted { call, arguments, digest, .. } => {
                let name = name_of(active, call);
                if put_logged(active, call, &name, arguments) {
                    // The digest is computed when it is needed, from the arguments: now, so that it does not keep them.
                    *digest = CallDigest::from(digest.text().clone());
                }
            }
            EventKind::Suspension { call, question, .. } => redact_question(active, call, question),
            EventKind::Resolution { call, evidence, .. } => {
                if let Some(arguments) = &mut evidence.arguments {
                    let name = name_of(active, call);
                    evidence.redacted = put(active, call, &name, arguments);
                }
            }
            _ => {}
        }
    }
}

fn has_arguments(kind: &EventKind) -> bool {
    match kind {
        EventKind::ToolCall { .. } | EventKind::ToolStarted { .. } | EventKind::Suspension { .. } => true,
        EventKind::Resolution { evidence, .. } => evidence.arguments.is_some(),
        _ => false,
    }
}

fn redact_question(active: &mut ActiveTurn, call: &CallId, question: &mut Question) {
    match question {
        Question::Approval { tool: Some(tool), arguments, standing, redacted, .. } => {
            let tool = tool.clone();
            // A rule about the redacted form would say something else than what runs.
            if put(active, call, &tool, arguments) {
                *standing = None;
                *redacted = true;
            }
        }
        Question::Approval { tool: None, arguments, redacted, .. } => {
            if let Some(stored) = stored_form(active, None, arguments) {
                *arguments = Arc::new(stored);
                *redacted = true;
            }
        }
        Question::Elicitation { question, schema } => {
            let tool = name_of(active, call);
            if let Some(Value::String(stored)) = stored_form(active, Some(&tool), &Value::String(question.to_string()))
            {
                *question = stored.into();
            }
            if let Some(stored) = schema.as_ref().and_then(|schema| stored_form(active, Some(&tool), schema)) {
                *schema = Some(Arc::new(stored));
            }
        }
        // A client reads what it runs with from here: a call that would need redaction is refused before.
        Question::ClientExec { .. } | Question::Pause { .. } => {}
    }
}

/// The tool of an open call.
fn name_of(active: &ActiveTurn, call: &CallId) -> Text {
    let open = active.state.turn.as_ref().and_then(|turn| turn.calls.get(call));
    open.map_or_else(|| "".into(), |open| open.call.name.clone())
}

/// Replaces arguments by their form in the log. True if that is another. What the call runs with is noted, unless the call
/// runs already: then the arguments are those of a question that the tool itself asks.
fn put(active: &mut ActiveTurn, call: &CallId, tool: &str, arguments: &mut Arc<Value>) -> bool {
    let open = active.state.turn.as_ref().and_then(|turn| turn.calls.get(call));
    let runs = open.is_some_and(|open| open.started);
    let stored = stored_form(active, Some(tool), arguments);
    let is_known = |active: &mut ActiveTurn| {
        let known = effective(active.scratch.effective.as_deref(), call).cloned();
        known.is_some_and(|known| stored_form(active, Some(tool), &known).as_ref() == Some(&**arguments))
    };
    match stored {
        Some(stored) => {
            let runs_with = std::mem::replace(arguments, Arc::new(stored));
            if !runs {
                let kept = active.scratch.edit().effective.get_or_insert_default();
                match kept.iter_mut().find(|(other, _)| other == call) {
                    Some((_, known)) => *known = runs_with,
                    None => kept.push((call.clone(), runs_with)),
                }
            }
            true
        }
        // A question that is asked again has the form of the log already.
        None if runs || is_known(active) => false,
        None => {
            forget(active, call);
            false
        }
    }
}

/// Like [`put`], for arguments in the log.
fn put_logged(active: &mut ActiveTurn, call: &CallId, tool: &str, arguments: &mut Arguments) -> bool {
    let mut value = arguments.value();
    let other = put(active, call, tool, &mut value);
    if other {
        *arguments = value.into();
    }
    other
}

/// Drops what calls ran with that have their result. Done when the model calls again, not with each result: the whole scratch is
/// stored when it changes, and a reply may have thousands of calls.
fn forget_results(active: &mut ActiveTurn) {
    let open = active.state.turn.as_ref().map(|turn| &turn.calls);
    let is_over = |(call, _): &(CallId, Arc<Value>)| open.is_none_or(|calls| !calls.contains(call));
    if active.scratch.effective.as_ref().is_some_and(|kept| kept.iter().all(is_over) && !kept.is_empty()) {
        active.scratch.edit().effective = Some(Vec::new());
    }
}

fn forget(active: &mut ActiveTurn, call: &CallId) {
    if effective(active.scratch.effective.as_deref(), call).is_some()
        && let Some(kept) = &mut active.scratch.edit().effective
    {
        kept.retain(|(other, _)| other != call);
    }
}

/// What the call runs with, if the log has another form of it.
pub(super) fn effective<'a>(kept: Option<&'a [(CallId, Arc<Value>)]>, call: &CallId) -> Option<&'a Arc<Value>> {
    kept?.iter().find(|(other, _)| other == call).map(|(_, arguments)| arguments)
}

/// Where edited arguments repeat what was shown in the place of something redacted, as a JSON pointer: whoever copied it from
/// there would have the call run with the placeholder.
pub(super) fn copied_placeholder(shown: &Value, effective: &Value, edited: &Value) -> Option<String> {
    match (shown, effective, edited) {
        (Value::Object(shown), Value::Object(effective), Value::Object(edited)) => {
            edited.iter().find_map(|(key, edited)| match (shown.get(key), effective.get(key)) {
                (Some(shown), Some(effective)) => {
                    copied_placeholder(shown, effective, edited).map(|below| format!("/{key}{below}"))
                }
                // A key that was redacted itself.
                (Some(_), None) => Some(format!("/{key}")),
                (None, _) => None,
            })
        }
        (Value::Array(shown), Value::Array(effective), Value::Array(edited)) => {
            let items = shown.iter().zip(effective).zip(edited).enumerate();
            items.into_iter().find_map(|(index, ((shown, effective), edited))| {
                copied_placeholder(shown, effective, edited).map(|below| format!("/{index}{below}"))
            })
        }
        _ => (shown != effective && edited == shown).then(String::new),
    }
}

/// The form that the log has, if it is another. A hook that fails is told as a warning of the turn.
fn stored_form(active: &mut ActiveTurn, tool: Option<&str>, arguments: &Value) -> Option<Value> {
    let agent = active.ctx().agent.clone();
    let (stored, failed) = form_of(&agent, tool, arguments);
    if let Some((hook, failure)) = failed {
        let text = format!("arguments are not in the log, because the hook that redacts them failed: {failure}");
        active.warn(Some(hook.clone()), text, Cause::HookFailed { hook, point: Point::BeforeTool });
    }
    stored
}

/// The form of arguments that hooks of this agent want in the log, if it is another, and the hook that failed. An agent that
/// only records an answer for another has none of its hooks: then there is only a note.
pub(super) fn form_of(
    agent: &Agent,
    tool: Option<&str>,
    arguments: &Value,
) -> (Option<Value>, Option<(Text, HookFailure)>) {
    if agent.is_stand_in() {
        return (Some(note("not stored: the hook that redacts it is not here")), None);
    }
    let mut stored: Option<Value> = None;
    let hooks = agent.hooks().iter().filter(|entry| entry.settings().redacts_arguments);
    for entry in hooks.filter(|entry| tool.is_none_or(|tool| entry.matches_tool(tool))) {
        let Some(hook) = entry.hook() else { continue };
        let now = stored.as_ref().unwrap_or(arguments);
        let done = catch_unwind(AssertUnwindSafe(|| hook.redact_arguments(now)));
        let failure = match done {
            Ok(Ok(None)) => continue,
            Ok(Ok(Some(form))) => {
                stored = Some(form);
                continue;
            }
            Ok(Err(error)) => HookFailure::from(error),
            Err(_) => HookFailure::Panicked("while it redacted arguments".into()),
        };
        return (Some(note("not stored: the hook that redacts it failed")), Some((entry.name.clone(), failure)));
    }
    (stored.filter(|stored| stored != arguments), None)
}

fn note(why: &str) -> Value {
    json!({ "redacted": why })
}
