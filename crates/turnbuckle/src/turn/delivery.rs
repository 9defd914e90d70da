//! Jobs for `on_logged` hooks: made in the write that adds the event, so that no crash comes between the two.

use std::sync::Arc;

use super::context::TurnContext;
use crate::agent::HookPart;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind};
use crate::store::{Job, JobKind};

/// The hooks that are given log events, as they are recorded with the turn: an agent that stands in for another knows no more.
fn hooks(ctx: &TurnContext) -> impl Iterator<Item = &HookPart> {
    ctx.agent.parts().hooks.iter().filter(|hook| !hook.logged.is_empty())
}

/// A job for each event and hook that wants it, and for a question one for each reminder.
pub(super) fn jobs_for(ctx: &TurnContext, events: &[Arc<Event>]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for hook in hooks(ctx) {
        for event in events.iter().filter(|event| hook.logged.iter().any(|kind| **kind == *event.kind.name())) {
            jobs.push(job(ctx, hook, event, event.at, None));
            jobs.extend(reminders(ctx, hook, event));
        }
    }
    jobs
}

/// The reminders of questions that these events answer. They go in the same write.
pub(super) fn reminders_of_answered(ctx: &TurnContext, events: &[Arc<Event>], turn: &[Arc<Event>]) -> Vec<Job> {
    let mut answered = Vec::new();
    for event in events {
        let EventKind::Resolution { call, evidence, .. } = &event.kind else { continue };
        if evidence.open {
            // More people must approve: they are still reminded.
            continue;
        }
        let asks = |event: &&Arc<Event>| matches!(&event.kind, EventKind::Suspension { call: of, .. } if of == call);
        for asked in turn.iter().filter(asks) {
            answered.extend(hooks(ctx).flat_map(|hook| reminders(ctx, hook, asked)));
        }
    }
    answered
}

fn reminders(ctx: &TurnContext, hook: &HookPart, event: &Event) -> Vec<Job> {
    let EventKind::Suspension { expires, .. } = &event.kind else { return Vec::new() };
    let time = expires.since(event.at);
    let due = |percent: u8| event.at.after(time.saturating_mul(u32::from(percent)) / 100);
    hook.reminders.iter().map(|percent| job(ctx, hook, event, due(*percent), Some(*percent))).collect()
}

fn job(ctx: &TurnContext, hook: &HookPart, event: &Event, due: Timestamp, reminder: Option<u8>) -> Job {
    Job {
        turn: ctx.id.clone(),
        seq: event.seq,
        agent: ctx.agent_name().clone(),
        hook: hook.name.clone(),
        used: hook.configured_use().cloned(),
        kind: JobKind::Logged,
        actor: ctx.scope.actor().clone(),
        tries: 0,
        error: None,
        due: Some(due),
        spent: None,
        partial: None,
        reminder,
    }
}
