//! A context as reducers see it: turns that can be left out, results that can be shortened. A plan never changes the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::tokens;
use crate::cut::{Recovery, Stub};
use crate::event::{Event, EventKind};
use crate::id::CallId;
use crate::message::{Content, Text};

/// Which results of a tool may be shortened when a context becomes too large. It does not say that they are: as long as there
/// is room, all of them stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Those of the last so many turns stay, the open one counted. They are shortened all the same, the oldest first, if the
    /// open turn would fail otherwise; but not before the model has read them.
    Turns(u32),
    /// The last so many stay, with the same exception.
    Last(u32),
    /// All of them stay, until the turn they belong to is left out. One that takes more than a quarter of the context by
    /// itself is shortened to its beginning and its end if the open turn would fail otherwise.
    Keep,
}

impl Default for Retention {
    /// The results of the open turn and of the one before it stay.
    fn default() -> Self {
        Self::Turns(2)
    }
}

/// What a plan must know about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToolFacts {
    pub(crate) retention: Retention,
    pub(crate) recovery: Recovery,
}

/// How much a plan must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// The context is too large; older history makes room.
    Normal,
    /// The reducers have not made it small enough so far: without more room the turn fails.
    Urgent,
}

/// A turn in a plan.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlannedTurn {
    /// What contexts show of it, in tokens.
    pub tokens: u64,
    /// How many of the log's events it has in the window.
    pub(crate) events: usize,
    /// Whether it is the one under way, which cannot be left out.
    pub is_open: bool,
    /// Whether it is left out.
    pub is_left_out: bool,
}

/// A result in a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedResult {
    /// The place of its turn in [`Plan::turns`].
    pub turn: usize,
    /// The tool's name.
    pub tool: Text,
    /// What the tool says about its results.
    pub retention: Retention,
    /// What contexts show of it, in tokens.
    pub tokens: u64,
    /// Whether the model has answered since the result came.
    pub was_read: bool,
    event: Arc<Event>,
    /// How it is shown, if not whole.
    stub: Option<Stub>,
    recovery: Recovery,
    is_changed: bool,
}

impl PlannedResult {
    /// Whether nothing but a note is shown in its place.
    pub fn is_stub(&self) -> bool {
        self.stub.is_some_and(|stub| stub.head == 0 && stub.tail == 0)
    }

    fn content(&self) -> Option<&Content> {
        match &self.event.kind {
            EventKind::ToolResult { content, .. } => Some(content),
            _ => None,
        }
    }
}

/// What contexts show of a conversation, to be made smaller.
///
/// Whatever is done to a plan, the context that it makes is valid: turns are left out whole, the oldest first, and a result that
/// is shortened stays behind its call.
#[derive(Debug)]
pub struct Plan {
    turns: Vec<PlannedTurn>,
    results: Vec<PlannedResult>,
    tokens: u64,
    limit: u64,
    target: u64,
    pressure: Pressure,
}

impl Plan {
    /// A plan of `events`, of which the first belong to ended turns of so many events each, and the rest to the open turn.
    pub(crate) fn new(
        events: &[Arc<Event>],
        ended: impl Iterator<Item = usize>,
        stubs: &[Stub],
        facts: &dyn Fn(&str) -> ToolFacts,
        limit: u64,
        target: u64,
    ) -> Self {
        let mut plan =
            Self { turns: Vec::new(), results: Vec::new(), tokens: 0, limit, target, pressure: Pressure::Normal };
        let mut rest = events;
        for count in ended {
            let (turn, behind) = rest.split_at(count.min(rest.len()));
            plan.add_turn(turn, stubs, facts);
            rest = behind;
        }
        plan.add_turn(rest, stubs, facts);
        if let Some(open) = plan.turns.last_mut() {
            open.is_open = true;
        }
        let spoke = rest.iter().rev().find(|event| matches!(event.kind, EventKind::AssistantMessage { .. }));
        let spoke = spoke.map_or(0, |event| event.seq);
        let open = plan.turns.len() - 1;
        for result in &mut plan.results {
            result.was_read = result.turn != open || result.event.seq < spoke;
        }
        plan
    }

    fn add_turn(&mut self, events: &[Arc<Event>], stubs: &[Stub], facts: &dyn Fn(&str) -> ToolFacts) {
        let mut names: HashMap<&CallId, &Text> = HashMap::new();
        let mut turn = PlannedTurn { tokens: 0, events: events.len(), is_open: false, is_left_out: false };
        for event in events {
            let tokens = tokens::of_event(event);
            turn.tokens += tokens;
            match &event.kind {
                EventKind::ToolCall { call, name, .. } => drop(names.insert(call, name)),
                EventKind::ToolResult { call, .. } => {
                    // What a provider's host did is read by it in another form, and stays as it is.
                    let Some(name) = names.get(call) else { continue };
                    let ToolFacts { retention, recovery } = facts(name);
                    let stub = stubs.binary_search_by_key(&event.seq, |stub| stub.seq).ok().map(|at| stubs[at]);
                    self.results.push(PlannedResult {
                        turn: self.turns.len(),
                        tool: Text::clone(name),
                        retention,
                        tokens,
                        was_read: true,
                        event: event.clone(),
                        stub,
                        recovery,
                        is_changed: false,
                    });
                }
                _ => {}
            }
        }
        self.tokens += turn.tokens;
        self.turns.push(turn);
    }

    /// What contexts show, in tokens: history and the open turn, without system prompt, tools and what hooks add.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// What they may show.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What reducers reduce to, so that the next reduction is far off and the provider's prompt cache holds until then.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// Whether more is to be done.
    pub fn is_too_large(&self) -> bool {
        self.tokens > self.target
    }

    /// How much it must shrink.
    pub fn pressure(&self) -> Pressure {
        self.pressure
    }

    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// The turns, the oldest first; the last one is the open one.
    pub fn turns(&self) -> &[PlannedTurn] {
        &self.turns
    }

    /// The results of all turns, the oldest first.
    pub fn results(&self) -> &[PlannedResult] {
        &self.results
    }

    /// Leaves the oldest turn out that is not left out yet. False if only the open one is there.
    pub fn leave_out_oldest(&mut self) -> bool {
        let Some(turn) = self.turns.iter_mut().find(|turn| !turn.is_left_out && !turn.is_open) else { return false };
        turn.is_left_out = true;
        self.tokens -= turn.tokens;
        true
    }

    /// Replaces the result at this place of [`results`](Self::results) by a note that says what was there and how to get it
    /// back. False if that would save nothing.
    pub fn stub(&mut self, result: usize) -> bool {
        self.replace(result, 0, 0)
    }

    /// Shortens the result at this place of [`results`](Self::results) to its beginning and its end, so that about `tokens` are
    /// left. False if that would save nothing.
    pub fn shorten(&mut self, result: usize, tokens: u64) -> bool {
        let bytes = u32::try_from(tokens.saturating_mul(4)).unwrap_or(u32::MAX);
        let (head, tail) = ((bytes / 4 * 3).max(Stub::MIN_HEAD), bytes / 4);
        self.replace(result, head, tail)
    }

    fn replace(&mut self, result: usize, head: u32, tail: u32) -> bool {
        let Some(planned) = self.results.get_mut(result) else { return false };
        let turn = &mut self.turns[planned.turn];
        let Some(content) = planned.content() else { return false };
        let (mut stub, before) = match planned.stub {
            Some(stub) => (stub, (stub.head, stub.tail)),
            None => (Stub::of(planned.event.seq, content, planned.recovery), (u32::MAX, u32::MAX)),
        };
        (stub.head, stub.tail) = (head, tail);
        let Some(event) = stub.shorten(&planned.event, &planned.tool) else { return false };
        let tokens = tokens::of_event(&event);
        // What was left out before is not there any more, so a stub never grows.
        if turn.is_left_out || tokens >= planned.tokens || head > before.0 || tail > before.1 {
            return false;
        }
        let saved = planned.tokens - tokens;
        (planned.stub, planned.event, planned.tokens, planned.is_changed) = (Some(stub), event, tokens, true);
        turn.tokens -= saved;
        self.tokens -= saved;
        true
    }

    /// How many turns are left out.
    pub(crate) fn turns_left_out(&self) -> usize {
        self.turns.iter().filter(|turn| turn.is_left_out).count()
    }

    /// How many events at the front belong to them.
    pub(crate) fn events_left_out(&self) -> usize {
        self.turns.iter().filter(|turn| turn.is_left_out).map(|turn| turn.events).sum()
    }

    /// The results that were shortened, as events, in the order of the log.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.shown().filter(|result| result.is_changed).map(|result| &result.event)
    }

    /// All results that are shown shortened, in the order of the log.
    pub(crate) fn stubs(&self) -> Vec<Stub> {
        self.shown().filter_map(|result| result.stub).collect()
    }

    fn shown(&self) -> impl Iterator<Item = &PlannedResult> {
        self.results.iter().filter(|result| !self.turns[result.turn].is_left_out)
    }
}
