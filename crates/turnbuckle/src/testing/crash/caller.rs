//! Whoever talks to the agent: says the script, and after a crash looks what became of it.

use std::sync::Arc;
use std::time::Duration;

use super::life::BoundaryKind;
use super::world::World;
use crate::conversation::{Conversations, SendError, WhileBusy};
use crate::event::{Event, EventKind, Question};
use crate::id::{CallId, ConversationId};
use crate::message::Content;
use crate::scope::Scope;
use crate::store::{Answer, InboxFilter, InboxItem, InboxKind, Store};

/// How long a script waits for background hooks; the clock is not a real one.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// One line of a script.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Say(Content),
    Steer(Content),
    Answer(CallId, Answer),
}

impl Step {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Say(content) => format!("message {:?}", content.text()),
            Self::Steer(content) => format!("message {:?} to the turn", content.text()),
            Self::Answer(call, _) => format!("the answer to {call}"),
        }
    }
}

/// What kept a script from being played to its end.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The conversation could not go on.
    Stuck(String),
    /// What was acknowledged is not there.
    Lost(String),
}

pub(super) fn stuck(doing: &str, error: impl std::fmt::Display) -> Trouble {
    Trouble::Stuck(format!("{doing}: {error}"))
}

/// Talks to one conversation, `c_1`.
pub(super) struct Caller<'a> {
    pub(super) door: Conversations,
    pub(super) world: &'a World,
    pub(super) steps: &'a [Step],
    pub(super) scope: Scope,
}

pub(super) fn main_conversation() -> ConversationId {
    "c_1".into()
}

impl Caller<'_> {
    /// Plays what is not played yet.
    pub(super) async fn play(&self) -> Result<(), Trouble> {
        if self.world.life.number > 1 {
            self.revive().await?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            let is_taken = match step {
                // Hooks may rewrite or refuse it: what became of one that was acknowledged, the transcript tells.
                Step::Steer(content) => index < self.world.deeds().acknowledged || self.has_message(content).await,
                _ => is_taken(&self.steps[..=index], &self.log().await),
            };
            if is_taken {
                continue;
            }
            if index < self.world.deeds().acknowledged {
                return Err(Trouble::Lost(format!("{} was acknowledged and is not in the log", step.name())));
            }
            self.take(index, step).await?;
            self.settle().await?;
        }
        Ok(())
    }

    async fn log(&self) -> Vec<Arc<Event>> {
        // Not through the door: whoever looks from outside does not die with it.
        self.world.lasting.store.log(&main_conversation(), 1, usize::MAX).await.unwrap_or_default()
    }

    /// Whether a message that nobody acknowledged is in the log or waits in the inbox.
    async fn has_message(&self, content: &Content) -> bool {
        let logged =
            |event: &Arc<Event>| matches!(&event.kind, EventKind::UserMessage { content: of, .. } if of == content);
        let inbox = self.world.lasting.store.inbox(&main_conversation(), InboxFilter::All).await.unwrap_or_default();
        let waits = |item: &InboxItem| matches!(&item.kind, InboxKind::Message { content: of, .. } if of == content);
        // The inbox before the log: a message goes from there to here in one write.
        inbox.iter().any(waits) || self.log().await.iter().any(logged)
    }

    /// From the store alone: the turn that was open, and the work that it left.
    async fn revive(&self) -> Result<(), Trouble> {
        match self.door.resume(&main_conversation(), self.scope.clone()).await {
            Ok(Some(turn)) => drop(turn.wait().await.map_err(|error| stuck("finishing the open turn", error))?),
            // It died before the conversation was.
            Ok(None) | Err(SendError::NotFound { .. }) => {}
            Err(error) => return Err(stuck("reviving the conversation", error)),
        }
        self.door.recover_due().await.map_err(|error| stuck("taking up what is due", error))?;
        self.settle().await
    }

    async fn take(&self, index: usize, step: &Step) -> Result<(), Trouble> {
        let (id, scope) = (main_conversation(), self.scope.clone());
        let failed = |error: &dyn std::fmt::Display| stuck(&format!("step {} ({})", index + 1, step.name()), error);
        let turn = match step {
            Step::Say(content) => self.door.send(&id, content.clone(), scope).await.map_err(|error| failed(&error))?,
            Step::Steer(content) => {
                let sent = self.door.send_while(&id, content.clone(), scope, WhileBusy::Steer).await;
                sent.map_err(|error| failed(&error))?
            }
            Step::Answer(call, answer) => {
                let call = self.present_name(call).await;
                self.door.resolve(&id, &call, answer.clone(), None, scope).await.map_err(|error| failed(&error))?
            }
        };
        self.world.deeds().acknowledged = index + 1;
        self.world.life.pass(BoundaryKind::Acknowledged, format!("after {} was acknowledged", step.name())).await;
        if !matches!(step, Step::Steer(_)) {
            // A turn that waits goes on waiting.
            turn.wait().await.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// The id of a question is minted anew if the process died between making it and writing it: `pause_1`, `pause_2`.
    async fn present_name(&self, call: &CallId) -> CallId {
        let log = self.log().await;
        let open: Vec<&CallId> = open_questions(&log).map(|(call, _)| call).collect();
        let minted = |other: &&&CallId| unnumbered(other) == unnumbered(call);
        let same = open.iter().find(|other| **other == call).or_else(|| open.iter().find(minted));
        same.map_or_else(|| call.clone(), |call| (*call).clone())
    }

    /// Waits for background hooks, and answers what is asked because of the crash.
    async fn settle(&self) -> Result<(), Trouble> {
        loop {
            self.door.drain(PATIENCE).await;
            let log = self.log().await;
            let again = open_questions(&log).find(|(_, question)| is_again(question));
            let Some((call, question)) = again.map(|(call, question)| (call.clone(), question.clone())) else {
                return Ok(());
            };
            let (answer, scope) = (self.look_and_answer(&question).await, self.scope.clone());
            let turn = self.door.resolve(&main_conversation(), &call, answer, None, scope).await;
            let turn = turn.map_err(|error| stuck(&format!("answering whether {call} may run again"), error))?;
            turn.wait().await.map_err(|error| stuck(&format!("going on after {call}"), error))?;
        }
    }

    /// A careful person looks whether it happened before they let it run again.
    async fn look_and_answer(&self, question: &Question) -> Answer {
        let store = &self.world.lasting.store;
        for listed in store.list().await.unwrap_or_default() {
            let log = store.log(&listed.id, 1, usize::MAX).await.unwrap_or_default();
            let asked = open_questions(&log).filter(|(_, other)| *other == question);
            let mut happened =
                asked.map(|(call, _)| self.world.deeds().effects_of(&(listed.id.clone(), call.clone())) > 0);
            if happened.any(|happened| happened) {
                return Answer::Deny(Some("it happened".into()));
            }
        }
        Answer::Approve
    }
}

/// Whether the last of these steps has reached the log.
fn is_taken(steps: &[Step], log: &[Arc<Event>]) -> bool {
    match steps.last() {
        None => true,
        Some(Step::Say(_) | Step::Steer(_)) => {
            let said = steps.iter().filter(|step| matches!(step, Step::Say(_))).count();
            turns(log) >= said
        }
        Some(Step::Answer(call, _)) => {
            let same = |other: &CallId| unnumbered(other) == unnumbered(call);
            let given = steps.iter().filter(|step| matches!(step, Step::Answer(other, _) if same(other))).count();
            scripted_answers(log).filter(|other| same(other)).count() >= given
        }
    }
}

/// How many turns a log holds, erased messages included.
fn turns(log: &[Arc<Event>]) -> usize {
    let mut turns: Vec<_> = log
        .iter()
        .filter(|event| matches!(event.kind, EventKind::UserMessage { .. } | EventKind::TurnEnded(_)))
        .map(|event| &event.turn)
        .collect();
    turns.dedup();
    turns.len()
}

/// What the runtime names its own questions with, before a number.
const MINTED: [&str; 2] = ["pause_", "reply_"];

/// An id without its number, if the runtime made it; a tool call's id is its own.
pub(super) fn unnumbered(call: &CallId) -> &str {
    let is_numbered = |prefix: &&str| {
        let number = call.as_str().strip_prefix(*prefix);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    MINTED.into_iter().find(is_numbered).unwrap_or(call.as_str())
}

pub(super) fn is_again(question: &Question) -> bool {
    matches!(question, Question::Approval { again: true, .. })
}

/// Questions without an answer, in order.
fn open_questions(log: &[Arc<Event>]) -> impl Iterator<Item = (&CallId, &Question)> {
    log.iter().enumerate().filter_map(|(place, event)| match &event.kind {
        EventKind::Suspension { call, question, .. } => {
            let answers =
                |event: &Arc<Event>| matches!(&event.kind, EventKind::Resolution { call: of, .. } if of == call);
            (!log[place..].iter().any(answers)).then_some((call, &**question))
        }
        _ => None,
    })
}

/// The calls that were answered, in order, but for questions that only a crash asks.
fn scripted_answers(log: &[Arc<Event>]) -> impl Iterator<Item = &CallId> {
    log.iter().enumerate().filter_map(|(place, event)| {
        let EventKind::Resolution { call, .. } = &event.kind else { return None };
        let asked = log[..place].iter().rev().find_map(|event| match &event.kind {
            EventKind::Suspension { call: of, question, .. } if of == call => Some(question),
            _ => None,
        });
        asked.is_some_and(|question| !is_again(question)).then_some(call)
    })
}
