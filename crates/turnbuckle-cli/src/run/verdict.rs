//! How a turn came out, to the shell and to the person.

use turnbuckle::conversation::TurnError;
use turnbuckle::scope::By;
use turnbuckle::{Ended, Outcome, Rest};

use crate::exit::Exit;
use crate::problem::Problem;
use crate::show;

/// The exit code, and what to say on stderr.
pub(super) fn of(rest: &Result<Rest, TurnError>) -> (Exit, Vec<Problem>) {
    match rest {
        Ok(Rest::Ended(ended)) => (ended.outcome.into(), ended_badly(ended).into_iter().collect()),
        Ok(Rest::Waiting(pending)) => {
            let calls: Vec<String> = pending.iter().map(show::pending).collect();
            let what = format!("the turn waits for {}", calls.join(" and for "));
            let hint = "the store `memory:` forgets, so this cannot be resolved later; `approve = []` in [tools] asks for \
                        no approval, and a `before_tool` hook can judge calls instead";
            (Exit::Waiting, vec![Problem::error(what).hint(hint)])
        }
        Err(error) => (Exit::Failed, vec![Problem::error(error.to_string())]),
    }
}

fn ended_badly(ended: &Ended) -> Option<Problem> {
    let reason = ended.reason.as_deref().unwrap_or("no reason given");
    let hook = match &ended.by {
        Some(By::Hook(hook)) => Some(&**hook),
        _ => None,
    };
    let by = hook.map(|hook| format!(" by hook {hook}")).unwrap_or_default();
    let (what, hint) = match ended.outcome {
        Outcome::Completed => return None,
        Outcome::Halted => (format!("the turn was halted{by}: {reason}"), "change the message, or the hook"),
        Outcome::Rejected => {
            (format!("no reply was let through{by}: {reason}"), "change the message, or raise `max_regenerations`")
        }
        Outcome::Exhausted => {
            (format!("the turn reached its limit: {reason}"), "the limits of a turn stand in [limits]")
        }
        Outcome::Cancelled => return Some(Problem::error("the turn was cancelled")),
        Outcome::Failed if hook.is_some() => (
            format!("the turn failed: {reason}"),
            "repair the hook; `on_failure = \"ignore\"` lets a turn go on without it",
        ),
        Outcome::Failed if reason.contains("the script has") => {
            (format!("the turn failed: {reason}"), "add replies to the script, or set its `on_exhausted`")
        }
        Outcome::Failed if reason.contains("context_tokens") => {
            (format!("the turn failed: {reason}"), "send less, or raise `context_tokens` in [limits]")
        }
        Outcome::Failed => (format!("the turn failed: {reason}"), "`run --json` shows every event of a turn"),
    };
    Some(Problem::error(what).hint(hint))
}
