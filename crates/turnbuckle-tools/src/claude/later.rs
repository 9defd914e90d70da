//! Handlers that nobody waits for, and what they said for the model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use turnbuckle::Turn;
use turnbuckle::feed::Level;
use turnbuckle::hook::{Decision, Record};

use super::answer::{Outcome, read};
use super::event::ClaudeEvent;
use super::fire::Adapter;
use super::handler::{ClaudeAction, ClaudeHandler, Waiting};
use super::run::Caller;
use super::text::plain;

/// The most of them that may run at once. Another one is left out, and that is told.
const MOST_RUNNING: usize = 32;
/// The most notes, and the most ended handlers, that are kept for a conversation until its next turn, and of how many conversations.
const MOST_NOTES: usize = 32;
const MOST_SESSIONS: usize = 1024;

/// What runs aside, and what is kept of it. Lost with the process.
#[derive(Debug)]
pub(super) struct Aside {
    room: Arc<Semaphore>,
    /// By session. Held only to look and to change.
    notes: Mutex<HashMap<String, Vec<Note>>>,
    /// Those that have ended and left no record yet. Likewise.
    ended: Mutex<HashMap<String, Vec<Ended>>>,
}

/// How a handler ended that ran outside of a turn, or that nobody waited for.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) event: ClaudeEvent,
    pub(super) label: String,
    pub(super) outcome: Outcome,
    pub(super) failure: Option<String>,
    pub(super) took: Duration,
    /// Whether somebody was told of the failure.
    pub(super) is_told: bool,
}

impl Ended {
    /// What nobody was told so far.
    fn untold(&self) -> Option<String> {
        let why = self.failure.as_ref().filter(|_| !self.is_told)?;
        let (label, event, outcome) = (&self.label, self.event.name(), self.outcome.name());
        Some(plain(&format!("{label}: the handler of {event} failed ({outcome}): {why}")))
    }
}

#[derive(Debug)]
struct Note {
    text: String,
    wakes: bool,
}

impl Default for Aside {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(MOST_RUNNING)), notes: Mutex::default(), ended: Mutex::default() }
    }
}

impl Aside {
    /// What was said since the last turn.
    pub(super) fn take(&self, session: &str) -> Vec<String> {
        let taken = self.notes.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        taken.into_iter().flatten().map(|note| note.text).collect()
    }

    /// What the model is to be told at once.
    pub(super) fn take_waking(&self, session: &str) -> Vec<String> {
        let mut all = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notes) = all.get_mut(session) else { return Vec::new() };
        let (waking, rest) = std::mem::take(notes).into_iter().partition(|note: &Note| note.wakes);
        *notes = rest;
        Vec::into_iter(waking).map(|note| note.text).collect()
    }

    fn take_ended(&self, session: &str) -> Vec<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).remove(session).unwrap_or_default()
    }

    fn has_untold(&self) -> bool {
        let all = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().flatten().any(|ended| ended.untold().is_some())
    }

    fn untold(&self) -> Vec<String> {
        let all = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        all.values().flatten().filter_map(Ended::untold).collect()
    }
}

/// Those in which a failure waits to be told, for [`untold_failures`]: their agents may be gone by then.
static ASIDES: Mutex<Vec<Arc<Aside>>> = Mutex::new(Vec::new());

fn asides() -> MutexGuard<'static, Vec<Arc<Aside>>> {
    ASIDES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which Claude-style handlers of this process failed of which nobody was told, and no turn followed that could tell it: those that ran
/// beside a turn or outside of one. For a program that is about to exit; they are told once.
pub fn untold_failures() -> Vec<String> {
    let all = std::mem::take(&mut *asides());
    all.iter().flat_map(|aside| aside.untold()).collect()
}

/// Keeps something for the next turn of a session.
fn keep<T>(all: &Mutex<HashMap<String, Vec<T>>>, session: &str, one: T) {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = all.len() >= MOST_SESSIONS && !all.contains_key(session);
    if is_full || all.get(session).is_some_and(|kept| kept.len() >= MOST_NOTES) {
        tracing::warn!(
            session,
            "what an async handler said or did is dropped: too much waits for the next turn already"
        );
        return;
    }
    all.entry(session.to_owned()).or_default().push(one);
}

impl Adapter {
    /// Starts a handler and goes on. False if too many run already.
    pub(super) fn start_aside(&self, handler: &ClaudeHandler, caller: Caller, input: &[u8]) -> bool {
        let ClaudeAction::Command(line) = &handler.action else { return false };
        let Ok(room) = self.aside.room.clone().try_acquire_owned() else { return false };
        let (adapter, handler, line) = (self.clone(), handler.clone(), line.clone());
        let (session, input) = (caller.session.clone(), input.to_vec());
        tokio::spawn(async move {
            let _room = room;
            let began = Instant::now();
            let ended = |outcome: Outcome, failure: Option<String>| {
                let (event, label, took) = (handler.event, line.to_string(), began.elapsed());
                if let Some(why) = &failure {
                    tracing::warn!(handler = label, why, "an async handler failed");
                }
                adapter.has_ended(&session, Ended { event, label, outcome, failure, took, is_told: false });
            };
            let ran = match adapter.program(&line, &handler, &caller, &input, None).await {
                Ok(Ok(ran)) => ran,
                Ok(Err(failed)) => return ended(failed.outcome, failed.failure),
                Err(error) => return ended(Outcome::SpawnFailed, Some(error.to_string())),
            };
            let reading = read(handler.event, &adapter.dialect, &ran);
            ended(reading.outcome, reading.failure);
            let wakes = handler.waiting == Waiting::NotButWakes && ran.status.code() == Some(2);
            let mut texts: Vec<String> = reading.answer.context.into_iter().chain(reading.answer.message).collect();
            if wakes && texts.is_empty() {
                texts.extend(spoken(&ran.stderr.bytes).or_else(|| spoken(&ran.stdout.bytes)));
            }
            for text in texts {
                match adapter.shortened(&session, &text).await {
                    Ok(text) => keep(&adapter.aside.notes, &session, Note { text, wakes }),
                    Err(error) => {
                        tracing::warn!(
                            session,
                            error = &*error as &dyn std::error::Error,
                            "what an async handler said is lost"
                        );
                    }
                }
            }
        });
        true
    }

    /// Keeps how a handler ended for the next event of a turn, or for the end of the process.
    pub(super) fn has_ended(&self, session: &str, ended: Ended) {
        let is_untold = ended.untold().is_some();
        keep(&self.aside.ended, session, ended);
        if is_untold {
            let mut all = asides();
            // What a turn told in the meantime is nothing to keep an adapter for.
            all.retain(|one| one.has_untold() && !Arc::ptr_eq(one, &self.aside));
            all.push(self.aside.clone());
        }
    }

    /// Leaves the records of those that have ended, and tells which failed.
    pub(super) fn note_aside(&self, turn: &Turn, session: &str) {
        for ended in self.aside.take_ended(session) {
            if let Some(what) = ended.untold() {
                turn.notice(Level::Warning, &self.name, what);
            }
            let Ended { event, label, outcome, failure, took, .. } = ended;
            let decision = if failure.is_some() { Decision::Failed } else { Decision::Continue };
            let mut record = Record::new(event.point(), format!("{}: {label}", self.name).into(), decision, took);
            record.failure = failure.map(Into::into);
            record.outcome = Some(outcome.name().into());
            turn.record(record);
        }
    }
}

fn spoken(bytes: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(bytes).trim().to_owned()).filter(|text| !text.is_empty())
}
