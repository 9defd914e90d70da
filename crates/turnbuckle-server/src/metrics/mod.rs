//! What operators watch: counts since the process began, and how things stand now, as `/metrics` tells them to Prometheus.
//!
//! Labels are names of the program and of the configuration: outcomes, points, decisions, routes, hooks. Nothing that a user or a
//! model says becomes a label, so there are only so many series.
//!
//! Read in this order: this file counts, `measured_store` sees what is counted of turns, `look` finds out how conversations stand,
//! `exposition` writes the text.

mod exposition;
mod histogram;
mod look;
mod measured_store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use turnbuckle::Outcome;
use turnbuckle::event::{EventKind, TurnEnded};
use turnbuckle::hook::Record;
use turnbuckle::message::{Text, Usage};
use turnbuckle::store::{Batch, Store};

pub(crate) use self::exposition::{CONTENT_TYPE, Exposition, Gauge, Kind};
use self::histogram::Histogram;
pub(crate) use self::look::Looker;
pub use self::measured_store::MeasuredStore;

/// How many hooks, by point, have series of their own; further ones are counted together as `other`. Names come from the
/// configuration, but a hook can record runs of programs under any name.
const MOST_HOOKS: usize = 1_000;
/// How many routes are counted. A server has fewer, unless a program mounts it below a path with parameters.
const MOST_ROUTES: usize = 200;
/// What stands for all names beyond the limits.
const OTHER: &str = "other";

/// What is counted of a server. Clones count together. Given to [`ServerBuilder::metrics`](crate::ServerBuilder::metrics), and put around
/// the store of its conversations, from where turns and hooks are counted:
///
/// ```
/// use turnbuckle::{Agent, Conversations, models::Script, stores::MemoryStore};
/// use turnbuckle_server::{Metrics, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder("greeter", Script::says(["hello"])).build()?;
/// let metrics = Metrics::default();
/// let conversations = Conversations::builder(agent, metrics.measured(MemoryStore::default())).build();
/// let server = Server::builder(conversations).metrics(metrics).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    counts: Arc<Counts>,
}

/// Each lock is held for a few additions, and never together with another.
#[derive(Default)]
struct Counts {
    /// `None` until a store is measured: then nothing is known of turns, which is not the same as that there are none.
    turns: Mutex<Option<Turns>>,
    requests: Mutex<Requests>,
}

/// What is counted of turns, from what is written.
#[derive(Default)]
struct Turns {
    outcomes: BTreeMap<&'static str, u64>,
    at_work: Histogram,
    model_calls: u64,
    usage: Usage,
    dollars: f64,
    hooks: BTreeMap<(Text, &'static str), Runs>,
    writes: Histogram,
    failed_writes: u64,
}

/// The runs of one hook at one point.
#[derive(Default)]
struct Runs {
    count: u64,
    seconds: f64,
    decisions: BTreeMap<&'static str, u64>,
}

/// By route, and then by method and status.
type Requests = BTreeMap<Text, BTreeMap<(&'static str, u16), Answered>>;

#[derive(Clone, Copy, Default)]
struct Answered {
    count: u64,
    seconds: f64,
}

const OUTCOMES: [Outcome; 6] =
    [Outcome::Completed, Outcome::Halted, Outcome::Rejected, Outcome::Exhausted, Outcome::Cancelled, Outcome::Failed];

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Halted => "halted",
        Outcome::Rejected => "rejected",
        Outcome::Exhausted => "exhausted",
        Outcome::Cancelled => "cancelled",
        Outcome::Failed => "failed",
    }
}

/// What one write says about turns. It is counted once the store has taken the write.
struct Noted {
    ended: Option<Arc<TurnEnded>>,
    runs: Vec<(Text, &'static str, &'static str, Duration)>,
}

impl Noted {
    fn of(batch: &Batch<'_>) -> Self {
        // What a sub-agent uses is counted by its parent's turn, and its end is not the end of what the user asked for.
        let events = if batch.conversation.is_sub_agent() { &[][..] } else { batch.events };
        let ended = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::TurnEnded(ended) => Some(ended.clone()),
            _ => None,
        });
        let run = |record: &Record| (record.hook.clone(), record.point.name(), record.decision.name(), record.took);
        Self { ended, runs: batch.records.iter().map(run).collect() }
    }
}

impl Metrics {
    /// This store, with what is written to it counted and timed. One [`Metrics`] is for one store.
    pub fn measured<S: Store>(&self, store: S) -> MeasuredStore<S> {
        self.turns().get_or_insert_default();
        MeasuredStore::new(store, self.clone())
    }

    fn turns(&self) -> MutexGuard<'_, Option<Turns>> {
        self.counts.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrote(&self, noted: Noted, took: Duration, is_stored: bool) {
        let mut turns = self.turns();
        let turns = turns.get_or_insert_default();
        turns.writes.add(took.as_secs_f64());
        if !is_stored {
            turns.failed_writes += 1;
            return;
        }
        if let Some(ended) = noted.ended {
            *turns.outcomes.entry(outcome_name(ended.outcome)).or_default() += 1;
            turns.at_work.add(Duration::from_millis(ended.ms).as_secs_f64());
            turns.model_calls += u64::from(ended.model_calls);
            turns.usage += ended.usage;
            if ended.cost.is_finite() && ended.cost > 0.0 {
                turns.dollars += ended.cost;
            }
        }
        for (hook, point, decision, took) in noted.runs {
            let has_room = turns.hooks.len() < MOST_HOOKS;
            let key = (hook, point);
            let key = if has_room || turns.hooks.contains_key(&key) { key } else { (OTHER.into(), point) };
            let runs = turns.hooks.entry(key).or_default();
            runs.count += 1;
            runs.seconds += took.as_secs_f64();
            *runs.decisions.entry(decision).or_default() += 1;
        }
    }

    /// A request was answered, or began to be. `None`: the server has no such route.
    pub(crate) fn answered(&self, method: &Method, route: Option<&str>, status: StatusCode, took: Duration) {
        let mut requests = self.counts.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let route = route.unwrap_or("none");
        let is_known = requests.contains_key(route);
        let route = if is_known || requests.len() < MOST_ROUTES { route } else { OTHER };
        if !requests.contains_key(route) {
            requests.insert(route.into(), BTreeMap::new());
        }
        let Some(of_route) = requests.get_mut(route) else { return };
        let answered = of_route.entry((method_name(method), status.as_u16())).or_default();
        answered.count += 1;
        answered.seconds += took.as_secs_f64();
    }

    /// Everything that is counted.
    pub(crate) fn write(&self, out: &mut Exposition) {
        if let Some(turns) = &*self.turns() {
            write_turns(turns, out);
            write_hooks(turns, out);
        }
        let requests = self.counts.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        write_requests(&requests, out);
    }
}

fn write_turns(turns: &Turns, out: &mut Exposition) {
    out.family(
        "turnbuckle_turns_total",
        Kind::Counter,
        "Turns that ended, by outcome. Turns of sub-agents are part of them.",
    );
    for outcome in OUTCOMES.map(outcome_name) {
        let count = turns.outcomes.get(outcome).copied().unwrap_or_default();
        out.sample("turnbuckle_turns_total", &[("outcome", outcome)], count as f64);
    }
    turns.at_work.write(out, "turnbuckle_turn_seconds", "Time that turns which ended were at work, waiting left out.");
    out.single(
        "turnbuckle_model_calls_total",
        Kind::Counter,
        "Model calls of turns that ended.",
        turns.model_calls as f64,
    );
    let help = "Tokens of turns that ended; cache_read and cache_write are parts of input.";
    out.family("turnbuckle_tokens_total", Kind::Counter, help);
    let Usage { input, output, cache_read, cache_write } = turns.usage;
    for (kind, count) in
        [("input", input), ("output", output), ("cache_read", cache_read), ("cache_write", cache_write)]
    {
        out.sample("turnbuckle_tokens_total", &[("kind", kind)], count as f64);
    }
    let help = "Dollars of turns that ended, of models with known prices.";
    out.single("turnbuckle_cost_dollars_total", Kind::Counter, help, turns.dollars);
    turns.writes.write(out, "turnbuckle_store_write_seconds", "Time that writes to the store took.");
    let help = "Writes that the store did not take.";
    out.single("turnbuckle_store_write_errors_total", Kind::Counter, help, turns.failed_writes as f64);
}

fn write_hooks(turns: &Turns, out: &mut Exposition) {
    out.family("turnbuckle_hook_seconds", Kind::Summary, "Time that hooks took, by hook and point.");
    for ((hook, point), runs) in &turns.hooks {
        let labels = [("hook", &**hook), ("point", *point)];
        out.sample("turnbuckle_hook_seconds_sum", &labels, runs.seconds);
        out.sample("turnbuckle_hook_seconds_count", &labels, runs.count as f64);
    }
    out.family("turnbuckle_hook_decisions_total", Kind::Counter, "What hooks decided, by hook and point.");
    for ((hook, point), runs) in &turns.hooks {
        for (decision, count) in &runs.decisions {
            let labels = [("hook", &**hook), ("point", *point), ("decision", *decision)];
            out.sample("turnbuckle_hook_decisions_total", &labels, *count as f64);
        }
    }
}

fn write_requests(requests: &Requests, out: &mut Exposition) {
    out.family("turnbuckle_http_requests_total", Kind::Counter, "Requests, by method, route and status.");
    for (route, of_route) in requests {
        for ((method, status), answered) in of_route {
            let labels = [("method", *method), ("route", &**route), ("status", &status.to_string())];
            out.sample("turnbuckle_http_requests_total", &labels, answered.count as f64);
        }
    }
    out.family("turnbuckle_http_request_seconds", Kind::Summary, "Time until answers began, by route.");
    for (route, of_route) in requests {
        let labels = [("route", &**route)];
        let seconds = of_route.values().map(|answered| answered.seconds).sum();
        let count: u64 = of_route.values().map(|answered| answered.count).sum();
        out.sample("turnbuckle_http_request_seconds_sum", &labels, seconds);
        out.sample("turnbuckle_http_request_seconds_count", &labels, count as f64);
    }
}

/// A method by its name; HTTP lets clients make up others.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER,
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
