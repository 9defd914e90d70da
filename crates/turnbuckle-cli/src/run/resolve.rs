//! `turnbuckle resolve`: answers a call that waits, and carries its turn on.

use std::io::{self, Read as _};
use std::time::Duration;

use turnbuckle::conversation::{ResolveError, SendError};
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::store::Answer;
use turnbuckle::{CallId, ConversationId, Conversations, Scope, TurnStatus};

use super::watch::{DisplayOptions, Expected, Watch};
use super::{Ready, how_to_find, named};
use crate::Stopped;
use crate::args::{Common, Resolve};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::problem::{Problem, with_causes};
use crate::show::name;
use crate::store::MADE_BY_RUN;
use crate::trust::Gate;

/// The longest answer: it becomes part of every later request to the model.
const LONGEST: usize = 1 << 20;
/// How long the process that has the conversation is given to take an answer up: it looks every second.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answers a call that waits, and carries the turn on, or leaves that to the process that has it.
pub(crate) async fn resolve(args: Resolve, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id, common)?;
    let answer = answer(&args)?;
    let ready = Ready::of(prepare(common, Gate::Needed(args.trust)))?;
    let conversations = Conversations::builder(ready.agent.clone(), ready.store.existing(MADE_BY_RUN)?);
    let display = DisplayOptions { json: args.json, ..DisplayOptions::default() };
    let mut watch = Watch::begin(conversations, id, display, &ready, common, Expected::Existing).await?;
    watch.carry_on().await;
    let (call, decision) = (CallId::from(args.call.as_str()), decision(&answer));
    let handle = match watch.conversations.resolve(&watch.id, &call, answer, None, watch.scope.clone()).await {
        Ok(handle) => handle,
        Err(error) => return Ok(watch.refuse_answer(&error).await),
    };
    if handle.is_remote() {
        return Ok(watch.hand_over(&call, decision).await);
    }
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

impl Watch {
    /// Resumes the turn first: a question may have expired, and another process may have left an answer.
    async fn carry_on(&mut self) {
        // A conversation that another process has is that one's concern; any other trouble meets the answer, too.
        let Ok(Some(handle)) = self.conversations.resume(&self.id, self.scope.clone()).await else { return };
        if let Ok(TurnStatus::Ended(ended)) = self.follow(handle).await {
            self.settle().await;
            self.view.answer(&ended, &self.output);
        }
    }

    /// The answer is stored for the process that has the conversation. A cancellation may still come before it, so the exit
    /// code goes by what that process writes.
    async fn hand_over(mut self, call: &CallId, decision: Resolved) -> Exit {
        let (conversations, scope) = (self.conversations.clone(), self.scope.clone());
        let resolution = resolution(&conversations, &self.id, call, &scope);
        let resolved = tokio::select! {
            biased;
            () = self.signals.first() => return self.handed_over(Exit::Cancelled, NOT_YET).await,
            resolved = tokio::time::timeout(PATIENCE, resolution) => resolved,
        };
        let (id, options) = (&self.id, &self.hints.options);
        let problem = match resolved {
            Err(_) => return self.handed_over(Exit::Completed, NOT_YET).await,
            Ok(Ok(found)) if found == Some(decision) => return self.handed_over(Exit::Completed, "").await,
            Ok(Ok(found)) => {
                let before = match found {
                    Some(Resolved::Cancelled) => "its turn was cancelled",
                    Some(Resolved::Expired) => "it had expired",
                    Some(_) => "it was answered otherwise",
                    None => "it waits no longer",
                };
                Problem::error(format!("the answer to call {} came too late: {before}", name(call.as_str())))
                    .hint(format!("`turnbuckle show {id}{options}` says what became of the turn"))
            }
            Ok(Err(error)) => Problem::error(format!(
                "the answer was handed over, and what became of it cannot be read: {}",
                with_causes(&error)
            )),
        };
        self.output.problem(&problem);
        self.finish(Exit::Failed).await
    }

    async fn handed_over(self, exit: Exit, more: &str) -> Exit {
        let id = &self.id;
        self.output.err(format!("handed over: another process has conversation {id} and carries its turn on{more}\n"));
        self.finish(exit).await
    }

    /// The answer was not taken.
    async fn refuse_answer(mut self, error: &ResolveError) -> Exit {
        // The turn may be under way here by another answer: it is not left in the middle.
        self.carry_on().await;
        let (id, options) = (&self.id, &self.hints.options);
        let hint = match error {
            ResolveError::Stale { .. } => format!("`turnbuckle show {id}{options}` says what it waits for, if it does"),
            ResolveError::Unfit { .. } => "`turnbuckle resolve --help` has the kinds of answers".to_owned(),
            ResolveError::NotFound { .. } => how_to_find(options),
            ResolveError::TooLong { .. } => "put it into a file, and answer with its path".to_owned(),
            ResolveError::Full { .. } => "nothing was answered: try again in a moment".to_owned(),
            _ => format!("nothing was answered: try again; `turnbuckle show {id}{options}` says where it stands"),
        };
        self.output.problem(&Problem::error(error.to_string()).hint(hint));
        self.finish(Exit::Failed).await
    }
}

/// Waits until the call is resolved, and says how; `None` if it ended without a resolution.
async fn resolution(
    conversations: &Conversations,
    id: &ConversationId,
    call: &CallId,
    scope: &Scope,
) -> Result<Option<Resolved>, SendError> {
    while conversations.snapshot(id, scope.clone()).await?.pending.contains(call) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let log = conversations.log(id, scope.clone()).await?;
    Ok(log.iter().rev().find_map(|event| match &event.kind {
        EventKind::Resolution { call: of, decision, .. } if of == call => Some(*decision),
        _ => None,
    }))
}

/// The end of a message about an answer that is stored and not taken up.
const NOT_YET: &str = "; it has not taken the answer up yet";

/// How the log has an answer of this kind.
fn decision(answer: &Answer) -> Resolved {
    match answer {
        Answer::Approve => Resolved::Approved,
        Answer::Deny(_) => Resolved::Denied,
        _ => Resolved::Answered,
    }
}

fn answer(args: &Resolve) -> Result<Answer, Stopped> {
    match (&args.deny, args.answer.as_deref()) {
        (Some(reason), _) => Ok(Answer::Deny(reason.as_deref().map(Into::into))),
        (None, None) => Ok(Answer::Approve),
        (None, Some("-")) => parse(&from_stdin()?),
        (None, Some(json)) => parse(json.as_bytes()),
    }
}

fn parse(json: &[u8]) -> Result<Answer, Stopped> {
    if json.len() > LONGEST {
        let problem = Problem::error("the answer is longer than 1 MiB, and was not taken");
        return Err(Stopped::usage(problem.hint("put it into a file, and answer with its path")));
    }
    serde_json::from_slice(json).map(Answer::Result).map_err(|error| {
        let problem = Problem::error(format!("the answer is not JSON: {error}"));
        Stopped::usage(problem.hint("a text needs its quotes: --answer '\"blue\"'"))
    })
}

/// One byte more than may be is enough to know.
fn from_stdin() -> Result<Vec<u8>, Stopped> {
    let (mut bytes, most) = (Vec::new(), u64::try_from(LONGEST + 1).unwrap_or(u64::MAX));
    let read = io::stdin().lock().take(most).read_to_end(&mut bytes);
    read.map_err(|error| Stopped::failed(Problem::error(format!("reading the answer from stdin: {error}"))))?;
    Ok(bytes)
}
