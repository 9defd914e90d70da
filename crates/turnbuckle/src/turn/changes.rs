//! What hooks changed, for their records: called where a change is applied, so a hook that changes nothing costs nothing here.
//!
//! Whoever may read a conversation may read its records. So no record has what hooks take out of what is stored: each text passes
//! those that [hide](crate::hook::Settings::hides_changes) what they change, and what such a hook takes out leaves the records of the
//! hooks before it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::context::TurnContext;
use super::redaction;
use crate::change::{Edit, Edited, InjectedText, InjectionSpan, MAX_INJECTED, cut, differing, text_of};
use crate::hook::{HookEntry, Record};
use crate::id::CallId;
use crate::message::{Content, Message, Text, ToolCall};

/// What stands in the place of a text that could not be redacted.
const NOT_REDACTED: &str = "(not kept: the hook that redacts it failed)";
/// What stands in the place of what hooks added beyond the texts that a record has.
const TOO_MANY: &str = "(and more that is not kept: a record has 8 texts)";

/// An edit as it is applied.
pub(super) struct Applied {
    pub(super) of: Edited,
    pub(super) what: Option<Text>,
    /// `None` if nothing was there.
    pub(super) before: Option<Text>,
    pub(super) after: Text,
}

impl Applied {
    pub(super) fn new(of: Edited, before: impl Into<Option<Text>>, after: Text) -> Self {
        Self { of, what: None, before: before.into(), after }
    }
}

/// Notes in the last record of a hook what it put in the place of something else.
pub(super) fn note_edit(ctx: &TurnContext, entry: &HookEntry, records: &mut [Record], applied: Applied) {
    let Applied { of, what, before, after } = applied;
    let (mut before, after) = (before.map(|before| redacted(ctx, before)), redacted(ctx, after));
    let Some(place) = records.iter().rposition(|record| record.hook == entry.name) else { return };
    let mut hidden = false;
    if entry.settings.hides_changes {
        hidden = before.is_some();
        if before.take().is_some_and(|before| before != after) {
            // It took out what the redaction of texts does not find, and hooks before it may have had that in their hands.
            let call = records[place].call.clone();
            hide(&mut records[..place], of, call.as_ref());
        }
    }
    let (before, after) = match before {
        Some(before) => {
            let (before, after) = differing(before, after);
            (Some(before), after)
        }
        None => (None, after),
    };
    let before = before.map(|before| within_room(ctx, cut(before)));
    let after = Some(within_room(ctx, cut(after)));
    let change = records[place].change.get_or_insert_default();
    change.edit = Some(Edit { of, what, before, after, hidden });
}

/// Drops what was there before the last edit of a hook.
pub(super) fn hide_before(records: &mut [Record], entry: &HookEntry) {
    let record = records.iter_mut().rfind(|record| record.hook == entry.name);
    if let Some(edit) = record.and_then(|record| record.change.as_mut()?.edit.as_mut()) {
        (edit.before, edit.hidden) = (None, true);
    }
}

/// Drops the texts of what hooks made of something of which nothing may be kept.
pub(super) fn hide(records: &mut [Record], of: Edited, call: Option<&CallId>) {
    let own = records.iter_mut().filter(|record| record.call.as_ref() == call);
    let edits = own.filter_map(|record| record.change.as_mut()?.edit.as_mut());
    edits.filter(|edit| edit.of == of).for_each(Edit::hide);
}

/// Likewise where a hook failed: of one that hides what it takes out nobody knows what that would have been.
pub(super) fn hide_after_failure(entry: &HookEntry, records: &mut [Record], of: Edited, call: Option<&CallId>) {
    if entry.settings.hides_changes {
        hide(records, of, call);
    }
}

/// Drops all that hooks changed: the message that they saw is not kept.
pub(super) fn forget(records: &mut [Record]) {
    records.iter_mut().for_each(|record| record.change = None);
}

/// Notes in the last record of a hook what it added.
pub(crate) fn note_injected(
    ctx: &TurnContext,
    records: &mut [Record],
    hook: &Text,
    content: &Content,
    lasts: InjectionSpan,
) {
    let Some(record) = records.iter_mut().rfind(|record| record.hook == *hook) else { return };
    let injected = &mut record.change.get_or_insert_default().injected;
    let text = match injected.len() {
        len if len < MAX_INJECTED => within_room(ctx, cut(redacted(ctx, text_of(content)))),
        MAX_INJECTED => TOO_MANY.into(),
        _ => return,
    };
    injected.push(InjectedText { text, lasts, left_out: false });
}

/// Notes that there was no room for what a hook added.
pub(super) fn note_left_out(ctx: &TurnContext, record: &mut Record, content: &Content) {
    let Some(change) = &mut record.change else { return };
    let text = cut(redacted(ctx, text_of(content)));
    let mut shown = change.injected.iter_mut().filter(|injected| !injected.left_out);
    if let Some(found) = shown.find(|injected| injected.text == text) {
        found.left_out = true;
    }
}

/// Arguments of a call in the form that the log has.
pub(super) fn text_of_arguments(ctx: &TurnContext, tool: &str, arguments: &Value) -> Text {
    let stored = match ctx.agent.redacts_arguments() {
        true => redaction::form_of(&ctx.agent, Some(tool), arguments).0,
        false => None,
    };
    stored.as_ref().unwrap_or(arguments).to_string().into()
}

/// Calls with their arguments in that form.
pub(super) fn stored_calls(ctx: &TurnContext, calls: &[ToolCall]) -> Vec<ToolCall> {
    let mut calls = calls.to_vec();
    if ctx.agent.redacts_arguments() {
        for call in &mut calls {
            if let Some(stored) = redaction::form_of(&ctx.agent, Some(&call.name), &call.arguments).0 {
                call.arguments = stored.into();
            }
        }
    }
    calls
}

/// What became of the messages of a call: `None` if nothing.
pub(super) fn edited_context(before: &[Message], after: &[Message]) -> Option<Applied> {
    let front = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let (old, new) = (&before[front..], &after[front..]);
    let back = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);
    if old.is_empty() && new.is_empty() {
        return None;
    }
    let what = match (old.len(), new.len()) {
        (0, added) => format!("{added} added to {} messages", before.len()),
        (gone, 0) => format!("{gone} of {} messages taken out", before.len()),
        (gone, new) => format!("{new} in the place of {gone} of {} messages", before.len()),
    };
    let text = |messages: &[Message]| -> Text { messages.iter().map(line_of).collect::<Vec<_>>().join("\n").into() };
    let before = (!old.is_empty()).then(|| text(old));
    Some(Applied { of: Edited::Context, what: Some(what.into()), before, after: text(new) })
}

/// A message as text, with who says it.
fn line_of(message: &Message) -> String {
    let text = text_of(message.content());
    match message {
        Message::User(_) => format!("user: {text}"),
        Message::Note(_) => format!("note: {text}"),
        Message::Assistant { calls, .. } => {
            let calls: String = calls.iter().map(|call| format!(" [call {}({})]", call.name, call.arguments)).collect();
            format!("assistant: {text}{calls}")
        }
        Message::Result { name, .. } => format!("result of {name}: {text}"),
    }
}

/// The text without what must not be stored. Before it is cut: what is cut in two is not found.
fn redacted(ctx: &TurnContext, mut text: Text) -> Text {
    for entry in ctx.agent.hooks().iter().filter(|entry| entry.settings.hides_changes) {
        let Some(hook) = entry.hook() else { continue };
        match catch_unwind(AssertUnwindSafe(|| hook.redact_text(&text))) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(form))) => text = form.into(),
            Ok(Err(_)) | Err(_) => return NOT_REDACTED.into(),
        }
    }
    match ctx.services.redact_records.as_ref().and_then(|redact| redact(&text)) {
        Some(form) => form.into(),
        None => text,
    }
}

/// The text if records of this turn have room for it.
fn within_room(ctx: &TurnContext, text: Text) -> Text {
    match ctx.takes_change(text.len()) {
        true => text,
        false => format!("({} bytes that are not kept: records of a turn have 256 KiB of changes)", text.len()).into(),
    }
}
