//! Model calls, noted by the wrap while they happen and taken up beside the turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use turnbuckle::message::{StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::{Content, Message, Reply, Timestamp, Turn, TurnId};

/// How many turns, and how many calls of one turn, are kept. More pile up only if events are no longer delivered.
const MOST_TURNS: usize = 10_000;
const MOST_CALLS: usize = 1_000;

/// One call of a model.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) model: String,
    pub(super) began: SystemTime,
    pub(super) took: Duration,
    pub(super) first_chunk: Option<Duration>,
    pub(super) usage: Usage,
    pub(super) result: Result<StopReason, &'static str>,
    /// The messages of the request. All calls of one stage share the allocation, whose address identifies the stage; it
    /// is kept alive so that the address is not reused.
    context: Option<Arc<Vec<Message>>>,
    /// The request and the reply, if content is sent.
    pub(super) said: Option<(Request, Option<Content>)>,
}

impl Call {
    fn stage(&self) -> Option<*const Vec<Message>> {
        self.context.as_ref().map(Arc::as_ptr)
    }
}

/// The finished calls of each turn, until its events are processed.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<HashMap<TurnId, Vec<Call>>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<TurnId, Vec<Call>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the calls of the oldest stage that made any, if they began before the stage was over. Events arrive later
    /// than calls, so calls of later stages may be here already.
    pub(super) fn of_stage(&self, turn: &TurnId, over: SystemTime) -> Vec<Call> {
        let mut turns = self.lock();
        let Some(calls) = turns.get_mut(turn) else { return Vec::new() };
        let Some(first) = calls.first().filter(|first| first.began <= over) else { return Vec::new() };
        let key = first.stage();
        let count = calls.iter().take_while(|call| call.stage() == key).count();
        calls.drain(..count).collect()
    }

    /// Takes the remaining calls of a turn that is over.
    pub(super) fn rest(&self, turn: &TurnId) -> Vec<Call> {
        self.lock().remove(turn).unwrap_or_default()
    }

    fn put(&self, turn: &TurnId, call: Call) {
        let mut turns = self.lock();
        if turns.len() >= MOST_TURNS && !turns.contains_key(turn) {
            return;
        }
        let calls = turns.entry(turn.clone()).or_default();
        if calls.len() < MOST_CALLS {
            calls.push(call);
        }
    }
}

/// A running call. Dropped before it ended, it counts as cancelled.
pub(super) struct Watch<'a> {
    calls: &'a Calls,
    turn: &'a Turn,
    since: Duration,
    call: Option<Call>,
}

impl<'a> Watch<'a> {
    pub(super) fn start(calls: &'a Calls, turn: &'a Turn, model: &str, said: Option<&Request>) -> Self {
        let call = Call {
            model: model.to_owned(),
            began: system_time(turn.clock().now()),
            took: Duration::ZERO,
            first_chunk: None,
            usage: Usage::default(),
            result: Err("cancelled"),
            context: turn.context().map(|request| request.messages.clone()),
            said: said.map(|request| (request.clone(), None)),
        };
        Self { calls, turn, since: turn.clock().elapsed(), call: Some(call) }
    }

    pub(super) fn sink<'s>(&'s mut self, out: &'s mut dyn Sink) -> FirstChunk<'s, 'a> {
        FirstChunk { out, watch: self }
    }

    pub(super) fn ended(&mut self, result: &Result<Reply, ModelError>) {
        let Some(call) = &mut self.call else { return };
        match result {
            Ok(reply) => {
                call.usage = reply.usage;
                call.result = Ok(reply.stop_reason);
                if let Some((_, said)) = &mut call.said {
                    *said = Some(reply.content.clone());
                }
            }
            Err(error) => call.result = Err(kind(error)),
        }
    }

    fn elapsed(&self) -> Duration {
        self.turn.clock().elapsed().saturating_sub(self.since)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let took = self.elapsed();
        if let Some(mut call) = self.call.take() {
            call.took = took;
            self.calls.put(self.turn.id(), call);
        }
    }
}

/// The `error.type` of an error: one of a few values, so that metrics can group by it.
fn kind(error: &ModelError) -> &'static str {
    match error {
        ModelError::Status { status: 429, .. } => "429",
        ModelError::Status { status: 500.., .. } => "5xx",
        ModelError::Status { .. } => "4xx",
        ModelError::Transport { .. } => "transport",
        ModelError::Protocol(_) => "protocol",
        ModelError::NotAsked { .. } => "not_asked",
        ModelError::Exhausted { .. } => "exhausted",
        ModelError::Cancelled => "cancelled",
        ModelError::Hook { .. } => "hook",
        _ => "_OTHER",
    }
}

pub(super) fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.as_millis())
}

/// Forwards everything and records when the first chunk came.
pub(super) struct FirstChunk<'s, 'a> {
    out: &'s mut dyn Sink,
    watch: &'s mut Watch<'a>,
}

impl FirstChunk<'_, '_> {
    fn note(&mut self) {
        let elapsed = self.watch.elapsed();
        if let Some(call) = &mut self.watch.call {
            call.first_chunk.get_or_insert(elapsed);
        }
    }
}

impl Sink for FirstChunk<'_, '_> {
    fn begin(&mut self, attempt: u32) {
        self.out.begin(attempt);
    }
    fn text(&mut self, text: &str) {
        self.note();
        self.out.text(text);
    }
    fn thinking(&mut self, text: &str) {
        self.note();
        self.out.thinking(text);
    }
}
