//! Handlers that nobody waits for, and what they said for the model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::answer::read;
use super::fire::Adapter;
use super::handler::{ClaudeAction, ClaudeHandler, Waiting};
use super::text::plain;

/// The most of them that may run at once. Another one is left out, and that is told.
const MOST_RUNNING: usize = 32;
/// The most that is kept for a conversation until its next turn, and of how many conversations.
const MOST_NOTES: usize = 32;
const MOST_SESSIONS: usize = 1024;

/// What runs aside, and what is kept of it. Lost with the process.
#[derive(Debug)]
pub(super) struct Aside {
    room: Arc<Semaphore>,
    /// By session. Held only to look and to change.
    notes: Mutex<HashMap<String, Vec<Note>>>,
}

#[derive(Debug)]
struct Note {
    text: String,
    wakes: bool,
}

impl Default for Aside {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(MOST_RUNNING)), notes: Mutex::default() }
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

    fn add(&self, session: String, note: Note) {
        let mut all = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !all.contains_key(&session);
        let is_full = all.len() >= MOST_SESSIONS && is_new;
        if is_full || all.get(&session).is_some_and(|notes| notes.len() >= MOST_NOTES) {
            tracing::warn!(session, "what an async handler said is dropped: too much waits for the next turn already");
            return;
        }
        all.entry(session).or_default().push(note);
    }
}

impl Adapter {
    /// Starts a handler and goes on. False if too many run already.
    pub(super) fn start_aside(&self, handler: &ClaudeHandler, session: &str, input: &[u8]) -> bool {
        let ClaudeAction::Command(line) = &handler.action else { return false };
        let Ok(room) = self.aside.room.clone().try_acquire_owned() else { return false };
        let (adapter, handler, line) = (self.clone(), handler.clone(), line.clone());
        let (session, input) = (session.to_owned(), input.to_vec());
        tokio::spawn(async move {
            let _room = room;
            let ran = match adapter.program(&line, &handler, &session, &input, None).await {
                Ok(Ok(ran)) => ran,
                Ok(Err(failed)) => {
                    tracing::warn!(handler = %line, why = failed.failure, "an async handler failed");
                    return;
                }
                Err(error) => {
                    tracing::warn!(handler = %line, error = &*error as &dyn std::error::Error, "an async handler may not run");
                    return;
                }
            };
            let reading = read(handler.event, &adapter.dialect, &ran);
            let wakes = handler.waiting == Waiting::NotButWakes && ran.status.code() == Some(2);
            let mut texts: Vec<String> = reading.answer.context.into_iter().chain(reading.answer.message).collect();
            if wakes && texts.is_empty() {
                texts.extend(spoken(&ran.stderr.bytes).or_else(|| spoken(&ran.stdout.bytes)));
            }
            for text in texts {
                let text = plain(&text).chars().take(adapter.dialect.most_text).collect();
                adapter.aside.add(session.clone(), Note { text, wakes });
            }
        });
        true
    }
}

fn spoken(bytes: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(bytes).trim().to_owned()).filter(|text| !text.is_empty())
}
