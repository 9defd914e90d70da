//! Reading a log backwards, a little more each time, until it tells what is asked.

use std::sync::Arc;

use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind, InjectionTarget, share_repeated};
use crate::feed::projection::{Pending, Projection};
use crate::id::{CallId, ConversationId, TurnId};
use crate::store::{Claim, Cut, InboxFilter, InboxItem, Job, Store, StoreError};
use crate::turn::State;

/// Reads the end of a log before `before`, more of it each time, until `enough` is satisfied or there is no more. The
/// first read asks for `tokens`.
async fn read_until<T>(
    store: &dyn Store,
    id: &ConversationId,
    before: u64,
    mut tokens: u64,
    enough: impl Fn(&[Arc<Event>]) -> Option<T>,
) -> Result<(Option<T>, Vec<Arc<Event>>), StoreError> {
    let mut log: Vec<Arc<Event>> = Vec::new();
    loop {
        let found = enough(&log);
        if found.is_some() {
            return Ok((found, log));
        }
        let before = log.first().map_or(before, |first| first.seq);
        let mut older = store.tail(id, before, tokens).await?;
        if older.is_empty() {
            return Ok((None, log));
        }
        share_repeated(&mut older);
        older.append(&mut log);
        (log, tokens) = (older, tokens.saturating_mul(2));
    }
}

/// The state of a claimed conversation, with the events it was made of: the window and all of the open turn, however
/// long the log is.
pub(super) async fn revive(
    store: &dyn Store,
    id: &ConversationId,
    agent: &Agent,
    claim: &Claim,
) -> Result<(Box<State>, Vec<Arc<Event>>), StoreError> {
    let capacity = agent.window_capacity();
    let state = |log: &[Arc<Event>]| {
        let cut = claim.cut.as_ref().map(|cut| (cut, claim.summary.as_ref()));
        State::revive(capacity, claim.totals, cut, log).filter(|state| state.seq == claim.seq)
    };
    let (state, log) = read_until(store, id, claim.seq.saturating_add(1), agent.read_ahead(), state).await?;
    let Some(mut state) = state else {
        let before = log.first().map_or(claim.seq, |first| first.seq);
        let doing = format!("reading the log of conversation {id} back from {before}");
        return Err(StoreError::failed(doing, "events are missing"));
    };
    if !log.is_empty() {
        // Many conversations are read back and stay at rest. A new one is about to grow.
        state.window.shrink_to_fit();
    }
    if let Some(turn) = &state.turn {
        tracing::info!(conversation = %id, turn = %turn.id, "revived an open turn");
    }
    Ok((state, log))
}

/// The log up to the end of a job's turn: as much as a window holds, and all of the turn. The last cut before that end tells
/// where the window begins. Without one, the turn begins after the end
/// of the one before it. Its message does not tell where, because an erased turn has none in the log.
pub(super) async fn log_of_job(
    store: &dyn Store,
    id: &ConversationId,
    agent: &Agent,
    job: &Job,
    cut: Option<&Arc<Cut>>,
) -> Result<Vec<Arc<Event>>, StoreError> {
    let ends_before = |event: &Arc<Event>| event.seq < job.seq && matches!(event.kind, EventKind::TurnEnded(_));
    let reaches = |seq: u64, log: &[Arc<Event>]| log.first().is_some_and(|first| first.seq <= seq);
    let has_turn = |log: &[Arc<Event>]| {
        let enough = match cut {
            Some(cut) => reaches(cut.first, log),
            None => log.iter().any(ends_before),
        };
        enough.then_some(())
    };
    let tokens = agent.read_ahead();
    let (_, log) = read_until(store, id, job.seq.saturating_add(1), tokens, has_turn).await?;
    Ok(log)
}

/// The end of a log as viewers see it: as much as a window holds, and all of the open turn, because what it asks may stand
/// before results that fill the window.
pub(super) async fn end_of_log(
    store: &dyn Store,
    id: &ConversationId,
    tokens: u64,
) -> Result<Vec<Arc<Event>>, StoreError> {
    let has_turn =
        |log: &[Arc<Event>]| log.iter().any(|event| matches!(event.kind, EventKind::TurnEnded(_))).then_some(());
    let (_, log) = read_until(store, id, u64::MAX, tokens, has_turn).await?;
    Ok(log)
}

/// The turn that is open, as far as it is stored, or that the next message opens.
pub(super) async fn open_turn(store: &dyn Store, id: &ConversationId) -> Result<Option<TurnId>, StoreError> {
    // Notes of an earlier turn may stand behind its end; they say nothing about the turn that is open.
    let is_note = |event: &Event| matches!(event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. });
    let last = |log: &[Arc<Event>]| log.iter().rev().find(|event| !is_note(event)).cloned();
    match read_until(store, id, u64::MAX, 1, last).await?.0 {
        Some(event) if !matches!(event.kind, EventKind::TurnEnded(_)) => Ok(Some(event.turn.clone())),
        _ => Ok(store.inbox(id, InboxFilter::All).await?.iter().find_map(InboxItem::opens)),
    }
}

/// The calls that wait for an answer, each with since when, without claiming the conversation.
pub(super) async fn pending_of(
    store: &dyn Store,
    id: &ConversationId,
) -> Result<Vec<(Timestamp, Pending)>, StoreError> {
    // All of the open turn is needed; where it begins is told by its message or by the end of the one before it.
    let begins = |event: &Arc<Event>| matches!(event.kind, EventKind::UserMessage { .. } | EventKind::TurnEnded(_));
    let has_turn = |log: &[Arc<Event>]| log.iter().any(begins).then_some(());
    let (_, log) = read_until(store, id, u64::MAX, 256, has_turn).await?;
    let asked = |call: &CallId| {
        let mut suspensions = log.iter().rev();
        suspensions.find(|event| matches!(&event.kind, EventKind::Suspension { call: of, .. } if of == call))
    };
    let waiting = Projection::of_log(&log).pending;
    Ok(waiting.values().filter_map(|pending| Some((asked(&pending.call)?.at, pending.clone()))).collect())
}
