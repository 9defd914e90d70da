//! `turnbuckle cancel`: ends the turn that is open, here or in the process that has it.

use std::time::Duration;

use serde_json::json;
use turnbuckle::conversation::{Cancelled, SendError};
use turnbuckle::event::{EventKind, TurnEnded};
use turnbuckle::{ConversationId, Conversations, Outcome, Scope, TurnId};

use super::{named, refused};
use crate::Stopped;
use crate::args::{Cancel, Common};
use crate::exit::Exit;
use crate::inspect::{print_all, unprintable};
use crate::output;
use crate::show::json_line;
use crate::without_agent::WithoutAgent;

/// How long the process that has the conversation is given to hear of it: it looks every second.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Cancels the open turn, if there is one, and says who did it.
pub(crate) async fn cancel(args: Cancel, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id, common)?;
    let refuse = |error| refused(error, common);
    let WithoutAgent { conversations, scope, .. } = &WithoutAgent::existing(common)?;
    let (turn, by) = match conversations.cancel(&id, scope.clone()).await.map_err(refuse)? {
        Cancelled::NotRunning if args.json => {
            return print_all(&json_line(&json!({ "conversation": id, "turn": null })).map_err(unprintable)?);
        }
        Cancelled::NotRunning => {
            output::say(&format!("conversation {id} has no open turn: there is nothing to cancel"));
            return Ok(Exit::Completed);
        }
        Cancelled::Local { turn } => (turn, ""),
        Cancelled::Remote { turn } => (turn, " by the process that has it"),
    };
    let wait = wait_for_end(conversations, &id, &turn, scope);
    let ended = tokio::time::timeout(PATIENCE, wait).await.unwrap_or(Ok(None));
    let ended = ended.map_err(refuse)?;
    if args.json {
        // Without an outcome the process that has it was asked, and has not done it yet.
        let outcome = ended.map(|ended| ended.outcome);
        let line = json!({ "conversation": id, "turn": turn, "outcome": outcome, "elsewhere": !by.is_empty() });
        return print_all(&json_line(&line).map_err(unprintable)?);
    }
    output::say(&match ended {
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
        EventKind::TurnEnded(ended) => Some((**ended).clone()),
        _ => None,
    }))
}
