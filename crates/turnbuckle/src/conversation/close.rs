//! The end of a conversation: its `on_conversation` hooks are called, and each leaves a record.

use std::pin::pin;
use std::sync::Arc;

use super::error::SendError;
use crate::change::InjectionSpan;
use crate::hook::call::HookCaller;
use crate::hook::{Lifecycle, OnConversationContext, Point};
use crate::turn::{JobResults, TurnContext, cost_of, note_injected};

/// Calls the hooks. What they inject is for the turn that may follow. The second value names a hook that failed and
/// whose failure blocks; hooks behind it are not called.
pub(super) async fn call_close_hooks(ctx: &Arc<TurnContext>) -> (JobResults, Result<(), SendError>) {
    let mut caller = HookCaller::new(ctx, Point::OnConversation).after_turn();
    let mut results = JobResults::default();
    for entry in ctx.agent.hooks_at(Point::OnConversation) {
        let Some(hook) = entry.hook() else { continue };
        let lifecycle = Lifecycle::Ended;
        let mut view = OnConversationContext { ctx: ctx.clone(), lifecycle, injected: Vec::new() };
        // Nothing stops a hook after the turn, so this always has a result.
        let Ok(mut run) = caller.run(entry, pin!(hook.on_conversation(&mut view))).await else { continue };
        run.tokens = cost_of(&view.injected);
        match caller.record(&entry.name, run, &mut results.records) {
            Ok(()) => {
                for content in &view.injected {
                    note_injected(ctx, &mut results.records, &entry.name, content, InjectionSpan::NextTurn);
                }
                results.notes.extend(view.injected.into_iter().map(|content| (entry.name.clone(), content)));
            }
            Err(failure) if entry.ignores(Point::OnConversation, &failure) => {}
            Err(cause) => return (results, Err(SendError::Hook { hook: entry.name.clone(), cause })),
        }
    }
    (results, Ok(()))
}
