//! A conversation as text: what each stage did, one line each.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::clock::Timestamp;
use crate::context::layout::{ContextCache, Overlay};
use crate::cut::{Cut, CutCause, Factor, LeftOutSteps, steps};
use crate::event::{Event, EventKind, Evidence, InjectionTarget, Question, TurnEnded};
use crate::feed::{FeedEvent, FeedItem, LiveEvent};
use crate::id::{CallId, TurnId};
use crate::message::Text;

/// What was told, as lines. With the log alone it lacks only what was never history: discarded attempts and notices.
///
/// ```text
/// accept    "what is 2+2?"
/// build     1 message, 1 tool
/// call      add(2, 2)
/// dispatch  add(2, 2) = 4
/// build     3 messages, 1 tool
/// call      "4"
/// end       completed
/// ```
pub fn trace<'a>(told: impl IntoIterator<Item = &'a FeedItem>, tools: usize) -> String {
    let mut tracer = Tracer { tools: Some(tools), ..Tracer::default() };
    for telling in told {
        match telling {
            FeedItem::Log(event) => tracer.event(event),
            FeedItem::Live(live) => tracer.live(live),
        }
    }
    tracer.finish_reply();
    tracer.lines
}

/// [`trace`] of a log and its cuts, with the time that each stage took where it took any: from the event before it to its own.
/// How many tools the agent had is not in the log.
///
/// ```text
/// compact   2 turns left out: 29120 tokens became 14020 (window)
/// call      "4" (1.2 s)
/// ```
pub fn trace_with_times(log: &[Arc<Event>], cuts: &[Cut]) -> String {
    let mut tracer = Tracer { times: true, cuts: cuts.to_vec().into(), ..Tracer::default() };
    log.iter().for_each(|event| tracer.event(event));
    tracer.finish_reply();
    tracer.lines
}

/// [`trace_with_times`] of one turn. The whole log up to it is needed: how many messages a call had depends on the turns before
/// and on the cuts, whichever process made them.
pub fn trace_of_turn(log: &[Arc<Event>], cuts: &[Cut], turn: &TurnId) -> String {
    let mut tracer = Tracer { times: true, cuts: cuts.to_vec().into(), ..Tracer::default() };
    let mut own = String::new();
    for events in log.chunk_by(|one, other| one.turn == other.turn) {
        tracer.lines.clear();
        events.iter().for_each(|event| tracer.event(event));
        tracer.finish_reply();
        if events.iter().any(|event| event.turn == *turn) {
            own.push_str(&tracer.lines);
        }
    }
    own
}

/// The place in the log of the event behind the line that [`trace_with_times`] has for a cut: the reply that it made room for,
/// or the end of the turn.
pub fn place_of_cut(log: &[Arc<Event>], cut: &Cut) -> Option<usize> {
    log.iter().position(|event| event.seq > cut.made_at && follows_cut(&event.kind))
}

fn follows_cut(kind: &EventKind) -> bool {
    matches!(kind, EventKind::AssistantMessage { .. } | EventKind::TurnEnded(_))
}

/// [`trace`] of feed events.
pub fn trace_told(told: &[FeedEvent], tools: usize) -> String {
    trace(told.iter().map(|told| &told.item), tools)
}

#[derive(Default)]
struct Tracer {
    lines: String,
    /// How many tools the agent has, if that is known.
    tools: Option<usize>,
    log: Vec<Arc<Event>>,
    /// Where the last turn begins in `log`.
    turn: usize,
    /// Cuts that have no line yet, oldest first.
    cuts: VecDeque<Cut>,
    /// Steps that the last cut leaves out. Notes stand in their place in `log`.
    left_out: Vec<LeftOutSteps>,
    /// Whether a summary stands before `log`.
    has_summary: bool,
    /// The messages of `log`. Those of ended turns are kept from one model call to the next.
    cache: ContextCache,
    discarded: usize,
    /// A reply whose calls are still coming, and how long it took.
    reply: Option<(String, Duration)>,
    /// Calls as they are shown, with the arguments they run with.
    calls: HashMap<CallId, String>,
    /// Whether times are shown.
    times: bool,
    /// When the event before was written.
    before: Option<Timestamp>,
    /// What the next line took.
    took: Duration,
}

/// What is quicker is not worth reading.
const WORTH_READING: Duration = Duration::from_millis(10);

impl Tracer {
    fn line(&mut self, stage: &str, text: impl AsRef<str>) {
        let took = std::mem::take(&mut self.took);
        let time = match self.times && took >= WORTH_READING {
            true => format!(" ({:.*} s)", if took < Duration::from_secs(1) { 2 } else { 1 }, took.as_secs_f64()),
            false => String::new(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines, "{stage:<9} {}{time}", text.as_ref());
    }

    fn build(&mut self) {
        let (messages, _) = self.cache.show(&self.log, self.turn, &Overlay::default());
        let beside = 2 * self.discarded.min(1) + usize::from(self.has_summary);
        let messages = count(messages.len() + beside, "message");
        let tools = self.tools.map(|tools| format!(", {}", count(tools, "tool"))).unwrap_or_default();
        self.line("build", messages + &tools);
    }

    /// Lines for the cuts that were made before this event.
    fn cuts_before(&mut self, event: &Event) {
        while self.cuts.front().is_some_and(|cut| cut.made_at < event.seq) {
            let Some(cut) = self.cuts.pop_front() else { return };
            let took = std::mem::take(&mut self.took);
            self.cut(&cut);
            self.took = took;
        }
    }

    fn cut(&mut self, cut: &Cut) {
        self.line("compact", cut.summary());
        self.has_summary = cut.summary.is_some();
        let gone = self.log.partition_point(|event| event.seq < cut.first);
        self.log.drain(..gone);
        self.turn = self.turn.saturating_sub(gone);
        let opened = self.log.get(self.turn).map_or(u64::MAX, |event| event.seq);
        steps::take_out(&mut self.log, &cut.left_out, &self.left_out);
        self.turn = self.log.partition_point(|event| event.seq < opened);
        if self.left_out != cut.left_out {
            (self.left_out, self.cache) = (cut.left_out.clone(), ContextCache::default());
        }
    }

    fn finish_reply(&mut self) {
        if let Some((reply, took)) = self.reply.take() {
            self.took = took;
            self.line("call", reply);
        }
    }

    fn event(&mut self, event: &Arc<Event>) {
        if !matches!(event.kind, EventKind::ToolCall { .. }) {
            self.finish_reply();
        }
        self.took = self.before.replace(event.at).map_or(Duration::ZERO, |before| event.at.since(before));
        if follows_cut(&event.kind) {
            self.cuts_before(event);
        }
        match &event.kind {
            EventKind::UserMessage { content, .. }
                if self.log.get(self.turn).is_some_and(|first| first.turn == event.turn) =>
            {
                self.line("steer", quoted(&content.text()));
            }
            EventKind::UserMessage { content, .. } => {
                // The time between two turns belongs to neither.
                self.took = Duration::ZERO;
                self.turn = self.log.len();
                self.line("accept", quoted(&content.text()));
            }
            EventKind::Injection { hook, content, .. } => {
                self.line("inject", format!("{hook}: {}", quoted(&content.text())));
            }
            EventKind::AssistantMessage { content, stop_reason, .. } => {
                let took = std::mem::take(&mut self.took);
                self.build();
                self.discarded = 0;
                let text = content.text();
                let abort = if *stop_reason == crate::message::StopReason::Cancelled { " [cancelled]" } else { "" };
                self.reply = Some((if text.is_empty() { String::new() } else { quoted(&text) } + abort, took));
            }
            EventKind::ToolCall { call, name, arguments, .. } => {
                let shown = shown(name, &arguments.value());
                if let Some((reply, _)) = &mut self.reply {
                    *reply = format!("{reply} {shown}").trim_start().to_owned();
                }
                self.calls.insert(call.clone(), shown);
            }
            EventKind::ToolStarted { call, arguments, .. } => self.started(call, &arguments.value()),
            EventKind::ToolResult { call, ok, content } => {
                let sign = if *ok { '=' } else { '!' };
                let line = format!("{} {sign} {}", self.shown(call), short(&content.text()));
                self.line("dispatch", line);
            }
            EventKind::Suspension { call, question, .. } => {
                let line = format!("{call}: {}", asked(question));
                self.line("wait", line);
            }
            EventKind::Resolution { call, decision, by, reason, evidence } => {
                let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                let word = format!("{decision:?}").to_lowercase();
                self.line("resolve", format!("{call}: {word} by {by}{}{why}", how(evidence)));
            }
            EventKind::StopFeedback { refusals } => {
                for refusal in refusals {
                    self.line("refuse", format!("{}: {}", refusal.hook, quoted(&refusal.feedback)));
                }
            }
            EventKind::TurnEnded(ended) => self.ended(ended),
        }
        self.log.push(event.clone());
        match &event.kind {
            EventKind::TurnEnded(ended) if !ended.outcome.joins_history() => self.forget_turn(),
            _ => {}
        }
    }

    /// A halted or rejected turn adds nothing to later contexts but what it left for the next turn.
    fn forget_turn(&mut self) {
        let rest = self.log.split_off(self.turn.min(self.log.len()));
        let stays =
            |event: &Arc<Event>| matches!(&event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. });
        self.log.extend(rest.into_iter().filter(stays));
        self.cache = ContextCache::default();
    }

    /// A hook may have rewritten the arguments.
    fn started(&mut self, call: &CallId, arguments: &Value) {
        if let Some(shown_call) = self.calls.get_mut(call) {
            let name: Text = shown_call.split('(').next().unwrap_or_default().into();
            *shown_call = shown(&name, arguments);
        }
    }

    fn shown(&self, call: &CallId) -> String {
        self.calls.get(call).cloned().unwrap_or_else(|| call.to_string())
    }

    fn ended(&mut self, ended: &TurnEnded) {
        let by = ended.by().map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = ended.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
        let cost = if ended.cost > 0.0 { format!(" (${:.4})", ended.cost) } else { String::new() };
        self.line("end", format!("{}{by}{reason}{cost}", ended.outcome));
        for warning in ended.warnings() {
            let hook = warning.hook.as_ref().map(|hook| format!("{hook}: ")).unwrap_or_default();
            self.line("warning", format!("{hook}{}", warning.text));
        }
    }

    fn live(&mut self, live: &LiveEvent) {
        if let LiveEvent::Compacted {
            first,
            turns,
            results,
            calls,
            steps,
            left_out,
            before,
            after,
            reducers,
            summary,
            ..
        } = live
        {
            let opened = self.log.get(self.turn).map_or(u64::MAX, |event| event.seq);
            let ended = left_out.iter().filter(|steps| steps.first() < opened);
            let known = |first: u64| self.left_out.iter().find(|one| one.first() == first).map_or(0, |one| one.steps);
            let ended_steps = ended.map(|steps| steps.steps.saturating_sub(known(steps.first()))).sum();
            let cut = Cut {
                turn: TurnId::from(""),
                made_at: 0,
                first: *first,
                stubs: Vec::new(),
                turns: *turns,
                results: *results,
                calls: *calls,
                steps: *steps,
                ended_steps,
                left_out: left_out.clone(),
                before: *before,
                after: *after,
                reducers: reducers.clone(),
                factor: Factor::ONE,
                summary: *summary,
                cause: CutCause::Estimate,
            };
            return self.cut(&cut);
        }
        if let LiveEvent::AttemptDiscarded { attempt, by, reason, replaced } = live {
            let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            if *replaced {
                return self.line("modify", format!("attempt {attempt}{by}"));
            }
            self.build();
            self.discarded += 1;
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            self.line("discard", format!("attempt {attempt}{by}{reason}"));
        }
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What stands behind an answer, beyond who gave it.
fn how(evidence: &Evidence) -> String {
    let mut how = String::new();
    if let Some(via) = &evidence.via {
        how += &format!(" via {via}");
    }
    if let Some(standing) = &evidence.standing {
        how += &format!(" (standing approval {standing})");
    }
    if let Some(arguments) = &evidence.arguments {
        how += &format!(" with {}", short(&arguments.to_string()));
    }
    if evidence.open {
        how += " (more approvals are needed)";
    }
    how
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", short(text))
}

/// One line of at most 120 characters.
fn short(text: &str) -> String {
    let line = text.trim_end().replace('\n', "\\n");
    match line.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The fields of a call in an order to read. JSON objects are kept in the order of their keys; what a call is about comes
/// first, and what was before what will be.
pub fn in_order(fields: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let rank = |key: &str| ["path", "old"].iter().position(|first| *first == key).unwrap_or(2);
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(key, _)| rank(key));
    fields
}

fn shown(name: &Text, arguments: &Value) -> String {
    let values: Vec<String> = match arguments {
        Value::Object(fields) => in_order(fields).into_iter().map(|(_, value)| value.to_string()).collect(),
        other => vec![other.to_string()],
    };
    short(&format!("{name}({})", values.join(", ")))
}

fn asked(question: &Question) -> String {
    match question {
        Question::Approval { tool: Some(tool), arguments, .. } => format!("approval of {}", shown(tool, arguments)),
        Question::Approval { tool: None, why, .. } => {
            format!("approval of the reply: {}", why.as_deref().unwrap_or_default())
        }
        Question::Elicitation { question, .. } => format!("question {}", quoted(question)),
        Question::ClientExec { tool, arguments } => format!("client runs {}", shown(tool, arguments)),
        Question::Pause { hook, reason } => format!("paused by {hook}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Author;

    #[test]
    fn a_stage_that_took_time_says_how_much() {
        let event = |seq: u64, at, kind| {
            // A user message of the same turn would steer it.
            let turn = if seq < 3 { "t" } else { "u" }.into();
            Arc::new(Event { seq, turn, at: Timestamp::from_millis(at), kind })
        };
        let user = |text: &str| EventKind::UserMessage { content: text.into(), by: Author::User("ann".into()) };
        let reply = EventKind::AssistantMessage {
            cost: 0.0,
            model: None,
            attempt: 1,
            content: "4".into(),
            stop_reason: Default::default(),
            usage: Default::default(),
            extras: None,
        };
        let log = [event(1, 0, user("2+2?")), event(2, 1240, reply), event(3, 9000, user("thanks"))];
        let lines = "accept    \"2+2?\"\nbuild     1 message\ncall      \"4\" (1.2 s)\naccept    \"thanks\"\n";
        assert_eq!(trace_with_times(&log, &[]), lines);
    }
}
