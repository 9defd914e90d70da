//! call: the model speaks, through the wraps and the stream transformers, and the `after_model` hooks judge the reply.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::active::{ActiveTurn, Interrupt, With};
use super::reply_stream::ReplyStream;
use super::state::{State, Verdict};
use super::view::TurnContext;
use crate::digest;
use crate::event::{EventKind, Outcome, Question};
use crate::hook::run::Run;
use crate::hook::{AfterModel, HookEntry, ModelNext, Point, Release};
use crate::id::CallId;
use crate::message::{Hosted, Reply, StopReason, Text, ToolCall};
use crate::model::ModelError;
use crate::scope::{Author, SystemAuthor};
use crate::store::{PendingReply, Regeneration};
use crate::tool::Executor;

/// Why told text is taken back when a hook put another reply in its place.
pub(crate) const MODIFIED: &str = "modified";

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    active.ctx().abort.check()?;
    if let Some(by) = active.state.turn.as_ref().and_then(|turn| turn.approved_reply().cloned()) {
        return admit_approved(active, by).await;
    }
    let reply = speak(active).await?;
    let reply = let_through(active, reply, None).await?;
    let judged = match shaped(active, reply) {
        Ok(reply) => judge(active, reply).await?,
        Err((reply, complaint)) => return reshape(active, complaint, &reply).await,
    };
    match judged {
        Judged::Fine { reply, approved } => {
            if let Some(reply_stream) = &mut active.reply_stream {
                reply_stream.release();
            }
            admit(active, reply, approved).await
        }
        Judged::Asked { reply, question } => ask_person(active, reply, question).await,
        Judged::Regenerate { hook, feedback, reply } => regenerate(active, &hook, feedback, &reply).await,
        Judged::Unfit { reply, feedback } => reshape(active, feedback, &reply).await,
    }
}

/// The reply with its object, if the turn wants one; else what is wrong with it.
fn shaped(active: &mut ActiveTurn, reply: Arc<Reply>) -> Result<Arc<Reply>, (Arc<Reply>, Text)> {
    let Some(shape) = &active.shape else { return Ok(reply) };
    match shape.object_of(&reply) {
        Err(complaint) => Err((reply, complaint)),
        Ok(object) => {
            let reply = Arc::new(Reply { object: Some(object), ..(*reply).clone() });
            active.turn.change().assistant_message = Some(reply.clone());
            Ok(reply)
        }
    }
}

/// One reply, however many attempts the wraps make at it.
async fn speak(active: &mut ActiveTurn) -> Result<Reply, Interrupt> {
    let ctx = active.ctx().clone();
    let chains = ctx.agent.chains();
    let attempts = active.scratch.regeneration.as_ref().map_or(0, |again| again.attempts);
    ctx.budget.begin_reply(attempts);
    let held = chains.after_model.iter().any(|entry| entry.settings().release == Release::OnAccept);
    let ActiveTurn { turn, reply_stream, .. } = active;
    let Some(request) = turn.context() else { return Err(Verdict::failed("no context was built").into()) };
    let reply_stream = reply_stream.insert(ReplyStream::new(ctx.clone(), attempts + 1, held));
    let next = ModelNext::new(&chains.wrap_model_call, turn, ctx.agent.model());
    match ctx.abort.race(next.run(request, reply_stream)).await? {
        Ok(reply) => Ok(reply),
        Err(error) => {
            reply_stream.discard(None, Some(error.to_string().into()));
            ctx.abort.check()?;
            Err(match error {
                ModelError::Exhausted { limit } => Verdict::exhausted(limit).into(),
                ModelError::Hook { hook, cause } => crate::hook::run::blocked(&hook, Point::WrapModelCall, &cause),
                error => Verdict::failed(error.to_string()).into(),
            })
        }
    }
}

/// The reply as the transformers let it through. `modified_by` replaces what was told before.
async fn let_through(
    active: &mut ActiveTurn,
    mut reply: Reply,
    modified_by: Option<&Text>,
) -> Result<Arc<Reply>, Interrupt> {
    // A provider may give the object alone: it passes the transformers as text like everything else that is said.
    if let (true, Some(object), true) = (active.shape.is_some(), &reply.object, reply.content.is_blank()) {
        reply.content = object.to_string().into();
    }
    if let Some(reply_stream) = &mut active.reply_stream {
        if let Some(hook) = modified_by {
            reply_stream.discard(Some(Author::hook(hook)), Some(MODIFIED.into()));
        }
        match reply_stream.complete(&reply.content) {
            Ok(content) => reply.content = content,
            Err((hook, failure)) => {
                reply_stream.discard(Some(Author::hook(&hook)), Some(failure.as_str().into()));
                let reason = format!("hook {hook} failed at {}: {failure}", Point::Stream);
                return Err(Verdict::failed(reason).by(Author::hook(&hook)).into());
            }
        }
    }
    make_ids_unique(active, &mut reply).await?;
    let reply = Arc::new(reply);
    active.turn.change().assistant_message = Some(reply.clone());
    Ok(reply)
}

/// A provider's call id that repeats becomes `ID~2`.
async fn make_ids_unique(active: &mut ActiveTurn, reply: &mut Reply) -> Result<(), Interrupt> {
    let ActiveTurn { state, turn, .. } = &*active;
    let (state, ctx) = (&**state, &turn.ctx);
    let mut given: SmallVec<[CallId; 1]> = SmallVec::new();
    let hosted = reply.hosted.iter_mut().map(|hosted| &mut hosted.call);
    for call in hosted.chain(&mut reply.calls) {
        call.call = free_id(state, ctx, &call.call, &given).await?;
        given.push(call.call.clone());
    }
    Ok(())
}

/// The id itself, or with the lowest number that is free: found by doubling and then halving, since a long conversation
/// may have used thousands.
async fn free_id(state: &State, ctx: &TurnContext, id: &CallId, before: &[CallId]) -> Result<CallId, Interrupt> {
    let numbered = |number: u64| CallId::from(format!("{id}~{number}"));
    if !is_taken(state, ctx, id, before).await? {
        return Ok(id.clone());
    }
    let (mut taken, mut free) = (1, 2);
    while is_taken(state, ctx, &numbered(free), before).await? {
        (taken, free) = (free, free.saturating_mul(2));
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        match is_taken(state, ctx, &numbered(middle), before).await? {
            true => taken = middle,
            false => free = middle,
        }
    }
    Ok(numbered(free))
}

async fn is_taken(state: &State, ctx: &TurnContext, id: &CallId, before: &[CallId]) -> Result<bool, Interrupt> {
    if state.has_call(id) || before.contains(id) {
        return Ok(true);
    }
    if state.is_whole() {
        return Ok(false);
    }
    Ok(ctx.runtime.store.has_call(&ctx.conversation, id).await?)
}

/// What the `after_model` hooks made of a reply.
enum Judged {
    Fine { reply: Arc<Reply>, approved: Option<Author> },
    Asked { reply: Arc<Reply>, question: Text },
    Regenerate { hook: Text, feedback: Text, reply: Arc<Reply> },
    Unfit { reply: Arc<Reply>, feedback: Text },
}

/// Hooks in order: a rejection or a regeneration ends the chain, a modified reply goes on to the hooks behind, and a
/// person is asked when nobody objected.
async fn judge(active: &mut ActiveTurn, mut reply: Arc<Reply>) -> Result<Judged, Interrupt> {
    if active.ctx().agent.chains().after_model.is_empty() {
        return Ok(Judged::Fine { reply, approved: None });
    }
    let agent = active.agent();
    let (mut approved, mut questions): (Option<Author>, Vec<Text>) = (None, Vec::new());
    let mut ended = None;
    for entry in &agent.chains().after_model {
        let Some(decision) = ask(active, entry, &reply, &mut ended).await? else { continue };
        match decision {
            AfterModel::Continue => {}
            AfterModel::Approve => approved = Some(Author::hook(&entry.name)),
            AfterModel::Ask(question) => questions.push(question),
            AfterModel::Modify(modified) => reply = let_through(active, *modified, Some(&entry.name)).await?,
            AfterModel::Regenerate(feedback) => {
                return Ok(Judged::Regenerate { hook: entry.name.clone(), feedback, reply });
            }
            AfterModel::Reject(reason) => {
                discard(active, &entry.name, &reason);
                return Err(Verdict::new(Outcome::Rejected, reason).by(Author::hook(&entry.name)).into());
            }
        }
    }
    // What a hook made of the reply is held to the schema as well.
    let reply = match shaped(active, reply) {
        Ok(reply) => reply,
        Err((reply, feedback)) => return Ok(Judged::Unfit { reply, feedback }),
    };
    if questions.is_empty() {
        return Ok(Judged::Fine { reply, approved });
    }
    Ok(Judged::Asked { reply, question: questions.join("; ").into() })
}

async fn ask(
    active: &mut ActiveTurn,
    entry: &HookEntry,
    reply: &Arc<Reply>,
    ended: &mut Option<Duration>,
) -> Result<Option<AfterModel>, Interrupt> {
    let Some(hook) = entry.hook() else { return Ok(None) };
    let run = Run::new(&active.turn.ctx, entry, Point::AfterModel).behind(*ended);
    let finished = run.decide(hook.after_model(&active.turn, reply)).await?;
    *ended = Some(finished.ended);
    let decided = finished.unless_blocked(&active.turn.ctx, entry, &mut active.records);
    if decided.is_err() {
        discard(active, &entry.name, &"the hook failed".into());
    }
    decided
}

fn discard(active: &mut ActiveTurn, hook: &Text, reason: &Text) {
    if let Some(reply_stream) = &mut active.reply_stream {
        reply_stream.discard(Some(Author::hook(hook)), Some(reason.clone()));
    }
}

/// How often a reply that does not fit its schema is asked for again.
const RESHAPED_AT_MOST: u32 = 1;

/// The model hears what does not fit, and gets another try.
async fn reshape(active: &mut ActiveTurn, complaint: Text, reply: &Reply) -> Result<(), Interrupt> {
    if let Some(reply_stream) = &mut active.reply_stream {
        reply_stream.discard(None, Some(complaint.clone()));
    }
    let before = active.scratch.regeneration.as_ref();
    let (count, reshaped) = before.map_or((0, 0), |again| (again.count, again.reshaped));
    if reshaped >= RESHAPED_AT_MOST {
        return Err(Verdict::new(Outcome::Rejected, complaint).by(Author::System(SystemAuthor::Limit)).into());
    }
    again(
        active,
        Regeneration {
            count,
            reshaped: reshaped + 1,
            attempts: active.ctx().budget.attempt(),
            discarded: reply.content.clone(),
            feedback: complaint,
            hook: "the schema".into(),
        },
    )
    .await
}

/// The next attempt is built with this at its tail.
async fn again(active: &mut ActiveTurn, regeneration: Regeneration) -> Result<(), Interrupt> {
    active.scratch.regeneration = Some(regeneration);
    if let Some(turn) = &mut active.state.turn {
        turn.built = false;
    }
    Ok(active.write([], With::BESIDE).await?)
}

/// All regenerations of a reply count together; at the bound the turn ends `rejected`, naming the hook.
async fn regenerate(active: &mut ActiveTurn, hook: &Text, feedback: Text, reply: &Reply) -> Result<(), Interrupt> {
    discard(active, hook, &feedback);
    let reshaped = active.scratch.regeneration.as_ref().map_or(0, |again| again.reshaped);
    let count = active.scratch.regeneration.as_ref().map_or(0, |again| again.count) + 1;
    let most = active.ctx().limits.max_regenerations;
    if count > most {
        let reason = format!("{feedback} (after {most} regenerations)");
        return Err(Verdict::new(Outcome::Rejected, reason).by(Author::hook(hook)).into());
    }
    let attempts = active.ctx().budget.attempt();
    let (discarded, hook) = (reply.content.clone(), hook.clone());
    again(active, Regeneration { count, reshaped, attempts, discarded, feedback, hook }).await
}

/// The reply becomes history, with the calls it asks for.
async fn admit(active: &mut ActiveTurn, reply: Arc<Reply>, approved: Option<Author>) -> Result<(), Interrupt> {
    let attempt = active.ctx().budget.attempt().max(1);
    let lacking = lacking(&reply);
    let annotations = active.reply_stream.as_ref().and_then(ReplyStream::annotations);
    let changed = active.scratch.regeneration.take().is_some()
        | active.scratch.asked.take().is_some()
        | (active.scratch.approved != approved);
    active.scratch.approved = approved;
    if let Some(what) = lacking {
        active.warn(None, what);
    }
    let ctx = active.ctx().clone();
    let message = EventKind::AssistantMessage {
        attempt,
        content: reply.content.clone(),
        stop_reason: reply.stop_reason,
        usage: reply.usage,
        object: reply.object.clone(),
        annotations,
    };
    let calls = reply.calls.iter().map(|call| EventKind::ToolCall {
        call: call.call.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        executor: ctx.agent.tool(&call.name).map_or(Executor::Server, |compiled| compiled.tool.spec().executor),
    });
    let kinds = reply.hosted.iter().flat_map(ran_elsewhere).chain([message]).chain(calls);
    let with = if changed || lacking.is_some() { With::BESIDE } else { With::NOTHING };
    active.write(kinds, with).await?;
    active.reply_stream = None;
    Ok(())
}

/// What a person should know of an answer that is none, or only the beginning of one.
fn lacking(reply: &Reply) -> Option<&'static str> {
    match reply.stop_reason {
        StopReason::Refusal => Some("the model refused to answer"),
        StopReason::Length if reply.calls.is_empty() => {
            Some("the answer is cut off: it reached the length that a reply may have")
        }
        _ => None,
    }
}

/// A call of the provider's own stands before the reply: it was made, and answered, before that was whole.
fn ran_elsewhere(hosted: &Hosted) -> [EventKind; 2] {
    let Hosted { call: ToolCall { call, name, arguments }, ok, content } = hosted.clone();
    let result = EventKind::ToolResult { call: call.clone(), ok, content };
    [EventKind::ToolCall { call, name, arguments, executor: Executor::Provider }, result]
}

/// A person decides over the whole reply: it waits beside the log, since it may never become history.
async fn ask_person(active: &mut ActiveTurn, reply: Arc<Reply>, why: Text) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let call: CallId = ctx.runtime.ids.mint("reply_").into();
    let shown = serde_json::json!({ "text": reply.content.text(), "calls": reply.calls });
    let digest = digest::of_call("", &shown, &ctx.conversation);
    let question = Question::Approval { tool: None, arguments: Arc::new(shown), digest, why: Some(why) };
    let attempt = active.reply_stream.as_ref().map_or(1, ReplyStream::attempt);
    let told = active.reply_stream.as_ref().is_some_and(|reply_stream| reply_stream.told_content().is_some());
    active.scratch.asked = Some(PendingReply { call: call.clone(), attempt, reply: (*reply).clone(), told });
    let expires = ctx.clock.now().after(ctx.limits.approval_timeout);
    Ok(active.write([EventKind::Suspension { call, question, expires }], With::BESIDE).await?)
}

async fn admit_approved(active: &mut ActiveTurn, by: Author) -> Result<(), Interrupt> {
    let Some(asked) = active.scratch.asked.clone() else {
        return Err(Verdict::failed("the reply that was approved is gone").into());
    };
    if let Some(reply_stream) = &mut active.reply_stream {
        reply_stream.release();
    }
    active.ctx().budget.begin_reply(asked.attempt);
    let reply = Arc::new(asked.reply);
    active.turn.change().assistant_message = Some(reply.clone());
    admit(active, reply, Some(by)).await
}
