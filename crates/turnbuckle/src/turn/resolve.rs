//! An answer to a suspended call: checked, written, and only then acknowledged; the turn goes on afterwards.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::flight::{Flight, Interrupt, With};
use super::state::Question;
use crate::conversation::{Cancel, Command, Refused, ResolveError, Rest, TurnError};
use crate::event::{EventKind, Prompt, Refusal, Resolved};
use crate::id::{CallId, TurnId};
use crate::live::Live;
use crate::message::Text;
use crate::scope::{By, System};
use crate::store::{Answer, Standing, StoreError};

/// An answer on its way in.
pub(crate) struct Resolve {
    pub(crate) call: CallId,
    pub(crate) answer: Answer,
    /// The digest that the person was shown, if they say so.
    pub(crate) digest: Option<Text>,
    pub(crate) by: By,
    /// The letter it came in, if another process sent it.
    pub(crate) letter: Option<Text>,
    /// Told when the answer is written, before the turn goes on: which turn it is.
    pub(crate) done: oneshot::Sender<Result<TurnId, ResolveError>>,
    /// Told when that turn rests again.
    pub(crate) rest: oneshot::Sender<Result<Rest, TurnError>>,
}

/// Carries out a command while tools run. Messages are for the driver, between turns.
pub(super) async fn obey(flight: &mut Flight, command: Command) -> Result<(), Interrupt> {
    match command {
        Command::Resolve(resolve) => Ok(answer(flight, resolve).await?),
        Command::Cancel(Cancel { turn, cut, letter, done }) => {
            let meant = turn == flight.frame().id;
            let _ = done.send(Ok(meant));
            if !meant {
                return Ok(());
            }
            flight.taking.extend(letter);
            flight.frame().cut.cut(cut.clone());
            Err(cut.into())
        }
        // No other command is taken while a turn runs.
        other => {
            let error = StoreError::InUse { id: flight.frame().conversation.clone() };
            other.refuse(&Refused::Store(Arc::new(error)));
            Ok(())
        }
    }
}

/// Writes the answer, or says why it is stale.
pub(crate) async fn answer(flight: &mut Flight, resolve: Resolve) -> Result<(), StoreError> {
    let Resolve { call, answer, digest, by, letter, done, rest } = resolve;
    // Whatever becomes of the answer, its letter is read.
    flight.taking.extend(letter);
    let open = flight.state.turn.iter().flat_map(|turn| turn.open_questions());
    let Some(question) = open.into_iter().find(|question| question.call == call).cloned() else {
        let _ = done.send(Err(ResolveError::Stale { call, why: "nothing is asked under this id".into() }));
        return Ok(());
    };
    let now = flight.frame().clock.now();
    let checked = match question.expires > now {
        true => check(&call, &question.prompt, &answer, digest.as_ref()),
        false => Err(ResolveError::Stale { call: call.clone(), why: "nobody answered in time".into() }),
    };
    let decision = match checked {
        Ok(decision) => decision,
        Err(error) => {
            let _ = done.send(Err(error));
            return Ok(());
        }
    };
    let kinds = events(flight, &question, decision, &answer, by);
    flight.beside.answers.retain(|(answered, _)| *answered != call);
    flight.beside.answers.push((call, answer));
    // From here on the turn has something to do: a crash leaves it due, not waiting.
    let written = flight.write(kinds, With { standing: Some(Standing::Running), ..With::BESIDE }).await;
    let turn = flight.frame().id.clone();
    if written.is_ok() {
        flight.cell.add_waiter(Some(turn.clone()), rest);
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
pub(crate) async fn expire(flight: &mut Flight) -> Result<(), StoreError> {
    let now = flight.frame().clock.now();
    let by = By::System(System::Expiry);
    let Some(turn) = &flight.state.turn else { return Ok(()) };
    let lapsed: Vec<Question> = turn.open_questions().filter(|question| question.expires <= now).cloned().collect();
    let mut kinds = Vec::new();
    for question in lapsed {
        kinds.push(EventKind::Resolution {
            call: question.call.clone(),
            decision: Resolved::Expired,
            by: by.clone(),
            reason: None,
        });
        if let Prompt::Approval { tool: None, .. } = &question.prompt {
            take_back(flight, by.clone(), None);
        }
    }
    match kinds.is_empty() {
        true => Ok(()),
        false => flight.write(kinds, With { standing: Some(Standing::Running), ..With::NOTHING }).await,
    }
}

/// A reply that was asked about and is not let through.
fn take_back(flight: &Flight, by: By, reason: Option<Text>) {
    let attempt = flight.beside.asked.as_ref().map_or(1, |asked| asked.attempt);
    flight.frame().tell(Live::AttemptDiscarded { attempt, by: Some(by), reason });
}

/// Whether the answer is one to this question, about these arguments.
pub(crate) fn check(
    call: &CallId,
    prompt: &Prompt,
    answer: &Answer,
    digest: Option<&Text>,
) -> Result<Resolved, ResolveError> {
    let stale = |why: &str| ResolveError::Stale { call: call.clone(), why: why.into() };
    let unfit = |why: &str| ResolveError::Unfit { call: call.clone(), why: why.into() };
    let asked = match prompt {
        Prompt::Approval { digest, .. } => Some(digest),
        _ => None,
    };
    if digest.is_some() && digest != asked {
        return Err(stale("it was shown with other arguments"));
    }
    match (prompt, answer) {
        (Prompt::Approval { .. } | Prompt::Pause { .. }, Answer::Approve) => Ok(Resolved::Approved),
        (_, Answer::Deny(_)) => Ok(Resolved::Denied),
        (Prompt::Elicitation { schema: Some(schema), .. }, Answer::Result(value)) => {
            match jsonschema::validator_for(schema) {
                Ok(validator) if !validator.is_valid(value) => Err(unfit("the answer does not fit the schema")),
                _ => Ok(Resolved::Answered),
            }
        }
        (Prompt::Elicitation { .. } | Prompt::ClientExec { .. }, Answer::Result(_) | Answer::Error(_)) => {
            Ok(Resolved::Answered)
        }
        (Prompt::Approval { .. } | Prompt::Pause { .. }, _) => Err(unfit("this call wants to be approved or denied")),
        (_, Answer::Approve) => Err(unfit("this call wants an answer")),
    }
}

/// One pause was denied, and the turn goes on: nobody needs to answer the others any more.
fn other_pauses(flight: &Flight, denied: &CallId, by: &By) -> Vec<EventKind> {
    let open = flight.state.turn.iter().flat_map(|turn| turn.open_questions());
    let others = open.filter(|other| other.call != *denied && matches!(other.prompt, Prompt::Pause { .. }));
    let cancelled = |other: &Question| EventKind::Resolution {
        call: other.call.clone(),
        decision: Resolved::Cancelled,
        by: by.clone(),
        reason: Some("another pause was denied".into()),
    };
    others.map(cancelled).collect()
}

fn events(flight: &Flight, question: &Question, decision: Resolved, answer: &Answer, by: By) -> Vec<EventKind> {
    let reason = match answer {
        Answer::Deny(reason) => reason.clone(),
        Answer::Error(text) => Some(text.clone()),
        _ => None,
    };
    let call = question.call.clone();
    let mut kinds = vec![EventKind::Resolution { call, decision, by: by.clone(), reason: reason.clone() }];
    if let (Prompt::Pause { hook, reason: paused }, Resolved::Denied) = (&question.prompt, decision) {
        let feedback = reason.clone().unwrap_or_else(|| paused.clone());
        kinds.extend(other_pauses(flight, &question.call, &by));
        kinds.push(EventKind::StopFeedback { refusals: vec![Refusal { hook: hook.clone(), feedback }] });
    }
    if let (Prompt::Approval { tool: None, .. }, Resolved::Denied) = (&question.prompt, decision) {
        take_back(flight, by, reason);
    }
    kinds
}
