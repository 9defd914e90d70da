//! What must hold after a crash, and where it does not.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::caller::Trouble;
use super::effects::Policies;
use super::run::Run;
use super::transcript::{Compared, Transcript};
use crate::event::{Event, EventKind};
use crate::id::{CallId, ConversationId};

/// What a conversation promises to whoever lets it crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// It comes back from the store alone, and the script can be played to its end.
    GoesOn,
    /// What was acknowledged, a message or an answer, is not lost.
    NothingLost,
    /// `seq` has no gaps, a turn ends once, and no result is of an unknown call.
    ValidLog,
    /// Every call has exactly one result.
    OneResult,
    /// A call has its effect as often as its tool's policy says.
    Effects,
    /// What happened is what happens without a crash, but for what policies allow.
    SameTranscript,
    /// Work that a turn left behind is done.
    WorkDone,
    /// Model calls, tokens and money that a turn used before the crash are in its end.
    SpendingKept,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GoesOn => "the conversation goes on",
            Self::NothingLost => "nothing that was acknowledged is lost",
            Self::ValidLog => "the log is valid",
            Self::OneResult => "every call has exactly one result",
            Self::Effects => "effects are as the policy says",
            Self::SameTranscript => "the transcript is the same",
            Self::WorkDone => "what a turn left to be done is done",
            Self::SpendingKept => "what was spent is not forgotten",
        })
    }
}

pub(super) type Found = Vec<(Promise, String)>;

/// What holds of every run, with or without a crash.
pub(super) fn check_alone(run: &Run) -> Found {
    let mut found = Found::new();
    for (id, log) in &run.logs {
        check_log(id, log, &mut found);
    }
    found
}

/// What holds of a run with a crash, seen beside the one without.
pub(super) fn check(reference: &Run, run: &Run) -> Found {
    let mut found = check_alone(run);
    let policies = Policies { reference, run };
    found.extend(policies.broken().into_iter().map(|story| (Promise::Effects, story)));
    let mut different = Found::new();
    let departed = check_transcripts(&policies, &mut different);
    match &run.trouble {
        // Another way may lead past what the script says next.
        Some(Trouble::Stuck(_)) if departed => {}
        // Whatever did not happen after it is no second fault.
        Some(Trouble::Lost(what)) => found.push((Promise::NothingLost, what.clone())),
        Some(Trouble::Stuck(what)) => found.push((Promise::GoesOn, what.clone())),
        None => found.append(&mut different),
    }
    if run.jobs != reference.jobs && !departed && run.trouble.is_none() {
        let text = format!("left to be done: {:?}; without a crash: {:?}", run.jobs, reference.jobs);
        found.push((Promise::WorkDone, text));
    }
    if !departed && run.trouble.is_none() {
        check_spending(reference, run, &mut found);
    }
    found
}

/// A crash may make a model call happen twice, but never makes a turn forget one.
fn check_spending(reference: &Run, run: &Run, found: &mut Found) {
    let spent = |run: &Run, id: &ConversationId| {
        let log = run.logs.get(id).map(Vec::as_slice).unwrap_or_default();
        log.iter().fold((0_u32, 0_u64, 0.0_f64), |(calls, tokens, cost), event| match &event.kind {
            EventKind::TurnEnded(ended) => (calls + ended.model_calls, tokens + ended.usage.total(), cost + ended.cost),
            _ => (calls, tokens, cost),
        })
    };
    for id in reference.logs.keys() {
        let (expected, seen) = (spent(reference, id), spent(run, id));
        if seen.0 < expected.0 || seen.1 < expected.1 || seen.2 + 1e-9 < expected.2 {
            let text = format!("conversation {id}: (calls, tokens, dollars) {seen:?}; without a crash: {expected:?}");
            found.push((Promise::SpendingKept, text));
        }
    }
}

fn check_log(id: &ConversationId, log: &[Arc<Event>], found: &mut Found) {
    let mut invalid = |text: String| found.push((Promise::ValidLog, format!("conversation {id}: {text}")));
    if let Some((event, seq)) = log.iter().zip(1..).find(|(event, seq)| event.seq != *seq) {
        invalid(format!("seq {seq} is missing, {} stands in its place", event.seq));
    }
    let count = |wanted: &dyn Fn(&EventKind) -> bool| log.iter().filter(|event| wanted(&event.kind)).count();
    let turns: BTreeSet<_> = log.iter().map(|event| &event.turn).collect();
    for turn in turns {
        let ends = log.iter().filter(|event| event.turn == *turn && matches!(event.kind, EventKind::TurnEnded(_)));
        if ends.count() > 1 {
            invalid(format!("turn {turn} ended more than once"));
        }
    }
    for event in log {
        match &event.kind {
            EventKind::ToolResult { call: of, .. } | EventKind::ToolStarted { call: of, .. } => {
                if count(&|kind| matches!(kind, EventKind::ToolCall { call, .. } if call == of)) != 1 {
                    invalid(format!("{of} has a result or a start, and nobody called it"));
                }
                let starts = count(&|kind| matches!(kind, EventKind::ToolStarted { call, .. } if call == of));
                let answers = count(&|kind| matches!(kind, EventKind::Resolution { call, .. } if call == of));
                if starts > 1 + answers {
                    invalid(format!("{of} was started again, and nobody had answered"));
                }
            }
            _ => {}
        }
    }
    for event in log {
        let EventKind::ToolCall { call: of, .. } = &event.kind else { continue };
        let results = count(&|kind| matches!(kind, EventKind::ToolResult { call, .. } if call == of));
        let ended = log.iter().any(|end| end.turn == event.turn && matches!(end.kind, EventKind::TurnEnded(_)));
        if results > 1 || (ended && results == 0) {
            found.push((Promise::OneResult, format!("call {of} of conversation {id} has {results} results")));
        }
    }
}

/// True if the conversation went another way than without the crash, and may.
fn check_transcripts(policies: &Policies<'_>, found: &mut Found) -> bool {
    let Policies { reference, run } = policies;
    let mut departed: BTreeSet<ConversationId> = BTreeSet::new();
    let ids: BTreeSet<_> = reference.logs.keys().chain(run.logs.keys()).collect();
    // Sub-agents first: where one of them may differ, so may the result of its parent's call.
    for id in ids.into_iter().rev() {
        let told = |of: &Run| {
            let log = of.logs.get(id).map(Vec::as_slice).unwrap_or_default();
            Transcript::of(log, &|hook| policies.meets(hook))
        };
        let (expected, seen) = (told(reference), told(run));
        let excused =
            |call: &CallId| policies.excuse(&(id.clone(), call.clone())) || departed.contains(&id.child(call));
        match expected.compare(&seen, &excused) {
            Compared::Same => {}
            Compared::Departed => {
                departed.insert(id.clone());
            }
            Compared::Different(place) => {
                let (is, was) = (seen.line(place), expected.line(place));
                let where_it_is = format!("conversation {id}, line {}: {is:?} in place of {was:?}", place + 1);
                let story = format!("{where_it_is}\n  without a crash:\n{expected}  with it:\n{seen}");
                found.push((Promise::SameTranscript, story));
            }
        }
    }
    !departed.is_empty()
}
