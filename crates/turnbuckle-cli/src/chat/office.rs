//! Hands over what was typed, in order, so that the screen never waits for the store.

use tokio::sync::mpsc::{Receiver, Sender, channel};
use turnbuckle::conversation::{SendError, TurnHandle, WhileBusy};
use turnbuckle::message::Text;
use turnbuckle::store::Answer;
use turnbuckle::{CallId, ConversationId, Conversations, Scope};

use crate::logging::CLI;
use crate::problem::{Problem, with_causes};

/// How many orders may wait.
const ORDERS: usize = 64;

/// What the person wants.
pub(super) enum Order {
    /// A message, queued if a turn runs.
    Say(String),
    /// The answer to what a turn asks.
    Answer {
        call: CallId,
        answer: Answer,
        digest: Option<Text>,
    },
    /// A turn that a crash left open is finished.
    TakeUp,
    Cancel,
}

impl Order {
    fn name(&self) -> &'static str {
        match self {
            Self::Say(_) => "send",
            Self::Answer { .. } => "answer",
            Self::TakeUp => "resume",
            Self::Cancel => "cancel",
        }
    }
}

/// What came of an order, where that is worth a word.
pub(super) enum Report {
    /// The message was not taken.
    Unsaid(Problem),
    /// The answer was not taken.
    Unanswered(CallId, Problem),
    /// Another process has the conversation, and was told.
    Elsewhere,
    Trouble(Problem),
}

/// Both ends of an office at work.
pub(super) struct Office {
    pub(super) orders: Sender<Order>,
    pub(super) reports: Receiver<Report>,
}

/// Works until nobody gives orders any more.
pub(super) fn open(conversations: Conversations, id: ConversationId, scope: Scope) -> Office {
    let ((orders, mut incoming), (tell, reports)) = (channel(ORDERS), channel(ORDERS));
    tokio::spawn(async move {
        while let Some(order) = incoming.recv().await {
            let report = carry_out(&conversations, &id, &scope, order).await;
            if let Some(report) = report
                && tell.send(report).await.is_err()
            {
                return;
            }
        }
    });
    Office { orders, reports }
}

async fn carry_out(conversations: &Conversations, id: &ConversationId, scope: &Scope, order: Order) -> Option<Report> {
    let elsewhere = |handle: &TurnHandle| handle.is_remote().then_some(Report::Elsewhere);
    let trouble = |error: SendError| Problem::error(with_causes(&error));
    tracing::debug!(target: CLI, conversation = %id, order = order.name(), "order taken");
    match order {
        Order::Say(words) => match conversations.send_while(id, words, scope.clone(), WhileBusy::Queue).await {
            Ok(handle) => elsewhere(&handle),
            Err(error) => Some(Report::Unsaid(trouble(error))),
        },
        Order::Answer { call, answer, digest } => {
            match conversations.resolve(id, &call, answer, digest, scope.clone()).await {
                Ok(handle) => elsewhere(&handle),
                Err(error) => Some(Report::Unanswered(call, Problem::error(error.to_string()))),
            }
        }
        Order::TakeUp => match conversations.resume(id, scope.clone()).await {
            Ok(_) | Err(SendError::NotFound { .. }) => None,
            Err(SendError::Store(turnbuckle::store::StoreError::InUse { .. })) => Some(Report::Elsewhere),
            Err(error) => Some(Report::Trouble(trouble(error))),
        },
        Order::Cancel => match conversations.cancel(id, scope.clone()).await {
            Ok(_) => None,
            Err(error) => Some(Report::Trouble(trouble(error))),
        },
    }
}
