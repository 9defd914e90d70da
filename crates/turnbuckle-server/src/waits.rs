//! What waits for people: calls whose questions are stored, and live questions.

use turnbuckle::access::Action;
use turnbuckle::conversation::{PendingCall, SendError};
use turnbuckle::message::Text;
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::store::StoreError;
use turnbuckle::{CallId, ConversationId, Scope, Timestamp};

use crate::server::App;

/// A question that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The conversation.
    pub conversation: ConversationId,
    /// The name of the agent that asks.
    pub agent: Text,
    /// Who sent the message of the turn.
    pub requester: Author,
    /// Since when it waits.
    pub asked: Timestamp,
    /// What is asked, who may answer, and until when.
    pub pending: Pending,
    /// What it is about, if it is stored nowhere.
    pub live: Option<Live>,
}

/// A question that is asked while a call runs, and that lapses with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// The call that runs meanwhile.
    pub call: CallId,
    /// Its tool.
    pub tool: Text,
    /// Who asks, for people.
    pub asker: Text,
}

impl From<PendingCall> for Waiting {
    fn from(call: PendingCall) -> Self {
        let PendingCall { conversation, agent, requester, asked, pending, .. } = call;
        Self { conversation, agent, requester, asked, pending, live: None }
    }
}

impl App {
    /// What waits for this actor, the oldest question first.
    pub(crate) async fn waits_for(&self, scope: &Scope) -> Result<Vec<Waiting>, StoreError> {
        let stored = self.conversations.pending(scope.clone()).await?;
        let mut waiting: Vec<Waiting> = stored.into_iter().map(Waiting::from).collect();
        for live in self.live_questions.all() {
            match self.conversations.may(&live.conversation, Action::Answer, scope).await {
                Ok(()) => waiting.push(live),
                Err(SendError::Store(error)) => return Err(error),
                Err(_) => {}
            }
        }
        waiting.sort_by_key(|waiting| waiting.asked);
        Ok(waiting)
    }
}
