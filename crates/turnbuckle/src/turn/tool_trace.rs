//! The tool trace of a turn, which stop hooks judge.

use std::collections::HashMap;
use std::sync::Arc;

use super::active::{ActiveTurn, Interrupt};
use super::context::TurnContext;
use crate::cut::{LeftOutSteps, Stub};
use crate::event::{Event, EventKind};
use crate::hook::ToolTrace;
use crate::id::CallId;
use crate::message::{Content, Text};

/// How many events are read at a time.
const PAGE: u64 = 500;

/// Results with more bytes are notes in the tool trace if contexts do not show them: all of them together may be large.
const LARGE_RESULT: u64 = 2_000;

/// The tools of this turn, in call order.
pub(super) async fn of(active: &mut ActiveTurn) -> Result<Vec<ToolTrace>, Interrupt> {
    let began = active.state.turn_events().first().map_or(u64::MAX, |event| event.seq);
    let left_out = active.state.window.left_out().iter().filter(|steps| steps.first() >= began);
    let left_out: Vec<LeftOutSteps> = left_out.cloned().collect();
    let left_out = match left_out.is_empty() {
        true => Vec::new(),
        false => read(&active.ctx().clone(), &left_out).await?,
    };
    let (mut trace, mut places): (Vec<ToolTrace>, HashMap<_, usize>) = (Vec::new(), HashMap::new());
    let mut events: Vec<&Arc<Event>> = left_out.iter().chain(active.state.turn_events()).collect();
    events.sort_by_key(|event| event.seq);
    for event in events {
        match &event.kind {
            EventKind::ToolCall { call, name, arguments, .. } => {
                places.insert(call, trace.len());
                trace.push(ToolTrace {
                    call: call.clone(),
                    name: name.clone(),
                    arguments: arguments.value(),
                    ok: false,
                    content: Content::default(),
                });
            }
            // What it ran with, which is not always as the model wrote it.
            EventKind::ToolStarted { call, arguments, .. } => {
                if let Some(traced) = places.get(call).and_then(|place| trace.get_mut(*place)) {
                    traced.arguments = arguments.value();
                }
            }
            EventKind::ToolResult { call, ok, content } => {
                if let Some(traced) = places.get(call).and_then(|place| trace.get_mut(*place)) {
                    (traced.ok, traced.content) = (*ok, content.clone());
                }
            }
            _ => {}
        }
    }
    Ok(trace)
}

/// The steps of this turn that contexts do not show any more, from the log: what a stop hook looks for may have been done in one of
/// them.
async fn read(ctx: &TurnContext, left_out: &[LeftOutSteps]) -> Result<Vec<Arc<Event>>, Interrupt> {
    let (mut found, mut names) = (Vec::new(), HashMap::new());
    for steps in left_out {
        let mut begin = steps.first();
        while begin <= steps.last() {
            let limit = usize::try_from((steps.last() - begin + 1).min(PAGE)).unwrap_or(usize::MAX);
            let page = ctx.store().log(&ctx.conversation, begin, limit).await?;
            let Some(last) = page.last().map(|event| event.seq) else { break };
            for event in page.into_iter().filter(|event| steps.covers(event)) {
                if let EventKind::ToolCall { call, name, .. } = &event.kind {
                    names.insert(call.clone(), name.clone());
                }
                found.push(shown_small(ctx, &names, event));
            }
            begin = last + 1;
        }
    }
    Ok(found)
}

/// A large result as a note.
fn shown_small(ctx: &TurnContext, names: &HashMap<CallId, Text>, event: Arc<Event>) -> Arc<Event> {
    let EventKind::ToolResult { call, content, .. } = &event.kind else { return event };
    let Some(name) = names.get(call) else { return event };
    let stub = Stub::of(event.seq, content, ctx.agent.tool_facts(name).recovery);
    match stub.bytes > LARGE_RESULT || stub.attachments > 0 {
        true => stub.shorten(&event, name).unwrap_or(event),
        false => event,
    }
}
