//! From events to spans: what is open in each conversation, and what closes it.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use turnbuckle::event::{Event, EventKind, Outcome, TurnEnded};
use turnbuckle::feed::{ConversationState, FeedEvent, FeedItem, LiveEvent};
use turnbuckle::message::{Content, Text};
use turnbuckle::scope::Author;
use turnbuckle::{CallId, ConversationId, TurnId};

use super::attributes::{of_chat, of_chat_span};
use super::calls::{Call, Calls, system_time};
use super::pipeline::Pipeline;

/// How many turns are traced at once; further ones are not.
const MOST_TURNS: usize = 10_000;
/// For how many finished turns the span is remembered, so that background hooks are attached to it.
const RECENT: usize = 256;

/// A running turn.
struct Open {
    turn: TurnId,
    span: Context,
    /// `None` if another process began the turn.
    agent: Option<Text>,
    began: SystemTime,
    stage: Option<(ConversationState, Context)>,
    tools: HashMap<CallId, Tool>,
}

/// A running tool call.
struct Tool {
    name: Text,
    span: Option<Context>,
    began: SystemTime,
}

impl Open {
    fn inner(&self) -> &Context {
        self.stage.as_ref().map_or(&self.span, |(_, span)| span)
    }
}

/// The running turns, by conversation.
pub(super) struct Spans {
    content: bool,
    open: HashMap<ConversationId, Open>,
    recent: VecDeque<(TurnId, Context)>,
    background: HashMap<(TurnId, Text), SystemTime>,
}

impl Spans {
    pub(super) fn new(content: bool) -> Self {
        Self { content, open: HashMap::new(), recent: VecDeque::new(), background: HashMap::new() }
    }

    pub(super) fn take(&mut self, told: &FeedEvent, calls: &Calls, to: &Pipeline) {
        let at = system_time(told.at);
        match &told.item {
            FeedItem::Live(live) => self.live(told, live, at, calls, to),
            FeedItem::Log(event) => self.log(told, event, at, calls, to),
        }
    }

    fn live(&mut self, told: &FeedEvent, live: &LiveEvent, at: SystemTime, calls: &Calls, to: &Pipeline) {
        match live {
            LiveEvent::TurnStarted { agent, by } => self.started(told, agent, by, at, to),
            LiveEvent::StateChanged { state } => self.stage(told, *state, at, calls, to),
            LiveEvent::HookFinished { hook, point, decision, ms, error, .. } => {
                let took = Duration::from_secs_f64((ms / 1000.0).clamp(0.0, 1e9));
                let attributes = vec![
                    KeyValue::new("turnbuckle.hook", hook.to_string()),
                    KeyValue::new("turnbuckle.point", point.name()),
                    KeyValue::new("turnbuckle.decision", decision.to_string()),
                ];
                to.hook.record(took.as_secs_f64(), &attributes);
                self.hook(told, hook, attributes, at.checked_sub(took).unwrap_or(at)..at, error.as_deref(), to);
            }
            LiveEvent::AttemptDiscarded { attempt, reason, .. } => {
                let attempt = KeyValue::new("turnbuckle.attempt", i64::from(*attempt));
                let reason = reason.as_ref().map(|reason| KeyValue::new("turnbuckle.reason", reason.to_string()));
                self.mark(told, "attempt_discarded", at, [attempt].into_iter().chain(reason).collect());
            }
            LiveEvent::Compacted { turns, results, steps, before, after, .. } => {
                let number = |name, value: u64| KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX));
                let attributes = vec![
                    number("turnbuckle.turns", u64::from(*turns)),
                    number("turnbuckle.results", u64::from(*results)),
                    number("turnbuckle.steps", u64::from(*steps)),
                    number("turnbuckle.tokens_before", *before),
                    number("turnbuckle.tokens_after", *after),
                ];
                self.mark(told, "compacted", at, attributes);
            }
            LiveEvent::Notice { text, .. } => {
                self.mark(told, "notice", at, vec![KeyValue::new("turnbuckle.text", text.to_string())]);
            }
            LiveEvent::BackgroundStarted { hook } => {
                if let (Some(turn), true) = (&told.turn, self.background.len() < RECENT) {
                    self.background.insert((turn.clone(), hook.clone()), at);
                }
            }
            LiveEvent::BackgroundFinished { hook, error } => {
                let began = told.turn.as_ref().and_then(|turn| self.background.remove(&(turn.clone(), hook.clone())));
                let name = KeyValue::new("turnbuckle.hook", hook.to_string());
                let point = KeyValue::new("turnbuckle.point", "background");
                self.hook(told, hook, vec![name, point], began.unwrap_or(at)..at, error.as_deref(), to);
            }
            _ => {}
        }
    }

    fn log(&mut self, told: &FeedEvent, event: &Event, at: SystemTime, calls: &Calls, to: &Pipeline) {
        match &event.kind {
            EventKind::ToolCall { call, name, .. } => {
                if let Some(open) = self.open_of(told) {
                    open.tools.insert(call.clone(), Tool { name: name.clone(), span: None, began: at });
                }
            }
            EventKind::ToolStarted { call, arguments, .. } => {
                let said = self.content.then(|| KeyValue::new("gen_ai.tool.call.arguments", arguments.to_string()));
                self.tool_began(told, call, at, said, to);
            }
            EventKind::ToolResult { call, ok, content } => self.tool_ended(told, call, *ok, content, at, to),
            EventKind::Suspension { call, .. } => {
                self.mark(told, "suspension", at, vec![KeyValue::new("gen_ai.tool.call.id", call.to_string())]);
            }
            EventKind::Resolution { call, .. } => {
                self.mark(told, "resolution", at, vec![KeyValue::new("gen_ai.tool.call.id", call.to_string())]);
            }
            EventKind::TurnEnded(ended) => self.end(told, ended, at, calls, to),
            _ => {}
        }
    }

    /// The turn that the event belongs to, if it is running.
    fn open_of(&mut self, told: &FeedEvent) -> Option<&mut Open> {
        self.open.get_mut(&told.conversation).filter(|open| Some(&open.turn) == told.turn.as_ref())
    }

    /// Names the span of a turn. The event that names the agent comes after that of the first stage, which began the span.
    fn started(&mut self, told: &FeedEvent, agent: &Text, by: &Author, at: SystemTime, to: &Pipeline) {
        if self.open_of(told).is_none() {
            self.begin(told, at, to);
        }
        let Some(open) = self.open_of(told) else { return };
        open.agent = Some(agent.clone());
        let span = open.span.span();
        span.update_name(format!("invoke_agent {agent}"));
        span.set_attribute(KeyValue::new("gen_ai.agent.name", agent.to_string()));
        if let Author::User(user) = by {
            span.set_attribute(KeyValue::new("user.id", user.to_string()));
        }
    }

    fn begin(&mut self, told: &FeedEvent, at: SystemTime, to: &Pipeline) {
        let (Some(turn), true) = (&told.turn, self.open.len() < MOST_TURNS) else { return };
        let attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("turnbuckle.turn", turn.to_string()),
        ];
        let parent = self.parent(&told.conversation);
        let span = start(to, told, "invoke_agent", SpanKind::Internal, attributes, &parent, at);
        let open = Open { turn: turn.clone(), span, agent: None, began: at, stage: None, tools: HashMap::new() };
        self.open.insert(told.conversation.clone(), open);
    }

    /// The tool call that started a sub-agent's conversation, whose id is `PARENT/CALL`.
    fn parent(&self, conversation: &ConversationId) -> Context {
        let of_call = || {
            let (parent, call) = conversation.as_str().rsplit_once('/')?;
            self.open.get(&ConversationId::from(parent))?.tools.get(&CallId::from(call))?.span.clone()
        };
        of_call().unwrap_or_default()
    }

    fn stage(&mut self, told: &FeedEvent, state: ConversationState, at: SystemTime, calls: &Calls, to: &Pipeline) {
        let name = match state {
            ConversationState::Accept => "accept",
            ConversationState::Build => "build",
            ConversationState::Call => "call",
            ConversationState::Dispatch => "dispatch",
            ConversationState::End => "end",
            ConversationState::Idle | ConversationState::Waiting => "",
        };
        if told.turn.is_some() && !name.is_empty() && self.open_of(told).is_none() {
            self.begin(told, at, to);
        }
        let Some(open) = self.open.get_mut(&told.conversation) else { return };
        leave_stage(open, told, at, calls, to);
        if !name.is_empty() {
            let attributes = vec![KeyValue::new("turnbuckle.stage", name)];
            open.stage = Some((state, start(to, told, name, SpanKind::Internal, attributes, &open.span, at)));
        }
    }

    fn hook(
        &self,
        told: &FeedEvent,
        hook: &str,
        attributes: Vec<KeyValue>,
        time: std::ops::Range<SystemTime>,
        error: Option<&str>,
        to: &Pipeline,
    ) {
        let open = self.open.get(&told.conversation).filter(|open| Some(&open.turn) == told.turn.as_ref());
        let over = || self.recent.iter().find(|(turn, _)| Some(turn) == told.turn.as_ref()).map(|(_, span)| span);
        let Some(parent) = open.map(Open::inner).or_else(over) else { return };
        let span = start(to, told, format!("hook {hook}"), SpanKind::Internal, attributes, parent, time.start);
        if let Some(error) = error {
            span.span().set_attribute(KeyValue::new("error.type", "hook_failure"));
            span.span().set_status(Status::error(error.to_owned()));
        }
        span.span().end_with_timestamp(time.end);
    }

    fn mark(&mut self, told: &FeedEvent, name: &'static str, at: SystemTime, attributes: Vec<KeyValue>) {
        if let Some(open) = self.open_of(told) {
            open.inner().span().add_event_with_timestamp(name, at, attributes);
        }
    }

    fn tool_began(&mut self, told: &FeedEvent, call: &CallId, at: SystemTime, said: Option<KeyValue>, to: &Pipeline) {
        let Some(open) = self.open_of(told) else { return };
        let parent = open.inner().clone();
        let Some(tool) = open.tools.get_mut(call) else { return };
        tool.began = at;
        tool.span = Some(start_tool(to, told, call, &tool.name, said, &parent, at));
    }

    fn tool_ended(
        &mut self,
        told: &FeedEvent,
        call: &CallId,
        ok: bool,
        result: &Content,
        at: SystemTime,
        to: &Pipeline,
    ) {
        let content = self.content;
        let Some(open) = self.open_of(told) else { return };
        let Some(tool) = open.tools.remove(call) else { return };
        // A call that a hook denied or answered was never started.
        let span = match tool.span {
            Some(span) => span,
            None => start_tool(to, told, call, &tool.name, None, open.inner(), tool.began),
        };
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", tool.name.to_string()),
        ];
        if !ok {
            attributes.push(KeyValue::new("error.type", "tool_error"));
            span.span().set_attribute(KeyValue::new("error.type", "tool_error"));
            span.span().set_status(Status::error("the tool did not do what it was asked"));
        }
        if content {
            span.span().set_attribute(KeyValue::new("gen_ai.tool.call.result", result.text()));
        }
        span.span().end_with_timestamp(at);
        to.tool.record(since(tool.began, at), &attributes);
    }

    fn end(&mut self, told: &FeedEvent, ended: &TurnEnded, at: SystemTime, calls: &Calls, to: &Pipeline) {
        if self.open_of(told).is_none() {
            return;
        }
        let Some(mut open) = self.open.remove(&told.conversation) else { return };
        leave_stage(&mut open, told, at, calls, to);
        for call in calls.rest(&open.turn) {
            chat(told, &call, &open.span, to);
        }
        let outcome = ended.outcome.to_string();
        let span = open.span.span();
        let count = |name: &'static str, count: u64| KeyValue::new(name, i64::try_from(count).unwrap_or(i64::MAX));
        span.set_attribute(KeyValue::new("turnbuckle.outcome", outcome.clone()));
        span.set_attribute(count("gen_ai.usage.input_tokens", ended.usage.input));
        span.set_attribute(count("gen_ai.usage.output_tokens", ended.usage.output));
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("turnbuckle.outcome", outcome.clone()),
        ];
        attributes.extend(open.agent.map(|agent| KeyValue::new("gen_ai.agent.name", agent.to_string())));
        if ended.outcome == Outcome::Failed {
            attributes.push(KeyValue::new("error.type", outcome.clone()));
            span.set_attribute(KeyValue::new("error.type", outcome));
            span.set_status(Status::error(ended.reason().map(|reason| reason.to_string()).unwrap_or_default()));
        }
        span.end_with_timestamp(at);
        to.agent.record(since(open.began, at), &attributes);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((open.turn, open.span));
    }
}

/// Ends the span of a stage, with spans for the model calls that were made in it.
fn leave_stage(open: &mut Open, told: &FeedEvent, at: SystemTime, calls: &Calls, to: &Pipeline) {
    let Some((state, span)) = open.stage.take() else { return };
    if state == ConversationState::Call {
        for call in calls.of_stage(&open.turn, at) {
            chat(told, &call, &span, to);
        }
    }
    span.span().end_with_timestamp(at);
}

fn chat(told: &FeedEvent, call: &Call, parent: &Context, to: &Pipeline) {
    let attributes = of_chat_span(call);
    let model = super::attributes::provider_and_model(&call.model).1;
    let span = start(to, told, format!("chat {model}"), SpanKind::Client, attributes, parent, call.began);
    if let Err(kind) = call.result {
        span.span().set_status(Status::error(kind));
    }
    span.span().end_with_timestamp(call.began + call.took);
    let mut attributes = of_chat(call);
    to.chat.record(call.took.as_secs_f64(), &attributes);
    if let Some(first) = call.first_chunk {
        to.first_chunk.record(first.as_secs_f64(), &attributes);
    }
    for (kind, count) in [("input", call.usage.input), ("output", call.usage.output)] {
        attributes.push(KeyValue::new("gen_ai.token.type", kind));
        if count > 0 {
            to.tokens.record(count, &attributes);
        }
        attributes.pop();
    }
}

fn start_tool(
    to: &Pipeline,
    told: &FeedEvent,
    call: &CallId,
    name: &str,
    said: Option<KeyValue>,
    parent: &Context,
    at: SystemTime,
) -> Context {
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", "execute_tool"),
        KeyValue::new("gen_ai.tool.name", name.to_owned()),
        KeyValue::new("gen_ai.tool.call.id", call.to_string()),
        KeyValue::new("gen_ai.tool.type", "function"),
    ];
    attributes.extend(said);
    start(to, told, format!("execute_tool {name}"), SpanKind::Internal, attributes, parent, at)
}

fn start(
    to: &Pipeline,
    told: &FeedEvent,
    name: impl Into<Cow<'static, str>>,
    kind: SpanKind,
    mut attributes: Vec<KeyValue>,
    parent: &Context,
    at: SystemTime,
) -> Context {
    attributes.push(KeyValue::new("gen_ai.conversation.id", told.conversation.to_string()));
    let builder = to.tracer.span_builder(name).with_kind(kind).with_attributes(attributes).with_start_time(at);
    parent.with_span(builder.start_with_context(&to.tracer, parent))
}

/// The time between two timestamps; zero if the clock went back.
fn since(began: SystemTime, at: SystemTime) -> f64 {
    at.duration_since(began).unwrap_or_default().as_secs_f64()
}
