//! `turnbuckle resolve`: answers a call that waits, and carries its turn on.

use std::time::Duration;

use turnbuckle::conversation::{LeftTurn, ResolveError, SendError};
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::store::Store as _;
use turnbuckle::{CallId, ConversationId, Conversations, Scope};

use super::hints::ResolveHints;
use super::watch::{DisplayOptions, Expected, Watch};
use super::{Ready, named};
use crate::Stopped;
use crate::answers::{GivenAnswer, NewStanding, refusal_at};
use crate::args::{Common, Resolve};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::inspect::failed;
use crate::problem::{Problem, with_causes};
use crate::show::{clean, name};
use crate::store::MADE_BY_RUN;
use crate::trust::Gate;
use crate::without_agent::WithoutAgent;

/// How long the process that has the conversation is given to take an answer up: it looks every second.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answers a call that waits, and carries the turn on, or leaves that to the process that has it or to its own agent.
pub(crate) async fn resolve(args: Resolve, common: &Common) -> Result<Exit, Stopped> {
    let (id, call) = (named(&args.given.id, common)?, CallId::from(args.given.call.as_str()));
    let given = GivenAnswer::read(&args.given)?;
    let common = &args.trust.noted_in(common);
    let ready = Ready::of(prepare(common, Gate::Needed(args.trust)))?;
    let store = ready.store.existing(MADE_BY_RUN)?;
    let standing = match &given.always {
        Some(always) => {
            // Asked before signals are caught: Ctrl-C at the question ends the program.
            let (conversations, options) = (ready.existing(store.clone()).build(), common.same_store());
            let command = ("resolve", options.as_str());
            Some(NewStanding::make(&conversations, (&id, &call), always, &ready.scope, command).await?)
        }
        None => None,
    };
    let display = DisplayOptions { json: args.json, ..DisplayOptions::default() };
    let mut watch = Watch::begin(ready.existing(store), id, display, &ready, common, Expected::Existing).await?;
    watch.accept_changes(args.carry_on, common).await?;
    let decision = given.decision();
    let handle = match watch.conversations.resolve(&watch.id, &call, given.answer, None, watch.scope.clone()).await {
        Ok(handle) => handle,
        Err(error) => {
            if let Some(standing) = standing {
                standing.take_back().await;
            }
            return watch.refuse_answer(&error, common).await;
        }
    };
    if let Some(left) = handle.left().cloned() {
        return watch.recorded(&left, common).await;
    }
    if handle.is_remote() {
        return Ok(watch.hand_over(&call, decision).await);
    }
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

impl Watch {
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

    /// The answer was not taken, and nothing runs.
    async fn refuse_answer(self, error: &ResolveError, common: &Common) -> Result<Exit, Stopped> {
        let desk = WithoutAgent::read_only(common)?;
        self.output.problem(&refusal_at(&desk, error, &self.id, ("resolve", common)).await?);
        Ok(self.finish(Exit::Failed).await)
    }

    /// The answer is recorded, and another agent must carry the turn on.
    async fn recorded(self, left: &LeftTurn, common: &Common) -> Result<Exit, Stopped> {
        let desk = WithoutAgent::read_only(common)?;
        let begun = desk.store.scratch(&self.id).await.map_err(failed)?;
        let hints = ResolveHints::for_turn_of(self.id.clone(), common, &desk, begun.as_ref()).await.map_err(failed)?;
        let next = hints.carried_on_by(&left.agent);
        self.output.err(clean(&format!("recorded: the answer of {}; {next}", self.scope.by())) + "\n");
        Ok(self.finish(Exit::Completed).await)
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
