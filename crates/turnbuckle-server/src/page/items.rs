//! The log as what a person sees: messages, and one card for each call with everything that happened to it.

use std::collections::HashMap;
use std::sync::Arc;

use turnbuckle::CallId;
use turnbuckle::event::{Approvals, Arguments, Event, EventKind, Executor};
use turnbuckle::message::{Content, Text};

use super::view::Note;

/// One element of the log.
pub(super) enum Item<'a> {
    Event(&'a Event),
    Call(Call<'a>),
    Note(&'a Note),
}

/// A call, or a question that belongs to no tool.
pub(super) struct Call<'a> {
    pub(super) id: &'a CallId,
    /// Of its first event.
    pub(super) seq: u64,
    pub(super) name: Option<&'a Text>,
    pub(super) arguments: Option<&'a Arguments>,
    pub(super) executor: Option<Executor>,
    pub(super) started: Option<&'a Event>,
    pub(super) resolutions: Vec<&'a Event>,
    pub(super) result: Option<(bool, &'a Content)>,
}

impl<'a> Call<'a> {
    fn new(id: &'a CallId, seq: u64) -> Self {
        let (name, arguments, executor, started, result) = (None, None, None, None, None);
        Self { id, seq, name, arguments, executor, started, resolutions: Vec::new(), result }
    }

    /// The id of its element: call ids are chosen by the model and may be anything.
    pub(super) fn element(&self) -> String {
        format!("c-{}", self.seq)
    }

    pub(super) fn tool(&self) -> Option<&'a Text> {
        self.name
    }

    /// What it ran with, if that is not what the model asked for.
    pub(super) fn changed_arguments(&self) -> Option<&'a Arguments> {
        let EventKind::ToolStarted { arguments, .. } = &self.started?.kind else { return None };
        (self.arguments.is_some_and(|asked| asked != arguments)).then_some(arguments)
    }

    /// Whose approvals let it run.
    pub(super) fn approvals(&self) -> Option<&'a Approvals> {
        let EventKind::ToolStarted { approvals, .. } = &self.started?.kind else { return None };
        approvals.as_deref()
    }

    fn add(&mut self, event: &'a Event) {
        match &event.kind {
            EventKind::ToolCall { name, arguments, executor, .. } => {
                (self.name, self.arguments, self.executor) = (Some(name), Some(arguments), Some(*executor));
            }
            EventKind::ToolStarted { .. } => self.started = Some(event),
            EventKind::ToolResult { ok, content, .. } => self.result = Some((*ok, content)),
            EventKind::Resolution { .. } => self.resolutions.push(event),
            _ => {}
        }
    }
}

/// The call that an event is about.
pub(super) fn call_of(kind: &EventKind) -> Option<&CallId> {
    match kind {
        EventKind::ToolCall { call, .. }
        | EventKind::ToolStarted { call, .. }
        | EventKind::ToolResult { call, .. }
        | EventKind::Suspension { call, .. }
        | EventKind::Resolution { call, .. } => Some(call),
        _ => None,
    }
}

/// The elements, in order. A note stands behind what was in the log when it was told.
pub(super) fn items<'a>(events: &'a [Arc<Event>], notes: impl IntoIterator<Item = &'a Note>) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'a>> = Vec::with_capacity(events.len());
    let mut places: HashMap<&CallId, usize> = HashMap::new();
    let mut notes = notes.into_iter().peekable();
    for event in events {
        while let Some(note) = notes.next_if(|note| note.after < event.seq) {
            items.push(Item::Note(note));
        }
        let Some(id) = call_of(&event.kind) else {
            items.push(Item::Event(event));
            continue;
        };
        let place = *places.entry(id).or_insert_with(|| {
            items.push(Item::Call(Call::new(id, event.seq)));
            items.len() - 1
        });
        if let Item::Call(call) = &mut items[place] {
            call.add(event);
        }
    }
    items.extend(notes.map(Item::Note));
    items
}
