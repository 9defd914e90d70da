//! Where the time of a turn went: model calls, tools, waiting and hooks with their beginnings and ends.
//!
//! The log has the times of events, and a record how long a hook took. A hook is placed by what it ran before or behind, which is
//! exact to the time between two events. Replies that were discarded are in no log: the one that was let through says how many
//! there were before it, and they stand where it stands.

use std::sync::Arc;

use turnbuckle::event::{Event, EventKind};
use turnbuckle::hook::{Decision, Point, Record};
use turnbuckle::message::Usage;
use turnbuckle::{CallId, Timestamp};

use super::stages::{CALL, DISPATCH, END, Stage, stages};

/// What took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// What follows until the next one is done in it.
    Stage,
    Model,
    /// A reply that was discarded before the one that is in the log.
    Discarded,
    Tool,
    /// Someone had to answer.
    Wait,
    /// Hooks refused to let the turn end: a moment.
    Refused,
    Hook,
}

/// Something with a beginning and an end, in milliseconds since the turn began.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span<'a> {
    pub(super) what: What,
    pub(super) name: &'a str,
    pub(super) from: f64,
    pub(super) ms: f64,
    pub(super) call: Option<&'a CallId>,
    pub(super) usage: Option<(Usage, f64)>,
    /// The record of a hook, with its number.
    pub(super) record: Option<(usize, &'a Record)>,
}

/// What took time in a turn, in the order in which it began.
pub(super) fn spans<'a>(events: &'a [Arc<Event>], records: &'a [Record]) -> Vec<Span<'a>> {
    let Some(first) = events.first() else { return Vec::new() };
    // The first event is written when the hooks before it have run.
    let lead: f64 = records.iter().take_while(|record| is_before(record.point)).map(took).sum();
    let since = |at: Timestamp| at.since(first.at).as_secs_f64() * 1_000.0 + lead;
    let (mut spans, mut open): (Vec<Span<'a>>, Vec<(&CallId, f64, What)>) = (Vec::new(), Vec::new());
    let mut before = 0.0;
    for event in events {
        let now = since(event.at);
        let span = |what, name, from: f64| {
            let (call, usage, record) = (None, None, None);
            Span { what, name, from, ms: (now - from).max(0.0), call, usage, record }
        };
        match &event.kind {
            EventKind::AssistantMessage { model, usage, cost, attempt, .. } => {
                let name = model.as_deref().unwrap_or("model call");
                spans.extend((1..(*attempt).min(MOST_ATTEMPTS)).map(|_| span(What::Discarded, name, before)));
                spans.push(Span { usage: Some((*usage, *cost)), ..span(What::Model, name, before) });
            }
            EventKind::ToolStarted { call, .. } => open.push((call, now, What::Tool)),
            EventKind::Suspension { call, .. } => open.push((call, now, What::Wait)),
            EventKind::ToolResult { call, .. } => {
                if let Some(place) = open.iter().position(|(of, _, what)| *of == call && *what == What::Tool) {
                    let (call, from, what) = open.remove(place);
                    spans.push(Span { call: Some(call), ..span(what, name_of(events, call), from) });
                }
            }
            EventKind::Resolution { call, evidence, .. } if !evidence.open => {
                if let Some(place) = open.iter().position(|(of, _, what)| *of == call && *what == What::Wait) {
                    let (call, from, what) = open.remove(place);
                    spans.push(Span { call: Some(call), ..span(what, name_of(events, call), from) });
                }
            }
            EventKind::StopFeedback { .. } => spans.push(span(What::Refused, "refused", now)),
            _ => {}
        }
        before = now;
    }
    let stages = stages(events, since);
    let hooks = hooks(&spans, &stages, events, records, since);
    // What begins at one moment stands in the order of the stages that it belongs to: one of less than a millisecond begins with the next.
    // Within a stage, its own bar is the first, and a refusal stands behind the hooks that refused.
    let rank = |span: &Span<'_>| match (span.what, span.record) {
        (What::Hook, Some((_, record))) if record.point == Point::OnStop => 1,
        (What::Refused, _) => 2,
        _ => 3,
    };
    let done = spans.into_iter().chain(hooks).map(|span| (stage_of(&stages, &span), rank(&span), span));
    let mut all: Vec<(usize, u8, Span<'a>)> = done.collect();
    all.extend(stages.iter().enumerate().map(|(number, stage)| {
        let (call, usage, record) = (None, None, None);
        let ms = (stage.to - stage.from).max(0.0);
        (number, 0, Span { what: What::Stage, name: stage.name, from: stage.from, ms, call, usage, record })
    }));
    all.sort_by(|one, other| one.2.from.total_cmp(&other.2.from).then((one.0, one.1).cmp(&(other.0, other.1))));
    all.into_iter().map(|(_, _, span)| span).collect()
}

/// The number of the stage in which something is done: the last that has begun by then and does such things.
fn stage_of(stages: &[Stage], span: &Span<'_>) -> usize {
    let name = match (span.what, span.record.map(|(_, record)| record.point)) {
        (What::Model | What::Discarded, _)
        | (_, Some(Point::BeforeModel | Point::WrapModelCall | Point::Stream | Point::AfterModel)) => Some(CALL),
        (What::Tool | What::Wait, _) | (_, Some(Point::BeforeTool | Point::WrapToolCall | Point::AfterTool)) => {
            Some(DISPATCH)
        }
        (What::Refused, _) | (_, Some(Point::OnStop)) => Some(END),
        _ => None,
    };
    let is_its = |stage: &Stage| stage.from <= span.from && name.is_none_or(|name| stage.name == name);
    // What is in no stage yet, because the log has no event behind it, stands last.
    stages.iter().rposition(is_its).unwrap_or(stages.len())
}

/// Of one reply, shown as bars of their own.
const MOST_ATTEMPTS: u32 = 20;

/// Whether hooks at this point run before the message is in the log.
fn is_before(point: Point) -> bool {
    matches!(point, Point::OnConversation | Point::BeforeAgent)
}

fn took(record: &Record) -> f64 {
    record.took.as_secs_f64() * 1_000.0
}

fn name_of<'a>(events: &'a [Arc<Event>], call: &'a CallId) -> &'a str {
    let named = |event: &'a Arc<Event>| match &event.kind {
        EventKind::ToolCall { call: of, name, .. } if of == call => Some(&**name),
        _ => None,
    };
    events.iter().rev().find_map(named).unwrap_or("question")
}

fn hooks<'a>(
    spans: &[Span<'a>],
    stages: &[Stage],
    events: &'a [Arc<Event>],
    records: &'a [Record],
    since: impl Fn(Timestamp) -> f64 + Copy,
) -> Vec<Span<'a>> {
    let models: Vec<&Span<'_>> = spans.iter().filter(|span| span.what == What::Model).collect();
    let end = events.last().map_or(0.0, |event| since(event.at));
    let stops: Vec<&Stage> = stages.iter().filter(|stage| stage.name == END).collect();
    // Something that ends then has begun in the same stage: times of events are rounded, and those of hooks are not.
    let ending = |at: f64, ms: f64| {
        let stage = stages.iter().rfind(|stage| stage.from < at);
        (at - ms).max(stage.map_or(0.0, |stage| stage.from))
    };
    let (mut model, mut stop) = (0, 0);
    // Hooks of the present model call, and of the present try to end. A model call between two tries must not make the second look
    // like the first.
    let (mut seen, mut stopping): (Vec<(&str, Point)>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut placed = Vec::new();
    // Hooks that run one after the other stand one after the other.
    let mut place = |number: usize, record: &'a Record, from: f64| {
        let ms = took(record);
        let (call, usage) = (record.call.as_ref(), None);
        placed.push(Span {
            what: What::Hook,
            name: &record.hook,
            from: from.max(0.0),
            ms,
            call,
            usage,
            record: Some((number, record)),
        });
    };
    // Records of hooks that judged a reply, each with the number of its model call.
    let mut after: Vec<(usize, usize)> = Vec::new();
    let messages: Vec<f64> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::UserMessage { .. }))
        .map(|event| since(event.at))
        .collect();
    // Hooks on the present message, which are called one after the other: those on the first one from the beginning on, and those on
    // one that steers before it.
    let (mut message, mut until, mut met): (usize, f64, Vec<&str>) = (0, 0.0, Vec::new());
    for (number, record) in records.iter().enumerate() {
        let ms = took(record);
        let mut place = |record, from| place(number, record, from);
        let of_call = |what: What| spans.iter().find(|span| span.what == what && span.call == record.call.as_ref());
        match record.point {
            Point::BeforeModel | Point::WrapModelCall | Point::Stream | Point::AfterModel => {
                let again = seen.contains(&(&*record.hook, record.point));
                if again && model + 1 < models.len() {
                    model += 1;
                    seen.clear();
                }
                seen.push((&record.hook, record.point));
                // A reply that is asked for again is the same reply.
                if matches!(record.decision, Decision::Regenerate) {
                    seen.clear();
                }
                let Some(span) = models.get(model) else {
                    place(record, ending(end, ms));
                    continue;
                };
                place(record, span.from);
                if record.point == Point::AfterModel {
                    after.push((number, model));
                }
            }
            Point::BeforeTool => place(record, ending(of_call(What::Tool).map_or(end, |span| span.from), ms)),
            Point::WrapToolCall => place(record, of_call(What::Tool).map_or(ending(end, ms), |span| span.from)),
            Point::AfterTool => place(record, ending(of_call(What::Tool).map_or(end, |span| span.from + span.ms), ms)),
            Point::OnStop => {
                if stopping.contains(&&*record.hook) && stop + 1 < stops.len() {
                    stop += 1;
                    stopping.clear();
                }
                stopping.push(&record.hook);
                let from = stops.get(stop).map_or(ending(end, ms), |stage| (stage.to - ms).max(stage.from));
                place(record, from);
            }
            Point::BeforeAgent if met.contains(&&*record.hook) => {
                message += 1;
                met = vec![&record.hook];
                place(record, messages.get(message).copied().unwrap_or(end) - ms);
            }
            Point::BeforeAgent if message > 0 => {
                met.push(&record.hook);
                place(record, messages.get(message).copied().unwrap_or(end) - ms);
            }
            Point::OnConversation | Point::BeforeAgent => {
                if record.point == Point::BeforeAgent {
                    met.push(&record.hook);
                }
                place(record, until);
                until += ms;
            }
            Point::AfterAgent | Point::BeforeCompaction => place(record, ending(end, ms)),
            _ => place(record, end),
        }
    }
    // The last of them ends with the call, and each one before it ends where the next one begins.
    let mut until: Option<(usize, f64)> = None;
    for (number, model) in after.into_iter().rev() {
        let (Some(span), Some(judge)) = (models.get(model), placed.get_mut(number)) else { continue };
        let end = until.filter(|(of, _)| *of == model).map_or(span.from + span.ms, |(_, begin)| begin);
        judge.from = (end - judge.ms).max(span.from);
        until = Some((model, judge.from));
    }
    placed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn event(seq: u64, ms: u64, mut kind: Value) -> Arc<Event> {
        kind["seq"] = seq.into();
        kind["turn"] = "t_1".into();
        kind["at"] = serde_json::to_value(Timestamp::from_millis(1_769_860_800_000 + ms)).unwrap();
        Arc::new(serde_json::from_value(kind).unwrap())
    }

    fn record(point: Point, hook: &str, decision: Decision, ms: u64) -> Record {
        Record::new(point, hook.into(), decision, Duration::from_millis(ms))
    }

    #[test]
    fn a_hook_that_lets_the_turn_end_in_the_second_try_stands_right_before_the_end() {
        let said = json!({"type": "assistant_message", "attempt": 1, "stop_reason": "end", "usage": {}, "object": null,
            "content": [{"type": "text", "text": "done"}]});
        let events = [
            event(
                1,
                0,
                json!({"type": "user_message", "content": [{"type": "text", "text": "go"}], "by": {"user": "ann"}}),
            ),
            event(2, 1_000, said.clone()),
            event(3, 1_500, json!({"type": "stop_feedback", "refusals": [{"hook": "lint", "feedback": "not yet"}]})),
            event(4, 8_000, said),
            event(
                5,
                9_000,
                json!({"type": "turn_ended", "outcome": "completed", "reason": null, "cause": null, "by": null,
                "result": null, "warnings": [], "model_calls": 2, "usage": {}, "ms": 9_000}),
            ),
        ];
        // A hook that runs with every model call stands between the two tries.
        let records = [
            record(Point::BeforeModel, "memory", Decision::Continue, 10),
            record(Point::OnStop, "lint", Decision::Refuse, 400),
            record(Point::OnStop, "style", Decision::Accept, 100),
            record(Point::BeforeModel, "memory", Decision::Continue, 10),
            record(Point::OnStop, "lint", Decision::Accept, 300),
            record(Point::OnStop, "style", Decision::Accept, 100),
        ];
        let spans = spans(&events, &records);
        let placed: Vec<(&str, f64, f64)> = spans
            .iter()
            .filter(|span| span.record.is_some_and(|(_, record)| record.point == Point::OnStop))
            .map(|span| (span.name, span.from, span.from + span.ms))
            .collect();
        let expected = [
            ("lint", 1_100.0, 1_500.0),
            ("style", 1_400.0, 1_500.0),
            ("lint", 8_700.0, 9_000.0),
            ("style", 8_900.0, 9_000.0),
        ];
        assert_eq!(placed, expected);
    }

    fn said(attempt: u32) -> Value {
        json!({"type": "assistant_message", "attempt": attempt, "stop_reason": "end", "usage": {}, "object": null,
            "content": [{"type": "text", "text": "done"}]})
    }

    fn message() -> Value {
        json!({"type": "user_message", "content": [{"type": "text", "text": "go"}], "by": {"user": "ann"}})
    }

    #[test]
    fn an_attempt_that_was_discarded_has_a_bar() {
        let events = [event(1, 0, message()), event(2, 1_000, said(3))];
        let records = [];
        let spans = spans(&events, &records);
        let calls = spans.iter().filter(|span| matches!(span.what, What::Model | What::Discarded));
        assert_eq!(calls.count(), 3, "{spans:?}");
    }

    #[test]
    fn a_reply_that_is_asked_for_again_is_judged_before_the_one_that_stands() {
        let events = [event(1, 0, message()), event(2, 1_000, said(2))];
        let records = [
            record(Point::AfterModel, "guard", Decision::Regenerate, 5),
            record(Point::AfterModel, "guard", Decision::Continue, 8),
        ];
        let spans = spans(&events, &records);
        let judged = spans.iter().filter_map(|span| Some((span.record?.1.decision, span.from)));
        assert_eq!(judged.collect::<Vec<_>>(), [(Decision::Regenerate, 987.0), (Decision::Continue, 992.0)]);
    }

    #[test]
    fn what_takes_less_than_a_millisecond_stands_in_its_own_stage_and_not_in_the_next() {
        let call = json!({"type": "tool_call", "call": "c1", "name": "add", "arguments": {}, "executor": "server"});
        let started =
            json!({"type": "tool_started", "call": "c1", "arguments": {}, "digest": "d", "approved_by": null});
        let result = json!({"type": "tool_result", "call": "c1", "ok": true, "content": []});
        let events = [message(), said(1), call, started, result];
        let events: Vec<_> = events.into_iter().zip(1..).map(|(kind, seq)| event(seq, 0, kind)).collect();
        let mut wrap = record(Point::WrapToolCall, "retry", Decision::Wrap, 0);
        wrap.call = Some("c1".into());
        let records = [wrap];
        let spans = spans(&events, &records);
        let order: Vec<&str> = spans.iter().map(|span| span.name).collect();
        assert_eq!(order, ["accept", "build, call", "model call", "dispatch", "add", "retry"]);
    }

    #[test]
    fn each_stage_stands_before_what_is_done_in_it_and_a_refusal_behind_the_hook_that_refused() {
        let events = [
            event(1, 0, message()),
            event(2, 1_000, said(1)),
            event(3, 1_500, json!({"type": "stop_feedback", "refusals": [{"hook": "lint", "feedback": "not yet"}]})),
            event(4, 2_000, said(1)),
        ];
        let records = [
            record(Point::BeforeAgent, "recall", Decision::Continue, 100),
            record(Point::OnStop, "lint", Decision::Refuse, 500),
        ];
        let spans = spans(&events, &records);
        let order: Vec<(&str, f64)> = spans.iter().map(|span| (span.name, span.from)).collect();
        let expected = [
            ("accept", 0.0),
            ("recall", 0.0),
            ("build, call", 100.0),
            ("model call", 100.0),
            ("end", 1_100.0),
            ("lint", 1_100.0),
            ("refused", 1_600.0),
            ("build, call", 1_600.0),
            ("model call", 1_600.0),
        ];
        assert_eq!(order, expected);
    }
}
