//! The steps of the open turn in a plan. A step is a reply of the model with its calls and their results.

use std::sync::Arc;

use crate::context::tokens;
use crate::cut::LeftOutSteps;
use crate::cut::steps::{has_note_at, is_part_of_step};
use crate::event::{Event, EventKind};
use crate::message::Text;

/// A step of the open turn in a plan: a reply of the model with its calls and their results.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedStep {
    /// What contexts show of it, in tokens.
    pub tokens: u64,
    /// Whether a tool asks to keep its result of this step: by [`Keep`](super::Retention::Keep), or by
    /// [`Last`](super::Retention::Last) and it is one of the last.
    pub is_kept: bool,
    /// Whether it is left out.
    pub is_left_out: bool,
    /// The seqs of its first and its last event.
    events: (u64, u64),
    /// The tools of its calls.
    tools: Vec<Text>,
}

/// The steps of the open turn, and what is recorded of those that have gone before.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Those that contexts show, the oldest first.
    pub(super) shown: Vec<PlannedStep>,
    /// Those that an earlier cut left out.
    gone: Option<LeftOutSteps>,
    /// Tokens of the note in the place of all that are left out.
    pub(super) note: u64,
    /// The tool by which the model finds what is not shown.
    pub(super) found_by: Option<Text>,
}

impl Steps {
    /// The steps among the events of the open turn, given with the tokens of each.
    pub(super) fn of(events: &[Arc<Event>], counts: &[u32], left_out: &[LeftOutSteps]) -> Self {
        let mut steps = Self::default();
        for (event, count) in events.iter().zip(counts) {
            let (seq, tokens) = (event.seq, u64::from(*count));
            if !is_part_of_step(&event.kind) {
                if has_note_at(left_out, seq) {
                    steps.gone = left_out.iter().find(|gone| gone.first() == seq).cloned();
                    steps.note = tokens;
                }
                continue;
            }
            if matches!(event.kind, EventKind::AssistantMessage { .. }) {
                let (is_kept, is_left_out, tools) = (false, false, Vec::new());
                steps.shown.push(PlannedStep { tokens: 0, is_kept, is_left_out, events: (seq, seq), tools });
            }
            // A question about a reply may come before the first one.
            let Some(step) = steps.shown.last_mut() else { continue };
            step.tokens += tokens;
            step.events.1 = seq;
            if let EventKind::ToolCall { name, .. } = &event.kind {
                step.tools.push(name.clone());
            }
        }
        steps
    }

    /// The place of the step that an event belongs to.
    pub(super) fn place_of(&self, seq: u64) -> Option<usize> {
        self.shown.partition_point(|step| step.events.0 <= seq).checked_sub(1)
    }

    /// Whether there is nothing to show of the step at this place.
    pub(super) fn is_left_out(&self, place: Option<usize>) -> bool {
        place.and_then(|place| self.shown.get(place)).is_some_and(|step| step.is_left_out)
    }

    /// What is recorded of the steps that are left out.
    pub(super) fn left_out(&self) -> Option<LeftOutSteps> {
        let mut record = self.gone.clone().unwrap_or_default();
        let mut all: Vec<((u64, u64), bool)> = record.events.drain(..).map(|events| (events, true)).collect();
        all.extend(self.shown.iter().map(|step| (step.events, step.is_left_out)));
        all.sort_unstable();
        for run in all.chunk_by(|one, other| one.1 == other.1) {
            if let (Some(((first, _), true)), Some(((_, last), _))) = (run.first(), run.last()) {
                record.events.push((*first, *last));
            }
        }
        for step in self.shown.iter().filter(|step| step.is_left_out) {
            record.add(step.tools.iter());
        }
        if self.newly_left_out() > 0 {
            record.found_by.clone_from(&self.found_by);
        }
        (!record.events.is_empty()).then_some(record)
    }

    /// How many steps are left out that were shown before.
    pub(super) fn newly_left_out(&self) -> usize {
        self.shown.iter().filter(|step| step.is_left_out).count()
    }

    /// Tokens of the note about all that are left out.
    pub(super) fn note_tokens(&self) -> u64 {
        let first = self.shown.first().map_or(0, |step| step.events.0);
        let note = |record: LeftOutSteps| {
            // Whose turn it is and when it was does not count.
            let (seq, at, turn) = (first, Default::default(), "".into());
            let kind = EventKind::StopFeedback { refusals: Vec::new() };
            tokens::of_event(&record.note(&Event { seq, turn, at, kind }))
        };
        self.left_out().map_or(0, note)
    }
}
