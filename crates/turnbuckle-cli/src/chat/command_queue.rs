//! Commands of the user to the runtime, carried out in order by a task of their own, so that the screen never waits for the
//! store.

use tokio::sync::mpsc::{Receiver, Sender, channel};
use turnbuckle::conversation::{LeftTurn, ResolveError, SendError, TurnHandle, WhileBusy};
use turnbuckle::message::Text;
use turnbuckle::store::{Answer, StoreError};
use turnbuckle::{CallId, ConversationId, Conversations, Scope};

use crate::logging::CLI;
use crate::problem::{Problem, with_causes};

/// How many commands may wait; a command that finds the queue full is refused.
const CAPACITY: usize = 64;

/// What the user wants to be done.
pub(super) enum Command {
    /// Send a message; it is queued if a turn runs.
    Send(String),
    /// Answer what a turn asks.
    Answer(TypedAnswer),
    /// Finish a turn that a crash left open.
    Resume,
    /// Insist that a turn whose agent has changed is carried on, and carry it on.
    AcceptChanges,
    /// Insist on that with an answer that was refused because of the change.
    AcceptChangesAndAnswer(TypedAnswer),
    /// Cancel the turn that is open.
    Cancel,
}

/// An answer to what a turn asks.
#[derive(Clone)]
pub(super) struct TypedAnswer {
    pub(super) call: CallId,
    pub(super) answer: Answer,
    /// Of what the person was shown.
    pub(super) digest: Option<Text>,
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Self::Send(_) => "send",
            Self::Answer(_) => "answer",
            Self::Resume => "resume",
            Self::AcceptChanges | Self::AcceptChangesAndAnswer(_) => "accept changes",
            Self::Cancel => "cancel",
        }
    }
}

/// What came of a command, where the user must be told.
pub(super) enum CommandOutcome {
    /// The message was refused.
    NotSent(Problem),
    /// The answer to this call was refused.
    NotAnswered(CallId, Problem),
    /// The answer was refused because the agent has changed; the person can insist, and the answer is kept until they say.
    NotAnsweredNow(TypedAnswer, LeftTurn),
    /// Another process owns the conversation, and carries the command out.
    Remote,
    /// Another process owns the conversation, and takes the stored answer to this call up.
    HandedOver(CallId),
    /// The open turn is not carried on here.
    Left(LeftTurn),
    /// The answer is recorded, and another agent must carry the turn on.
    Recorded(LeftTurn),
    /// Any other command failed.
    Failed(Problem),
}

/// The session's ends of the queue.
pub(super) struct CommandQueue {
    pub(super) commands: Sender<Command>,
    pub(super) outcomes: Receiver<CommandOutcome>,
}

/// Starts the task. It ends when the queue is dropped.
pub(super) fn spawn(conversations: Conversations, id: ConversationId, scope: Scope) -> CommandQueue {
    let (commands, mut incoming) = channel::<Command>(CAPACITY);
    let (tell, outcomes) = channel(CAPACITY);
    tokio::spawn(async move {
        while let Some(command) = incoming.recv().await {
            tracing::debug!(target: CLI, conversation = %id, command = command.name(), "command taken");
            let outcome = carry_out(&conversations, &id, &scope, command).await;
            if let Some(outcome) = outcome
                && tell.send(outcome).await.is_err()
            {
                return;
            }
        }
    });
    CommandQueue { commands, outcomes }
}

async fn carry_out(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    command: Command,
) -> Option<CommandOutcome> {
    let remote = |handle: &TurnHandle| handle.is_remote().then_some(CommandOutcome::Remote);
    let problem = |error: SendError| Problem::error(with_causes(&error));
    match command {
        Command::Send(message) => match conversations.send_while(id, message, scope.clone(), WhileBusy::Queue).await {
            Ok(handle) => remote(&handle),
            Err(error) => Some(CommandOutcome::NotSent(problem(error))),
        },
        Command::Answer(typed) => answer(conversations, id, scope, typed).await,
        Command::AcceptChangesAndAnswer(typed) => {
            // Only an answer that can be taken carries the turn on, so only then the person insists.
            if let Err(error) = conversations.question(id, &typed.call, scope).await {
                return Some(CommandOutcome::NotAnswered(typed.call, Problem::error(error.to_string())));
            }
            match conversations.accept_changes(id, scope.clone()).await {
                Ok(_) => answer(conversations, id, scope, typed).await,
                Err(error) => Some(CommandOutcome::NotAnswered(typed.call, problem(error))),
            }
        }
        Command::Resume => resume(conversations, id, scope).await,
        Command::AcceptChanges => match conversations.accept_changes(id, scope.clone()).await {
            Ok(_) => resume(conversations, id, scope).await,
            Err(SendError::NotFound { .. }) => None,
            Err(SendError::Left { left, .. }) => Some(CommandOutcome::Left(left)),
            Err(error) => Some(CommandOutcome::Failed(problem(error))),
        },
        Command::Cancel => match conversations.cancel(id, scope.clone()).await {
            Ok(_) => None,
            Err(error) => Some(CommandOutcome::Failed(problem(error))),
        },
    }
}

async fn answer(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    typed: TypedAnswer,
) -> Option<CommandOutcome> {
    let TypedAnswer { call, answer, digest } = typed.clone();
    match conversations.resolve(id, &call, answer, digest, scope.clone()).await {
        Ok(handle) => match handle.left() {
            Some(left) => Some(CommandOutcome::Recorded(left.clone())),
            None => handle.is_remote().then_some(CommandOutcome::HandedOver(call)),
        },
        Err(ResolveError::Changed { left, .. }) => Some(CommandOutcome::NotAnsweredNow(typed, left)),
        Err(error) => Some(CommandOutcome::NotAnswered(call, Problem::error(error.to_string()))),
    }
}

async fn resume(conversations: &Conversations, id: &ConversationId, scope: &Scope) -> Option<CommandOutcome> {
    match conversations.resume(id, scope.clone()).await {
        Ok(_) | Err(SendError::NotFound { .. }) => None,
        Err(SendError::Store(StoreError::InUse { .. })) => Some(CommandOutcome::Remote),
        Err(SendError::Left { left, .. }) => Some(CommandOutcome::Left(left)),
        Err(error) => Some(CommandOutcome::Failed(Problem::error(with_causes(&error)))),
    }
}
