//! One call at its tool: wraps, the tool, `after_tool`. It owns all it needs, so many run concurrently.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde_json::Value;

use super::active::Interrupt;
use super::changes::{self, Applied};
use super::decide::ReadyCall;
use super::view::Turn;
use crate::BoxError;
use crate::agent::CompiledTool;
use crate::change::{Edited, text_of};
use crate::hook::call::{HookCaller, contained};
use crate::hook::{AfterTool, HookFailure, Point, Record, ToolNext};
use crate::id::CallId;
use crate::message::{Text, ToolCall};
use crate::tool::{Effect, Output, Tool};

/// A call that has run.
pub(super) struct FinishedCall {
    pub(super) call: CallId,
    pub(super) output: Output,
    pub(super) records: Vec<Record>,
    /// The hook that ends the turn here, and why.
    pub(super) halted: Option<(Text, Text)>,
}

pub(super) async fn perform(ready: ReadyCall) -> Result<FinishedCall, Interrupt> {
    let ReadyCall { turn, call, tool, reconcile } = ready;
    let mut records = Vec::new();
    let happened = match (reconcile, &tool.spec().effect) {
        (true, Effect::Reconcile(world)) => {
            within_time(&turn, &tool, async { world.reconcile(&turn, &call).await }).await
        }
        _ => Ok(None),
    };
    let result = match happened {
        Ok(Some(output)) => Ok(output),
        Ok(None) => {
            let next = ToolNext::new(turn.ctx.agent.hooks_at(Point::WrapToolCall), &turn, &tool, &call);
            within_time(&turn, &tool, next.run_in_place(&call)).await
        }
        Err(failure) => Err(failure),
    };
    let output = result.unwrap_or_else(|failure| Output::error(format!("the tool failed: {failure}"))).capped();
    if output.waits.is_some() {
        return Ok(FinishedCall { call: call.call, output, records, halted: None });
    }
    let (output, halted) = after_tool(&turn, &call, output, &mut records).await?;
    Ok(FinishedCall { call: call.call, output, records, halted })
}

/// Panics and runs over the tool's time limit are failures. A tool that is ready at its first poll needs no timer.
pub(super) async fn within_time<T>(
    turn: &Turn,
    tool: &Arc<dyn Tool>,
    future: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, HookFailure> {
    let limit = tool.spec().timeout;
    let mut future = pin!(future);
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = contained(future.as_mut(), cx) {
            return Poll::Ready(result);
        }
        let timer = timer.get_or_insert_with(|| turn.ctx.clock().sleep(limit));
        timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(limit)))
    })
    .await
}

/// Runs the `after_tool` hooks on one result, in order. The second value names the hook that ends the turn.
pub(super) async fn after_tool(
    turn: &Turn,
    call: &ToolCall,
    mut output: Output,
    records: &mut Vec<Record>,
) -> Result<(Output, Option<(Text, Text)>), Interrupt> {
    let hooks = turn.ctx.agent.hooks_at(Point::AfterTool);
    if hooks.is_empty() {
        return Ok((output, None));
    }
    let mut caller = HookCaller::new(&turn.ctx, Point::AfterTool)
        .for_call(&call.call)
        .given(|| serde_json::to_string(&(call, output.ok, &output.content)).unwrap_or_default());
    for entry in hooks {
        let (Some(hook), true) = (entry.hook(), entry.matches_tool(&call.name)) else { continue };
        let run = caller.run(entry, pin!(hook.after_tool(turn, call, &output))).await?;
        if run.result.is_err() {
            changes::hide_after_failure(entry, records, Edited::Result, Some(&call.call));
        }
        match caller.record(&entry.name, run, records) {
            Ok(AfterTool::Continue) => {}
            Ok(AfterTool::Modify(modified)) => {
                let modified = modified.capped();
                changes::note_edit(&turn.ctx, entry, records, modified_result(&output, &modified));
                output = modified;
            }
            Ok(AfterTool::Halt(reason)) => return Ok((output, Some((entry.name.clone(), reason)))),
            Err(failure) if entry.ignores(Point::AfterTool, &failure) => {}
            Err(failure) => {
                let text = format!("[the tool ran; its result is withheld] hook {} failed: {failure}", entry.name);
                return Ok((Output::error(text), None));
            }
        }
    }
    Ok((output, None))
}

fn modified_result(before: &Output, after: &Output) -> Applied {
    let what = match (before.ok, after.ok) {
        (true, false) => Some("an error in the place of a result".into()),
        (false, true) => Some("a result in the place of an error".into()),
        _ => None,
    };
    Applied { what, ..Applied::new(Edited::Result, text_of(&before.content), text_of(&after.content)) }
}

/// The normal form of a call's arguments; `None` if they have it already, or if the tool has none.
pub(super) async fn normal_form(
    turn: &Turn,
    compiled: &CompiledTool,
    arguments: &Value,
) -> Result<Option<Value>, HookFailure> {
    match &compiled.tool.spec().normalize {
        Some(form) => within_time(turn, &compiled.tool, form.normalize(arguments)).await,
        None => Ok(None),
    }
}
