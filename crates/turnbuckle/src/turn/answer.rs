//! Answers to suspended calls: checked, written, and only then acknowledged. The turn goes on afterwards.

mod check;

use std::sync::Arc;

use serde_json::Value;

use self::check::copied;
pub(crate) use self::check::{AnsweredCall, check, check_edit, check_standing, digest_of_approved};
use super::active::{ActiveTurn, Write};
use super::context::TurnContext;
use super::host::{AnswerError, AnswerOrder, AnswerOrigin, RecordedAnswer};
use super::perform::normal_form;
use super::redaction;
use super::state::OpenQuestion;
use super::view::Turn;
use crate::access::Action;
use crate::agent::Agent;
use crate::digest;
use crate::event::{EventKind, Evidence, Question, Refusal, Resolved};
use crate::feed::{Level, LiveEvent};
use crate::id::{CallId, ConversationId};
use crate::message::Text;
use crate::scope::{Actor, Author, SystemAuthor, is_link_for_nobody};
use crate::store::{Answer, ConversationStatus, Lease, StoreError};
use crate::tool::Output;

/// The result of a call that nobody answered in time.
pub(super) const NOBODY_ANSWERED: &str = "[expired] nobody answered in time";

/// How often an answer waits for others that were stored first. They settle the question sooner or later, unless people keep
/// changing its arguments.
pub(super) const MAX_TRIES: usize = 16;

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is in the log.
    Written,
    /// It was refused, and its sender told why; or it is looked at again, behind answers that were stored before it.
    NotWritten,
}

/// An answer that passed every check.
struct Accepted {
    question: OpenQuestion,
    decision: Resolved,
    evidence: Evidence,
}

/// Writes an answer, or says why it is not taken. Only a store that fails is an error.
pub(crate) async fn take(active: &mut ActiveTurn, mut order: AnswerOrder) -> Result<Taken, StoreError> {
    let accepted = match accept(active, &mut order).await? {
        Ok(accepted) => accepted,
        Err(error) => return refuse(active, order, error),
    };
    // The write may be refused, and the turn goes on all the same.
    let before = active.restore_point();
    let write = write_of(active, &order, accepted);
    match active.append(write).await {
        Err(StoreError::AlreadyAnswered { .. }) => {
            // Another process stored an answer first. That one is in the inbox and is taken from there. It may leave the
            // question open, where several must approve, and then this answer counts all the same.
            active.restore(before);
            active.done_items.retain(|item| order.item() != Some(item));
            if order.tries >= MAX_TRIES {
                return refuse(active, order, AnswerError::Stale("others answered it at the same time".into()));
            }
            order.tries += 1;
            active.ctx().host.take_after_stored(order).await;
            Ok(Taken::NotWritten)
        }
        written => {
            acknowledge(active, order, &written);
            written.map(|()| Taken::Written)
        }
    }
}

/// Checks an answer: that its question is open, who gave it, what it says, and arguments that it changes. Those have their normal
/// form in the order from then on.
async fn accept(active: &mut ActiveTurn, order: &mut AnswerOrder) -> Result<Result<Accepted, AnswerError>, StoreError> {
    let open = active.state.turn.iter().flat_map(|turn| turn.open_questions());
    let Some(question) = open.into_iter().find(|question| question.call == order.call).cloned() else {
        return Ok(Err(AnswerError::NotAsked));
    };
    if let Err(error) = may_answer(&active.ctx().clone(), &question, order).await? {
        return Ok(Err(error));
    }
    let decision = match decision(active, &question, order) {
        Ok(decision) => decision,
        Err(error) => return Ok(Err(error)),
    };
    let edit = match &order.answer {
        // In a box: few answers change arguments, and the future of every answer would be larger.
        Answer::ApproveWith(arguments) => {
            let arguments = arguments.clone();
            match Box::pin(checked_edit(active, &question, order, arguments)).await {
                Ok(edit) => Some(edit),
                Err(error) => return Ok(Err(error)),
            }
        }
        _ => None,
    };
    let evidence = evidence(&question, decision, order, edit);
    Ok(Ok(Accepted { question, decision, evidence }))
}

/// What an answer comes to, if it came in time, fits what was asked, and may begin the standing approval that it is to begin.
fn decision(active: &ActiveTurn, question: &OpenQuestion, order: &AnswerOrder) -> Result<Resolved, AnswerError> {
    if question.expires <= order.at {
        return Err(AnswerError::Stale("nobody answered in time".into()));
    }
    let decision = check(&question.question, &order.answer, order.digest.as_ref())?;
    if let Some(standing) = &order.standing {
        let conversation = &active.ctx().conversation;
        let of = AnsweredCall { conversation, call: &order.call, question: &question.question };
        check_standing(standing, of, &active.scratch, (&order.answer, &order.from, order.at))?;
    }
    Ok(decision)
}

/// The arguments that an approver put in the place of those asked about, with their digest.
async fn checked_edit(
    active: &mut ActiveTurn,
    question: &OpenQuestion,
    order: &mut AnswerOrder,
    arguments: Arc<Value>,
) -> Result<EditedCall, AnswerError> {
    if let Some(place) = placeholder_in(active, question, &arguments) {
        return Err(copied(&place));
    }
    match edit_of(active.turn.clone(), asker(active, question), question, arguments).await {
        Ok(edit) => {
            order.answer = Answer::ApproveWith(edit.arguments.clone());
            Ok(edit)
        }
        // Its sender was told that it counts. It is recorded as it is, like one that is given without the tool at hand: the call
        // is asked about again, and the question says what is wrong. So it is if the turn was stopped meanwhile: then the call
        // does not run.
        Err(AnswerError::Unfit(_) | AnswerError::Stale(_)) if matches!(order.origin, AnswerOrigin::Inbox(_)) => {
            Ok(unchecked_edit(active, question, &order.answer))
        }
        Err(error) => Err(error),
    }
}

/// Notes the answer in the scratch and makes the write that has it.
fn write_of(active: &mut ActiveTurn, order: &AnswerOrder, accepted: Accepted) -> Write {
    let Accepted { question, decision, evidence } = accepted;
    let stays_open = evidence.open;
    let kinds = events(active, &question, decision, order, evidence);
    let (scratch, call) = (active.scratch.edit(), &order.call);
    // Whoever approves what another approver changed says yes to the change, which is still the answer.
    if question.edit.is_none() || order.answer != Answer::Approve {
        scratch.answers.retain(|(answered, _)| answered != call);
        scratch.answers.push((call.clone(), order.answer.clone()));
    }
    // Approvals add up, unless the arguments were changed since.
    if decision != Resolved::Approved || matches!(order.answer, Answer::ApproveWith(_)) {
        scratch.answered_by.retain(|(answered, _)| answered != call);
    }
    scratch.answered_by.push((call.clone(), order.from.clone()));
    // From now on the turn has something to do: after a crash it is due at once, not when the question expires.
    let mut write = active.new_write();
    write.extend(kinds);
    write.answer = order.item().cloned();
    active.done_items.extend(write.answer.clone());
    write.standing = order.standing.clone();
    let others = active.state.turn.iter().flat_map(|turn| turn.open_questions());
    let others = others.filter(|other| stays_open || other.call != order.call).map(|other| other.expires).min();
    write.status = match others {
        // The turn may have something else to do; the driver says what it is doing when it is done.
        Some(_) if !active.releases_with_answer => (!stays_open).then_some(ConversationStatus::Running),
        Some(until) => Some(ConversationStatus::Waiting { until }),
        None => Some(ConversationStatus::Running),
    };
    if active.releases_with_answer {
        write.lease = Lease::Release;
    }
    write
}

/// Tells the sender, if it is in this process, what became of an answer that was handed to the store.
fn acknowledge(active: &ActiveTurn, order: AnswerOrder, written: &Result<(), StoreError>) {
    if let (Ok(()), Some(standing)) = (written, &order.standing) {
        let (conversation, call) = (&active.ctx().conversation, &order.call);
        tracing::info!(%conversation, %call, by = %order.from.author(), approval = %standing, "a standing approval begins");
    }
    let turn = active.ctx().id.clone();
    if let AnswerOrigin::Local { written: reply, waiter } = order.origin {
        let left = active.left.clone();
        if written.is_ok() && left.is_none() {
            active.ctx().host.add_waiter(&turn, waiter);
        }
        // The caller may have gone away; the answer stands all the same.
        drop(reply.send(written.clone().map(|()| RecordedAnswer { turn, left }).map_err(AnswerError::Store)));
    }
}

/// Whether the sender may answer this question. It was checked where the answer was given, and is checked again here,
/// where it counts: by the rule that is stored with the question or, without one, by this process's own rules.
async fn may_answer(
    ctx: &TurnContext,
    question: &OpenQuestion,
    order: &AnswerOrder,
) -> Result<Result<(), AnswerError>, StoreError> {
    let permitted = match &question.rule {
        // Nobody needs a right to deny what they were sent a link for, and nobody in particular may do no more.
        _ if is_denial_by_nobody(&order.from, order.via.as_deref(), &order.answer) => Ok(()),
        Some(rule) if rule.permits(&order.from) => Ok(()),
        Some(rule) => Err(rule.who()),
        // The call of the parent was answered, by someone who may.
        None if ctx.parent.is_some() => Ok(()),
        None if order.from == Actor::System => Err(ctx.services.access.who(Action::Answer)),
        None if matches!(order.origin, AnswerOrigin::Local { .. }) => Ok(()),
        None if ctx.may_answer(&order.from).await? => Ok(()),
        None => Err(ctx.services.access.who(Action::Answer)),
    };
    let has_approved = matches!(order.answer, Answer::Approve) && question.approvals.contains(&order.from.author());
    Ok(match permitted {
        Err(who) => Err(AnswerError::Forbidden { who: who.into() }),
        Ok(()) if has_approved => Err(AnswerError::Stale("the same user has approved it already".into())),
        Ok(()) => Ok(()),
    })
}

/// Whether it is what a link that names no user can do.
pub(crate) fn is_denial_by_nobody(from: &Actor, via: Option<&str>, answer: &Answer) -> bool {
    is_link_for_nobody(from, via) && matches!(answer, Answer::Deny(_))
}

/// Where edited arguments repeat a placeholder of the redacted form that was shown, if they do.
fn placeholder_in(active: &ActiveTurn, question: &OpenQuestion, edited: &Value) -> Option<String> {
    let Question::Approval { arguments: shown, .. } = &question.question else { return None };
    let effective = redaction::effective(active.scratch.effective.as_deref(), &question.call)?;
    redaction::copied_placeholder(shown, effective, edited)
}

/// Arguments that an approver put in the place of those asked about.
struct EditedCall {
    arguments: Arc<Value>,
    digest: Text,
}

/// Edited arguments in their normal form and with their digest, or what is wrong with them, as far as this process has the
/// tool.
async fn edit_of(
    turn: Turn,
    (agent, conversation): (Option<Agent>, ConversationId),
    question: &OpenQuestion,
    mut arguments: Arc<Value>,
) -> Result<EditedCall, AnswerError> {
    let Some(tool) = question.question.tool() else {
        return Err(AnswerError::Unfit("there are no arguments here that can be changed".into()));
    };
    if let Some(compiled) = agent.as_ref().and_then(|agent| agent.tool(tool)) {
        let normal = turn.ctx.abort.race(normal_form(&turn, compiled, &arguments)).await;
        match normal.map_err(|_| AnswerError::Stale("the turn is over".into()))? {
            Ok(Some(normal)) => arguments = Arc::new(normal),
            Ok(None) => {}
            Err(refusal) => return Err(AnswerError::Unfit(refusal.to_string().into())),
        }
        if let Some(complaint) = compiled.complaint(&arguments) {
            return Err(AnswerError::Unfit(complaint.into()));
        }
    }
    let digest = digest::of_call(tool, &arguments, &conversation);
    Ok(EditedCall { arguments, digest })
}

/// Edited arguments as they are, with their digest.
fn unchecked_edit(active: &ActiveTurn, question: &OpenQuestion, answer: &Answer) -> EditedCall {
    let conversation = asker(active, question).1;
    let arguments = match answer {
        Answer::ApproveWith(arguments) => arguments.clone(),
        _ => Arc::default(),
    };
    let digest = digest::of_call(question.question.tool().map_or("", |tool| tool), &arguments, &conversation);
    EditedCall { arguments, digest }
}

/// The agent that asks for an approval, and the conversation of the call that it asks about: those of this turn or, if a
/// sub-agent asks, its own. The digest of what is asked says which. `None` for a sub-agent of a sub-agent, which checks for
/// itself when the answer is passed on.
fn asker(active: &ActiveTurn, question: &OpenQuestion) -> (Option<Agent>, ConversationId) {
    let ctx = active.ctx();
    let asks = |conversation: &ConversationId| match &question.question {
        Question::Approval { tool: Some(tool), arguments, digest, .. } => {
            *digest == digest::of_call(tool, arguments, conversation)
        }
        _ => false,
    };
    match active.sub_agent_of(&question.call) {
        Some((conversation, agent)) if asks(&conversation) => (Some(agent), conversation),
        _ if asks(&ctx.conversation) => (Some(ctx.agent.clone()), ctx.conversation.clone()),
        _ => (None, ctx.conversation.clone()),
    }
}

/// What the answer is about, and whether it settles the question.
fn evidence(question: &OpenQuestion, decision: Resolved, order: &AnswerOrder, edit: Option<EditedCall>) -> Evidence {
    let digest = question.question.digest().cloned();
    let mut evidence = Evidence { digest, via: order.via.clone(), ..Evidence::default() };
    let mut approvals = question.approvals.len() + 1;
    if let Some(EditedCall { arguments, digest }) = edit {
        (evidence.arguments, evidence.digest) = (Some(arguments), Some(digest));
        approvals = 1;
    }
    evidence.open = decision == Resolved::Approved && approvals < question.approvals_needed();
    evidence
}

fn refuse(active: &mut ActiveTurn, order: AnswerOrder, why: AnswerError) -> Result<Taken, StoreError> {
    if let (AnswerOrigin::Inbox(_), AnswerError::Forbidden { .. } | AnswerError::Unfit(_) | AnswerError::Stale(_)) =
        (&order.origin, &why)
    {
        // Its sender was told that it is stored, so those who watch are told what became of it.
        let text = format!("the answer of {} to call {} was not taken: {why}", order.from.author(), order.call).into();
        active.ctx().publish(LiveEvent::Notice { level: Level::Warning, text, hook: None });
    }
    active.done_items.extend(order.refuse(why));
    Ok(Taken::NotWritten)
}

/// Whether a question of the turn is past its time.
pub(crate) fn has_expired(active: &ActiveTurn) -> bool {
    let clock = active.ctx().clock();
    active.state.turn.iter().flat_map(|turn| turn.open_questions()).any(|question| question.expires <= clock.now())
}

/// Answers questions that expired, in the system's name, and gives their calls an error result. That needs neither the agent
/// of the turn nor its tools. True if there were any.
pub(crate) async fn expire(active: &mut ActiveTurn) -> Result<bool, StoreError> {
    let now = active.ctx().clock().now();
    let by = Author::System(SystemAuthor::Expiry);
    let Some(turn) = &active.state.turn else { return Ok(false) };
    let expired = turn.open_questions().filter(|question| question.expires <= now);
    let (mut kinds, mut calls, mut is_of_reply) = (Vec::new(), Vec::new(), false);
    for question in expired {
        kinds.push(EventKind::Resolution {
            call: question.call.clone(),
            decision: Resolved::Expired,
            by: by.clone(),
            reason: None,
            evidence: Box::default(),
        });
        if turn.calls.get(&question.call).is_some() {
            let (call, Output { ok, content, .. }) = (question.call.clone(), Output::error(NOBODY_ANSWERED));
            kinds.push(EventKind::ToolResult { call: call.clone(), ok, content });
            calls.push(call);
        } else {
            is_of_reply |= matches!(&question.question, Question::Approval { tool: None, .. });
        }
    }
    if kinds.is_empty() {
        return Ok(false);
    }
    let over: Vec<_> = calls.iter().filter_map(|call| active.sub_agent_of(call)).collect();
    let before = active.restore_point();
    calls.iter().for_each(|call| active.forget_answer(call));
    let mut write = active.new_write();
    write.extend(kinds);
    write.status = Some(ConversationStatus::Running);
    match active.append(write).await {
        Ok(()) => {}
        // Another process stored an answer in time. It is taken up from the inbox; what it leaves open expires then.
        Err(StoreError::AlreadyAnswered { .. }) => {
            active.restore(before);
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    if is_of_reply {
        take_back(active, by, None);
    }
    for sub_agent in over {
        active.cancel_sub_agent(sub_agent).await;
    }
    Ok(true)
}

/// Tells viewers that a reply which was asked about is not let through.
fn take_back(active: &ActiveTurn, by: Author, reason: Option<Text>) {
    let attempt = active.scratch.asked.as_ref().map_or(1, |asked| asked.attempt);
    active.ctx().publish(LiveEvent::AttemptDiscarded { attempt, by: Some(by), reason, replaced: false });
}

/// The other pauses of a stop, once one of them was denied: the turn goes on, so nobody needs to answer them.
fn other_pauses(active: &ActiveTurn, denied: &CallId, by: &Author) -> Vec<EventKind> {
    let open = active.state.turn.iter().flat_map(|turn| turn.open_questions());
    let others = open.filter(|other| other.call != *denied && matches!(other.question, Question::Pause { .. }));
    let cancelled = |other: &OpenQuestion| EventKind::Resolution {
        call: other.call.clone(),
        decision: Resolved::Cancelled,
        by: by.clone(),
        reason: Some("another pause was denied".into()),
        evidence: Box::default(),
    };
    others.map(cancelled).collect()
}

/// The events that an answer adds to the log.
fn events(
    active: &ActiveTurn,
    question: &OpenQuestion,
    decision: Resolved,
    order: &AnswerOrder,
    evidence: Evidence,
) -> Vec<EventKind> {
    let reason = match &order.answer {
        Answer::Deny(reason) => reason.clone(),
        Answer::Error(text) => Some(text.clone()),
        _ => None,
    };
    let (call, by) = (question.call.clone(), order.from.author());
    let mut kinds = vec![EventKind::Resolution {
        call,
        decision,
        by: by.clone(),
        reason: reason.clone(),
        evidence: Box::new(evidence),
    }];
    let goes_on = active.progress.verdict.is_none();
    if let (Question::Pause { hook, reason: paused }, Resolved::Denied, true) = (&question.question, decision, goes_on)
    {
        let feedback = reason.clone().unwrap_or_else(|| paused.clone());
        kinds.extend(other_pauses(active, &question.call, &by));
        kinds.push(EventKind::StopFeedback { refusals: vec![Refusal { hook: hook.clone(), feedback }] });
    }
    if let (Question::Approval { tool: None, .. }, Resolved::Denied) = (&question.question, decision) {
        take_back(active, by, reason);
    }
    kinds
}
