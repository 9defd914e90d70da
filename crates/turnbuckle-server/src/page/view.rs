//! What viewers of a conversation see, and what changes for them with each event.

use std::collections::VecDeque;
use std::sync::Arc;

use maud::{Markup, Render as _, html};
use turnbuckle::access::AnswerRule;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{FeedEvent, FeedItem, Level, LiveEvent};
use turnbuckle::message::Text;
use turnbuckle::projection::{Pending, Projection};
use turnbuckle::scope::Author;
use turnbuckle::{Actor, CallId, ConversationId};

use super::asked;
use super::conversation as parts;
use super::draft::{self, Draft};
use super::items::{Item, call_of, items};
use super::question::Forms;
use crate::waits::Waiting;

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
    /// Live questions that stand, the oldest first.
    asked: Vec<Waiting>,
    /// What pages have of the reply that is streamed. `None` if none is streamed, or if text came while nobody looked.
    draft: Option<Draft>,
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

    /// The HTML where it is the same for all viewers; none if the page must be fetched again, or it is not the same.
    pub(crate) fn for_everyone(&self) -> Option<&Arc<str>> {
        match self {
            Self::Elements(html) => Some(html),
            Self::Question { .. } | Self::Refresh => None,
        }
    }

    /// How many bytes it keeps.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Elements(html) => html.len(),
            Self::Question { answerable, readable, .. } => answerable.len() + readable.len(),
            Self::Refresh => 0,
        }
    }

    fn of(markup: Markup) -> Self {
        Self::Elements(markup.0.into())
    }
}

impl View {
    /// A view that begins with a snapshot.
    pub fn new(conversation: ConversationId, projection: Projection) -> Self {
        let draft = projection.streaming.as_ref().map(|streaming| Draft::whole(&streaming.text).0);
        let (notes, suggestions, background, queue, asked) = Default::default();
        Self { conversation, projection, notes, suggestions, background, queue, asked, draft }
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

    /// Live questions that stand, the oldest first.
    pub fn asked(&self) -> &[Waiting] {
        &self.asked
    }

    /// Takes in that a live question stands, and says what changes for viewers.
    pub fn ask(&mut self, waiting: Waiting) -> Patch {
        let patch = self.by_rights(|forms| asked::one(&waiting, forms));
        self.asked.push(waiting);
        patch
    }

    /// Takes in that a live question stands no longer, and says what changes for viewers.
    pub fn withdraw(&mut self, call: &CallId) -> Patch {
        self.asked.retain(|waiting| waiting.pending.call != *call);
        self.by_rights(|forms| asked::all(&self.asked, forms))
    }

    /// An element that has forms for those who may answer what has no rule of its own.
    fn by_rights(&self, shown: impl Fn(Forms<'_>) -> Markup) -> Patch {
        let shown = |answers: bool| shown(self.shared_forms(answers)).0.into();
        Patch::Question { answerable: shown(true), readable: shown(false), rule: None }
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
                        patches.push(Patch::of(parts::state(self)));
                    }
                    EventKind::UserMessage { .. } => {
                        patches.push(self.item(logged.seq));
                        patches.push(Patch::of(parts::state(self)));
                        if self.is_first_message(logged.seq) {
                            patches.push(Patch::of(parts::heading(self)));
                        }
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

    /// Takes in an event while nobody looks, without rendering anything.
    pub fn take_in(&mut self, event: &FeedEvent) {
        if event.cursor <= self.projection.cursor {
            return;
        }
        self.projection.apply(event);
        self.draft = None;
        match &event.item {
            FeedItem::Log(logged) if matches!(logged.kind, EventKind::UserMessage { .. }) => self.suggestions.clear(),
            FeedItem::Log(_) => {}
            FeedItem::Live(live) => {
                self.remember(event, live);
            }
        }
    }

    /// Keeps what the projection does not. True if it is a new note.
    fn remember(&mut self, event: &FeedEvent, live: &LiveEvent) -> bool {
        let what = match live {
            LiveEvent::BackgroundStarted { hook } => {
                self.background.push(hook.clone());
                return false;
            }
            LiveEvent::BackgroundFinished { hook, .. } => {
                if let Some(place) = self.background.iter().position(|running| running == hook) {
                    self.background.remove(place);
                }
                return false;
            }
            LiveEvent::Suggestion { text } => {
                self.suggestions.push(text.clone());
                self.suggestions.truncate(MOST_SUGGESTIONS);
                return false;
            }
            LiveEvent::AttemptDiscarded { attempt, by, reason, replaced } => {
                Told::Discarded { attempt: *attempt, by: by.clone(), reason: reason.clone(), replaced: *replaced }
            }
            LiveEvent::Notice { level, text, hook } => {
                Told::Notice { level: *level, text: text.clone(), hook: hook.clone() }
            }
            LiveEvent::Compacted { before, after, .. } => Told::Compacted { before: *before, after: *after },
            _ => return false,
        };
        let after = self.projection.events.last().map_or(0, |event| event.seq);
        self.notes.push_back(Note { id: format!("n-{}", event.cursor), after, at: event.at, what });
        if self.notes.len() > MOST_NOTES {
            self.notes.pop_front();
        }
        true
    }

    fn told(&mut self, event: &FeedEvent, live: &LiveEvent, (was_streaming, thought): (bool, usize)) -> Vec<Patch> {
        let is_note = self.remember(event, live);
        match live {
            LiveEvent::StateChanged { .. } => vec![Patch::of(parts::state(self))],
            LiveEvent::TextDelta { .. } => self.text_grew(was_streaming),
            LiveEvent::ThinkingDelta { .. } => self.thinking_grew(was_streaming, thought),
            LiveEvent::ToolProgress { call, .. } => self.call(call).into_iter().collect(),
            LiveEvent::HookStarted { .. }
            | LiveEvent::HookProgress { .. }
            | LiveEvent::HookFinished { .. }
            | LiveEvent::BackgroundStarted { .. }
            | LiveEvent::BackgroundFinished { .. } => vec![Patch::of(parts::hooks(self))],
            LiveEvent::Suggestion { .. } => vec![Patch::of(parts::suggestions(self, self.shared_forms(false)))],
            LiveEvent::Lagged { .. } => vec![Patch::Refresh],
            _ => {
                let note = self.notes.back().filter(|_| is_note);
                let Some(shown) = note.map(|note| Patch::of(parts::note(note))) else { return Vec::new() };
                match was_streaming && matches!(live, LiveEvent::AttemptDiscarded { .. }) {
                    true => vec![self.streaming_ended(), shown],
                    false => vec![shown],
                }
            }
        }
    }

    fn text_grew(&mut self, was_streaming: bool) -> Vec<Patch> {
        let Some(streaming) = &self.projection.streaming else { return Vec::new() };
        if let Some(draft) = self.draft.as_mut().filter(|_| was_streaming) {
            return vec![Patch::Elements(draft.grow(&streaming.text).into())];
        }
        self.streamed_whole()
    }

    fn thinking_grew(&mut self, was_streaming: bool, thought: usize) -> Vec<Patch> {
        let Some(streaming) = &self.projection.streaming else { return Vec::new() };
        // The box for thoughts is there once there is one.
        if !was_streaming || thought == 0 || self.draft.is_none() {
            return self.streamed_whole();
        }
        let added = streaming.thinking.get(thought..).unwrap_or_default();
        vec![Patch::of(html! { div id="streaming-thoughts" data-append="0" { (draft::thinking(added)) } })]
    }

    /// All of the reply so far, in the place of what pages have of it.
    fn streamed_whole(&mut self) -> Vec<Patch> {
        self.draft = self.projection.streaming.as_ref().map(|streaming| Draft::whole(&streaming.text).0);
        vec![Patch::of(parts::streaming(self))]
    }

    fn streaming_ended(&mut self) -> Patch {
        self.draft = None;
        Patch::of(parts::streaming(self))
    }

    /// Calls that something may still happen to.
    fn open_calls(&self) -> Vec<CallId> {
        let running = self.projection.in_flight_tools.iter().map(|(call, _)| call);
        running.chain(self.projection.pending.iter().map(|(call, _)| call)).cloned().collect()
    }

    /// Forms of HTML that goes to many viewers.
    fn shared_forms(&self, answers: bool) -> Forms<'_> {
        Forms { conversation: &self.conversation, csrf: None, answers, link: None }
    }

    fn call(&self, call: &CallId) -> Option<Patch> {
        let items = items(&self.projection.events, []);
        let item = items.iter().find(|item| matches!(item, Item::Call(one) if one.id == call))?;
        Some(self.patch(item, self.projection.pending.get(call)))
    }

    /// Whether this event is the message with which the conversation begins.
    fn is_first_message(&self, seq: u64) -> bool {
        let said = |event: &&Arc<Event>| matches!(event.kind, EventKind::UserMessage { .. });
        !self.projection.more && self.projection.events.iter().find(said).is_some_and(|first| first.seq == seq)
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
