//! call: the model speaks, through the wraps and the stream transformers, and the `after_model` hooks judge the reply.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::flight::{Flight, Interrupt, With};
use super::outlet::Outlet;
use super::seen::Frame;
use super::state::{State, Verdict};
use crate::digest;
use crate::event::{EventKind, Outcome, Prompt};
use crate::hook::run::Run;
use crate::hook::{AfterModel, HookEntry, ModelNext, Point, Release};
use crate::id::CallId;
use crate::message::{Hosted, Reply, StopReason, Text, ToolCall};
use crate::model::ModelError;
use crate::scope::{By, System};
use crate::store::{Asked, Regeneration};
use crate::tool::Executor;

/// Why told text is taken back when a hook put another reply in its place.
pub(crate) const MODIFIED: &str = "modified";

pub(crate) async fn run(flight: &mut Flight) -> Result<(), Interrupt> {
    flight.frame().cut.check()?;
    if let Some(by) = flight.state.turn.as_ref().and_then(|turn| turn.approved_reply().cloned()) {
        return admit_approved(flight, by).await;
    }
    let reply = speak(flight).await?;
    let reply = let_through(flight, reply, None).await?;
    let judged = match shaped(flight, reply) {
        Ok(reply) => judge(flight, reply).await?,
        Err((reply, complaint)) => return reshape(flight, complaint, &reply).await,
    };
    match judged {
        Judged::Fine { reply, approved } => {
            if let Some(outlet) = &mut flight.outlet {
                outlet.release();
            }
            admit(flight, reply, approved).await
        }
        Judged::Asked { reply, prompt } => ask_person(flight, reply, prompt).await,
        Judged::Regenerate { hook, feedback, reply } => regenerate(flight, &hook, feedback, &reply).await,
        Judged::Unfit { reply, feedback } => reshape(flight, feedback, &reply).await,
    }
}

/// The reply with its object, if the turn wants one; else what is wrong with it.
fn shaped(flight: &mut Flight, reply: Arc<Reply>) -> Result<Arc<Reply>, (Arc<Reply>, Text)> {
    let Some(shape) = &flight.shape else { return Ok(reply) };
    match shape.object_of(&reply) {
        Err(complaint) => Err((reply, complaint)),
        Ok(object) => {
            let reply = Arc::new(Reply { object: Some(object), ..(*reply).clone() });
            flight.turn.change().assistant_message = Some(reply.clone());
            Ok(reply)
        }
    }
}

/// One reply, however many attempts the wraps make at it.
async fn speak(flight: &mut Flight) -> Result<Reply, Interrupt> {
    let frame = flight.frame().clone();
    let chains = frame.agent.chains();
    let attempts = flight.beside.regeneration.as_ref().map_or(0, |again| again.attempts);
    frame.meter.begin_reply(attempts);
    let held = chains.after_model.iter().any(|entry| entry.settings().release == Release::OnAccept);
    let Flight { turn, outlet, .. } = flight;
    let Some(request) = turn.context() else { return Err(Verdict::failed("no context was built").into()) };
    let outlet = outlet.insert(Outlet::new(frame.clone(), attempts + 1, held));
    let next = ModelNext::new(&chains.wrap_model_call, turn, frame.agent.model());
    match frame.cut.race(next.run(request, outlet)).await? {
        Ok(reply) => Ok(reply),
        Err(error) => {
            outlet.discard(None, Some(error.to_string().into()));
            frame.cut.check()?;
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
    flight: &mut Flight,
    mut reply: Reply,
    modified_by: Option<&Text>,
) -> Result<Arc<Reply>, Interrupt> {
    // A provider may give the object alone: it passes the transformers as text like everything else that is said.
    if let (true, Some(object), true) = (flight.shape.is_some(), &reply.object, reply.content.is_blank()) {
        reply.content = object.to_string().into();
    }
    if let Some(outlet) = &mut flight.outlet {
        if let Some(hook) = modified_by {
            outlet.discard(Some(By::hook(hook)), Some(MODIFIED.into()));
        }
        match outlet.complete(&reply.content) {
            Ok(content) => reply.content = content,
            Err((hook, failure)) => {
                outlet.discard(Some(By::hook(&hook)), Some(failure.as_str().into()));
                let reason = format!("hook {hook} failed at {}: {failure}", Point::Stream);
                return Err(Verdict::failed(reason).by(By::hook(&hook)).into());
            }
        }
    }
    make_ids_unique(flight, &mut reply).await?;
    let reply = Arc::new(reply);
    flight.turn.change().assistant_message = Some(reply.clone());
    Ok(reply)
}

/// A provider's call id that repeats becomes `ID~2`.
async fn make_ids_unique(flight: &mut Flight, reply: &mut Reply) -> Result<(), Interrupt> {
    let Flight { state, turn, .. } = &*flight;
    let (state, frame) = (&**state, &turn.frame);
    let mut given: SmallVec<[CallId; 1]> = SmallVec::new();
    let hosted = reply.hosted.iter_mut().map(|hosted| &mut hosted.call);
    for call in hosted.chain(&mut reply.calls) {
        call.call = free_id(state, frame, &call.call, &given).await?;
        given.push(call.call.clone());
    }
    Ok(())
}

/// The id itself, or with the lowest number that is free: found by doubling and then halving, since a long conversation
/// may have used thousands.
async fn free_id(state: &State, frame: &Frame, id: &CallId, before: &[CallId]) -> Result<CallId, Interrupt> {
    let numbered = |number: u64| CallId::from(format!("{id}~{number}"));
    if !is_taken(state, frame, id, before).await? {
        return Ok(id.clone());
    }
    let (mut taken, mut free) = (1, 2);
    while is_taken(state, frame, &numbered(free), before).await? {
        (taken, free) = (free, free.saturating_mul(2));
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        match is_taken(state, frame, &numbered(middle), before).await? {
            true => taken = middle,
            false => free = middle,
        }
    }
    Ok(numbered(free))
}

async fn is_taken(state: &State, frame: &Frame, id: &CallId, before: &[CallId]) -> Result<bool, Interrupt> {
    if state.has_call(id) || before.contains(id) {
        return Ok(true);
    }
    if state.is_whole() {
        return Ok(false);
    }
    Ok(frame.house.store.has_call(&frame.conversation, id).await?)
}

/// What the `after_model` hooks made of a reply.
enum Judged {
    Fine { reply: Arc<Reply>, approved: Option<By> },
    Asked { reply: Arc<Reply>, prompt: Text },
    Regenerate { hook: Text, feedback: Text, reply: Arc<Reply> },
    Unfit { reply: Arc<Reply>, feedback: Text },
}

/// Hooks in order: a rejection or a regeneration ends the chain, a modified reply goes on to the hooks behind, and a
/// person is asked when nobody objected.
async fn judge(flight: &mut Flight, mut reply: Arc<Reply>) -> Result<Judged, Interrupt> {
    if flight.frame().agent.chains().after_model.is_empty() {
        return Ok(Judged::Fine { reply, approved: None });
    }
    let agent = flight.agent();
    let (mut approved, mut prompts): (Option<By>, Vec<Text>) = (None, Vec::new());
    let mut ended = None;
    for entry in &agent.chains().after_model {
        let Some(decision) = ask(flight, entry, &reply, &mut ended).await? else { continue };
        match decision {
            AfterModel::Continue => {}
            AfterModel::Approve => approved = Some(By::hook(&entry.name)),
            AfterModel::Ask(prompt) => prompts.push(prompt),
            AfterModel::Modify(modified) => reply = let_through(flight, *modified, Some(&entry.name)).await?,
            AfterModel::Regenerate(feedback) => {
                return Ok(Judged::Regenerate { hook: entry.name.clone(), feedback, reply });
            }
            AfterModel::Reject(reason) => {
                discard(flight, &entry.name, &reason);
                return Err(Verdict::new(Outcome::Rejected, reason).by(By::hook(&entry.name)).into());
            }
        }
    }
    // What a hook made of the reply is held to the schema as well.
    let reply = match shaped(flight, reply) {
        Ok(reply) => reply,
        Err((reply, feedback)) => return Ok(Judged::Unfit { reply, feedback }),
    };
    if prompts.is_empty() {
        return Ok(Judged::Fine { reply, approved });
    }
    Ok(Judged::Asked { reply, prompt: prompts.join("; ").into() })
}

async fn ask(
    flight: &mut Flight,
    entry: &HookEntry,
    reply: &Arc<Reply>,
    ended: &mut Option<Duration>,
) -> Result<Option<AfterModel>, Interrupt> {
    let Some(hook) = entry.hook() else { return Ok(None) };
    let run = Run::new(&flight.turn.frame, entry, Point::AfterModel).behind(*ended);
    let ran = run.decide(hook.after_model(&flight.turn, reply)).await?;
    *ended = Some(ran.ended);
    let decided = ran.unless_blocked(&flight.turn.frame, entry, &mut flight.records);
    if decided.is_err() {
        discard(flight, &entry.name, &"the hook failed".into());
    }
    decided
}

fn discard(flight: &mut Flight, hook: &Text, reason: &Text) {
    if let Some(outlet) = &mut flight.outlet {
        outlet.discard(Some(By::hook(hook)), Some(reason.clone()));
    }
}

/// How often a reply that does not fit its schema is asked for again.
const RESHAPED_AT_MOST: u32 = 1;

/// The model hears what does not fit, and gets another try.
async fn reshape(flight: &mut Flight, complaint: Text, reply: &Reply) -> Result<(), Interrupt> {
    if let Some(outlet) = &mut flight.outlet {
        outlet.discard(None, Some(complaint.clone()));
    }
    let before = flight.beside.regeneration.as_ref();
    let (count, reshaped) = before.map_or((0, 0), |again| (again.count, again.reshaped));
    if reshaped >= RESHAPED_AT_MOST {
        return Err(Verdict::new(Outcome::Rejected, complaint).by(By::System(System::Limit)).into());
    }
    again(
        flight,
        Regeneration {
            count,
            reshaped: reshaped + 1,
            attempts: flight.frame().meter.attempt(),
            discarded: reply.content.clone(),
            feedback: complaint,
            hook: "the schema".into(),
        },
    )
    .await
}

/// The next attempt is built with this at its tail.
async fn again(flight: &mut Flight, regeneration: Regeneration) -> Result<(), Interrupt> {
    flight.beside.regeneration = Some(regeneration);
    if let Some(turn) = &mut flight.state.turn {
        turn.built = false;
    }
    Ok(flight.write([], With::BESIDE).await?)
}

/// All regenerations of a reply count together; at the bound the turn ends `rejected`, naming the hook.
async fn regenerate(flight: &mut Flight, hook: &Text, feedback: Text, reply: &Reply) -> Result<(), Interrupt> {
    discard(flight, hook, &feedback);
    let reshaped = flight.beside.regeneration.as_ref().map_or(0, |again| again.reshaped);
    let count = flight.beside.regeneration.as_ref().map_or(0, |again| again.count) + 1;
    let most = flight.frame().limits.max_regenerations;
    if count > most {
        let reason = format!("{feedback} (after {most} regenerations)");
        return Err(Verdict::new(Outcome::Rejected, reason).by(By::hook(hook)).into());
    }
    let attempts = flight.frame().meter.attempt();
    let (discarded, hook) = (reply.content.clone(), hook.clone());
    again(flight, Regeneration { count, reshaped, attempts, discarded, feedback, hook }).await
}

/// The reply becomes history, with the calls it asks for.
async fn admit(flight: &mut Flight, reply: Arc<Reply>, approved: Option<By>) -> Result<(), Interrupt> {
    let attempt = flight.frame().meter.attempt().max(1);
    let lacking = lacking(&reply);
    let annotations = flight.outlet.as_ref().and_then(Outlet::annotations);
    let changed = flight.beside.regeneration.take().is_some()
        | flight.beside.asked.take().is_some()
        | (flight.beside.approved != approved);
    flight.beside.approved = approved;
    if let Some(what) = lacking {
        flight.warn(None, what);
    }
    let frame = flight.frame().clone();
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
        executor: frame.agent.tool(&call.name).map_or(Executor::Server, |equipped| equipped.tool.spec().executor),
    });
    let kinds = reply.hosted.iter().flat_map(ran_elsewhere).chain([message]).chain(calls);
    let with = if changed || lacking.is_some() { With::BESIDE } else { With::NOTHING };
    flight.write(kinds, with).await?;
    flight.outlet = None;
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
async fn ask_person(flight: &mut Flight, reply: Arc<Reply>, why: Text) -> Result<(), Interrupt> {
    let frame = flight.frame().clone();
    let call: CallId = frame.house.ids.mint("reply_").into();
    let shown = serde_json::json!({ "text": reply.content.text(), "calls": reply.calls });
    let digest = digest::of_call("", &shown, &frame.conversation);
    let prompt = Prompt::Approval { tool: None, arguments: Arc::new(shown), digest, why: Some(why) };
    let attempt = flight.outlet.as_ref().map_or(1, Outlet::attempt);
    let told = flight.outlet.as_ref().is_some_and(|outlet| outlet.told_content().is_some());
    flight.beside.asked = Some(Asked { call: call.clone(), attempt, reply: (*reply).clone(), told });
    let expires = frame.clock.now().after(frame.limits.approval_timeout);
    Ok(flight.write([EventKind::Suspension { call, prompt, expires }], With::BESIDE).await?)
}

async fn admit_approved(flight: &mut Flight, by: By) -> Result<(), Interrupt> {
    let Some(asked) = flight.beside.asked.clone() else {
        return Err(Verdict::failed("the reply that was approved is gone").into());
    };
    if let Some(outlet) = &mut flight.outlet {
        outlet.release();
    }
    flight.frame().meter.begin_reply(asked.attempt);
    let reply = Arc::new(asked.reply);
    flight.turn.change().assistant_message = Some(reply.clone());
    admit(flight, reply, Some(by)).await
}
