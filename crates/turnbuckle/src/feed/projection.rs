//! What a person sees: a pure, idempotent fold over log and live events.

use std::sync::Arc;

use serde_json::Value;

use crate::access::AnswerRule;
use crate::call_map::CallMap;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind, Evidence, Question};
use crate::feed::{ConversationState, Cursor, FeedEvent, FeedItem, LiveEvent};
use crate::id::CallId;
use crate::message::Text;
use crate::point::Point;
use crate::scope::Author;

/// A window of the log and the turn under way.
///
/// Any cut of the feed into a snapshot and a tail gives the same view; an event applied twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    /// The turn's stage, or `idle`, or `waiting`.
    pub state: ConversationState,
    /// The newest part of the log.
    pub events: Vec<Arc<Event>>,
    /// Whether the log has older events than these.
    pub more: bool,
    /// What the model is saying and is not in the log yet.
    pub streaming: Option<Streaming>,
    /// Tools that were started and have no result.
    pub in_flight_tools: CallMap<RunningTool>,
    /// Calls that wait for an answer.
    pub pending: CallMap<Pending>,
    /// Hooks that were started and have not finished.
    pub hooks: Vec<RunningHook>,
    /// The last event applied.
    pub cursor: Cursor,
}

/// An attempt under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Streaming {
    /// Which attempt.
    pub attempt: u32,
    /// What was told of the answer.
    pub text: String,
    /// What was told of the thinking.
    pub thinking: String,
}

/// A tool under way.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningTool {
    /// The call's id.
    pub call: CallId,
    /// What it said last.
    pub progress: Option<Arc<Value>>,
}

/// A call that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// The call's id.
    pub call: CallId,
    /// What is asked.
    pub question: Question,
    /// When the question lapses.
    pub expires: Timestamp,
    /// Who may answer, if the agent that asks has a rule for it.
    pub rule: Option<Arc<AnswerRule>>,
    /// Who approved so far, if several must.
    pub approvals: Vec<Author>,
}

impl Pending {
    /// What a suspension asks; `None` for other events.
    pub fn of_event(kind: &EventKind) -> Option<Self> {
        let EventKind::Suspension { call, question, expires, rule } = kind else { return None };
        let (question, approvals) = ((**question).clone(), Vec::new());
        Some(Self { call: call.clone(), question, expires: *expires, rule: rule.clone(), approvals })
    }

    /// Takes in an approval that leaves the question open, because others must approve as well.
    pub fn note_approval(&mut self, by: &Author, evidence: &Evidence) {
        self.question.note_approval(by, evidence, &mut self.approvals);
    }
}

/// A hook under way.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningHook {
    /// The hook's name.
    pub hook: Text,
    /// Where it runs.
    pub point: Point,
    /// What it said last.
    pub progress: Option<Text>,
}

/// How much of the log a view holds. It is cut in steps: from twice this many to this many.
const WINDOW: u64 = 500;

impl Projection {
    /// The view of a log that nobody is writing.
    pub fn of_log(log: &[Arc<Event>]) -> Self {
        let mut view = Self::default();
        view.events.reserve_exact(log.len().min(2 * WINDOW as usize));
        for event in log {
            view.add(event);
        }
        if !view.pending.is_empty() {
            view.state = ConversationState::Waiting;
        }
        view
    }

    /// Applies one event. An event that was applied before changes nothing.
    pub fn apply(&mut self, event: &FeedEvent) {
        if event.cursor <= self.cursor {
            return;
        }
        self.cursor = event.cursor;
        match &event.item {
            FeedItem::Log(event) => self.add(event),
            FeedItem::Live(live) => self.apply_live(live),
        }
    }

    fn add(&mut self, event: &Arc<Event>) {
        self.apply_event(event);
        self.trim(self.events.first().map_or(event.seq, |first| first.seq));
    }

    /// Applies a log event that the feed has just numbered and so knows to be new. The caller [trims](Self::trim) it.
    pub(crate) fn apply_new_event(&mut self, cursor: Cursor, event: &Arc<Event>) {
        self.cursor = cursor;
        self.apply_event(event);
    }

    /// Like [`apply_new_event`](Self::apply_new_event), for a live event.
    pub(crate) fn apply_new_live(&mut self, cursor: Cursor, live: &LiveEvent) {
        self.cursor = cursor;
        self.apply_live(live);
    }

    fn apply_event(&mut self, event: &Arc<Event>) {
        match &event.kind {
            EventKind::AssistantMessage { .. } => self.streaming = None,
            EventKind::ToolStarted { call, .. } => {
                // A call that a crash left, or that was answered, is started again.
                self.in_flight_tools.insert(call.clone(), RunningTool { call: call.clone(), progress: None });
            }
            EventKind::ToolResult { call, .. } => {
                self.in_flight_tools.remove(call);
                self.pending.remove(call);
            }
            EventKind::Suspension { call, .. } => {
                self.in_flight_tools.remove(call);
                if let Some(pending) = Pending::of_event(&event.kind) {
                    self.pending.insert(call.clone(), pending);
                }
            }
            EventKind::Resolution { call, by, evidence, .. } if evidence.open => {
                if let Some(pending) = self.pending.get_mut(call) {
                    pending.note_approval(by, evidence);
                }
            }
            EventKind::Resolution { call, .. } => drop(self.pending.remove(call)),
            EventKind::TurnEnded(_) => {
                self.streaming = None;
                self.in_flight_tools.clear();
                self.pending.clear();
                self.hooks.clear();
            }
            EventKind::UserMessage { .. } | EventKind::Injection { .. } => {}
            EventKind::ToolCall { .. } | EventKind::StopFeedback { .. } => {}
        }
        if self.events.capacity() == 0 {
            self.events.reserve(8);
        }
        self.events.push(event.clone());
    }

    /// Drops the oldest events if it shows too many. It begins with the event `first`, which may be missing, like others (see
    /// [`HeldView`](super::held::HeldView)). Returns with which it begins now.
    #[inline]
    pub(super) fn trim(&mut self, mut first: u64) -> u64 {
        let last = self.events.last().map_or(first, |last| last.seq);
        if last.saturating_sub(first) >= 2 * WINDOW {
            first += WINDOW;
            let gone = self.events.partition_point(|event| event.seq < first);
            self.events.drain(..gone);
        }
        self.more = first > 1;
        first
    }

    fn apply_live(&mut self, live: &LiveEvent) {
        match live {
            LiveEvent::StateChanged { state } => self.state = *state,
            LiveEvent::TextDelta { attempt, text } => self.streaming(*attempt).text.push_str(text),
            LiveEvent::ThinkingDelta { attempt, text } => self.streaming(*attempt).thinking.push_str(text),
            LiveEvent::AttemptDiscarded { .. } => self.streaming = None,
            LiveEvent::ToolProgress { call, payload } => {
                if let Some(tool) = self.in_flight_tools.get_mut(call) {
                    tool.progress = Some(payload.clone());
                }
            }
            LiveEvent::HookStarted { hook, point } => {
                self.hooks.push(RunningHook { hook: hook.clone(), point: *point, progress: None });
            }
            LiveEvent::HookProgress { hook, text } => {
                if let Some(running) = self.hooks.iter_mut().find(|running| running.hook == *hook) {
                    running.progress = Some(text.clone());
                }
            }
            LiveEvent::HookFinished { hook, point, .. } => {
                let finished = |running: &RunningHook| running.hook == *hook && running.point == *point;
                if let Some(index) = self.hooks.iter().position(finished) {
                    self.hooks.remove(index);
                }
            }
            LiveEvent::TurnStarted { .. }
            | LiveEvent::BackgroundStarted { .. }
            | LiveEvent::BackgroundFinished { .. } => {}
            LiveEvent::Suggestion { .. }
            | LiveEvent::Compacted { .. }
            | LiveEvent::Notice { .. }
            | LiveEvent::Lagged { .. } => {}
        }
    }

    fn streaming(&mut self, attempt: u32) -> &mut Streaming {
        let streaming = self.streaming.get_or_insert_default();
        streaming.attempt = attempt;
        streaming
    }
}
