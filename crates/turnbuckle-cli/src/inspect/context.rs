//! `show --context`: what a model was sent: as the audit recorded it, or rebuilt from what is stored.
//!
//! `TURN[.N]` is the N-th call of a turn, `TURN.N.ATTEMPT` an attempt at it that failed or whose reply was discarded, and
//! `summary.N` the N-th recorded request for a summary.

use serde_json::{Value, json};
use turnbuckle::ConversationId;
use turnbuckle::audit::message_json;
use turnbuckle::store::AuditedCall;

use super::why::data::{Call, Conversation, REDACTED, Wanted, fate};
use super::why::json::injected;
use super::{print_all, unprintable};
use crate::Stopped;
use crate::args::Common;
use crate::exit::Exit;
use crate::output;
use crate::problem::Problem;
use crate::show::json_lines;
use crate::without_agent::WithoutAgent;

/// What stands in the place of a turn for requests that summaries were made with.
const SUMMARY: &str = "summary";

/// Prints one request.
pub(super) async fn show(
    desk: &WithoutAgent,
    id: &ConversationId,
    wanted: &str,
    common: &Common,
) -> Result<Exit, Stopped> {
    let parts: Vec<&str> = wanted.split('.').collect();
    let number = parts.get(1).map_or(Some(1), |number| number.parse().ok());
    let call = parts.first().copied().zip(number);
    let conversation = Conversation::read(desk, id, Wanted { call, ..Wanted::default() }).await?;
    let Some((body, told)) = find(&conversation, wanted) else {
        let hint = format!("`turnbuckle why {id}{}` lists the calls of all turns", common.same_store());
        return Err(Stopped::failed(Problem::error(missing(&conversation, id, wanted)).hint(hint)));
    };
    output::report(&[told]);
    print_all(&json_lines(&body).map_err(unprintable)?)
}

/// The request that this names, and what a person should know of it.
fn find(conversation: &Conversation, wanted: &str) -> Option<(Value, Problem)> {
    let parts: Vec<&str> = wanted.split('.').collect();
    let number = |at: usize| parts.get(at).map_or(Some(1), |number| number.parse::<usize>().ok());
    match parts[..] {
        [SUMMARY, _] => {
            let call = conversation.summary_calls.get(number(1)?.checked_sub(1)?)?;
            let what = fate(call).unwrap_or_else(|| "a summary was made with it".to_owned());
            Some(recorded(conversation, call, &what))
        }
        [turn, _] | [turn] => {
            let number = number(1)?;
            let is_it = |call: &&Call| call.sent.turn.as_str() == turn && call.sent.number == number;
            match conversation.calls.iter().find(is_it) {
                Some(call) => Some(answered(conversation, call)),
                // Nothing but attempts: the last one.
                None => attempt(conversation, turn, number, None),
            }
        }
        [turn, _, _] => {
            let (number, nth) = (number(1)?, number(2)?);
            let is_it = |call: &&Call| call.sent.turn.as_str() == turn && call.sent.number == number;
            let audited = conversation
                .calls
                .iter()
                .find(is_it)
                .filter(|call| call.audited.as_ref().is_some_and(|audited| audited.attempt as usize == nth));
            match audited {
                Some(call) => Some(answered(conversation, call)),
                None => attempt(conversation, turn, number, Some(nth)),
            }
        }
        _ => None,
    }
}

/// An attempt at a call, or the last one of it.
fn attempt(conversation: &Conversation, turn: &str, number: usize, nth: Option<usize>) -> Option<(Value, Problem)> {
    let found = conversation.attempts.iter().rfind(|attempt| {
        attempt.audited.turn.as_str() == turn
            && attempt.number == number
            && nth.is_none_or(|nth| attempt.audited.attempt as usize == nth)
    })?;
    Some(recorded(conversation, &found.audited, &format!("attempt {}: {}", found.audited.attempt, found.fate())))
}

/// Why there is nothing to print.
fn missing(conversation: &Conversation, id: &ConversationId, wanted: &str) -> String {
    let turn = wanted.split('.').next().unwrap_or_default();
    if turn == SUMMARY {
        let made = conversation.summary_calls.len();
        return format!(
            "the audit of conversation {id} has {made} requests for summaries, and {wanted} is none of them"
        );
    }
    let made = conversation.calls.iter().filter(|call| call.sent.turn.as_str() == turn).count();
    let attempts = conversation.attempts.iter().filter(|one| one.audited.turn.as_str() == turn).count();
    match (made, attempts) {
        (0, 0) => format!("conversation {id} has no model call in a turn {turn}"),
        (made, 0) => format!(
            "turn {turn} has {made} model calls with a reply, and {wanted} is none of them; of attempts that failed or were \
             discarded only an audit knows"
        ),
        (made, attempts) => format!(
            "turn {turn} has {made} model calls with a reply and {attempts} other attempts, and {wanted} is none of them"
        ),
    }
}

/// What a call with a reply was sent.
fn answered(conversation: &Conversation, call: &Call) -> (Value, Problem) {
    if let Some(audited) = &call.audited {
        return recorded(conversation, audited, "");
    }
    let messages: Vec<_> =
        conversation.messages.iter().flat_map(|messages| messages.iter()).map(message_json).collect();
    let mut body = json!({ "model": call.sent.model, "messages": messages });
    let mut told = "rebuilt from the log".to_owned();
    if !call.injected.is_empty() {
        body["injected"] = injected(call);
        told += "; what hooks added for one turn or one call is not among the messages: `injected` has what is stored of it";
    }
    (body, Problem::warning(format!("{told}; not known: {}", conversation.not_recorded())))
}

/// What the audit has of a request.
fn recorded(conversation: &Conversation, audited: &AuditedCall, what: &str) -> (Value, Problem) {
    let request = audited.request(&conversation.contents);
    let redacted = request.body.to_string().matches(REDACTED).count();
    let fields = match audited.fields {
        Some(_) => "messages in Turnbuckle's form, and in `fields` the rest of the body that the model's client made",
        None => "but without options of the model, which were not recorded if it had any",
    };
    let mut told = format!("recorded by the audit at {}, as it was sent: {fields}", audited.at);
    if audited.tools_withheld {
        told += "; its tools were withheld: it could call none";
    }
    if !what.is_empty() {
        told += &format!("; {what}");
    }
    match redacted {
        0 => {}
        1 => told += "; one secret was redacted, and is marked [redacted: …]",
        more => told += &format!("; {more} secrets were redacted, and are marked [redacted: …]"),
    }
    if !request.is_complete {
        told += "; parts of it are missing: they were removed to keep the audit within its limits";
    }
    (request.body, Problem::warning(told))
}
