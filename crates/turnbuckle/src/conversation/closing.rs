//! The end of a conversation: `on_conversation` hooks are told, under a claim that is kept, and each leaves a record.

use super::driver::Sitting;
use super::outbox::context_after;
use super::outcome::SendError;
use crate::hook::run::Run;
use crate::hook::{Lifecycle, OnConversationContext, OnFailure, Point};
use crate::id::TurnId;
use crate::scope::Scope;
use crate::store::StoreError;
use crate::turn::JobResults;
use crate::turn::accept::tokens_of;

impl Sitting {
    /// `on_conversation` with `TurnReport`; what it injects stands in the turn that may follow. A hook that fails and whose
    /// failure blocks keeps the conversation open.
    pub(super) async fn end_conversation(&mut self, scope: Scope) -> Result<Result<(), SendError>, StoreError> {
        let agent = self.cell.agent.clone();
        if agent.chains().on_conversation.is_empty() {
            return Ok(Ok(()));
        }
        let ctx = context_after(&self.cell, &self.runtime, self.last_turn().await?, scope);
        let (mut told, mut said) = (JobResults::default(), Ok(()));
        for entry in &agent.chains().on_conversation {
            let Some(hook) = entry.hook() else { continue };
            let (conversation, scope) = (self.cell.id.clone(), ctx.scope.clone());
            let mut meeting =
                OnConversationContext { conversation, scope, moment: Lifecycle::Ended, injected: Vec::new() };
            let run = Run::new(&ctx, entry, Point::OnConversation).after_the_turn();
            // Nothing cuts it.
            let Ok(mut finished) = self.renewing(run.decide(hook.on_conversation(&mut meeting))).await else {
                continue;
            };
            finished.tokens = tokens_of(&meeting.injected);
            match finished.recorded(&ctx, &mut told.records) {
                Ok(()) => {
                    let notes = meeting.injected.into_iter().map(|content| (entry.name.clone(), content));
                    told.notes.extend(notes);
                }
                Err(_) if entry.failure_policy(Point::OnConversation) == OnFailure::Ignore => {}
                Err(cause) => {
                    said = Err(SendError::Hook { hook: entry.name.clone(), cause });
                    break;
                }
            }
        }
        self.note(ctx.id.clone(), told, &[]).await?;
        Ok(said)
    }

    /// What hooks do now is written down with the turn that came last; a conversation without one gets an id for it.
    async fn last_turn(&self) -> Result<TurnId, StoreError> {
        let last = self.runtime.store.tail(&self.cell.id, u64::MAX, 1).await?;
        Ok(last.last().map_or_else(|| self.runtime.ids.mint("t_").into(), |event| event.turn.clone()))
    }
}
