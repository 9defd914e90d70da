//! An answer to a suspended call: checked, written, and only then acknowledged; the turn goes on afterwards.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::active::{ActiveTurn, Interrupt, With};
use super::state::OpenQuestion;
use crate::conversation::{Cancel, Command, Refused, ResolveError, TurnError, TurnStatus};
use crate::event::{EventKind, Question, Refusal, Resolved};
use crate::feed::LiveEvent;
use crate::id::{CallId, TurnId};
use crate::message::Text;
use crate::scope::{Author, SystemAuthor};
use crate::store::{Answer, ConversationStatus, StoreError};

/// An answer on its way in.
pub(crate) struct Resolve {
    pub(crate) call: CallId,
    pub(crate) answer: Answer,
    /// The digest that the person was shown, if they say so.
    pub(crate) digest: Option<Text>,
    pub(crate) by: Author,
    /// The letter it came in, if another process sent it.
    pub(crate) item: Option<Text>,
    /// Told when the answer is written, before the turn goes on: which turn it is.
    pub(crate) done: oneshot::Sender<Result<TurnId, ResolveError>>,
    /// Told when that turn rests again.
    pub(crate) rest: oneshot::Sender<Result<TurnStatus, TurnError>>,
}

/// Carries out a command while tools run. Messages are for the driver, between turns.
pub(super) async fn obey(active: &mut ActiveTurn, command: Command) -> Result<(), Interrupt> {
    match command {
        Command::Resolve(resolve) => Ok(answer(active, resolve).await?),
        Command::Cancel(Cancel { turn, abort, item, done }) => {
            let meant = turn == active.ctx().id;
            let _ = done.send(Ok(meant));
            if !meant {
                return Ok(());
            }
            active.taking.extend(item);
            active.ctx().abort.abort(abort.clone());
            Err(abort.into())
        }
        // No other command is taken while a turn runs.
        other => {
            let error = StoreError::InUse { id: active.ctx().conversation.clone() };
            other.refuse(&Refused::Store(Arc::new(error)));
            Ok(())
        }
    }
}

/// Writes the answer, or says why it is stale.
pub(crate) async fn answer(active: &mut ActiveTurn, resolve: Resolve) -> Result<(), StoreError> {
    let Resolve { call, answer, digest, by, item, done, rest } = resolve;
    // Whatever becomes of the answer, its letter is read.
    active.taking.extend(item);
    let open = active.state.turn.iter().flat_map(|turn| turn.open_questions());
    let Some(question) = open.into_iter().find(|question| question.call == call).cloned() else {
        let _ = done.send(Err(ResolveError::Stale { call, why: "nothing is asked under this id".into() }));
        return Ok(());
    };
    let now = active.ctx().clock.now();
    let checked = match question.expires > now {
        true => check(&call, &question.question, &answer, digest.as_ref()),
        false => Err(ResolveError::Stale { call: call.clone(), why: "nobody answered in time".into() }),
    };
    let decision = match checked {
        Ok(decision) => decision,
        Err(error) => {
            let _ = done.send(Err(error));
            return Ok(());
        }
    };
    let kinds = events(active, &question, decision, &answer, by);
    active.scratch.answers.retain(|(answered, _)| *answered != call);
    active.scratch.answers.push((call, answer));
    // From here on the turn has something to do: a crash leaves it due, not waiting.
    let written = active.write(kinds, With { standing: Some(ConversationStatus::Running), ..With::BESIDE }).await;
    let turn = active.ctx().id.clone();
    if written.is_ok() {
        active.cell.add_waiter(Some(turn.clone()), rest);
    }
    // Whoever asked may have gone; the answer stands all the same.
    let _ = done.send(written.as_ref().map(|()| turn).map_err(|error| error.retold().into()));
    written
}

/// The longest reason of a denial: it is shown to people and to the model.
const LONGEST_REASON: usize = 16 << 10;
/// The longest result or error. What of it the model sees is cut like any tool's result.
const LONGEST_ANSWER: usize = 1 << 20;

/// Refuses an answer that is too long to be kept.
pub(crate) fn measure(call: &CallId, answer: &Answer) -> Result<(), ResolveError> {
    let (size, most) = match answer {
        Answer::Approve => return Ok(()),
        Answer::Deny(reason) => (reason.as_ref().map_or(0, |reason| reason.len()), LONGEST_REASON),
        Answer::Error(text) => (text.len(), LONGEST_ANSWER),
        Answer::Result(value) => (value.to_string().len(), LONGEST_ANSWER),
    };
    match size > most {
        true => Err(ResolveError::TooLong { call: call.clone(), size, most }),
        false => Ok(()),
    }
}

/// Questions that nobody answered in time are answered by the system.
pub(crate) async fn expire(active: &mut ActiveTurn) -> Result<(), StoreError> {
    let now = active.ctx().clock.now();
    let by = Author::System(SystemAuthor::Expiry);
    let Some(turn) = &active.state.turn else { return Ok(()) };
    let lapsed: Vec<OpenQuestion> = turn.open_questions().filter(|question| question.expires <= now).cloned().collect();
    let mut kinds = Vec::new();
    for question in lapsed {
        kinds.push(EventKind::Resolution {
            call: question.call.clone(),
            decision: Resolved::Expired,
            by: by.clone(),
            reason: None,
        });
        if let Question::Approval { tool: None, .. } = &question.question {
            take_back(active, by.clone(), None);
        }
    }
    match kinds.is_empty() {
        true => Ok(()),
        false => active.write(kinds, With { standing: Some(ConversationStatus::Running), ..With::NOTHING }).await,
    }
}

/// A reply that was asked about and is not let through.
fn take_back(active: &ActiveTurn, by: Author, reason: Option<Text>) {
    let attempt = active.scratch.asked.as_ref().map_or(1, |asked| asked.attempt);
    active.ctx().publish(LiveEvent::AttemptDiscarded { attempt, by: Some(by), reason });
}

/// Whether the answer is one to this question, about these arguments.
pub(crate) fn check(
    call: &CallId,
    question: &Question,
    answer: &Answer,
    digest: Option<&Text>,
) -> Result<Resolved, ResolveError> {
    let stale = |why: &str| ResolveError::Stale { call: call.clone(), why: why.into() };
    let unfit = |why: &str| ResolveError::Unfit { call: call.clone(), why: why.into() };
    let asked = match question {
        Question::Approval { digest, .. } => Some(digest),
        _ => None,
    };
    if digest.is_some() && digest != asked {
        return Err(stale("it was shown with other arguments"));
    }
    match (question, answer) {
        (Question::Approval { .. } | Question::Pause { .. }, Answer::Approve) => Ok(Resolved::Approved),
        (_, Answer::Deny(_)) => Ok(Resolved::Denied),
        (Question::Elicitation { schema: Some(schema), .. }, Answer::Result(value)) => {
            match jsonschema::validator_for(schema) {
                Ok(validator) if !validator.is_valid(value) => Err(unfit("the answer does not fit the schema")),
                _ => Ok(Resolved::Answered),
            }
        }
        (Question::Elicitation { .. } | Question::ClientExec { .. }, Answer::Result(_) | Answer::Error(_)) => {
            Ok(Resolved::Answered)
        }
        (Question::Approval { .. } | Question::Pause { .. }, _) => {
            Err(unfit("this call wants to be approved or denied"))
        }
        (_, Answer::Approve) => Err(unfit("this call wants an answer")),
    }
}

/// One pause was denied, and the turn goes on: nobody needs to answer the others any more.
fn other_pauses(active: &ActiveTurn, denied: &CallId, by: &Author) -> Vec<EventKind> {
    let open = active.state.turn.iter().flat_map(|turn| turn.open_questions());
    let others = open.filter(|other| other.call != *denied && matches!(other.question, Question::Pause { .. }));
    let cancelled = |other: &OpenQuestion| EventKind::Resolution {
        call: other.call.clone(),
        decision: Resolved::Cancelled,
        by: by.clone(),
        reason: Some("another pause was denied".into()),
    };
    others.map(cancelled).collect()
}

fn events(
    active: &ActiveTurn,
    question: &OpenQuestion,
    decision: Resolved,
    answer: &Answer,
    by: Author,
) -> Vec<EventKind> {
    let reason = match answer {
        Answer::Deny(reason) => reason.clone(),
        Answer::Error(text) => Some(text.clone()),
        _ => None,
    };
    let call = question.call.clone();
    let mut kinds = vec![EventKind::Resolution { call, decision, by: by.clone(), reason: reason.clone() }];
    if let (Question::Pause { hook, reason: paused }, Resolved::Denied) = (&question.question, decision) {
        let feedback = reason.clone().unwrap_or_else(|| paused.clone());
        kinds.extend(other_pauses(active, &question.call, &by));
        kinds.push(EventKind::StopFeedback { refusals: vec![Refusal { hook: hook.clone(), feedback }] });
    }
    if let (Question::Approval { tool: None, .. }, Resolved::Denied) = (&question.question, decision) {
        take_back(active, by, reason);
    }
    kinds
}
