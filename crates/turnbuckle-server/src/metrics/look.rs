//! How conversations stand: found out from the store when somebody asks, and not more often than it can bear.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use turnbuckle::access::Action;
use turnbuckle::clock::Clock;
use turnbuckle::conversation::SendError;
use turnbuckle::event::EventKind;
use turnbuckle::store::ConversationStatus;
use turnbuckle::{ConversationId, Conversations, Scope, Timestamp};

use super::exposition::{Exposition, Kind};

/// How long what was seen is told again.
const FRESH: Duration = Duration::from_secs(10);
/// Looking takes at the most this part of the time.
const REST: u32 = 10;
/// How long looking may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many open conversations are looked into.
const MOST_OPEN: usize = 1_000;
/// How many conversations are searched for parked jobs at each look; the next look goes on behind them.
const MOST_SEARCHED: usize = 500;
/// How many of the last events are read for questions: what a turn waits for stands at the end of its log.
const LAST_EVENTS: usize = 200;

/// How conversations stand. If more than [`MOST_OPEN`] are open, only the newest are looked into.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    idle: usize,
    running: usize,
    waiting: usize,
    waiting_calls: usize,
    left_turns: usize,
    parked_jobs: usize,
    read_seconds: f64,
}

/// Looks, remembers what it saw, and where it goes on.
pub(crate) struct Looker {
    /// One looks at a time; the others are told what it saw.
    turn: Semaphore,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// What was seen last, `None` if the store failed, and until when it is told again.
    last: Option<(Option<Seen>, Instant)>,
    parked: Parked,
}

/// Parked jobs by conversation, and where the search for them goes on.
#[derive(Clone, Default)]
struct Parked {
    jobs: BTreeMap<ConversationId, usize>,
    after: Option<ConversationId>,
}

impl Default for Looker {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), memory: Mutex::default() }
    }
}

impl Looker {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self) -> Option<Option<Seen>> {
        self.memory().last.filter(|(_, until)| Instant::now() < *until).map(|(seen, _)| seen)
    }

    /// How conversations stand, or stood some seconds ago; `None` if the store cannot be read.
    pub(crate) async fn seen(&self, conversations: &Conversations, clock: &dyn Clock) -> Option<Seen> {
        if let Some(seen) = self.remembered() {
            return seen;
        }
        // It is never closed.
        let Ok(_turn) = self.turn.acquire().await else { return None };
        if let Some(seen) = self.remembered() {
            return seen;
        }
        let (begun, parked) = (Instant::now(), self.memory().parked.clone());
        let seen = match timeout(PATIENCE, look(conversations, clock.now(), parked)).await {
            Ok(Ok((seen, parked))) => {
                self.memory().parked = parked;
                Some(seen)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "no metrics of conversations: the store cannot be read");
                None
            }
            Err(_) => {
                tracing::warn!("no metrics of conversations: the store took too long");
                None
            }
        };
        let rest = FRESH.max(begun.elapsed() * REST);
        self.memory().last = Some((seen, Instant::now() + rest));
        seen
    }
}

/// What belongs to a conversation that was deleted meanwhile is nothing.
fn unless_gone<T: Default>(found: Result<T, SendError>) -> Result<T, SendError> {
    match found {
        Err(SendError::NotFound { .. } | SendError::Deleted { .. }) => Ok(T::default()),
        found => found,
    }
}

async fn look(conversations: &Conversations, now: Timestamp, mut parked: Parked) -> Result<(Seen, Parked), SendError> {
    let (system, mut seen) = (Scope::system(), Seen::default());
    let begun = Instant::now();
    // Any small read will do; there is no conversation of this name, or there is one.
    unless_gone(conversations.may(&"metrics".into(), Action::Read, &system).await)?;
    seen.read_seconds = begun.elapsed().as_secs_f64();
    let listed = conversations.list(system.clone()).await?;
    let mut open = Vec::new();
    for one in &listed {
        match one.status {
            ConversationStatus::Idle => seen.idle += 1,
            ConversationStatus::Running => seen.running += 1,
            ConversationStatus::Waiting { .. } => seen.waiting += 1,
        }
        if one.status != ConversationStatus::Idle && open.len() < MOST_OPEN {
            open.push(&one.id);
        }
    }
    for id in open {
        seen.left_turns += usize::from(unless_gone(conversations.left_turn(id, system.clone()).await)?.is_some());
        seen.waiting_calls += unless_gone(waiting_calls(conversations, id, now, &system).await)?;
    }
    let ids: BTreeSet<&ConversationId> = listed.iter().map(|one| &one.id).collect();
    parked.jobs.retain(|id, _| ids.contains(id));
    let is_behind = |id: &&ConversationId| parked.after.as_ref().is_none_or(|after| *id > after);
    let (behind, before): (Vec<_>, Vec<_>) = ids.into_iter().partition(is_behind);
    let searched: Vec<_> = behind.into_iter().chain(before).take(MOST_SEARCHED).cloned().collect();
    for id in &searched {
        let jobs = unless_gone(conversations.jobs(id, system.clone()).await)?;
        match jobs.iter().filter(|job| job.due.is_none()).count() {
            0 => parked.jobs.remove(id),
            count => parked.jobs.insert(id.clone(), count),
        };
    }
    parked.after = searched.last().cloned();
    seen.parked_jobs = parked.jobs.values().sum();
    Ok((seen, parked))
}

/// The questions of the open turn that nobody has answered and that have not lapsed.
async fn waiting_calls(
    conversations: &Conversations,
    id: &ConversationId,
    now: Timestamp,
    system: &Scope,
) -> Result<usize, SendError> {
    let page = conversations.history(id, None, LAST_EVENTS, system).await?;
    let Some(turn) = page.items.last().map(|event| &event.turn) else { return Ok(0) };
    let mut open = HashSet::new();
    for event in page.items.iter().filter(|event| event.turn == *turn) {
        match &event.kind {
            EventKind::Suspension { call, expires, .. } if *expires > now => drop(open.insert(call)),
            EventKind::Resolution { call, evidence, .. } if !evidence.open => drop(open.remove(call)),
            EventKind::TurnEnded(_) => open.clear(),
            _ => {}
        }
    }
    Ok(open.len())
}

impl Seen {
    pub(crate) fn write(&self, out: &mut Exposition) {
        out.family("turnbuckle_conversations", Kind::Gauge, "Conversations of the store, by state.");
        for (state, count) in [("idle", self.idle), ("running", self.running), ("waiting", self.waiting)] {
            out.sample("turnbuckle_conversations", &[("state", state)], count as f64);
        }
        let gauges = [
            ("turnbuckle_waiting_calls", "Calls that wait for an answer.", self.waiting_calls),
            ("turnbuckle_left_turns", "Open turns that this agent does not carry on.", self.left_turns),
            ("turnbuckle_parked_jobs", "Jobs that failed too often and are not tried again.", self.parked_jobs),
        ];
        for (name, help, count) in gauges {
            out.single(name, Kind::Gauge, help, count as f64);
        }
        let help = "Time that a small read of the store took last.";
        out.single("turnbuckle_store_read_seconds", Kind::Gauge, help, self.read_seconds);
    }
}
