//! The end of a conversation: `on_conversation` hooks are told, under a claim that is kept, and each leaves a record.

use super::driver::Sitting;
use super::outbox::frame_after;
use super::outcome::SendError;
use crate::hook::run::Run;
use crate::hook::{Meeting, Moment, OnFailure, Point};
use crate::id::TurnId;
use crate::scope::Scope;
use crate::store::StoreError;
use crate::turn::Yield;
use crate::turn::accept::tokens_of;

impl Sitting {
    /// `on_conversation` with `Ended`; what it injects stands in the turn that may follow. A hook that fails and whose
    /// failure blocks keeps the conversation open.
    pub(super) async fn end_conversation(&mut self, scope: Scope) -> Result<Result<(), SendError>, StoreError> {
        let agent = self.cell.agent.clone();
        if agent.chains().on_conversation.is_empty() {
            return Ok(Ok(()));
        }
        let frame = frame_after(&self.cell, &self.house, self.last_turn().await?, scope);
        let (mut told, mut said) = (Yield::default(), Ok(()));
        for entry in &agent.chains().on_conversation {
            let Some(hook) = entry.hook() else { continue };
            let (conversation, scope) = (self.cell.id.clone(), frame.scope.clone());
            let mut meeting = Meeting { conversation, scope, moment: Moment::Ended, injected: Vec::new() };
            let run = Run::new(&frame, entry, Point::OnConversation).after_the_turn();
            // Nothing cuts it.
            let Ok(mut ran) = self.renewing(run.decide(hook.on_conversation(&mut meeting))).await else { continue };
            ran.tokens = tokens_of(&meeting.injected);
            match ran.recorded(&frame, &mut told.records) {
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
        self.note(frame.id.clone(), told, &[]).await?;
        Ok(said)
    }

    /// What hooks do now is written down with the turn that came last; a conversation without one gets an id for it.
    async fn last_turn(&self) -> Result<TurnId, StoreError> {
        let last = self.house.store.tail(&self.cell.id, u64::MAX, 1).await?;
        Ok(last.last().map_or_else(|| self.house.ids.mint("t_").into(), |event| event.turn.clone()))
    }
}
