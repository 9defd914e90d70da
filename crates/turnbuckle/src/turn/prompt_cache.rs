//! Whether a request begins like the one before it, as far as the provider's prompt cache is concerned, and whose doing it is if
//! it does not.

use std::sync::Arc;

use super::active::ActiveTurn;
use super::audit::{self, AuditMemory};
use super::context::SentAttempt;
use crate::cache_break::{BreakCause, CacheBreak, FixedTokens, Repeated, Segment, SegmentMark, SentRequest};
use crate::context::prefix::{self, MeasuredMessages, PrefixMeasure};
use crate::event::Cause;
use crate::message::{Message, Text, Usage};
use crate::model::Definition;
use crate::point::Point;

/// Breaks by the same culprit, turn after turn, that are worth a warning.
const REPEATED: u32 = 3;

/// What is known of the requests of this conversation that is not stored. It makes the place of a break exact.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestMemory {
    /// Tokens and hashes of messages, as far as they were measured.
    pub(crate) measure: PrefixMeasure,
    /// What was measured of the request that `build` made.
    pub(crate) built: MeasuredMessages,
    /// The hook that edited its messages.
    pub(crate) edited_by: Option<Text>,
    /// The messages before the last cut, until a request was sent after it.
    before_cut: Option<Arc<Vec<Message>>>,
    /// The messages of the last request, if a hook had changed them.
    last_edited: Option<Arc<Vec<Message>>>,
    /// System prompt and tools of the request that was sent last.
    last: Option<(Text, Arc<[Definition]>)>,
    /// What the audit has of it.
    pub(crate) audit: AuditMemory,
}

impl RequestMemory {
    /// A cut was made of these messages.
    pub(crate) fn note_cut(&mut self, messages: &Arc<Vec<Message>>) {
        self.before_cut.get_or_insert_with(|| messages.clone());
        self.measure.forget();
    }
}

/// Compares the requests that models have answered with those before them.
pub(crate) fn note_sent(active: &mut ActiveTurn) {
    for sent in active.turn.ctx.take_sent() {
        audit::note(active, &sent);
        if sent.error.is_none() {
            note(active, &sent);
        }
    }
}

fn note(active: &mut ActiveTurn, sent: &SentAttempt) {
    let last = active.last_sent.take();
    let is_built = active.turn.context().is_some_and(|built| Arc::ptr_eq(&built.messages, &sent.request.messages));
    let marks = last.as_ref().map(|last| &last.ends);
    let measured = match is_built {
        true => active.memory.built,
        false => active.cache.measure(&mut active.memory.measure, &sent.request, true, marks),
    };
    let ctx = active.ctx();
    let (own, agent) = (ctx.agent.fixed(), &ctx.agent);
    // Those that are withheld in a last call are sent all the same, by providers that have a cache.
    let defined = sent.request.defined_tools();
    let tools = match defined.as_ptr() == agent.tools().as_ptr() {
        true => own[0],
        false => prefix::of_tools(defined),
    };
    let system = match sent.request.system.as_ptr() == agent.system().as_ptr() {
        true => own[1],
        false => prefix::of_system(&sent.request.system),
    };
    let edited_by = active.memory.edited_by.clone().map(|hook| (hook, Point::BeforeModel));
    let transient = active.injected.iter().filter(|candidate| !candidate.durable);
    let mut injected_by: Vec<Text> = transient.map(|candidate| candidate.injection.hook.clone()).collect();
    injected_by.dedup();
    let usage = sent.usage;
    let mut now = SentRequest {
        turn: ctx.id.clone(),
        made_at: active.state.seq,
        at: ctx.clock().now(),
        model: sent.name.clone(),
        ends: measured.with_fixed(tools, system),
        changed_by: sent.changed_by.clone().map(|hook| (hook, Point::WrapModelCall)).or(edited_by),
        injected_by,
        cached: usage.cache_read.saturating_add(usage.cache_write),
        repeated: None,
    };
    if let Some(last) = &last {
        let found = Comparison { active: &*active, last, now: &now, measured: &measured, sent, is_built }.find();
        now.repeated = repeated(last, &now, found.as_ref());
        if let Some(found) = found {
            warn(active, &now, &found);
            active.breaks.push(found);
        }
    }
    match is_built {
        true => active.memory.measure.note_sent(),
        false => active.memory.measure.note_other(),
    }
    let memory = &mut active.memory;
    memory.before_cut = None;
    memory.last_edited = (!is_built || memory.edited_by.is_some()).then(|| sent.request.messages.clone());
    memory.last = Some((sent.request.system.clone(), sent.request.defined_tools().clone()));
    active.last_sent = Some(Arc::new(now));
    active.sent_is_new = true;
}

/// Counts breaks by the same culprit. A turn without one begins anew. Reducers count once a turn: a long turn is cut several times on
/// purpose.
fn repeated(last: &SentRequest, now: &SentRequest, found: Option<&CacheBreak>) -> Option<Repeated> {
    let before = last.repeated.as_ref().filter(|before| before.turn == now.turn || before.turn == last.turn);
    let Some(found) = found.filter(|found| found.cause.is_worth_a_warning()) else { return before.cloned() };
    let culprit = found.cause.culprit();
    if matches!(found.cause, BreakCause::Reducers { .. })
        && let Some(before) = before.filter(|before| before.culprit == culprit && before.turn == now.turn)
    {
        return Some(before.clone());
    }
    let count = before.filter(|before| before.culprit == culprit).map_or(0, |before| before.count) + 1;
    Some(Repeated { culprit, count, turn: now.turn.clone() })
}

fn warn(active: &mut ActiveTurn, now: &SentRequest, found: &CacheBreak) {
    let Some(repeated) = now.repeated.as_ref().filter(|repeated| repeated.count >= REPEATED) else { return };
    if !found.cause.is_worth_a_warning() {
        return;
    }
    // One warning a turn: the numbers of a further break differ.
    let is_known = |cause: &Option<Cause>| matches!(cause, Some(Cause::CacheBreaks { .. }));
    if active.scratch.warnings.iter().any(|warning| is_known(&warning.cause)) {
        return;
    }
    let text = format!(
        "the provider's prompt cache broke {} times for the same reason, the last time at {}",
        repeated.count,
        found.summary()
    );
    let hook = match &found.cause {
        BreakCause::Hook { hook, .. } => Some(hook.clone()),
        _ => None,
    };
    active.warn(hook, text, Cause::CacheBreaks { culprit: repeated.culprit.clone() });
}

/// A request and the one before it.
struct Comparison<'a> {
    active: &'a ActiveTurn,
    last: &'a SentRequest,
    now: &'a SentRequest,
    measured: &'a MeasuredMessages,
    sent: &'a SentAttempt,
    is_built: bool,
}

/// Where two requests differ: bytes and tokens before it, and whether that is the very byte.
struct Place {
    bytes: u64,
    tokens: u64,
    exact: bool,
}

impl Comparison<'_> {
    fn find(&self) -> Option<CacheBreak> {
        let (last, now) = (self.last, self.now);
        let (segment, place) = match self.first_change() {
            Some(found) => found,
            None => return self.lost_by_provider(),
        };
        let stable = |ends: &[SegmentMark; 8]| ends[Segment::Calls as usize].tokens;
        let lost = stable(&last.ends).min(stable(&now.ends)).saturating_sub(place.tokens);
        if lost == 0 {
            return None;
        }
        let usage = self.sent.usage;
        let total = now.ends[Segment::CallInjections as usize].tokens;
        // What the provider counted is nearer to the truth than the estimate.
        let counted = |tokens: u64| match usage.input {
            0 => tokens,
            input => tokens.saturating_mul(input) / total.max(1),
        };
        let lost = counted(lost);
        Some(CacheBreak {
            turn: now.turn.clone(),
            made_at: now.made_at,
            segment,
            byte: place.bytes,
            exact: place.exact,
            kept: counted(place.tokens),
            lost,
            cost: self.cost(lost),
            read: usage.cache_read,
            input: usage.input,
            cached: last.cached,
            cause: self.cause(segment),
            fixed: self.fixed(),
        })
    }

    /// The segment that changed first, as the request before had it, and where.
    fn first_change(&self) -> Option<(Segment, Place)> {
        let (last, now) = (&self.last.ends, &self.now.ends);
        if self.last.model != self.now.model {
            return Some((Segment::Tools, Place { bytes: 0, tokens: 0, exact: true }));
        }
        if last[0].hash != now[0].hash {
            return Some((Segment::Tools, self.in_tools()));
        }
        if last[1].hash != now[1].hash {
            return Some((Segment::System, self.in_system()));
        }
        let segment = self.measured.first_change(last)?;
        Some((Segment::ALL[segment], self.in_messages(segment)))
    }

    fn in_tools(&self) -> Place {
        let Some((_, old)) = &self.active.memory.last else { return Place { bytes: 0, tokens: 0, exact: false } };
        let new = &**self.sent.request.defined_tools();
        let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let mark = prefix::of_tools(&new[..same]);
        // The tool that differs first is said; where in it is of no use to anybody.
        Place { bytes: mark.bytes, tokens: mark.tokens, exact: true }
    }

    fn in_system(&self) -> Place {
        let tools = self.now.ends[0];
        let Some((before, _)) = &self.active.memory.last else {
            return Place { bytes: tools.bytes, tokens: tools.tokens, exact: false };
        };
        let same = prefix::of_system(prefix::same_bytes(before, &self.sent.request.system));
        Place { bytes: tools.bytes + same.bytes, tokens: tools.tokens + same.tokens, exact: true }
    }

    fn in_messages(&self, segment: usize) -> Place {
        let (fixed, memory) = (self.now.ends[1], &self.active.memory);
        let at = |mark: SegmentMark, exact| Place {
            bytes: fixed.bytes + mark.bytes,
            tokens: fixed.tokens + mark.tokens,
            exact,
        };
        let is_edited = !self.is_built || memory.edited_by.is_some();
        let old = memory.last_edited.as_ref().or(memory.before_cut.as_ref());
        // Where a hook changes what was sent as it was before, that is what the log makes of it.
        let old = old.or_else(|| Some(self.active.cache.messages()).filter(|_| is_edited && memory.last.is_some()));
        let (before, end) = (self.last.ends[segment - 1], self.last.ends[segment]);
        let found = match old {
            Some(old) => Some(prefix::difference(old, &self.sent.request.messages)),
            None => self.active.memory.measure.difference(),
        };
        let found = found.map(|mark| at(mark, true));
        // What the hook changed may lie behind what changed without it.
        if let Some(place) = found.filter(|place| (before.bytes..=end.bytes).contains(&place.bytes)) {
            return place;
        }
        // Turns that leave take the first byte of the segment with them, and so do additions of hooks.
        let exact = segment == Segment::TurnInjections as usize;
        Place { bytes: before.bytes, tokens: before.tokens, exact }
    }

    fn cause(&self, segment: Segment) -> BreakCause {
        let (last, now, active) = (self.last, self.now, self.active);
        if last.model != now.model {
            return BreakCause::Model { from: last.model.clone(), to: now.model.clone() };
        }
        let hook =
            |changed: &Option<(Text, Point)>| changed.clone().map(|(hook, point)| BreakCause::Hook { hook, point });
        let by_wrap = |sent: &SentRequest| hook(&sent.changed_by.clone().filter(|by| by.1 == Point::WrapModelCall));
        if segment <= Segment::System {
            let is_schema = segment == Segment::Tools
                && (active.schema.is_some() || last.tokens_of(Segment::Tools) == 0)
                && (now.tokens_of(Segment::Tools) == 0 || last.tokens_of(Segment::Tools) == 0);
            let setting = match segment {
                Segment::Tools if is_schema => "schema",
                Segment::Tools => "tools",
                _ => "system",
            };
            let setting = BreakCause::Setting { setting: setting.into() };
            return by_wrap(now).or_else(|| by_wrap(last)).unwrap_or(setting);
        }
        let cut = active.state.window.last_cut();
        if let Some(cut) = cut.filter(|cut| active.memory.before_cut.is_some() || cut.made_at > last.made_at) {
            return BreakCause::Reducers { reducers: cut.reducers.clone() };
        }
        let is_over = last.turn != now.turn && segment == Segment::TurnInjections && !last.injected_by.is_empty();
        if is_over {
            return BreakCause::TurnOver { hooks: last.injected_by.clone() };
        }
        if let Some(by) = hook(&now.changed_by).or_else(|| hook(&last.changed_by)) {
            return by;
        }
        let is_kept = || active.state.window.events().iter().any(|event| event.turn == last.turn);
        match last.turn != now.turn {
            true if !is_kept() => BreakCause::TurnDiscarded,
            true if !last.injected_by.is_empty() => BreakCause::TurnOver { hooks: last.injected_by.clone() },
            _ => BreakCause::Unknown,
        }
    }

    /// Nothing changed, and yet the provider read far less from its cache than it said it had.
    fn lost_by_provider(&self) -> Option<CacheBreak> {
        let (last, now, usage) = (self.last, self.now, self.sent.usage);
        if usage.input == 0 || usage.cache_read >= last.cached / 2 {
            return None;
        }
        let lost = last.cached - usage.cache_read;
        let idle = now.at.since(last.at).as_secs();
        Some(CacheBreak {
            turn: now.turn.clone(),
            made_at: now.made_at,
            segment: Segment::Tools,
            byte: 0,
            exact: false,
            kept: usage.cache_read,
            lost,
            cost: self.cost(lost),
            read: usage.cache_read,
            input: usage.input,
            cached: last.cached,
            cause: BreakCause::Provider { idle },
            fixed: None,
        })
    }

    /// What the same reply would have cost less, had these tokens been read from the cache.
    fn cost(&self, lost: u64) -> f64 {
        let usage = self.sent.usage;
        let lost = lost.min(usage.input.saturating_sub(usage.cache_read));
        let cached =
            Usage { cache_read: usage.cache_read + lost, cache_write: usage.cache_write.saturating_sub(lost), ..usage };
        let cost = self.sent.cost.zip(self.sent.model.price(&cached)).map(|(cost, cached)| cost - cached);
        cost.unwrap_or(0.0).max(0.0)
    }

    fn fixed(&self) -> Option<FixedTokens> {
        let (last, now) = (self.last, self.now);
        let is_same = (0..2).all(|place| last.ends[place].hash == now.ends[place].hash);
        (!is_same).then(|| FixedTokens {
            tools_before: last.tokens_of(Segment::Tools),
            system_before: last.tokens_of(Segment::System),
            tools: now.tokens_of(Segment::Tools),
            system: now.tokens_of(Segment::System),
        })
    }
}
