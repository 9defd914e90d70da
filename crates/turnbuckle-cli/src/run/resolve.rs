//! `turnbuckle resolve`: answers a call that waits, and carries its turn on.

use std::time::Duration;

use turnbuckle::access::Action;
use turnbuckle::conversation::{AnswerStatus, LeftTurn, ResolveError, SendError, TurnHandle};
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::message::Text;
use turnbuckle::store::{StandingApproval, Store as _};
use turnbuckle::{CallId, ConversationId, Conversations, Scope, TurnId};

use super::hints::ResolveHints;
use super::watch::{DisplayOptions, Expected, Watch};
use super::{Ready, named, who_acts};
use crate::Stopped;
use crate::answers::{GivenAnswer, RecordedLine, agree_on_standing, refusal, refusal_at, who_else_must};
use crate::args::{Common, Resolve};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::inspect::{failed, unprintable};
use crate::problem::{Problem, with_causes};
use crate::show::{clean, json_line, name};
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
    let common = &ready.with_store(common);
    let store = ready.store.existing(MADE_BY_RUN)?;
    let conversations = ready.existing(store.clone()).build();
    let digest = match given.digest_of_shown(&conversations, (&id, &call), &ready.scope).await {
        Ok(digest) => digest,
        Err(error) => {
            let desk = WithoutAgent::read_only(common)?;
            return Err(Stopped::failed(refusal_at(&desk, &error, &id, ("resolve", common)).await?));
        }
    };
    // Asked before signals are caught: Ctrl-C at the question ends the program.
    let command = ("resolve", &*common.same_store());
    let standing = agree_on_standing(&conversations, (&id, &call), &given, &ready.scope, command).await?;
    // Refused before anything is read: then nobody has read the conversation of another.
    if let Err(error @ ResolveError::Forbidden { .. }) = conversations.question(&id, &call, &ready.scope).await {
        return Err(Stopped::failed(refusal(&error, &id, command, &ready.scope)));
    }
    let display = DisplayOptions { json: args.json, ..DisplayOptions::default() };
    let expected = match conversations.may(&id, Action::Read, &ready.scope).await {
        // The rule that is stored with the question decides who may answer it, not this configuration.
        Err(SendError::NotFound { .. }) if may_answer(&conversations, &id, &call, &ready.scope).await => {
            if args.carry_on.accept_changes {
                return Err(Stopped::failed(Problem::error(MAY_NOT_INSIST).hint(who_acts(&ready.scope))));
            }
            Expected::NotReadable
        }
        _ => Expected::ToAnswer,
    };
    let mut watch = Watch::begin(ready.existing(store), id, display, &ready, common, expected).await?;
    if let Ok(Some(handle)) = watch.conversations.carry_on_expired(&watch.id, &call, watch.scope.clone()).await {
        return Ok(watch.go_on_without(&call, handle).await);
    }
    let told = Told { call, decision: given.decision(), standing: standing.clone(), json: args.json };
    let answer = given.with_standing(standing);
    let resolve = |watch: &Watch| {
        let (conversations, id, scope) = (watch.conversations.clone(), watch.id.clone(), watch.scope.clone());
        let (call, answer, digest) = (told.call.clone(), answer.clone(), digest.clone());
        async move { conversations.resolve(&id, &call, answer, digest, scope).await }
    };
    let mut resolved = resolve(&watch).await;
    if args.carry_on.accept_changes && matches!(resolved, Err(ResolveError::Changed { .. })) {
        // Nothing was written. Only an answer that is taken carries the turn on, so only then the person insists.
        resolved = match watch.conversations.question(&watch.id, &told.call, &watch.scope).await {
            Ok(_) => {
                watch.accept_changes(args.carry_on, common).await?;
                resolve(&watch).await
            }
            Err(error) => Err(error),
        };
    }
    let handle = match resolved {
        Ok(handle) => handle,
        Err(error) => return watch.refuse_answer(&error, common).await,
    };
    if let Some(left) = handle.left().cloned() {
        return watch.recorded(&told, &left, common).await;
    }
    if handle.is_remote() {
        return watch.hand_over(&told, common).await;
    }
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

/// Whether the actor is one of those who were asked, also if they are late and are told so.
async fn may_answer(conversations: &Conversations, id: &ConversationId, call: &CallId, scope: &Scope) -> bool {
    matches!(conversations.question(id, call, scope).await, Ok(_) | Err(ResolveError::Stale { .. }))
}

/// An answer that was given, as it is told.
struct Told {
    call: CallId,
    decision: Resolved,
    standing: Option<StandingApproval>,
    /// Whether programs read what is printed.
    json: bool,
}

/// Whether an answer was stored for the process that has the conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handed {
    Over,
    No,
}

impl Told {
    /// The line of `--json` where nothing is carried on.
    async fn line(
        &self,
        desk: &WithoutAgent,
        conversation: &ConversationId,
        turn: Option<(&TurnId, &Text)>,
        handed: Handed,
    ) -> Result<String, Stopped> {
        let line = RecordedLine {
            conversation,
            call: &self.call,
            turn: turn.map(|(turn, _)| turn),
            agent: turn.map(|(_, agent)| agent),
            decision: self.decision,
            by: desk.scope.by(),
            open: who_else_must(desk, conversation, &self.call).await?.is_some(),
            handed_over: handed == Handed::Over,
            standing: self.standing.as_ref(),
        };
        json_line(&line).map_err(unprintable)
    }
}

const MAY_NOT_INSIST: &str = "you may answer this call, and not insist that its turn is carried on";

impl Watch {
    /// The answer is stored for the process that has the conversation. A cancellation may still come before it, so the exit
    /// code goes by what that process writes. If it only records the answer, the turn is carried on here.
    async fn hand_over(mut self, told: &Told, common: &Common) -> Result<Exit, Stopped> {
        let (call, decision) = (&told.call, told.decision);
        if !self.is_shown() {
            return self.handed_over(told, (Exit::Completed, ""), common).await;
        }
        let (conversations, scope, id) = (self.conversations.clone(), self.scope.clone(), self.id.clone());
        let taken_up = taken_up(&conversations, &id, (call, decision), &scope);
        let taken_up = tokio::select! {
            biased;
            () = self.signals.first() => return self.handed_over(told, (Exit::Cancelled, NOT_YET), common).await,
            taken_up = tokio::time::timeout(PATIENCE, taken_up) => taken_up,
        };
        let options = &self.hints.options;
        let problem = match taken_up {
            Err(_) => return self.handed_over(told, (Exit::Completed, NOT_YET), common).await,
            Ok(Ok(TakenUp::NeedsMore)) => return self.approved_with_others(told, common).await,
            Ok(Ok(TakenUp::There)) => return self.handed_over(told, (Exit::Completed, ""), common).await,
            Ok(Ok(TakenUp::Here(handle))) => {
                if let Some(left) = handle.left().cloned() {
                    return self.recorded(told, &left, common).await;
                }
                let rest = self.follow(handle).await;
                return Ok(self.conclude(rest).await);
            }
            Ok(Ok(TakenUp::Refused)) => {
                let call = name(call.as_str());
                Problem::error(format!("the process that has conversation {id} did not take the answer to call {call}"))
                    .hint(format!("`turnbuckle show {id}{options}` has what is asked now"))
            }
            Ok(Ok(TakenUp::Otherwise(found))) => {
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
        Ok(self.finish(Exit::Failed).await)
    }

    async fn handed_over(self, told: &Told, (exit, more): (Exit, &str), common: &Common) -> Result<Exit, Stopped> {
        self.print_handed_over(told, common).await?;
        let id = &self.id;
        self.output.err(format!("handed over: another process has conversation {id} and carries its turn on{more}\n"));
        Ok(self.finish(exit).await)
    }

    /// The approval is in the log, and others must approve as well.
    async fn approved_with_others(self, told: &Told, common: &Common) -> Result<Exit, Stopped> {
        self.print_handed_over(told, common).await?;
        let by = self.scope.by();
        self.output.err(clean(&format!("recorded: the approval of {by}; others must approve it as well")) + "\n");
        Ok(self.finish(Exit::Completed).await)
    }

    /// With `--json`: an answer that another process takes up.
    async fn print_handed_over(&self, told: &Told, common: &Common) -> Result<(), Stopped> {
        if told.json {
            let (desk, id) = (WithoutAgent::read_only(common)?, &self.id);
            // The turn may be over by now.
            let begun = desk.store.scratch(id).await.map_err(failed)?;
            let turn = begun.as_ref().map(|begun| (&begun.turn, &begun.agent));
            self.output.out(told.line(&desk, id, turn, Handed::Over).await?);
        }
        Ok(())
    }

    /// The answer was not taken, and nothing runs.
    async fn refuse_answer(self, error: &ResolveError, common: &Common) -> Result<Exit, Stopped> {
        let desk = WithoutAgent::read_only(common)?;
        self.output.problem(&refusal_at(&desk, error, &self.id, ("resolve", common)).await?);
        Ok(self.finish(Exit::Failed).await)
    }

    /// The answer comes too late. The call has its error result, and the turn goes on, if it may do so here.
    async fn go_on_without(mut self, call: &CallId, handle: TurnHandle) -> Exit {
        let late = format!("the answer to call {} is stale: nobody answered in time", name(call.as_str()));
        self.output
            .problem(&Problem::error(late).hint("the call has an error result, and the turn goes on without it"));
        let rest = self.follow(handle).await;
        match self.conclude(rest).await {
            Exit::Cancelled => Exit::Cancelled,
            _ => Exit::Failed,
        }
    }

    /// The answer is recorded, and another agent must carry the turn on.
    async fn recorded(self, told: &Told, left: &LeftTurn, common: &Common) -> Result<Exit, Stopped> {
        let desk = WithoutAgent::read_only(common)?;
        if told.json {
            self.output.out(told.line(&desk, &self.id, Some((&left.turn, &left.agent)), Handed::No).await?);
        }
        let begun = desk.store.scratch(&self.id).await.map_err(failed)?;
        let hints = ResolveHints::for_turn_of(self.id.clone(), common, &desk, begun.as_ref()).await.map_err(failed)?;
        let next = hints.carried_on_by(&left.agent);
        self.output.err(clean(&format!("recorded: the answer of {}; {next}", self.scope.by())) + "\n");
        Ok(self.finish(Exit::Completed).await)
    }
}

/// What became of an answer that was handed over.
enum TakenUp {
    /// The process that has the conversation carries the turn on, or has ended it.
    There,
    /// It only recorded the answer, and the turn is carried on here.
    Here(TurnHandle),
    /// The answer is recorded, and others must approve as well.
    NeedsMore,
    /// The call still waits, and the answer is neither recorded nor stored.
    Refused,
    /// The call was resolved otherwise; `None` if it ended without a resolution.
    Otherwise(Option<Resolved>),
}

/// Waits until the call is resolved and a process carries its turn on.
async fn taken_up(
    conversations: &Conversations,
    id: &ConversationId,
    (call, decision): (&CallId, Resolved),
    scope: &Scope,
) -> Result<TakenUp, ResolveError> {
    loop {
        match conversations.answer_status(id, call, scope).await? {
            AnswerStatus::Recorded { needs_more: true, .. } => return Ok(TakenUp::NeedsMore),
            AnswerStatus::Stored => tokio::time::sleep(LOOK_EVERY).await,
            _ if conversations.snapshot(id, scope.clone()).await?.pending.contains(call) => {
                return Ok(TakenUp::Refused);
            }
            _ => break,
        }
    }
    loop {
        let log = conversations.log(id, scope.clone()).await?;
        let resolution = log.iter().rev().find_map(|event| match &event.kind {
            EventKind::Resolution { call: of, decision, .. } if of == call => Some((event.seq, *decision)),
            _ => None,
        });
        match resolution {
            Some((seq, found)) if found == decision => {
                // Whoever carries a turn on writes what comes of the answer at once.
                if log.last().is_some_and(|last| last.seq > seq) {
                    return Ok(TakenUp::There);
                }
            }
            otherwise => return Ok(TakenUp::Otherwise(otherwise.map(|(_, found)| found))),
        }
        match conversations.carry_on_answered(id, call, scope.clone()).await {
            Ok(Some(handle)) => return Ok(TakenUp::Here(handle)),
            Ok(None) => return Ok(TakenUp::There),
            Err(ResolveError::InUse { .. }) => tokio::time::sleep(LOOK_EVERY).await,
            Err(error) => return Err(error),
        }
    }
}

/// The end of a message about an answer that is stored and not taken up.
const NOT_YET: &str = "; it has not taken the answer up yet";
