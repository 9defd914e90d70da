//! What `why` knows of a conversation: each model call with what it was sent, what broke its cache, and what the audit has.

use std::collections::HashMap;
use std::sync::Arc;

use turnbuckle::event::{Event, EventKind, TurnEnded};
use turnbuckle::hook::{InjectedText, InjectionSpan, Point, Record};
use turnbuckle::message::{Message, Text, Usage};
use turnbuckle::sent::{SentCall, Stored, each_call};
use turnbuckle::store::{
    AuditedCall, CacheBreak, CallPurpose, Cut, Factor, SentRequest, Store as _, Stub, Summary, UsedBudget,
};
use turnbuckle::{ConversationId, TurnId};

use super::super::failed;
use crate::Stopped;
use crate::without_agent::WithoutAgent;

/// One model call. Its messages are not kept: those of all calls together may be many times the log.
pub(crate) struct Call {
    pub(crate) sent: SentCall,
    /// Breaks of the cache since the reply before.
    pub(crate) breaks: Vec<CacheBreak>,
    /// What the audit has of it.
    pub(crate) audited: Option<AuditedCall>,
    /// The parts of the log that it was shown, if that was asked for.
    pub(crate) events: Vec<(u64, u64)>,
    /// Tokens of the segments, in the order of `Segment::ALL`. Those of tools and system prompt are 0 if they are not known.
    pub(crate) segments: [u64; 8],
    /// What hooks added for this turn or this call, with the tokens of each.
    pub(crate) injected: Vec<(Text, Point, u64)>,
    /// The texts of each of them, as far as its record has them.
    pub(crate) added: Vec<Vec<Text>>,
    /// Whether some of what hooks added is not stored, or not whole.
    pub(crate) lacks_added: bool,
}

impl Call {
    /// The turn and the number of the call in it: `TURN.N`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.sent.turn, self.sent.number)
    }

    /// Estimated tokens of all segments.
    pub(crate) fn tokens(&self) -> u64 {
        self.segments.iter().sum()
    }
}

/// What a reader of a conversation wants to know beside what the calls came to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// In which calls this text was.
    pub(crate) text: Option<&'a str>,
    /// Which events each call was shown.
    pub(crate) events: bool,
    /// The messages of this call of this turn.
    pub(crate) call: Option<(&'a str, usize)>,
}

/// One turn.
#[derive(Default)]
struct TurnFacts {
    /// The place in the log of the message that opened it.
    opened: Option<usize>,
    /// The place in the log of its end.
    ended: Option<usize>,
    /// The places of its calls, which stand together.
    calls: std::ops::Range<usize>,
}

/// How the audit begins what stands in the place of a secret.
pub(crate) const REDACTED: &str = "[redacted: ";

/// A conversation.
pub(crate) struct Conversation {
    pub(crate) log: Vec<Arc<Event>>,
    pub(crate) calls: Vec<Call>,
    pub(crate) summaries: Vec<Arc<Summary>>,
    /// What the audited calls refer to.
    pub(crate) contents: HashMap<Text, Text>,
    /// Audited requests that no reply in the log belongs to: discarded attempts and failures.
    pub(crate) attempts: Vec<Attempt>,
    /// Audited requests for summaries, oldest first.
    pub(crate) summary_calls: Vec<AuditedCall>,
    /// What tries at summaries took that were not made so far.
    pub(crate) failed_summaries: UsedBudget,
    /// All cuts, oldest first.
    cuts: Vec<Cut>,
    /// Those for calls without a reply.
    pub(crate) unanswered_cuts: Vec<Arc<Cut>>,
    /// The seqs of what users said.
    said: Vec<u64>,
    /// The messages of the call that was asked for.
    pub(crate) messages: Option<Arc<Vec<Message>>>,
    /// Whether calls are recorded now, or some were.
    is_audited: bool,
    turns: HashMap<TurnId, TurnFacts>,
}

/// A request whose reply is not in the log.
pub(crate) struct Attempt {
    /// Which call of its turn it was made for, from 1.
    pub(crate) number: usize,
    pub(crate) audited: AuditedCall,
}

impl Attempt {
    /// The turn, the number of the call in it, and that of the attempt: `TURN.N.ATTEMPT`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}.{}", self.audited.turn, self.number, self.audited.attempt)
    }

    /// What became of it.
    pub(crate) fn fate(&self) -> String {
        fate(&self.audited).unwrap_or_else(|| "its reply was discarded".to_owned())
    }
}

/// How a request failed, if it did.
pub(crate) fn fate(call: &AuditedCall) -> Option<String> {
    call.error.as_ref().map(|error| format!("failed: {error}"))
}

impl Conversation {
    /// Reads a conversation in one pass over its log.
    pub(crate) async fn read(desk: &WithoutAgent, id: &ConversationId, wanted: Wanted<'_>) -> Result<Self, Stopped> {
        let store = &desk.store;
        let log = store.log(id, 1, usize::MAX).await.map_err(failed)?;
        let cuts = store.cuts(id).await.map_err(failed)?;
        let summaries = store.summaries(id).await.map_err(failed)?;
        let breaks = store.cache_breaks(id).await.map_err(failed)?;
        let last = store.sent(id).await.map_err(failed)?;
        let (audited, summary_calls): (Vec<_>, Vec<_>) = store
            .audited_calls(id)
            .await
            .map_err(failed)?
            .into_iter()
            .partition(|call| call.purpose != CallPurpose::Summary);
        let is_audited = desk.config.store.audit.as_ref().is_some_and(|audit| audit.value)
            || !audited.is_empty()
            || !summary_calls.is_empty();
        let mut failed_summaries = UsedBudget::default();
        for spent in store.jobs(id).await.map_err(failed)?.iter().filter_map(|job| job.spent) {
            failed_summaries.calls += spent.calls;
            failed_summaries.usage += spent.usage;
            failed_summaries.cost += spent.cost;
        }
        let contents = match audited.is_empty() && summary_calls.is_empty() {
            true => HashMap::new(),
            false => store.audit_contents(id).await.map_err(failed)?,
        };
        let (mut calls, mut messages) = (Vec::new(), None);
        let stored = Stored { log: &log, cuts: &cuts, summaries: &summaries };
        let unanswered_cuts = each_call(stored, wanted.text, &mut |sent, window| {
            if wanted.call.is_some_and(|(turn, number)| sent.turn.as_str() == turn && sent.number == number) {
                messages = Some(window.messages());
            }
            let events = if wanted.events { window.events() } else { Vec::new() };
            let (breaks, injected, added) = (Vec::new(), Vec::new(), Vec::new());
            calls.push(Call {
                sent,
                breaks,
                audited: None,
                events,
                segments: [0; 8],
                injected,
                added,
                lacks_added: false,
            });
        });
        let turns = turns_of(&log, &calls);
        let is_said = |event: &&Arc<Event>| matches!(event.kind, EventKind::UserMessage { .. });
        let said = log.iter().filter(is_said).map(|event| event.seq).collect();
        let mut found = Self {
            log,
            calls,
            summaries,
            contents,
            attempts: Vec::new(),
            summary_calls,
            failed_summaries,
            cuts,
            unanswered_cuts,
            said,
            messages,
            is_audited,
            turns,
        };
        found.add_breaks(breaks);
        found.add_audit(audited);
        found.count_audited();
        found.add_injections(desk, id).await?;
        found.add_segments(last.as_deref());
        Ok(found)
    }

    /// The place of the first call whose reply is behind this event.
    fn call_behind(&self, made_at: u64) -> usize {
        self.calls.partition_point(|call| call.sent.reply <= made_at)
    }

    fn add_breaks(&mut self, breaks: Vec<CacheBreak>) {
        for found in breaks {
            let place = self.call_behind(found.made_at);
            if let Some(call) = self.calls.get_mut(place) {
                call.breaks.push(found);
            }
        }
    }

    /// Of several requests for a reply, the last one that did not fail is the one that has it.
    fn add_audit(&mut self, audited: Vec<AuditedCall>) {
        let mut attempts = Vec::new();
        for audited in audited.into_iter().rev() {
            let place = self.call_behind(audited.made_at);
            let own = self.turns.get(&audited.turn).map(|turn| &turn.calls).filter(|own| !own.is_empty());
            let first = own.map_or(place, |own| own.start.min(place));
            match self.calls.get_mut(place).filter(|call| call.sent.turn == audited.turn && call.audited.is_none()) {
                Some(call) if audited.error.is_none() => call.audited = Some(audited),
                _ => attempts.push(Attempt { number: place - first + 1, audited }),
            }
        }
        attempts.reverse();
        self.attempts = attempts;
    }

    /// Messages at the tail, such as the line about the budget, are in no log: only the audit has them.
    fn count_audited(&mut self) {
        // A link stands for all messages before it, and most calls share most of theirs.
        let mut known: HashMap<&Text, Option<usize>> = HashMap::new();
        for call in &mut self.calls {
            let Some(audited) = &call.audited else { continue };
            let (mut link, mut new) = (&audited.messages, Vec::new());
            // Digests of links cannot form a circle; a damaged database must not make one last for ever.
            let mut count = loop {
                if link.is_empty() {
                    break Some(0);
                }
                if let Some(count) = known.get(link) {
                    break *count;
                }
                new.push(link);
                let before = self.contents.get(link).and_then(|link| link.split_once(' ')).map(|(before, _)| before);
                match before.map(|before| (before.is_empty(), self.contents.get_key_value(before))) {
                    Some((true, _)) => break Some(0),
                    Some((false, Some((before, _)))) if new.len() <= self.contents.len() => link = before,
                    _ => break None,
                }
            };
            for link in new.into_iter().rev() {
                count = count.map(|count| count + 1);
                known.insert(link, count);
            }
            if let Some(count) = count {
                call.sent.messages = count;
            }
        }
    }

    /// What hooks added, from their records. Records do not name the call; there is one for each, also if nothing was added.
    async fn add_injections(&mut self, desk: &WithoutAgent, id: &ConversationId) -> Result<(), Stopped> {
        for own in self.calls.chunk_by_mut(|one, other| one.sent.turn == other.sent.turn) {
            let Some(turn) = own.first().map(|call| call.sent.turn.clone()) else { continue };
            let records: Vec<Record> = desk.store.records(id, &turn).await.map_err(failed)?;
            let mut seen: HashMap<&Text, usize> = HashMap::new();
            for record in &records {
                let adds = record.tokens > 0;
                let added = (record.hook.clone(), record.point, u64::from(record.tokens));
                let injected: Vec<_> = record.change.iter().flat_map(|change| &change.injected).collect();
                let lacks = injected.is_empty() || injected.iter().any(|injected| !is_whole(&injected.text));
                let is_sent =
                    |injected: &&&InjectedText| !injected.left_out && injected.lasts != InjectionSpan::NextTurn;
                let texts: Vec<Text> = injected.iter().filter(is_sent).map(|injected| injected.text.clone()).collect();
                match record.point {
                    Point::BeforeModel => {
                        let nth = seen.entry(&record.hook).or_default();
                        *nth += 1;
                        if let Some(call) = own.get_mut(*nth - 1).filter(|_| adds) {
                            call.injected.push(added);
                            call.added.push(texts);
                            call.lacks_added |= lacks;
                        }
                    }
                    Point::BeforeAgent | Point::OnConversation if adds => {
                        for call in own.iter_mut() {
                            call.injected.push(added.clone());
                            call.added.push(texts.clone());
                            call.lacks_added |= lacks;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Tools and system prompt have the sizes of the last request, except before a break that says otherwise.
    fn add_segments(&mut self, last: Option<&SentRequest>) {
        let (mut tools, mut system) =
            last.map_or((0, 0), |last| (last.ends[0].tokens, last.ends[1].tokens - last.ends[0].tokens));
        for call in self.calls.iter_mut().rev() {
            let factor = call.sent.last_cut.as_ref().map_or(Factor::ONE, |cut| cut.factor);
            let added = |at: &[Point]| -> u64 {
                call.injected.iter().filter(|(_, point, _)| at.contains(point)).map(|(_, _, tokens)| tokens).sum()
            };
            let for_turn = factor.apply(added(&[Point::BeforeAgent, Point::OnConversation]));
            let for_call = factor.apply(added(&[Point::BeforeModel]));
            let sent = &call.sent;
            call.segments = [
                factor.apply(tools),
                factor.apply(system),
                sent.summary_tokens,
                sent.tokens.saturating_sub(sent.summary_tokens + sent.turn_tokens),
                sent.message_tokens.min(sent.turn_tokens),
                for_turn,
                sent.turn_tokens.saturating_sub(sent.message_tokens + sent.durable_tokens.min(for_turn)),
                for_call,
            ];
            if let Some(fixed) = call.breaks.iter().find_map(|found| found.fixed) {
                (tools, system) = (fixed.tools_before, fixed.system_before);
            }
        }
    }

    /// The turns that a person opened, in order.
    pub(crate) fn turns(&self) -> Vec<&TurnId> {
        let opens = |(place, event): &(usize, &Arc<Event>)| {
            self.turns.get(&event.turn).is_some_and(|turn| turn.opened == Some(*place))
        };
        self.log.iter().enumerate().filter(opens).map(|(_, event)| &event.turn).collect()
    }

    /// The calls of a turn.
    pub(crate) fn calls_of(&self, turn: &TurnId) -> &[Call] {
        self.turns.get(turn).and_then(|turn| self.calls.get(turn.calls.clone())).unwrap_or_default()
    }

    /// The message that opened a turn, and when.
    pub(crate) fn opening(&self, turn: &TurnId) -> Option<(turnbuckle::Timestamp, String)> {
        let event = self.log.get(self.turns.get(turn)?.opened?)?;
        match &event.kind {
            EventKind::UserMessage { content, .. } => Some((event.at, content.text())),
            _ => None,
        }
    }

    /// How a turn ended; `None` if it is not over.
    pub(crate) fn end_of(&self, turn: &TurnId) -> Option<&TurnEnded> {
        match &self.log.get(self.turns.get(turn)?.ended?)?.kind {
            EventKind::TurnEnded(ended) => Some(ended),
            _ => None,
        }
    }

    /// How many messages of users are from the event `first` on and before `end`.
    pub(crate) fn messages_between(&self, first: u64, end: u64) -> usize {
        let before = |seq: u64| self.said.partition_point(|said| *said < seq);
        before(end).saturating_sub(before(first))
    }

    /// What a cut shortened, or shortened further than the one before it.
    pub(crate) fn new_stubs<'c>(&self, cut: &'c Cut) -> Vec<&'c Stub> {
        let place = self.cuts.partition_point(|one| one.made_at < cut.made_at);
        let before = place.checked_sub(1).map_or(&[][..], |place| &self.cuts[place].stubs);
        let is_old = |stub: &Stub| {
            let place = before.binary_search_by_key(&stub.seq, |one| one.seq);
            place.is_ok_and(|place| before[place] == *stub)
        };
        cut.stubs.iter().filter(|stub| !is_old(stub)).collect()
    }

    /// What of which tool an event is, and whether that is the arguments of a call.
    pub(crate) fn shortened(&self, seq: u64) -> (String, bool) {
        let up_to = &self.log[..self.log.partition_point(|event| event.seq <= seq)];
        let tool = match up_to.last().map(|event| &event.kind) {
            Some(EventKind::ToolCall { name, .. }) => return (format!("the arguments of {name}"), true),
            // The call stands shortly before its result.
            Some(EventKind::ToolResult { call: wanted, .. }) => {
                up_to.iter().rev().find_map(|event| match &event.kind {
                    EventKind::ToolCall { call, name, .. } if call == wanted => Some(name),
                    _ => None,
                })
            }
            _ => None,
        };
        (tool.map_or_else(|| "the result".to_owned(), |tool| format!("the result of {tool}")), false)
    }

    /// What a turn took beside the replies that are in the log: attempts that were discarded or failed, hooks that asked models,
    /// and sub-agents. `None` if that is nothing, or if the turn is not over.
    pub(crate) fn beside_replies(&self, turn: &TurnId) -> Option<(Usage, f64)> {
        let ended = self.end_of(turn)?;
        let (mut usage, mut cost) = (ended.usage, ended.cost);
        for call in self.calls_of(turn) {
            let reply = call.sent.usage;
            usage.input = usage.input.saturating_sub(reply.input);
            usage.output = usage.output.saturating_sub(reply.output);
            usage.cache_read = usage.cache_read.saturating_sub(reply.cache_read);
            usage.cache_write = usage.cache_write.saturating_sub(reply.cache_write);
            cost -= call.sent.cost;
        }
        // What is left of adding and subtracting fractions is no cost.
        let cost = if cost > 1e-9 { cost } else { 0.0 };
        (usage.input > 0 || usage.output > 0 || cost > 0.0).then_some((usage, cost))
    }

    /// Whether sizes of these calls lack the correction by what the provider counted: a cut records it, and there was none yet.
    pub(crate) fn has_uncorrected<'a>(&self, mut calls: impl Iterator<Item = &'a Call>) -> bool {
        calls.any(|call| call.sent.last_cut.is_none() && call.sent.usage.input > 0)
    }

    /// What cannot be known of these calls; `None` if the audit has all of them.
    pub(crate) fn not_known<'a>(&self, mut calls: impl Iterator<Item = &'a Call>) -> Option<&'static str> {
        calls.any(|call| call.audited.is_none()).then(|| self.not_recorded())
    }

    /// What cannot be known of calls that the audit does not have, and why.
    pub(crate) fn not_recorded(&self) -> &'static str {
        if self.is_audited { NOT_THERE } else { NOT_KNOWN }
    }
}

/// Whether a recorded text is all that a hook added: long ones are shortened, secrets are taken out, and pictures are named.
fn is_whole(text: &str) -> bool {
    !text.ends_with(" bytes more)") && !text.contains("[redacted") && !text.starts_with('[')
}

/// What the log cannot tell, where some calls were recorded, or would be now.
const NOT_THERE: &str = "of calls that the audit does not have, the system prompt, the tools, lines about the budget, more \
                         than the first 4 KiB of a text that a hook added, and attempts that were discarded; they were made \
                         before the audit was on, or were removed to keep it within `audit_ttl`, `audit_rows` and \
                         `audit_bytes` in [store]";

/// What the log cannot tell.
const NOT_KNOWN: &str = "the system prompt, the tools, lines about the budget, more than the first 4 KiB of a text that a \
                         hook added, and attempts that were discarded are not stored; `audit = true` in [store] records \
                         them from then on";

/// Where each turn of a log begins and ends, and which of these calls are its own.
fn turns_of(log: &[Arc<Event>], calls: &[Call]) -> HashMap<TurnId, TurnFacts> {
    let mut turns: HashMap<TurnId, TurnFacts> = HashMap::new();
    for (place, event) in log.iter().enumerate() {
        match &event.kind {
            EventKind::UserMessage { .. } => {
                turns.entry(event.turn.clone()).or_default().opened.get_or_insert(place);
            }
            EventKind::TurnEnded(_) => {
                turns.entry(event.turn.clone()).or_default().ended = Some(place);
            }
            _ => {}
        }
    }
    let mut first = 0;
    for own in calls.chunk_by(|one, other| one.sent.turn == other.sent.turn) {
        if let Some(call) = own.first() {
            turns.entry(call.sent.turn.clone()).or_default().calls = first..first + own.len();
        }
        first += own.len();
    }
    turns
}
