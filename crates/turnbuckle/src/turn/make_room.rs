//! Making room: history and the open turn are reduced if the next request would be too large, or if a provider refused one.

use std::sync::Arc;

use super::active::ActiveTurn;
use crate::context::layout::ContextCache;
use crate::context::plan::{Plan, Pressure};
use crate::context::reducer::{self, Reduced};
use crate::context::tokens;
use crate::cut::steps::SEARCH_HISTORY;
use crate::cut::{Cut, CutCause, Factor};
use crate::event::{Cause, Event, EventKind};
use crate::feed::{Level, LiveEvent};
use crate::store::Summary;

/// What the words around a discarded reply cost: more than they take.
const REGENERATION_FRAME: u64 = 32;

/// A request that was too long, as its provider said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest {
    /// What corrects estimates from now on.
    pub(crate) factor: Factor,
    /// How many tokens a request may have, if that was said.
    pub(crate) limit: Option<u64>,
    /// Estimated tokens that hooks had added to it; more than any reserve if that is not known.
    pub(crate) added: u64,
    /// Attempts at the reply so far.
    pub(crate) attempts: u32,
    /// Whether the context was made smaller since. A second refusal ends the turn.
    pub(crate) is_answered: bool,
}

/// What history and the open turn may take.
struct Room {
    /// What corrects estimates from now on. A cut is the one moment at which it may change.
    factor: Factor,
    /// Estimated tokens, uncorrected: what must not be exceeded.
    limit: u64,
    /// What reducers aim at, so that the next cut is not soon.
    target: u64,
    /// Without it, only what a write left out since the last cut is told.
    is_too_large: bool,
}

/// Lets the agent's reducers make history and open turn smaller if they have become too large. What they decided is stored with
/// the next write; a process that dies before decides the same again.
pub(super) fn make_room(active: &mut ActiveTurn) -> Option<Arc<Cut>> {
    let room = room(active)?;
    let ctx = active.ctx().clone();
    let (window, agent) = (&active.state.window, &ctx.agent);
    let is_refused = unanswered(active).is_some();
    let newest = active.newest_summary.clone().filter(|_| agent.wants_summaries());
    let mut plan = window.plan(newest.as_ref(), &|tool| agent.tool_facts(tool), room.limit, room.target);
    plan.set_found_by(agent.tools().iter().map(|tool| &tool.name).find(|name| ***name == *SEARCH_HISTORY).cloned());
    let reduced = match room.is_too_large {
        true => {
            let from = if is_refused { Pressure::Recent } else { Pressure::Normal };
            reducer::reduce(agent.reducers(), &mut plan, from)
        }
        false => Reduced::default(),
    };
    for reducer in &reduced.panicked {
        warn(active, format!("the reducer {reducer} panicked; what it had done before counts"));
    }
    if plan.tokens() == window.tokens() && window.dropped() == 0 {
        return None;
    }
    if agent.wants_summaries() && !ctx.conversation.is_sub_agent() {
        let shown = if plan.shows_newer_summary() { newest.as_ref() } else { window.summary() };
        warn_of_uncovered(active, plan.turns_left_out_behind(shown.map_or(0, |shown| shown.last)));
    }
    let is_idle = window.last_cut().is_some_and(|last| is_idle_since(window.events(), last.made_at));
    let cause = if is_refused { CutCause::Refused } else { CutCause::Estimate };
    let cut = Arc::new(cut(active, &plan, reduced, room.factor, cause, newest.as_deref()));
    active.state.cut(&plan, cut.clone(), newest.as_ref());
    active.memory.note_cut(active.cache.messages());
    active.cache = ContextCache::default();
    active.cut = Some(cut.clone());
    if is_idle {
        let text = "the context was made smaller twice, and nothing was said or done in between: the model may be going in circles";
        active.warn_once(text.to_owned(), Cause::RepeatedCompaction);
    }
    Some(cut)
}

/// A refusal that the context was not made smaller for.
fn unanswered(active: &ActiveTurn) -> Option<RefusedRequest> {
    active.refused.filter(|refused| !refused.is_answered)
}

/// What a reply that is made again adds behind the turn: the discarded one, and what was wrong with it.
fn regeneration_tokens(active: &ActiveTurn) -> u64 {
    active
        .scratch
        .regeneration
        .as_ref()
        .map_or(0, |again| tokens::of_content(&again.discarded) + tokens::of_text(&again.feedback) + REGENERATION_FRAME)
}

/// How far history and open turn have to be reduced; `None` if they fit and nothing was left out since the last cut.
fn room(active: &ActiveTurn) -> Option<Room> {
    let ctx = active.ctx();
    let (window, agent, again) = (&active.state.window, &ctx.agent, regeneration_tokens(active));
    let (refused, dropped) = (unanswered(active), window.dropped());
    let least = agent.history_capacity(&ctx.limits, Factor::LARGEST).saturating_sub(again);
    if window.tokens() <= least && dropped == 0 && refused.is_none() {
        // Most calls: the factor need not be looked up.
        return None;
    }
    let limit = agent.history_capacity(&ctx.limits, factor(active)).saturating_sub(again);
    let is_too_large = window.tokens() > limit || refused.is_some();
    if !is_too_large && dropped == 0 {
        return None;
    }
    let known = || ctx.services.calibrations.factor(agent.model_choice());
    let factor = refused.map_or_else(known, |refused| refused.factor);
    let mut limits = ctx.limits.clone();
    if let Some(refused) = &refused {
        limits.context_tokens = limits.context_tokens.min(refused.limit.unwrap_or(u64::MAX));
        // What hooks may add is more than they do add, and history would go for it: room for as much again is enough. It is at
        // most a quarter, so that a small window is not taken up by what may never come.
        let reserve = limits.injection_reserve.min(limits.context_tokens / 4);
        limits.injection_reserve = reserve.min(factor.apply(refused.added).saturating_mul(2));
    }
    let mut limit = agent.history_capacity(&limits, factor).saturating_sub(again).max(1);
    let mut target = agent.history_target(&limits, factor).min(limit);
    if refused.is_some() {
        // Whatever the estimate says: less than what was too long. If system prompt and tools alone are too long, leaving all
        // of the history out would not help.
        let least = factor.room(limits.context_tokens) / 8;
        limit = limit.max(least).min(window.tokens() / 4 * 3);
        target = target.max(least).min(limit).min(window.tokens() / 2);
    }
    Some(Room { factor, limit, target, is_too_large })
}

/// What is recorded of the reduction.
fn cut(
    active: &ActiveTurn,
    plan: &Plan,
    reduced: Reduced,
    factor: Factor,
    cause: CutCause,
    newest: Option<&Summary>,
) -> Cut {
    let window = &active.state.window;
    let first = window.events().get(plan.events_left_out()).map_or(active.state.seq + 1, |event| event.seq);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (steps, ended_steps) = plan.steps_left_out();
    Cut {
        turn: active.ctx().id.clone(),
        made_at: active.state.seq,
        first,
        stubs: plan.stubs(),
        turns: count(plan.turns_left_out()),
        results: count(plan.changed_results().count()),
        calls: count(plan.changed_calls().count()),
        steps: count(steps),
        ended_steps: count(ended_steps),
        left_out: plan.left_out_steps(),
        before: factor.apply(window.tokens() + window.dropped()),
        after: factor.apply(plan.tokens()),
        reducers: reduced.by,
        factor,
        summary: match plan.shows_newer_summary() {
            true => newest.map(|newest| newest.version),
            false => window.summary().map(|shown| shown.version),
        },
        cause,
    }
}

/// Turns left the context that no summary stands for.
fn warn_of_uncovered(active: &ActiveTurn, turns: usize) {
    let were = match turns {
        0 => return,
        1 => "1 turn was".to_owned(),
        turns => format!("{turns} turns were"),
    };
    warn(active, format!("{were} left out before there was a summary of them; the next one covers them"));
}

fn warn(active: &ActiveTurn, text: String) {
    active.ctx().publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
}

/// Whether nobody said anything and no tool ran since the event with this seq.
fn is_idle_since(events: &[Arc<Event>], seq: u64) -> bool {
    let newer = events.iter().rev().take_while(|event| event.seq > seq);
    !newer.map(|event| &event.kind).any(|kind| {
        matches!(kind, EventKind::UserMessage { .. } | EventKind::ToolResult { .. } | EventKind::ToolCall { .. })
    })
}

/// What corrects estimates: what the last cut says, so that the front of contexts moves with cuts only; before the first one,
/// what is known of the model.
pub(super) fn factor(active: &ActiveTurn) -> Factor {
    let ctx = active.ctx();
    let known = || ctx.services.calibrations.factor(ctx.agent.model_choice());
    active.state.window.factor().unwrap_or_else(known)
}
