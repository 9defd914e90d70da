//! `on_logged`: a log event, or a reminder of a question, is given to the hook that wants it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::super::error::with_causes;
use super::super::observers::Observers;
use super::super::runtime::Runtime;
use super::super::shared::Conversation;
use super::{UnwrittenJobs, context_after, settle};
use crate::event::{Event, EventKind};
use crate::feed::{FeedEvent, Level, LiveEvent};
use crate::hook::call::HookCaller;
use crate::hook::{LoggedContext, Point};
use crate::id::{CallId, ConversationId};
use crate::store::{Job, JobDisposition, JobKind, Store, StoreError};
use crate::turn::{after_failure, max_tries};

/// How many events are read at a time behind a question.
const PAGE: usize = 100;

/// Tries the job once, and stores how that went. No claim is needed: nothing is written to the log.
pub(super) async fn deliver(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>, job: Job) {
    let unwritten = UnwrittenJobs::new(conversation, std::slice::from_ref(&job));
    let observers = Observers::of(conversation, runtime);
    match attempt(conversation, runtime, &job).await {
        Ok(()) => {
            let store = &runtime.services.store;
            if let Err(error) = store.settle_job(&conversation.id, job, JobDisposition::Remove).await {
                // It is done again when its lease is over; receivers know a repetition by its key.
                tracing::warn!(conversation = %conversation.id, %error, "a job that is done could not be removed");
            }
        }
        Err(error) => {
            let job = after_failure(job, error, runtime.services.clock.now(), Duration::ZERO);
            tell_of_failure(conversation, &job);
            settle(conversation, runtime, job).await;
        }
    }
    drop((observers, unwritten));
}

/// Tells viewers that a message was not delivered, and what becomes of it.
pub(super) fn tell_of_failure(conversation: &Conversation, job: &Job) {
    if job.kind != JobKind::Logged {
        return;
    }
    let what = if job.reminder.is_some() { "a reminder" } else { "an event" };
    let then = match job.due {
        Some(_) => format!("it is kept and tried again (try {} of {})", job.tries, max_tries(job.kind)),
        None => format!("it is parked after {} tries", job.tries),
    };
    let error = job.error.as_deref().unwrap_or("no reason was given");
    let text = format!("{what} was not delivered: {error}; {then}").into();
    let notice = LiveEvent::Notice { level: Level::Warning, text, hook: Some(job.hook.clone()) };
    conversation.feed.publish_live(Some(&job.turn), notice);
}

async fn attempt(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>, job: &Job) -> Result<(), String> {
    let store = &*runtime.services.store;
    let event = event_of(store, &conversation.id, job).await.map_err(|error| with_causes(&error))?;
    // A reminder, or another try, is pointless once the question has its answer.
    if let EventKind::Suspension { call, .. } = &event.kind
        && (job.reminder.is_some() || job.tries > 1)
        && is_answered(store, &conversation.id, job, call).await.map_err(|error| with_causes(&error))?
    {
        tracing::debug!(conversation = %conversation.id, %call, hook = %job.hook, "dropped a job: the call has its answer");
        return Ok(());
    }
    let hooks = conversation.agent.hooks_at(Point::OnLogged);
    let Some((entry, hook)) =
        hooks.iter().find_map(|entry| Some((entry, entry.hook()?)).filter(|_| entry.name == job.hook))
    else {
        return Err("the agent has no such hook any more".to_owned());
    };
    let ctx = context_after(conversation, runtime, job.turn.clone(), (runtime.scope_source)(&job.actor));
    let context = LoggedContext {
        seq: event.seq,
        event: FeedEvent::read_back(&conversation.id, event),
        agent: job.agent.clone(),
        reminder: job.reminder,
        tries: job.tries,
        now: runtime.services.clock.now(),
    };
    let mut caller = HookCaller::new(&ctx, Point::OnLogged).after_turn();
    // Nothing stops a hook after its turn, so this always has a result.
    let Ok(run) = caller.run(entry, pin!(hook.on_logged(&context))).await else { return Ok(()) };
    // The job itself is the record: it goes when it is done, and keeps its error until then.
    caller.record(&entry.name, run, &mut Vec::new()).map_err(|failure| failure.to_string())
}

/// The event that a job is about.
async fn event_of(store: &dyn Store, id: &ConversationId, job: &Job) -> Result<Arc<Event>, StoreError> {
    let found = store.log(id, job.seq, 1).await?.into_iter().next();
    found.filter(|event| event.seq == job.seq && event.turn == job.turn).ok_or_else(|| {
        let doing = format!("reading event {} of conversation {id}", job.seq);
        StoreError::failed(doing, "it is not where the job says")
    })
}

/// Whether the question has its answer, or its turn is over.
async fn is_answered(store: &dyn Store, id: &ConversationId, job: &Job, call: &CallId) -> Result<bool, StoreError> {
    let mut from = job.seq + 1;
    loop {
        let page = store.log(id, from, PAGE).await?;
        let Some(last) = page.last() else { return Ok(false) };
        from = last.seq + 1;
        let ends = |event: &Arc<Event>| match &event.kind {
            // One of several approvals leaves the question open.
            EventKind::Resolution { call: answered, evidence, .. } => answered == call && !evidence.open,
            EventKind::ToolResult { call: answered, .. } => answered == call,
            EventKind::TurnEnded(_) => event.turn == job.turn,
            _ => false,
        };
        if page.iter().any(ends) {
            return Ok(true);
        }
    }
}
