//! Handlers that nobody waits for, and what they said for the model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use turnbuckle::feed::Level;
use turnbuckle::hook::{Decision, Record};
use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId, Turn};

use super::answer::{Outcome, read};
use super::event::ClaudeEvent;
use super::fire::Adapter;
use super::handler::{ClaudeAction, ClaudeHandler, Waiting};
use super::run::Caller;
use super::text::plain;
use super::transcript::Transcripts;

/// The most of them that may run at once. Another one is left out, and that is told.
const MOST_RUNNING: usize = 32;
/// The most notes, and the most ended handlers, that are kept for a conversation until its next turn, and of how many conversations.
const MOST_NOTES: usize = 32;
const MOST_SESSIONS: usize = 1024;
/// The most failures of conversations that nothing is kept of any more, each with its text. Of others only their number is known.
const MOST_LOST: usize = 256;

/// What runs aside, and what is kept of it. Lost with the process.
#[derive(Debug)]
pub(super) struct Aside {
    room: Arc<Semaphore>,
    /// Held only to look and to change.
    notes: Mutex<BySession<Note>>,
    /// Those that have ended and left no record yet. Likewise.
    ended: Mutex<BySession<Ended>>,
    /// Failures that were told nobody, of those that are not kept any more. Likewise.
    lost: Mutex<Lost>,
}

/// What is kept for the next turns of conversations.
#[derive(Debug)]
struct BySession<T> {
    /// Each with its number.
    kept: HashMap<String, (u64, Vec<T>)>,
    /// The number of the next session: the lowest one is the oldest.
    next: u64,
}

impl<T> Default for BySession<T> {
    fn default() -> Self {
        Self { kept: HashMap::new(), next: 0 }
    }
}

impl<T> BySession<T> {
    /// Keeps something for the next turn of a session. Returns what is dropped for it: what the session that has waited longest has,
    /// or the thing itself if too much waits for this turn.
    fn keep(&mut self, session: &str, one: T) -> Vec<T> {
        if let Some((_, kept)) = self.kept.get_mut(session) {
            if kept.len() >= MOST_NOTES {
                return vec![one];
            }
            kept.push(one);
            return Vec::new();
        }
        let is_full = self.kept.len() >= MOST_SESSIONS;
        let oldest = self.kept.iter().filter(|_| is_full).min_by_key(|(_, (number, _))| *number);
        let oldest = oldest.map(|(session, _)| session.clone());
        let dropped = oldest.map(|oldest| self.take(&oldest)).unwrap_or_default();
        self.kept.insert(session.to_owned(), (self.next, vec![one]));
        self.next += 1;
        dropped
    }

    fn take(&mut self, session: &str) -> Vec<T> {
        self.kept.remove(session).map(|(_, kept)| kept).unwrap_or_default()
    }

    fn all(&self) -> impl Iterator<Item = &T> {
        self.kept.values().flat_map(|(_, kept)| kept)
    }
}

/// Failures that are told when the process ends.
#[derive(Debug, Default)]
struct Lost {
    texts: Vec<String>,
    /// How many more there were.
    more: usize,
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
        let (notes, ended, lost) = Default::default();
        Self { room: Arc::new(Semaphore::new(MOST_RUNNING)), notes, ended, lost }
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Aside {
    /// What was said since the last turn.
    pub(super) fn take(&self, session: &str) -> Vec<String> {
        lock(&self.notes).take(session).into_iter().map(|note| note.text).collect()
    }

    /// What the model is to be told at once.
    pub(super) fn take_waking(&self, session: &str) -> Vec<String> {
        let mut all = lock(&self.notes);
        let Some((_, notes)) = all.kept.get_mut(session) else { return Vec::new() };
        let (waking, rest) = std::mem::take(notes).into_iter().partition(|note: &Note| note.wakes);
        *notes = rest;
        Vec::into_iter(waking).map(|note| note.text).collect()
    }

    fn add_note(&self, session: &str, note: Note) {
        let dropped = lock(&self.notes).keep(session, note);
        if !dropped.is_empty() {
            tracing::warn!(session, "what async handlers said is dropped: too much waits for the next turns already");
        }
    }

    fn add_ended(&self, session: &str, ended: Ended) {
        let dropped = lock(&self.ended).keep(session, ended);
        if !dropped.is_empty() {
            tracing::warn!(session, "records of handlers are dropped: too much waits for the next turns already");
        }
        self.lose(dropped.iter().filter_map(Ended::untold));
    }

    /// What failed is told when the process ends.
    fn lose(&self, failures: impl Iterator<Item = String>) {
        let mut lost = lock(&self.lost);
        for failure in failures {
            match lost.texts.len() < MOST_LOST {
                true => lost.texts.push(failure),
                false => lost.more += 1,
            }
        }
    }

    fn take_ended(&self, session: &str) -> Vec<Ended> {
        lock(&self.ended).take(session)
    }

    /// A conversation is let go. Returns what failed and nobody was told.
    pub(super) fn let_go(&self, session: &str) -> Vec<String> {
        self.take_ended(session).iter().filter_map(Ended::untold).collect()
    }

    /// A conversation is deleted: one that is made under its id has nothing of it. What failed is told when the process ends.
    pub(super) fn forget(&self, session: &str) {
        lock(&self.notes).take(session);
        self.lose(self.let_go(session).into_iter());
    }

    fn has_untold(&self) -> bool {
        !lock(&self.lost).texts.is_empty() || lock(&self.ended).all().any(|ended| ended.untold().is_some())
    }

    fn untold(&self) -> Vec<String> {
        let (lost, ended) = (std::mem::take(&mut *lock(&self.lost)), std::mem::take(&mut *lock(&self.ended)));
        let more = (lost.more > 0).then(|| format!("{} more handlers failed of which nobody was told", lost.more));
        lost.texts.into_iter().chain(more).chain(ended.all().filter_map(Ended::untold)).collect()
    }
}

/// Those in which a failure waits to be told, for [`untold_failures`]: their agents may be gone by then.
static ASIDES: Mutex<Vec<Arc<Aside>>> = Mutex::new(Vec::new());

/// Those that keep something, each with the name of its transcripts. A deletion finds the conversation's in them.
static KEEPING: Mutex<Vec<(String, Weak<Aside>)>> = Mutex::new(Vec::new());

fn asides() -> MutexGuard<'static, Vec<Arc<Aside>>> {
    ASIDES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Failures of Claude-style handlers that nobody was told of, because no turn followed that could have told them: of handlers that ran
/// beside a turn or outside of one. For a program that is about to exit; they are told once.
pub fn untold_failures() -> Vec<String> {
    let all = std::mem::take(&mut *asides());
    all.iter().flat_map(|aside| aside.untold()).collect()
}

impl Adapter {
    /// Starts a handler and goes on. False if too many run already.
    pub(super) fn start_aside(&self, handler: &ClaudeHandler, caller: Caller, input: &[u8]) -> bool {
        let ClaudeAction::Command(line) = &handler.action else { return false };
        let Ok(room) = self.aside.room.clone().try_acquire_owned() else { return false };
        let (adapter, handler, line) = (self.clone(), handler.clone(), line.clone());
        let (session, input) = (caller.session.clone(), input.to_vec());
        self.keeps();
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
                    Ok(text) => adapter.aside.add_note(&session, Note { text, wakes }),
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

    /// Notes that something is kept here, for deletions.
    fn keeps(&self) {
        let mut all = lock(&KEEPING);
        all.retain(|(_, aside)| aside.strong_count() > 0);
        if !all.iter().any(|(_, aside)| std::ptr::eq(aside.as_ptr(), &*self.aside)) {
            all.push((self.transcripts.name(), Arc::downgrade(&self.aside)));
        }
    }

    /// Keeps how a handler ended for the next event of a turn, or for the end of the process.
    pub(super) fn has_ended(&self, session: &str, ended: Ended) {
        let is_untold = ended.untold().is_some();
        self.keeps();
        self.aside.add_ended(session, ended);
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

/// What handlers keep of a conversation: their files, and what waits in memory for its next turn.
pub(super) struct Traces(pub(super) Transcripts);

impl SideStore for Traces {
    fn what(&self) -> &'static str {
        self.0.what()
    }
    fn name(&self) -> String {
        self.0.name()
    }
    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        self.0.count(conversation)
    }
    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        // Of several agents only one is asked: their transcripts are the same.
        let name = self.name();
        let of_these: Vec<_> =
            lock(&KEEPING).iter().filter(|(of, _)| *of == name).map(|(_, aside)| aside.clone()).collect();
        of_these.iter().filter_map(Weak::upgrade).for_each(|aside| aside.forget(conversation.as_str()));
        self.0.erase(conversation)
    }
}

fn spoken(bytes: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(bytes).trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(n: usize) -> Ended {
        Ended {
            event: ClaudeEvent::StopFailure,
            label: format!("handler {n}"),
            outcome: Outcome::NonblockingError,
            failure: Some("exit 1".to_owned()),
            took: Duration::ZERO,
            is_told: false,
        }
    }

    #[test]
    fn the_session_that_has_waited_longest_makes_room_and_its_failures_are_told_at_the_end() {
        let aside = Aside::default();
        for n in 0..=MOST_SESSIONS {
            aside.add_ended(&format!("c{n}"), failed(n));
        }
        assert!(aside.take_ended("c0").is_empty() && aside.take_ended("c1").len() == 1);
        assert_eq!(aside.take_ended(&format!("c{MOST_SESSIONS}")).len(), 1, "the newest is kept");
        let told = aside.untold();
        assert!(told.iter().any(|text| text.starts_with("handler 0:")), "{told:?}");
        assert_eq!(told.len(), MOST_SESSIONS - 1);
        assert!(aside.untold().is_empty(), "they are told once");
    }

    #[test]
    fn what_is_not_kept_of_a_session_is_told_at_the_end() {
        let aside = Aside::default();
        for n in 0..=MOST_NOTES {
            aside.add_ended("c", failed(n));
        }
        assert_eq!(aside.take_ended("c").len(), MOST_NOTES);
        assert!(aside.has_untold());
        assert_eq!(aside.untold(), [failed(MOST_NOTES).untold().unwrap()]);
        (0..MOST_LOST + 2).for_each(|n| aside.lose(failed(n).untold().into_iter()));
        assert_eq!(aside.untold().last().unwrap(), "2 more handlers failed of which nobody was told");
    }

    #[test]
    fn a_deleted_conversation_leaves_nothing_to_one_of_its_id_and_its_failures_are_told_at_the_end() {
        let aside = Aside::default();
        aside.add_ended("c", failed(1));
        aside.add_note("c", Note { text: "done".to_owned(), wakes: false });
        aside.forget("c");
        assert!(aside.take("c").is_empty() && aside.take_ended("c").is_empty());
        assert_eq!(aside.untold().len(), 1);
    }
}
