//! call: the model speaks, through the wraps and the stream transformers, and the `after_model` hooks judge the reply.

use std::pin::pin;
use std::sync::Arc;

use serde_json::Value;

use super::active::{ActiveTurn, Interrupt};
use super::call_ids;
use super::changes::{self, Applied};
use super::context::TurnContext;
use super::last_answer;
use super::make_room::RefusedRequest;
use super::perform::normal_form;
use super::pipe::Pipe;
use super::prompt_cache;
use super::reply_stream::ReplyStream;
use super::state::{OpenQuestion, Verdict};
use crate::change::{Edited, text_of_reply};
use crate::cut::Factor;
use crate::digest;
use crate::event::{Cause, EventKind, Executor, Outcome, Question, ReplyExtras};
use crate::hook::call::{HookCaller, blocked};
use crate::hook::{AfterModel, HookEntry, ModelNext, Point, Release};
use crate::id::CallId;
use crate::message::{Hosted, Reply, StopReason, Text, ToolCall};
use crate::model::{ModelError, Request};
use crate::scope::{Author, SystemAuthor};
use crate::store::{ApprovedReply, PendingReply, Regeneration};

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    active.ctx().abort.check()?;
    if let Some(question) = active.state.turn.as_ref().and_then(|turn| turn.approved_reply().cloned()) {
        return admit_approved(active, question).await;
    }
    let Some(mut reply) = speak(active).await? else { return Ok(()) };
    let last = active.scratch.last_answer.clone();
    if let Some(limit) = &last {
        active.ctx().budget.release_kept_back();
        reply = last_answer::without_calls(reply);
        if reply.content.is_blank() && reply.object.is_none() {
            let why = "the model only called tools, or said nothing";
            return Err(last_answer::give_up(active, limit, None, why, Cause::Truncated));
        }
    }
    let reply = let_through(active, reply, None).await?;
    let judged = match with_object(active, reply) {
        Ok(reply) => judge(active, reply).await?,
        Err((reply, feedback)) => Judged::Unfit { reply, feedback },
    };
    match judged {
        Judged::Fine { reply, approved } => {
            if let Some(stream) = &mut active.reply {
                stream.release();
            }
            // A hook may have put calls into it.
            let reply = match last {
                Some(_) if !reply.calls.is_empty() => Arc::new(last_answer::without_calls((*reply).clone())),
                _ => reply,
            };
            admit(active, reply, approved).await
        }
        Judged::Asked { reply, shown, question } => ask_person(active, reply, &shown, question).await,
        Judged::Regenerate { hook, feedback, reply } => match last {
            None => regenerate(active, &hook, feedback, &reply).await,
            Some(limit) => {
                let cause = Cause::Regenerations { hook: hook.clone(), limit: 0 };
                Err(last_answer::give_up(active, &limit, Some(hook), &feedback, cause))
            }
        },
        Judged::Unfit { reply, feedback } => match last {
            None => ask_for_object(active, feedback, &reply).await,
            Some(limit) => Err(last_answer::give_up(active, &limit, None, &feedback, Cause::SchemaMismatch)),
        },
    }
}

/// The reply with its object, if the turn asks for one; or what is wrong with it.
fn with_object(active: &mut ActiveTurn, reply: Arc<Reply>) -> Result<Arc<Reply>, (Arc<Reply>, Text)> {
    let Some(schema) = &active.schema else { return Ok(reply) };
    match schema.object_of(&reply) {
        Err(complaint) => Err((reply, complaint)),
        Ok(object) => {
            let reply = Arc::new(Reply { object: Some(object), ..(*reply).clone() });
            active.turn.edit().assistant_message = Some(reply.clone());
            Ok(reply)
        }
    }
}

/// One reply, however many attempts the wraps make at it. `None` if the request was too long: it is built again, smaller.
async fn speak(active: &mut ActiveTurn) -> Result<Option<Reply>, Interrupt> {
    let ctx = active.ctx().clone();
    let attempts = active.scratch.regeneration.as_ref().map_or(0, |again| again.attempts);
    let attempts = attempts.max(active.refused.map_or(0, |refused| refused.attempts));
    ctx.budget.begin_reply(attempts);
    let judges = ctx.agent.hooks_at(Point::AfterModel);
    let held = judges.iter().any(|entry| entry.settings().release == Release::OnAccept);
    let ActiveTurn { turn, reply, .. } = active;
    let Some(request) = turn.context() else {
        let cause = Cause::Model { status: None, error: crate::event::ModelErrorKind::Protocol };
        return Err(Verdict::failed("no context was built", cause).into());
    };
    let stream = reply.insert(ReplyStream::new(ctx.clone(), attempts + 1, held));
    let next = ModelNext::new(ctx.agent.hooks_at(Point::WrapModelCall), turn, ctx.agent.model());
    let spoken = match stream.is_piped() {
        false => ctx.abort.race(next.run_in_place(request, stream)).await,
        true => {
            let pipe = Pipe::default();
            let mut sink = pipe.sink();
            // Boxed: most turns never get here, and their futures need not have room for it.
            ctx.abort.race(Box::pin(pipe.run(stream, next.run_in_place(request, &mut sink)))).await
        }
    };
    prompt_cache::note_sent(active);
    match spoken? {
        Ok(reply) => {
            active.refused = None;
            Ok(Some(reply))
        }
        Err(error) => {
            if let Some(stream) = &mut active.reply {
                stream.discard(None, Some(error.to_string().into()));
            }
            ctx.abort.check()?;
            if build_smaller(active, &error) {
                return Ok(None);
            }
            if let (ModelError::Exhausted { limit }, true) = (&error, last_answer::is_possible(active)) {
                last_answer::begin(active, limit);
                return Ok(None);
            }
            if let (Some(limit), false) = (active.scratch.last_answer.clone(), matches!(error, ModelError::Hook { .. }))
            {
                let cause = Cause::Model { status: error.status(), error: error.kind() };
                return Err(last_answer::give_up(active, &limit, None, &error.to_string(), cause));
            }
            Err(match error {
                ModelError::Exhausted { limit } => Verdict::exhausted(limit).into(),
                ModelError::Hook { hook, cause } => blocked(&hook, Point::WrapModelCall, &cause),
                error => {
                    let cause = Cause::Model { status: error.status(), error: error.kind() };
                    Verdict::failed(error.to_string(), cause).into()
                }
            })
        }
    }
}

/// Whether the request is built again, smaller, because the model cannot take it: once for each reply.
fn build_smaller(active: &mut ActiveTurn, error: &ModelError) -> bool {
    let Some((limit, size)) = error.too_long().filter(|_| active.refused.is_none()) else { return false };
    let estimated = active.turn.context().and_then(Request::estimated);
    let now = active.state.window.factor().unwrap_or_default();
    // What the provider counted says how wrong the estimate is. Without a count it is taken to be wrong by half.
    let factor = match (size, estimated) {
        (Some(size), Some(estimated)) if estimated > 0 => Factor::thousandths(size.saturating_mul(1000) / estimated),
        _ => Factor::thousandths(u64::from(now.as_thousandths()) * 3 / 2),
    };
    let attempts = active.ctx().budget.attempt();
    let known = active.state.window.tokens() + active.ctx().agent.fixed_tokens();
    let added = estimated.map_or(u64::MAX, |estimated| estimated.saturating_sub(known));
    active.refused = Some(RefusedRequest { factor: factor.max(now), limit, added, attempts, is_answered: false });
    active.progress.request_ready = false;
    let text = format!("{error}; the context is made smaller and the model is asked once more");
    active.warn(None, text, Cause::Model { status: error.status(), error: error.kind() });
    true
}

/// The reply as the transformers let it through. A reply that a hook put in place of another takes the text of that one
/// back.
async fn let_through(
    active: &mut ActiveTurn,
    mut reply: Reply,
    modified_by: Option<&Text>,
) -> Result<Arc<Reply>, Interrupt> {
    // A provider may give the object alone: it passes the transformers as text, like everything else that is said.
    if let (true, Some(object), true) = (active.schema.is_some(), &reply.object, reply.content.is_blank()) {
        reply.content = object.to_string().into();
    }
    if let Some(stream) = &mut active.reply {
        if let Some(hook) = modified_by {
            stream.replace(hook);
        }
        let completed = match stream.is_piped() {
            false => stream.complete(&reply.content),
            true => {
                let ctx = active.turn.ctx.clone();
                ctx.abort.race(Box::pin(stream.complete_later(&reply.content))).await?
            }
        };
        match completed {
            Ok(content) => reply.content = content,
            Err((hook, failure)) => {
                stream.discard(Some(Author::hook(&hook)), Some(failure.as_str().into()));
                let reason = format!("hook {hook} failed at {}: {failure}", Point::Stream);
                let cause = Cause::HookFailed { hook: hook.clone(), point: Point::Stream };
                return Err(Verdict::failed(reason, cause).by(Author::hook(&hook)).into());
            }
        }
    }
    call_ids::make_unique(&active.state, &active.turn.ctx, &mut reply).await?;
    let reply = Arc::new(reply);
    active.turn.edit().assistant_message = Some(reply.clone());
    Ok(reply)
}

/// What the `after_model` hooks made of a reply.
enum Judged {
    Fine { reply: Arc<Reply>, approved: Option<ApprovedReply> },
    Asked { reply: Arc<Reply>, shown: Arc<Reply>, question: Text },
    Regenerate { hook: Text, feedback: Text, reply: Arc<Reply> },
    Unfit { reply: Arc<Reply>, feedback: Text },
}

/// Asks the hooks in order. A rejection or a regeneration ends the chain, a modified reply goes on to the hooks behind,
/// and a person is asked when no hook objected.
async fn judge(active: &mut ActiveTurn, mut reply: Arc<Reply>) -> Result<Judged, Interrupt> {
    let ctx = active.ctx().clone();
    let hooks = ctx.agent.hooks_at(Point::AfterModel);
    if hooks.is_empty() {
        return Ok(Judged::Fine { reply, approved: None });
    }
    let mut caller =
        HookCaller::new(&ctx, Point::AfterModel).given(|| serde_json::to_string(&*reply).unwrap_or_default());
    let (mut approved, mut questions): (Option<Author>, Vec<Text>) = (None, Vec::new());
    let mut shown = show_normal_form(active, &reply).await?;
    for entry in hooks {
        let Some(decision) = ask(active, &mut caller, entry, &shown).await? else { continue };
        match decision {
            AfterModel::Continue => {}
            AfterModel::Approve => approved = Some(Author::hook(&entry.name)),
            AfterModel::Ask(question) => questions.push(question),
            AfterModel::Modify(mut modified) => {
                // What a hook makes of a model's reply is still that model's reply.
                modified.model = reply.model.clone();
                keep_spelling(&mut modified, &reply, &shown);
                let before = reply.clone();
                reply = let_through(active, *modified, Some(&entry.name)).await?;
                note_modified(active, entry, &before, &reply);
                shown = show_normal_form(active, &reply).await?;
                // It was another reply that was approved.
                approved = None;
            }
            AfterModel::Regenerate(feedback) => {
                hide_taken_back(active);
                return Ok(Judged::Regenerate { hook: entry.name.clone(), feedback, reply });
            }
            AfterModel::Reject(reason) => {
                discard(active, &entry.name, &reason);
                return Err(Verdict::by_hook(Outcome::Rejected, reason, &entry.name, Point::AfterModel).into());
            }
        }
    }
    // What a hook made of the reply must fit the schema as well.
    let reply = match with_object(active, reply) {
        Ok(reply) => reply,
        Err((reply, feedback)) => {
            hide_taken_back(active);
            return Ok(Judged::Unfit { reply, feedback });
        }
    };
    if !questions.is_empty() {
        return Ok(Judged::Asked { reply, shown, question: questions.join("; ").into() });
    }
    let approved = approved.map(|by| approved_reply(&ctx, vec![by], &shown.calls));
    Ok(Judged::Fine { reply, approved })
}

/// The reply as hooks and people see it: the arguments of its calls in their normal form. Arguments that have none are shown
/// as they are; their calls will be refused.
async fn show_normal_form(active: &mut ActiveTurn, reply: &Arc<Reply>) -> Result<Arc<Reply>, Interrupt> {
    let ctx = active.ctx().clone();
    let mut shown = reply.clone();
    for (place, call) in reply.calls.iter().enumerate() {
        let Some(compiled) = ctx.agent.tool(&call.name) else { continue };
        if compiled.tool.spec().normalize.is_none() {
            continue;
        }
        let normal = ctx.abort.race(normal_form(&active.turn, compiled, &call.arguments));
        if let Ok(Some(normal)) = Box::pin(normal).await? {
            Arc::make_mut(&mut shown).calls[place].arguments = Arc::new(normal);
        }
    }
    if !Arc::ptr_eq(&shown, reply) {
        active.turn.edit().assistant_message = Some(shown.clone());
    }
    Ok(shown)
}

/// Calls that a hook left as they were shown to it keep the spelling that the model gave them: the log has that.
fn keep_spelling(modified: &mut Reply, reply: &Reply, shown: &Reply) {
    for call in &mut modified.calls {
        if let Some(place) = shown.calls.iter().position(|shown| shown == call) {
            call.arguments = reply.calls[place].arguments.clone();
        }
    }
}

/// The approval of a reply, bound to the calls that were shown.
fn approved_reply(ctx: &TurnContext, approvals: Vec<Author>, shown: &[ToolCall]) -> ApprovedReply {
    let digest = |call: &ToolCall| digest::of_call(&call.name, &call.arguments, &ctx.conversation);
    let calls = shown.iter().map(|call| (call.call.clone(), digest(call))).collect();
    ApprovedReply { approvals, calls }
}

async fn ask(
    active: &mut ActiveTurn,
    caller: &mut HookCaller<'_>,
    entry: &HookEntry,
    reply: &Arc<Reply>,
) -> Result<Option<AfterModel>, Interrupt> {
    let Some(hook) = entry.hook() else { return Ok(None) };
    let run = caller.run(entry, pin!(hook.after_model(&active.turn, reply))).await?;
    if run.result.is_err() {
        changes::hide_after_failure(entry, &mut active.records, Edited::Reply, None);
    }
    let decided = caller.unless_blocked(entry, run, &mut active.records);
    if decided.is_err() {
        discard(active, &entry.name, &"the hook failed".into());
    }
    decided
}

/// Notes what a hook made of a reply, both without what the log does not have. Where replies are told only when every guard has
/// accepted them, what was there before is told nowhere.
fn note_modified(active: &mut ActiveTurn, entry: &HookEntry, before: &Reply, after: &Reply) {
    let ctx = active.turn.ctx.clone();
    let calls = (before.calls != after.calls)
        .then(|| (changes::stored_calls(&ctx, &before.calls), changes::stored_calls(&ctx, &after.calls)));
    let (old, new) = calls.as_ref().map(|(old, new)| (&**old, &**new)).unzip();
    let applied = Applied::new(Edited::Reply, text_of_reply(before, old), text_of_reply(after, new));
    changes::note_edit(&ctx, entry, &mut active.records, applied);
    let held = |entry: &HookEntry| entry.settings().release == Release::OnAccept;
    if ctx.agent.hooks_at(Point::AfterModel).iter().any(held) {
        changes::hide_before(&mut active.records, entry);
    }
}

/// A reply that is taken back is in no log, and so in no record.
fn hide_taken_back(active: &mut ActiveTurn) {
    changes::hide(&mut active.records, Edited::Reply, None);
}

fn discard(active: &mut ActiveTurn, hook: &Text, reason: &Text) {
    hide_taken_back(active);
    if let Some(stream) = &mut active.reply {
        stream.discard(Some(Author::hook(hook)), Some(reason.clone()));
    }
}

/// How often a reply that does not fit its schema is asked for again.
const MAX_SCHEMA_RETRIES: u32 = 1;

/// The model is told what does not fit, and tries again.
async fn ask_for_object(active: &mut ActiveTurn, complaint: Text, reply: &Reply) -> Result<(), Interrupt> {
    if let Some(stream) = &mut active.reply {
        stream.discard(None, Some(complaint.clone()));
    }
    let before = active.scratch.regeneration.as_ref();
    let (count, reshaped) = before.map_or((0, 0), |again| (again.count, again.reshaped));
    if reshaped >= MAX_SCHEMA_RETRIES {
        let verdict = Verdict::new(Outcome::Rejected, complaint, Cause::SchemaMismatch);
        return Err(verdict.by(Author::System(SystemAuthor::Limit)).into());
    }
    let attempts = active.ctx().budget.attempt();
    let (discarded, hook) = (reply.content.clone(), "the schema".into());
    let reshaped = reshaped + 1;
    again(active, Regeneration { count, reshaped, attempts, discarded, feedback: complaint, hook }).await
}

/// The next attempt is built with the discarded reply and the feedback at its tail.
async fn again(active: &mut ActiveTurn, regeneration: Regeneration) -> Result<(), Interrupt> {
    active.scratch.edit().regeneration = Some(Box::new(regeneration));
    Ok(active.write([]).await?)
}

/// Asks for another reply. All regenerations of a reply count together; at the limit the turn ends `rejected`, naming
/// the hook.
async fn regenerate(active: &mut ActiveTurn, hook: &Text, feedback: Text, reply: &Reply) -> Result<(), Interrupt> {
    discard(active, hook, &feedback);
    let before = active.scratch.regeneration.as_ref();
    let (count, reshaped) = before.map_or((1, 0), |again| (again.count + 1, again.reshaped));
    let limit = active.ctx().limits.max_regenerations;
    if count > limit {
        let reason = format!("{feedback} (after {limit} regenerations)");
        let cause = Cause::Regenerations { hook: hook.clone(), limit };
        return Err(Verdict::new(Outcome::Rejected, reason, cause).by(Author::hook(hook)).into());
    }
    let attempts = active.ctx().budget.attempt();
    let (discarded, hook) = (reply.content.clone(), hook.clone());
    again(active, Regeneration { count, reshaped, attempts, discarded, feedback, hook }).await
}

/// The reply becomes history, with the calls it asks for.
async fn admit(active: &mut ActiveTurn, reply: Arc<Reply>, approved: Option<ApprovedReply>) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let attempt = ctx.budget.attempt().max(1);
    let annotations = active.reply.as_ref().and_then(ReplyStream::annotations);
    let scratch = &active.scratch;
    if scratch.regeneration.is_some() || scratch.asked.is_some() || scratch.approved_reply != approved {
        let scratch = active.scratch.edit();
        (scratch.regeneration, scratch.asked, scratch.approved_reply) = (None, None, approved);
    }
    if let Some((what, cause)) = lacking(&reply) {
        active.warn(None, what, cause);
    }
    let message = EventKind::AssistantMessage {
        attempt,
        content: reply.content.clone(),
        stop_reason: reply.stop_reason,
        usage: reply.usage,
        cost: ctx.budget.last_attempt().cost,
        extras: ReplyExtras { object: reply.object.clone(), annotations }.boxed(),
        model: reply.model.clone(),
    };
    let calls = reply.calls.iter().map(|call| EventKind::ToolCall {
        call: call.call.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone().into(),
        executor: ctx.agent.tool(&call.name).map_or(Executor::Server, |compiled| compiled.tool.spec().executor),
    });
    let mut write = active.new_write();
    write.extend(reply.hosted.iter().flat_map(hosted_events));
    write.push(message);
    write.extend(calls);
    active.append(write).await?;
    active.reply = None;
    Ok(())
}

/// What a person should know of a reply that is no answer, or only the beginning of one.
fn lacking(reply: &Reply) -> Option<(&'static str, Cause)> {
    match reply.stop_reason {
        StopReason::Refusal => Some(("the model refused to answer", Cause::Refusal)),
        StopReason::Length if reply.calls.is_empty() => {
            Some(("the answer is cut off: it reached the length that a reply may have", Cause::Truncated))
        }
        _ => None,
    }
}

/// A call that the provider made and answered itself. It stands before the reply, because it was over before that was
/// complete.
fn hosted_events(hosted: &Hosted) -> [EventKind; 2] {
    let Hosted { call: ToolCall { call, name, arguments }, ok, content } = hosted.clone();
    let result = EventKind::ToolResult { call: call.clone(), ok, content };
    [EventKind::ToolCall { call, name, arguments: arguments.into(), executor: Executor::Provider }, result]
}

/// A person decides about the whole reply. It is kept in the scratch, because it may never become history.
async fn ask_person(active: &mut ActiveTurn, reply: Arc<Reply>, shown: &Reply, why: Text) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let call: CallId = ctx.services.ids.mint("reply_").into();
    let shown = serde_json::json!({ "text": shown.content.text(), "calls": shown.calls });
    let digest = digest::of_call("", &shown, &ctx.conversation);
    let question = Question::Approval {
        tool: None,
        arguments: Arc::new(shown),
        digest,
        why: Some(why),
        again: false,
        redacted: false,
        standing: None,
    };
    let attempt = active.reply.as_ref().map_or(1, ReplyStream::attempt);
    let told = active.reply.as_ref().is_some_and(|stream| stream.shown_content().is_some());
    let asked = PendingReply { call: call.clone(), attempt, reply: (*reply).clone(), told };
    active.scratch.edit().asked = Some(Box::new(asked));
    let asked = ctx.suspension(call, question, None).await?;
    Ok(active.write([asked]).await?)
}

/// The reply that a person has approved becomes history.
async fn admit_approved(active: &mut ActiveTurn, question: OpenQuestion) -> Result<(), Interrupt> {
    let Some(asked) = active.scratch.asked.clone() else {
        return Err(Verdict::failed("the reply that was approved is gone", Cause::NotApproved).into());
    };
    let (ctx, by) = (active.ctx().clone(), active.scratch.answered_by(&question.call));
    if !ctx.accepts_answer(&question, &by).await? {
        let reason = "those who approved the reply may not approve it";
        return Err(Verdict::new(Outcome::Rejected, reason, Cause::NotApproved).into());
    }
    if let Some(stream) = &mut active.reply {
        stream.release();
    }
    active.ctx().budget.begin_reply(asked.attempt);
    let reply = Arc::new(asked.reply);
    active.turn.edit().assistant_message = Some(reply.clone());
    let shown = match &question.question {
        Question::Approval { arguments, .. } => arguments.get("calls").cloned().unwrap_or_default(),
        _ => Value::Null,
    };
    // What cannot be read back covers no call.
    let shown: Vec<ToolCall> = serde_json::from_value(shown).unwrap_or_default();
    let approved = approved_reply(active.ctx(), question.approvals, &shown);
    admit(active, reply, Some(approved)).await
}
