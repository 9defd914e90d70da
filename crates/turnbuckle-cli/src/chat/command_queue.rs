//! Commands of the user to the runtime, carried out in order by a task of their own, so that the screen never waits for the
//! store.

use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use turnbuckle::conversation::{
    Always, Cancelled, LeftTurn, ResolveError, SendError, TurnError, TurnHandle, WhileBusy,
};
use turnbuckle::event::{EventKind, Question};
use turnbuckle::message::{Content, Text};
use turnbuckle::projection::Pending;
use turnbuckle::store::{Answer, ConversationStatus, GivenAnswer, StandingApproval, StoreError};
use turnbuckle::trace::trace_of_turn;
use turnbuckle::{CallId, ConversationId, Conversations, Scope, TurnId};
use turnbuckle_tools::{Workspace, rules};

use crate::logging::CLI;
use crate::problem::{Problem, with_causes};
use crate::show::{self, opening};

/// How many commands may wait; a command that finds the queue full is refused.
const CAPACITY: usize = 64;
/// How long a tool may take to say what a call would change.
const PREVIEW: Duration = Duration::from_secs(3);
/// How many conversations are offered to go on with.
const RECENT: usize = 15;

/// What the user wants to be done.
pub(super) enum Command {
    /// Send a message; it is queued if a turn runs.
    Send(Content),
    /// Give a message to the model of the turn that runs.
    Steer(Content),
    /// Take a queued message back.
    TakeBack(TurnId),
    /// Take a queued message back, and give it to the model of the turn that runs.
    TakeBackToSteer(TurnId, Content),
    /// Find out what a call would change, before the person is asked about it.
    Preview(Box<Pending>),
    /// Make the standing approvals that calls like this one could have.
    ProposeAlways(Box<Pending>),
    /// List the standing approvals.
    ListApprovals,
    /// Revoke one.
    Revoke(String),
    /// Say what each stage of a turn did, with a note behind it.
    Trace(TurnId, String),
    /// List conversations to go on with.
    ListConversations,
    /// Put back the files that the last turn changed.
    Undo,
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
    /// The standing approval that begins with it.
    pub(super) standing: Option<Box<StandingApproval>>,
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Self::Send(_) => "send",
            Self::Steer(_) => "steer",
            Self::TakeBack(_) | Self::TakeBackToSteer(..) => "take back",
            Self::Preview(_) => "preview",
            Self::ProposeAlways(_) => "propose always",
            Self::ListApprovals => "list approvals",
            Self::Revoke(_) => "revoke",
            Self::Trace(..) => "trace",
            Self::ListConversations => "list conversations",
            Self::Undo => "undo",
            Self::Answer(_) => "answer",
            Self::Resume => "resume",
            Self::AcceptChanges | Self::AcceptChangesAndAnswer(_) => "accept changes",
            Self::Cancel => "cancel",
        }
    }
}

/// What came of a command, where the user must be told.
pub(super) enum CommandOutcome {
    /// The message is stored; it opens this turn.
    Sent(TurnId),
    /// The message was refused.
    NotSent(Problem),
    /// A message for the turn that runs is stored, with this id.
    Steering(TurnId),
    /// It was refused.
    NotSteered(Problem),
    /// What became of such a message is known: it is part of the turn, refused, or opened another one. Not if it was taken back.
    Steered(TurnId),
    /// A queued message was taken back, or could not be.
    TakenBack(TurnId, Result<(), &'static str>),
    /// A queued message is for the turn that runs now, and stored with the second id.
    Redirected(TurnId, TurnId),
    /// What a call would change: a diff, or why it cannot be said.
    Previewed(Box<Pending>, Option<Result<String, String>>),
    /// The standing approvals that calls like this one could have, from narrow to broad.
    Proposed(Vec<StandingApproval>),
    /// Something to tell.
    Told(&'static str, String),
    /// Conversations to go on with, the last one first, with what was said in them.
    Conversations(Vec<(ConversationId, String)>),
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
    /// No turn is cancelled: none was open, or why it cannot be.
    NotCancelled(Option<Problem>),
    /// Any other command failed.
    Failed(Problem),
}

/// The session's ends of the queue.
pub(super) struct CommandQueue {
    pub(super) commands: Sender<Command>,
    pub(super) outcomes: Receiver<CommandOutcome>,
}

/// Starts the task. It ends when the queue is dropped.
pub(super) fn spawn(
    conversations: Conversations,
    id: ConversationId,
    scope: Scope,
    workspace: Option<Workspace>,
) -> CommandQueue {
    let (commands, mut incoming) = channel::<Command>(CAPACITY);
    let (tell, outcomes) = channel(CAPACITY);
    tokio::spawn(async move {
        while let Some(command) = incoming.recv().await {
            tracing::debug!(target: CLI, conversation = %id, command = command.name(), "command taken");
            let outcome = match command {
                Command::Steer(content) => steer(&conversations, &id, &scope, (content, None), &tell).await,
                Command::TakeBackToSteer(turn, content) => {
                    take_back_to_steer(&conversations, &id, &scope, (turn, content), &tell).await
                }
                Command::Undo => Some(undo(&conversations, &id, &scope, workspace.as_ref()).await),
                command => carry_out(&conversations, &id, &scope, command).await,
            };
            if let Some(outcome) = outcome
                && tell.send(outcome).await.is_err()
            {
                return;
            }
        }
    });
    CommandQueue { commands, outcomes }
}

/// Carries a command out where nobody waits for something else meanwhile. Not for messages: `None`.
pub(super) async fn at_once(
    conversations: &Conversations,
    (id, scope): (&ConversationId, &Scope),
    workspace: Option<&Workspace>,
    command: Command,
) -> Option<CommandOutcome> {
    match command {
        Command::Undo => Some(undo(conversations, id, scope, workspace).await),
        command => carry_out(conversations, id, scope, command).await,
    }
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
            Ok(handle) => remote(&handle).or_else(|| Some(CommandOutcome::Sent(handle.turn().clone()))),
            Err(error) => Some(CommandOutcome::NotSent(problem(error))),
        },
        Command::TakeBack(turn) => Some(match conversations.take_back(id, &turn, scope.clone()).await {
            Ok(true) => CommandOutcome::TakenBack(turn, Ok(())),
            Ok(false) => CommandOutcome::TakenBack(turn, Err("its turn has begun")),
            Err(error) => CommandOutcome::Failed(problem(error)),
        }),
        Command::Preview(pending) => {
            let preview = preview(conversations, &pending).await;
            Some(CommandOutcome::Previewed(pending, preview))
        }
        Command::ProposeAlways(pending) => Some(match offered(conversations, id, &pending, scope).await {
            Ok(offered) => CommandOutcome::Proposed(offered),
            Err(error) => CommandOutcome::Failed(Problem::error(error.to_string())),
        }),
        Command::ListApprovals => Some(match conversations.standing(scope).await {
            Ok(approvals) if approvals.is_empty() => {
                CommandOutcome::Told("always", "no standing approvals; A at a question makes one".to_owned())
            }
            Ok(approvals) => {
                let lines: Vec<String> = approvals.iter().map(|one| format!("{}: {one}", one.id)).collect();
                CommandOutcome::Told("always", lines.join("\n"))
            }
            Err(error) => CommandOutcome::Failed(Problem::error(with_causes(&error))),
        }),
        Command::Revoke(approval) => Some(match conversations.revoke_standing(&approval, scope).await {
            Ok(true) => CommandOutcome::Told("always", format!("{approval} is revoked")),
            Ok(false) => CommandOutcome::Told("always", format!("there is no standing approval {approval} of yours")),
            Err(error) => CommandOutcome::Failed(Problem::error(with_causes(&error))),
        }),
        Command::Trace(turn, note) => Some(match told_turn(conversations, id, &turn, scope).await {
            Ok(lines) => CommandOutcome::Told("trace", format!("{}\n{note}", lines.trim_end())),
            Err(error) => CommandOutcome::Failed(problem(error)),
        }),
        Command::ListConversations => Some(match recent(conversations, id, scope).await {
            Ok(found) => CommandOutcome::Conversations(found),
            Err(error) => CommandOutcome::Failed(problem(error)),
        }),
        // Carried out where they can tell later what became of them.
        Command::Steer(_) | Command::TakeBackToSteer(..) | Command::Undo => None,
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
            Ok(Cancelled::NotRunning) => Some(CommandOutcome::NotCancelled(None)),
            Ok(Cancelled::Local { .. } | Cancelled::Remote { .. }) => None,
            Err(error) => Some(CommandOutcome::NotCancelled(Some(problem(error)))),
        },
    }
}

async fn answer(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    typed: TypedAnswer,
) -> Option<CommandOutcome> {
    let TypedAnswer { call, answer, digest, standing } = typed.clone();
    let given: GivenAnswer = match standing {
        Some(standing) => answer.always(*standing),
        None => answer.into(),
    };
    match conversations.resolve(id, &call, given, digest, scope.clone()).await {
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

/// Gives a message to the turn that runs, maybe one that was queued before. What becomes of it is told when that is known.
async fn steer(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    (content, queued): (Content, Option<TurnId>),
    tell: &Sender<CommandOutcome>,
) -> Option<CommandOutcome> {
    match conversations.send_while(id, content, scope.clone(), WhileBusy::Steer).await {
        Ok(handle) if handle.is_remote() => Some(CommandOutcome::Remote),
        Ok(handle) => {
            let (turn, tell) = (handle.turn().clone(), tell.clone());
            let stored = match queued {
                Some(queued) => CommandOutcome::Redirected(queued, turn.clone()),
                None => CommandOutcome::Steering(turn.clone()),
            };
            // Before what becomes of it. The session may have gone away.
            drop(tell.send(stored).await);
            tokio::spawn(async move {
                // Why it was refused is a notice of the turn. The session may have gone away.
                if !matches!(handle.wait().await, Err(TurnError::TakenBack)) {
                    drop(tell.send(CommandOutcome::Steered(turn)).await);
                }
            });
            None
        }
        Err(error) => {
            let problem = Problem::error(with_causes(&error));
            Some(if queued.is_some() { CommandOutcome::Failed(problem) } else { CommandOutcome::NotSteered(problem) })
        }
    }
}

async fn take_back_to_steer(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    (turn, content): (TurnId, Content),
    tell: &Sender<CommandOutcome>,
) -> Option<CommandOutcome> {
    match conversations.take_back(id, &turn, scope.clone()).await {
        Ok(true) => steer(conversations, id, scope, (content, Some(turn)), tell).await,
        Ok(false) => Some(CommandOutcome::TakenBack(turn, Err("its turn has begun"))),
        Err(error) => Some(CommandOutcome::Failed(Problem::error(with_causes(&error)))),
    }
}

/// What the call of a question would change, if that is known, or why it would be refused. A tool that takes too long is asked about without it.
pub(super) async fn preview(conversations: &Conversations, pending: &Pending) -> Option<Result<String, String>> {
    match &pending.question {
        Question::Approval { tool: Some(tool), arguments, redacted: false, .. } => {
            let preview = conversations.agent().preview(&pending.call, tool, arguments.clone());
            match tokio::time::timeout(PREVIEW, preview).await {
                Ok(Ok(preview)) => preview.map(|preview| Ok(preview.diff.to_string())),
                Ok(Err(error)) => Some(Err(error.to_string())),
                Err(_) => None,
            }
        }
        _ => None,
    }
}

/// The standing approvals that can be made of a call, from narrow to broad. Nothing is stored.
async fn offered(
    conversations: &Conversations,
    id: &ConversationId,
    pending: &Pending,
    scope: &Scope,
) -> Result<Vec<StandingApproval>, ResolveError> {
    let Question::Approval { tool: Some(tool), arguments, .. } = &pending.question else { return Ok(Vec::new()) };
    let mut offered = Vec::new();
    for parts in rules::choices(tool, arguments) {
        let mut always = Always::default();
        always.arguments = Some(parts);
        offered.push(conversations.propose_standing(id, &pending.call, &always, scope).await?);
    }
    Ok(offered)
}

/// What each stage of a turn did.
async fn told_turn(
    conversations: &Conversations,
    id: &ConversationId,
    turn: &TurnId,
    scope: &Scope,
) -> Result<String, SendError> {
    let (log, cuts) = (conversations.log(id, scope.clone()).await?, conversations.cuts(id, scope.clone()).await?);
    Ok(trace_of_turn(&log, &cuts, turn))
}

/// Conversations of the store, the one that was used last first, each with what was said in it first and how it stands.
async fn recent(
    conversations: &Conversations,
    own: &ConversationId,
    scope: &Scope,
) -> Result<Vec<(ConversationId, String)>, SendError> {
    let mut listed = conversations.list(scope.clone()).await?;
    listed.retain(|one| !one.id.is_sub_agent() && one.id != *own && one.seq > 0);
    listed.truncate(RECENT);
    let mut found = Vec::new();
    for one in listed {
        let title = match &one.title {
            Some(title) => opening(title, 60),
            None => {
                let log = conversations.log(&one.id, scope.clone()).await?;
                let said = log.iter().find_map(|event| match &event.kind {
                    EventKind::UserMessage { content, .. } => Some(show::title(content)),
                    _ => None,
                });
                said.unwrap_or_default()
            }
        };
        let state = match one.status {
            ConversationStatus::Idle => "",
            ConversationStatus::Running => "  [running]",
            ConversationStatus::Waiting { .. } => "  [waits for an answer]",
        };
        found.push((one.id, title + state));
    }
    Ok(found)
}

/// Puts back what the last turn that changed files changed.
async fn undo(
    conversations: &Conversations,
    id: &ConversationId,
    scope: &Scope,
    workspace: Option<&Workspace>,
) -> CommandOutcome {
    let Some(workspace) = workspace else {
        return CommandOutcome::Told("undo", "this agent has no file tools".to_owned());
    };
    let log = match conversations.log(id, scope.clone()).await {
        Ok(log) => log,
        Err(error) => return CommandOutcome::Failed(Problem::error(with_causes(&error))),
    };
    let mut turns: Vec<TurnId> = log.iter().map(|event| event.turn.clone()).collect();
    turns.dedup();
    for turn in turns.iter().rev() {
        match workspace.undo(turn).await {
            Ok(None) => {}
            Ok(Some(undone)) => return CommandOutcome::Told("undo", undone.to_string()),
            Err(error) => return CommandOutcome::Failed(Problem::error(error.to_string())),
        }
    }
    let text = "there is nothing to put back: no turn of this conversation has changed files, they were put back already, or it \
                is too long ago: the last 32 turns of the project are kept";
    CommandOutcome::Told("undo", text.to_owned())
}
