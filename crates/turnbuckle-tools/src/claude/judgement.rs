//! What a model answered to the question of a `prompt` handler.

use serde_json::{Map, Value};

use super::answer::{Answer, Outcome, Reading, read_too_long, too_deep};
use super::event::ClaudeEvent;
use crate::json_text;

/// Reads what a model answered to a prompt: `{"ok": …, "reason": …}`.
pub(super) fn read_judgement(event: ClaudeEvent, text: &str, continue_on_block: bool) -> Reading {
    // Models like to put a fence around JSON.
    let inner = match (text.find('{'), text.rfind('}')) {
        (Some(start), Some(end)) if start < end => &text[start..=end],
        _ => text,
    };
    let judged: Result<Map<String, Value>, _> = json_text::read(inner.as_bytes());
    if let Some(why) = judged.as_ref().err().and_then(too_deep) {
        return match event {
            // A judgement does nothing there.
            ClaudeEvent::PermissionRequest => Reading::failed(Outcome::InvalidJson, why),
            _ => read_too_long(event, why),
        };
    }
    let ok = judged.as_ref().ok().and_then(|judged| judged.get("ok")).and_then(Value::as_bool);
    let (Ok(judged), Some(ok)) = (judged, ok) else {
        return Reading::failed(
            Outcome::InvalidJson,
            "the model did not answer with {\"ok\": true or false}".to_owned(),
        );
    };
    let reason = judged.get("reason").and_then(Value::as_str).map(str::to_owned);
    let is_impossible = judged.get("impossible").and_then(Value::as_bool) == Some(true);
    let mut answer = Answer::default();
    if !ok {
        let ends_turn = match event {
            ClaudeEvent::PreToolUse | ClaudeEvent::PostToolUse => !continue_on_block,
            ClaudeEvent::UserPromptSubmit | ClaudeEvent::PostToolBatch => true,
            _ => false,
        };
        match event {
            // Nobody is asked in the place of the person.
            ClaudeEvent::PermissionRequest => {}
            ClaudeEvent::Stop | ClaudeEvent::SubagentStop if is_impossible => answer.message = reason,
            _ if ends_turn => answer.stop = Some(reason),
            _ => answer.block = Some(reason),
        }
    }
    Reading::of(answer)
}
