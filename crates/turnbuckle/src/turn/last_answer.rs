//! The last answer of a turn whose budget is used up: one model call without tools, whose price was kept back.

use super::active::{ActiveTurn, Interrupt};
use super::context::TurnContext;
use super::make_room;
use super::state::Verdict;
use crate::context::reserve::total;
use crate::event::Cause;
use crate::feed::{Level, LiveEvent};
use crate::limits::{CallPrice, OnBudget};
use crate::message::{Reply, StopReason, Text, Usage};

/// What a reply is taken to have, in tokens. Nobody knows how long it is going to be.
const REPLY: u64 = 1_000;

/// What the model is told at the tail of its last call.
pub(crate) const REQUEST: &str = "[The budget of this turn is used up. This is your last reply: no tools can be called any more. Answer \
                                  now with what you have, and say what is missing.]";

/// Looks at the budget before a model call is built. Either there is room for it, or it becomes the last one, or the turn ends.
pub(crate) fn look_ahead(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    if ctx.limits.on_budget == OnBudget::Stop {
        return ctx.budget.verdict(&ctx.limits).map_or(Ok(()), |verdict| Err(verdict.into()));
    }
    let price = price(active);
    let is_begun = active.scratch.last_answer.is_some();
    if !is_begun {
        ctx.budget.keep_back(price);
        if ctx.budget.without_room_for(price, &ctx.limits).is_none() {
            return Ok(());
        }
    }
    // What was kept back was the price of an earlier call. Results may have come since that make this one dearer than what is
    // left: it would cross the limit, so there is no last answer then.
    if let Some(limit) = ctx.budget.used_up_wholly(price, &ctx.limits) {
        if ctx.budget.used_up_wholly(CallPrice::default(), &ctx.limits).is_none() {
            let text = "there is no last answer: by estimate it would take more than what is left of the budget";
            active.warn_once(text.to_owned(), Cause::Limit { limit: limit.into() });
        }
        return Err(Verdict::exhausted(limit).into());
    }
    if let (false, Some(limit)) = (is_begun, ctx.budget.without_room_for(price, &ctx.limits)) {
        begin(active, limit);
    }
    Ok(())
}

/// The limit that ends the turn while calls are open, if one does. Results that a last answer can be made of are waited for.
pub(crate) fn verdict(ctx: &TurnContext) -> Option<Verdict> {
    match ctx.limits.on_budget {
        OnBudget::Stop => ctx.budget.verdict(&ctx.limits),
        OnBudget::Answer => ctx.budget.used_up_wholly(CallPrice::default(), &ctx.limits).map(Verdict::exhausted),
    }
}

/// What the next call costs by estimate, at the price of tokens that no cache has.
fn price(active: &ActiveTurn) -> CallPrice {
    let ctx = active.ctx();
    if !ctx.budget.is_limited(&ctx.limits) {
        return CallPrice::default();
    }
    let estimated = ctx.agent.fixed_tokens() + active.state.window.tokens() + total(&active.injected);
    let input = make_room::factor(active).with_margin(estimated);
    let usage = Usage { input, output: REPLY, ..Usage::default() };
    CallPrice { tokens: usage.total(), cost: ctx.agent.model().price(&usage).unwrap_or(0.0) }
}

/// From now on the model is asked for its last answer. After a crash, too: the scratch says so.
pub(crate) fn begin(active: &mut ActiveTurn, limit: &str) {
    let ctx = active.ctx().clone();
    active.scratch.edit().last_answer = Some(limit.into());
    ctx.budget.begin_last();
    active.progress.request_ready = false;
    let text = format!("the turn reaches its limit ({limit}): the model is asked for a last answer");
    ctx.publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
}

/// Whether the turn can still be given a last answer, once a limit was reached in the middle of a reply.
pub(crate) fn is_possible(active: &ActiveTurn) -> bool {
    let ctx = active.ctx();
    let is_wanted = ctx.limits.on_budget == OnBudget::Answer && active.scratch.last_answer.is_none();
    is_wanted && ctx.budget.used_up_wholly(CallPrice::default(), &ctx.limits).is_none()
}

/// The last reply as it can be used: calls in it are not run, so they are dropped.
pub(crate) fn without_calls(mut reply: Reply) -> Reply {
    if !reply.calls.is_empty() {
        reply.calls.clear();
        reply.stop_reason = StopReason::End;
    }
    reply
}

/// There is no last answer, and no budget for another one: what was told is taken back, and the turn ends.
pub(crate) fn give_up(active: &mut ActiveTurn, limit: &Text, hook: Option<Text>, why: &str, cause: Cause) -> Interrupt {
    if let Some(stream) = &mut active.reply {
        stream.discard(hook.as_ref().map(crate::scope::Author::hook), Some(why.into()));
    }
    active.warn(hook, format!("there is no last answer: {why}"), cause);
    Verdict::exhausted(limit.clone()).into()
}
