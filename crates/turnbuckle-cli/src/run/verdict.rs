//! How a turn came out, to the shell and to the person.

use turnbuckle::conversation::TurnError;
use turnbuckle::event::{Cause, ModelErrorKind};
use turnbuckle::hook::Point;
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::store::StoreError;
use turnbuckle::{Outcome, TurnReport, TurnStatus};

use super::hints::{HowShown, ResolveHints, problem_room};
use crate::exit::Exit;
use crate::model_trouble;
use crate::problem::{Problem, with_causes};
use crate::show::{self, asked_text};

/// The exit code, and what to say on stderr.
pub(super) fn of(rest: &Result<TurnStatus, TurnError>, hints: &ResolveHints) -> (Exit, Vec<Problem>) {
    match rest {
        Ok(TurnStatus::Ended(ended)) => (ended.outcome.into(), ended_badly(ended).into_iter().collect()),
        Ok(TurnStatus::Waiting(pending)) => {
            let what = format!("the turn waits for {}", shown(pending));
            let what = asked_text(&what, problem_room()) + &in_full(pending);
            (Exit::Waiting, vec![Problem::waiting(what).hint(hints.hint(pending))])
        }
        Err(error) => (Exit::Failed, vec![stopped(error, hints)]),
    }
}

/// How a turn came out, for someone who may not read the conversation.
pub(super) fn unseen(rest: &Result<TurnStatus, TurnError>) -> String {
    match rest {
        Ok(TurnStatus::Ended(ended)) => format!("the turn is over: {}", ended.outcome),
        Ok(TurnStatus::Waiting(_)) => "the turn waits; `turnbuckle pending` shows what of it is for you".to_owned(),
        Err(error) => format!("error: {}", with_causes(error)),
    }
}

/// The turn could not be carried on; what was written stands.
fn stopped(error: &TurnError, hints: &ResolveHints) -> Problem {
    let problem = Problem::error(with_causes(error));
    let (id, options) = (&hints.id, &hints.options);
    match error {
        TurnError::Store(StoreError::Fenced { .. } | StoreError::WrongSeq { .. }) => problem.hint(format!(
            "another process took the conversation over while this one did not answer, and nothing more was written \
                 or run here; `turnbuckle show {id}{options}` says what became of the turn"
        )),
        TurnError::Left(left) => problem.hint(hints.after_left(left)),
        _ if hints.durable => problem.hint(format!("what was written stands; {} finishes the turn", hints.finish())),
        _ => problem,
    }
}

/// The turn was cancelled because nobody reads what it says.
pub(super) fn unread(hints: &ResolveHints) -> Problem {
    let problem = Problem::error("stdout was closed, so the turn was cancelled");
    match hints.durable {
        true => problem.hint(format!("`turnbuckle show {} --json{}` has what there is of it", hints.id, hints.options)),
        false => problem.hint("read all of it, or write it into a file"),
    }
}

/// The turn already waited when the program started.
pub(super) fn busy(pending: &[Pending], hints: &ResolveHints) -> Problem {
    let what = format!("conversation {} is busy: its turn waits for {}", hints.id, shown(pending));
    Problem::error(asked_text(&what, problem_room()) + &in_full(pending)).hint(hints.hint(pending))
}

fn shown(pending: &[Pending]) -> String {
    let calls: Vec<String> = pending.iter().map(show::pending).collect();
    calls.join(" and for ")
}

/// Calls that the summary does not show whole: nobody is handed a command that approves what they have not seen.
fn in_full(pending: &[Pending]) -> String {
    let mut text = String::new();
    for pending in pending {
        if let HowShown::InFull(lines) = HowShown::of(pending) {
            text.push_str(&format!("\n{lines}"));
        }
    }
    text
}

fn ended_badly(ended: &TurnReport) -> Option<Problem> {
    let reason = ended.reason.as_deref().unwrap_or("no reason given");
    let by = match &ended.by {
        Some(Author::Hook(hook)) => format!(" by hook {hook}"),
        _ => String::new(),
    };
    let cause = ended.cause.as_ref();
    let (what, hint) = match ended.outcome {
        Outcome::Completed => return None,
        Outcome::Cancelled => return Some(Problem::error("the turn was cancelled")),
        Outcome::Halted => (format!("the turn was halted{by}: {reason}"), after_halt(cause).to_owned()),
        Outcome::Rejected => (format!("no reply was let through{by}: {reason}"), after_rejection(cause).to_owned()),
        Outcome::Exhausted => {
            (format!("the turn reached its limit: {reason}"), "the limits of a turn stand in [limits]".to_owned())
        }
        Outcome::Failed => (format!("the turn failed: {reason}"), after_failure(cause, reason)),
    };
    Some(Problem::error(what).hint(hint))
}

fn after_halt(cause: Option<&Cause>) -> &'static str {
    match cause {
        Some(Cause::Expired) => "answer in time, or raise `approval_timeout` in [limits]",
        _ => "change the message, or the hook",
    }
}

/// What helps depends on who rejected: a shape that does not fit is asked for once more, whatever the limits say.
fn after_rejection(cause: Option<&Cause>) -> &'static str {
    match cause {
        Some(Cause::SchemaMismatch) => {
            "the model was asked twice: say in the message what is wanted, simplify the schema, or choose another model"
        }
        Some(Cause::Regenerations { .. }) => "change the message or the hook, or raise `max_regenerations` in [limits]",
        Some(Cause::NotApproved) => "change the message: a person did not approve the reply",
        _ => "change the message, or the hook",
    }
}

fn after_failure(cause: Option<&Cause>, reason: &str) -> String {
    let hint = match cause {
        Some(Cause::HookFailed { point: Point::Stream, .. }) => {
            "on the stream a hook's failure always blocks; `redact` blocks only with `strategy = \"block\"`: another one \
             lets the rest of the text pass"
        }
        Some(Cause::HookMustBlock { .. }) => {
            "`turnbuckle trust` shows what changed, and asks; no `on_failure` lets a turn go on without it"
        }
        Some(Cause::HookMismatched { .. }) => {
            "a worker must have hooks at exactly the points of its `on`, and say so when it begins; \
             `turnbuckle hooks conform -- CMD` checks that. No `on_failure` lets a turn go on without it"
        }
        Some(Cause::HookFailed { .. }) => "repair the hook; `on_failure = \"ignore\"` lets a turn go on without it",
        Some(Cause::InjectionOverflow { .. }) => {
            "let the hook add less, give it `max_tokens` and what finds no room is left out, or raise `injection_reserve` \
             in [limits]"
        }
        Some(Cause::ContextTooLarge { .. }) => {
            "send less, or raise `context_tokens` in [limits]; `turnbuckle check` says if system prompt and tools take too much of it"
        }
        Some(Cause::Model { error: ModelErrorKind::ScriptExhausted, .. }) => {
            "add replies to the script, or set its `on_exhausted`"
        }
        Some(Cause::Model { status, error }) => match model_trouble::advice(*status, *error, reason) {
            Some(advice) => {
                return format!("{advice} (`turnbuckle doctor` says what is there and asks the model for one token)");
            }
            None => EVENTS,
        },
        _ => EVENTS,
    };
    hint.to_owned()
}

/// Where to look if nothing better is known.
const EVENTS: &str = "`run --json` shows every event of a turn";
