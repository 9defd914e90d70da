//! Messages that steer a turn: before each model call those that came since the last one meet the `before_agent` hooks, each
//! for itself, and become part of the turn. `build` begins with it.

use super::accept::{Incoming, event_of};
use super::active::{ActiveTurn, Interrupt};
use super::changes;
use super::host::RefusedMessage;
use super::make_room;
use super::state::Verdict;
use crate::context::reserve::{Candidate, total};
use crate::context::tokens;
use crate::event::{Cause, EventKind};
use crate::feed::{Level, LiveEvent};
use crate::id::{ItemId, TurnId};
use crate::message::Content;
use crate::store::{InboxItem, InboxKind};

/// Takes in the messages that came for this turn.
pub(super) async fn take_in(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    while let Some(item) = active.ctx().host.next_steering(&active.ctx().id) {
        let (id, by) = (item.id.clone(), item.from.author());
        let Some((message, content)) = for_this_turn(active, item) else {
            active.ctx().host.defer_steering(&active.ctx().id, id, by);
            continue;
        };
        if !fits(active, &content) {
            let text = format!(
                "a message of {by} does not fit into the context of the running turn: it opens the next one, and what they send \
                 meanwhile comes after it"
            );
            active.ctx().host.defer_steering(&active.ctx().id, id, by);
            active.ctx().publish(LiveEvent::Notice { level: Level::Info, text: text.into(), hook: None });
            continue;
        }
        let (mut turn, mut injected) = (active.turn.clone(), Vec::new());
        let view = turn.edit();
        (view.user_message, view.is_steering) = (content, true);
        let ctx = active.ctx().clone();
        let (other, before) = (total(&active.injected), active.records.len());
        let (records, injected_before) = (&mut active.records, &mut injected);
        let mut incoming = Incoming { turn: &mut turn, injected: injected_before, records, other, erased: false };
        let met = incoming.meet_hooks(&ctx).await;
        if met.is_err() {
            // The message is not kept, or will meet the hooks again.
            changes::forget(&mut active.records[before..]);
        }
        match met {
            Ok(()) => write(active, &message, turn.view.user_message.clone(), injected).await?,
            Err(Interrupt::Settle(verdict)) => refuse(active, &message, *verdict).await?,
            // A turn that is cancelled meanwhile has not taken the message in: it opens the next one.
            Err(interrupt) => return Err(interrupt),
        }
    }
    Ok(())
}

/// The turn that the message would open, and what it says. `None` if it is not for this turn: then it stays in the inbox and has a
/// turn of its own. Tools act in the name of the user who opened the turn, so nobody else may steer it.
fn for_this_turn(active: &ActiveTurn, item: InboxItem) -> Option<(TurnId, Content)> {
    let (ctx, opens) = (active.ctx(), item.opens()?);
    let InboxItem { from, kind: InboxKind::Message { content, agent, .. }, .. } = item else { return None };
    let is_ours = from.author() == ctx.scope.by() && agent.is_none_or(|name| name == *ctx.agent_name());
    is_ours.then_some((opens, content))
}

/// Whether the message fits beside what contexts show of the turn in any case: what was said in it and what hooks added. Otherwise the
/// turn would fail, and with it the message. It stays in the inbox, and has a turn of its own.
fn fits(active: &ActiveTurn, content: &Content) -> bool {
    let (limits, agent) = (&active.ctx().limits, &active.ctx().agent);
    let said = active.state.window.open_said() + total(&active.injected) + tokens::of_content(content);
    // The rest is for the last step of the turn, which stays as well: its results can be shortened.
    make_room::factor(active).with_margin(agent.fixed_tokens() + said) <= limits.context_tokens / 8 * 7
}

/// The message becomes history, with what hooks put behind it.
async fn write(
    active: &mut ActiveTurn,
    message: &TurnId,
    content: Content,
    mut injected: Vec<Candidate>,
) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let mut write = active.new_write();
    write.push(EventKind::UserMessage { content, by: ctx.scope.by() });
    let seq = write.last_seq();
    write.extend(injected.iter().filter(|candidate| candidate.durable).map(event_of));
    if !injected.is_empty() {
        injected.iter_mut().for_each(|candidate| candidate.behind = Some(seq));
        let transient = injected.iter().filter(|candidate| !candidate.durable);
        let stored = transient.map(|candidate| (seq, candidate.injection.clone()));
        active.scratch.edit().steering.extend(stored);
        active.injected.extend(injected);
        active.show_injections();
    }
    active.done_items.push(ItemId::of_turn(message));
    active.append(write).await?;
    ctx.host.steered(message, &ctx.id);
    Ok(())
}

/// The turn goes on without the message. Its sender is told when that is written, and the end of the turn says it, too: the
/// sender may be in another process.
async fn refuse(active: &mut ActiveTurn, message: &TurnId, verdict: Verdict) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let reason = verdict.reason.unwrap_or_else(|| "a hook refused it".into());
    let hook = match &verdict.cause {
        Some(
            Cause::HookDecided { hook, .. } | Cause::HookFailed { hook, .. } | Cause::InjectionOverflow { hook, .. },
        ) => Some(hook.clone()),
        _ => None,
    };
    let text = format!("a message to the running turn was refused: {reason}");
    let cause = verdict.cause.clone();
    active.warn(hook, text, cause.clone().unwrap_or(Cause::NotApproved));
    active.done_items.push(ItemId::of_turn(message));
    let write = active.new_write();
    active.append(write).await?;
    let turn = ctx.id.clone();
    ctx.host.refuse_steering(message, RefusedMessage { turn, by: verdict.by, reason, cause });
    Ok(())
}
