//! `turnbuckle cancel`: ends the turn that is open, here or in the process that has it.

use std::time::Duration;

use turnbuckle::conversation::{Cancelled, SendError};
use turnbuckle::event::{EventKind, TurnEnded};
use turnbuckle::store::StoreError;
use turnbuckle::{ConversationId, Conversations, Outcome, Scope, TurnId};

use super::{Ready, named, refused};
use crate::Stopped;
use crate::args::{Cancel, Common};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::output;
use crate::store::MADE_BY_RUN;
use crate::trust::Gate;

/// How long the process that has the conversation is given to hear of it: it looks every second.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const BY_ANOTHER: &str = " by the process that has it";

/// Cancels the open turn, if there is one, and says who did it.
pub(crate) async fn cancel(args: Cancel, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id, common)?;
    let refuse = |error| refused(error, common);
    let ready = Ready::of(prepare(common, Gate::LeftOut))?;
    let conversations = Conversations::builder(ready.agent.clone(), ready.store.existing(MADE_BY_RUN)?).build();
    let scope = &ready.scope;
    let (turn, by) = match conversations.cancel(&id, scope.clone()).await.map_err(refuse)? {
        Cancelled::NotRunning => {
            output::say(&format!("conversation {id} has no open turn: there is nothing to cancel"));
            return Ok(Exit::Completed);
        }
        Cancelled::Local { turn } => {
            // Commands are taken in order: once this is answered, the turn that was here is over.
            let resumed = conversations.resume(&id, scope.clone()).await.map(drop);
            (turn, carried_out(resumed).map_err(refuse)?)
        }
        Cancelled::Remote { turn } => (turn, BY_ANOTHER),
    };
    let wait = wait_for_end(&conversations, &id, &turn, scope);
    let ended = tokio::time::timeout(PATIENCE, wait).await.unwrap_or(Ok(None));
    output::say(&match ended.map_err(refuse)? {
        Some(ended) if ended.outcome == Outcome::Cancelled => {
            format!("turn {turn} of conversation {id} was cancelled{by}")
        }
        Some(ended) => format!("turn {turn} of conversation {id} had ended before: {}", ended.outcome),
        None => {
            format!("the process that has conversation {id} was asked to cancel turn {turn}, and has not done so yet")
        }
    });
    Ok(Exit::Completed)
}

/// Who carries the order out that was given here. Another process may have claimed the conversation in between: the order
/// is stored, and that process obeys it.
fn carried_out(resumed: Result<(), SendError>) -> Result<&'static str, SendError> {
    match resumed {
        Ok(()) => Ok(""),
        Err(SendError::Store(StoreError::InUse { .. })) => Ok(BY_ANOTHER),
        Err(error) => Err(error),
    }
}

async fn wait_for_end(
    conversations: &Conversations,
    id: &ConversationId,
    turn: &TurnId,
    scope: &Scope,
) -> Result<Option<TurnEnded>, SendError> {
    loop {
        if let Some(ended) = end(conversations, id, turn, scope).await? {
            return Ok(Some(ended));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How the turn ended, if it did.
async fn end(
    conversations: &Conversations,
    id: &ConversationId,
    turn: &TurnId,
    scope: &Scope,
) -> Result<Option<TurnEnded>, SendError> {
    let view = conversations.snapshot(id, scope.clone()).await?;
    Ok(view.events.iter().rev().filter(|event| event.turn == *turn).find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.clone()),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_that_another_process_claims_meanwhile_is_no_failure() {
        assert_eq!(carried_out(Ok(())).ok(), Some(""));
        let claimed = SendError::Store(StoreError::InUse { id: "c".into() });
        assert_eq!(carried_out(Err(claimed)).ok(), Some(BY_ANOTHER));
        assert!(carried_out(Err(SendError::Gone)).is_err());
    }
}
