//! What viewers of a conversation see, and what changes for them with each event.

use std::collections::VecDeque;
use std::sync::Arc;

use maud::{Markup, Render as _, html};
use turnbuckle::access::AnswerRule;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedEvent, FeedItem, Level, LiveEvent};
use turnbuckle::message::Text;
use turnbuckle::projection::{Pending, Projection};
use turnbuckle::scope::Author;
use turnbuckle::{Actor, CallId, ConversationId};

use super::conversation as parts;
use super::draft::{self, Draft};
use super::items::{Item, call_of, items};
use super::question::Forms;

/// How many notes are kept: older ones are read in the turns' own pages.
const MOST_NOTES: usize = 100;
const MOST_SUGGESTIONS: usize = 6;

/// A conversation as the page shows it: the projection, and those live events that people should see and that the projection
/// does not keep. A pure fold over the feed, like the projection.
#[derive(Clone, Debug)]
pub struct View {
    conversation: ConversationId,
    projection: Projection,
    notes: VecDeque<Note>,
    suggestions: Vec<Text>,
    /// Background hooks at work.
    background: Vec<Text>,
    queue: Vec<Queued>,
    draft: Draft,
}

/// Something that was told and is in no log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    /// Where it stands in the order of the feed, for its id.
    pub(super) id: String,
    /// The last event of the log then.
    pub(super) after: u64,
    pub(super) at: turnbuckle::Timestamp,
    pub(super) what: Told,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    Discarded { attempt: u32, by: Option<Author>, reason: Option<Text>, replaced: bool },
    Notice { level: Level, text: Text, hook: Option<Text> },
    Compacted { before: u64, after: u64 },
}

/// A message that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The id of its item in the inbox, by which it can be taken back.
    pub id: String,
    /// Its text.
    pub text: String,
    /// Whether it is to be given to the model within the turn that runs.
    pub steers: bool,
}

/// A piece of HTML for the viewers of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// Elements for everyone: each has an id, and takes the place of the one that has it.
    Elements(Arc<str>),
    /// An element with a question: with its form for those who may answer, and without it for the others.
    Question {
        /// With the form.
        answerable: Arc<str>,
        /// Without it.
        readable: Arc<str>,
        /// Who may answer.
        rule: Option<Arc<AnswerRule>>,
    },
    /// The page must be fetched again: too much has changed for pieces.
    Refresh,
}

/// What a viewer may do, as far as the page shows it. The server checks it again when it is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Rights {
    /// Who looks.
    pub actor: Actor,
    /// Whether messages may be sent.
    pub say: bool,
    /// Whether questions without a rule of their own may be answered.
    pub answer: bool,
    /// Whether the turn may be cancelled.
    pub cancel: bool,
    /// Whether the conversation may be renamed and deleted.
    pub delete: bool,
}

impl Rights {
    /// Whether a question with this rule may be answered.
    pub fn may_answer(&self, rule: Option<&AnswerRule>) -> bool {
        rule.map_or(self.answer, |rule| rule.permits(&self.actor))
    }
}

impl Patch {
    /// The HTML for one viewer; none if the page must be fetched again.
    pub fn html_for(&self, rights: &Rights) -> Option<&Arc<str>> {
        match self {
            Self::Elements(html) => Some(html),
            Self::Question { answerable, readable, rule } => {
                Some(if rights.may_answer(rule.as_deref()) { answerable } else { readable })
            }
            Self::Refresh => None,
        }
    }

    fn of(markup: Markup) -> Self {
        Self::Elements(markup.0.into())
    }
}

impl View {
    /// A view that begins with a snapshot.
    pub fn new(conversation: ConversationId, projection: Projection) -> Self {
        let draft = projection.streaming.as_ref().map(|streaming| Draft::whole(&streaming.text).0).unwrap_or_default();
        let (notes, suggestions, background, queue) = Default::default();
        Self { conversation, projection, notes, suggestions, background, queue, draft }
    }

    /// The projection inside.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The conversation's id.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter()
    }

    pub(super) fn suggestions(&self) -> &[Text] {
        &self.suggestions
    }

    pub(super) fn background(&self) -> &[Text] {
        &self.background
    }

    pub(super) fn queue(&self) -> &[Queued] {
        &self.queue
    }

    /// Takes in the messages that wait, as the inbox has them.
    pub fn set_queue(&mut self, queue: Vec<Queued>) -> Vec<Patch> {
        if self.queue == queue {
            return Vec::new();
        }
        self.queue = queue;
        vec![Patch::of(parts::queue(self, self.shared_forms(false)))]
    }

    /// Takes in an event, and says what changes for viewers. An event that was taken in before changes nothing.
    pub fn apply(&mut self, event: &FeedEvent) -> Vec<Patch> {
        if event.cursor <= self.projection.cursor {
            return Vec::new();
        }
        let first = self.projection.events.first().map(|event| event.seq);
        let open = self.open_calls();
        let (was_streaming, thought) = match &self.projection.streaming {
            Some(streaming) => (true, streaming.thinking.len()),
            None => (false, 0),
        };
        self.projection.apply(event);
        if first.is_some() && self.projection.events.first().map(|event| event.seq) != first {
            return vec![Patch::Refresh];
        }
        match &event.item {
            FeedItem::Log(logged) => {
                let mut patches = Vec::new();
                if was_streaming && self.projection.streaming.is_none() {
                    patches.push(self.streaming_ended());
                }
                match &logged.kind {
                    EventKind::TurnEnded(_) => {
                        open.iter().for_each(|call| patches.extend(self.call(call)));
                        patches.push(self.item(logged.seq));
                        patches.push(Patch::of(parts::hooks(self)));
                    }
                    EventKind::UserMessage { .. } => {
                        patches.push(self.item(logged.seq));
                        if !std::mem::take(&mut self.suggestions).is_empty() {
                            patches.push(Patch::of(parts::suggestions(self, self.shared_forms(false))));
                        }
                    }
                    kind => match call_of(kind) {
                        Some(call) => patches.extend(self.call(call)),
                        None => patches.push(self.item(logged.seq)),
                    },
                }
                patches
            }
            FeedItem::Live(live) => self.told(event, live, (was_streaming, thought)),
        }
    }

    fn told(&mut self, event: &FeedEvent, live: &LiveEvent, (was_streaming, thought): (bool, usize)) -> Vec<Patch> {
        let what = match live {
            LiveEvent::StateChanged { .. } => return vec![Patch::of(parts::state(self))],
            LiveEvent::TextDelta { .. } => return self.text_grew(was_streaming),
            LiveEvent::ThinkingDelta { .. } => return self.thinking_grew(was_streaming, thought),
            LiveEvent::ToolProgress { call, .. } => return self.call(call).into_iter().collect(),
            LiveEvent::HookStarted { .. } | LiveEvent::HookProgress { .. } => {
                return vec![Patch::of(parts::hooks(self))];
            }
            LiveEvent::HookFinished { .. } => return vec![Patch::of(parts::hooks(self))],
            LiveEvent::BackgroundStarted { hook } => {
                self.background.push(hook.clone());
                return vec![Patch::of(parts::hooks(self))];
            }
            LiveEvent::BackgroundFinished { hook, .. } => {
                if let Some(place) = self.background.iter().position(|running| running == hook) {
                    self.background.remove(place);
                }
                return vec![Patch::of(parts::hooks(self))];
            }
            LiveEvent::Suggestion { text } => {
                self.suggestions.push(text.clone());
                self.suggestions.truncate(MOST_SUGGESTIONS);
                return vec![Patch::of(parts::suggestions(self, self.shared_forms(false)))];
            }
            LiveEvent::AttemptDiscarded { attempt, by, reason, replaced } => {
                Told::Discarded { attempt: *attempt, by: by.clone(), reason: reason.clone(), replaced: *replaced }
            }
            LiveEvent::Notice { level, text, hook } => {
                Told::Notice { level: *level, text: text.clone(), hook: hook.clone() }
            }
            LiveEvent::Compacted { before, after, .. } => Told::Compacted { before: *before, after: *after },
            LiveEvent::Lagged { .. } => return vec![Patch::Refresh],
            _ => return Vec::new(),
        };
        let is_discarded = matches!(what, Told::Discarded { .. });
        let after = self.projection.events.last().map_or(0, |event| event.seq);
        let note = Note { id: format!("n-{}", event.cursor), after, at: event.at, what };
        let shown = Patch::of(parts::note(&note));
        self.notes.push_back(note);
        if self.notes.len() > MOST_NOTES {
            self.notes.pop_front();
        }
        match is_discarded && was_streaming {
            true => vec![self.streaming_ended(), shown],
            false => vec![shown],
        }
    }

    fn text_grew(&mut self, was_streaming: bool) -> Vec<Patch> {
        let Some(streaming) = &self.projection.streaming else { return Vec::new() };
        if was_streaming {
            return vec![Patch::Elements(self.draft.grow(&streaming.text).into())];
        }
        self.draft = Draft::whole(&streaming.text).0;
        vec![Patch::of(parts::streaming(self))]
    }

    fn thinking_grew(&mut self, was_streaming: bool, thought: usize) -> Vec<Patch> {
        let Some(streaming) = &self.projection.streaming else { return Vec::new() };
        // The box for thoughts is there once there is one.
        if !was_streaming || thought == 0 {
            if !was_streaming {
                self.draft = Draft::whole(&streaming.text).0;
            }
            return vec![Patch::of(parts::streaming(self))];
        }
        let added = streaming.thinking.get(thought..).unwrap_or_default();
        vec![Patch::of(html! { div id="streaming-thoughts" data-append="0" { (draft::thinking(added)) } })]
    }

    fn streaming_ended(&mut self) -> Patch {
        self.draft = Draft::default();
        Patch::of(parts::streaming(self))
    }

    /// Calls that something may still happen to.
    fn open_calls(&self) -> Vec<CallId> {
        let running = self.projection.in_flight_tools.iter().map(|(call, _)| call);
        running.chain(self.projection.pending.iter().map(|(call, _)| call)).cloned().collect()
    }

    /// Forms of HTML that goes to many viewers.
    fn shared_forms(&self, answers: bool) -> Forms<'_> {
        Forms { conversation: &self.conversation, csrf: None, answers }
    }

    fn call(&self, call: &CallId) -> Option<Patch> {
        let items = items(&self.projection.events, []);
        let item = items.iter().find(|item| matches!(item, Item::Call(one) if one.id == call))?;
        Some(self.patch(item, self.projection.pending.get(call)))
    }

    /// The element of an event that is about no call.
    fn item(&self, seq: u64) -> Patch {
        let event = self.projection.events.iter().rev().find(|event| event.seq == seq);
        event.map_or(Patch::Refresh, |event| self.patch(&Item::Event(event), None))
    }

    fn patch(&self, item: &Item<'_>, pending: Option<&Pending>) -> Patch {
        let shown = |answers: bool| parts::item(self, item, self.shared_forms(answers)).render().0.into();
        match pending {
            None => Patch::Elements(shown(false)),
            Some(pending) => {
                Patch::Question { answerable: shown(true), readable: shown(false), rule: pending.rule.clone() }
            }
        }
    }
}
