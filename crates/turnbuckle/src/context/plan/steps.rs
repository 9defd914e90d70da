//! The steps of turns in a plan. A step is a reply of the model with its calls and their results.

use std::sync::Arc;

use crate::context::tokens;
use crate::cut::LeftOutSteps;
use crate::cut::steps::{has_note_at, is_part_of_step};
use crate::event::{Event, EventKind};
use crate::message::Text;

/// A step of a turn in a plan: a reply of the model with its calls and their results.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedStep {
    /// What contexts show of it, in tokens.
    pub tokens: u64,
    /// Whether a tool asks to keep its result of this step: by [`Keep`](super::Retention::Keep), or by
    /// [`Last`](super::Retention::Last) and it is one of the last. In an ended turn only `Keep` counts.
    pub is_kept: bool,
    /// Whether it is left out.
    pub is_left_out: bool,
    /// The seqs of its first and its last event.
    events: (u64, u64),
    /// The tools of its calls.
    tools: Vec<Text>,
}

/// The steps of a turn, and what is recorded of those that have gone before.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Those that contexts show, the oldest first.
    pub(super) shown: Vec<PlannedStep>,
    /// Those that an earlier cut left out.
    gone: Option<LeftOutSteps>,
    /// Tokens of the note in the place of all that are left out.
    note: u64,
}

impl Steps {
    /// The steps among the events of a turn, given with the tokens of each.
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

    /// Leaves out steps that `can_go`, the oldest first, until `excess` tokens are saved or those that could still go have no more
    /// than `keep`. The last step stays. Returns how many tokens that saves; `None` if it would save nothing, and then nothing is
    /// left out.
    pub(super) fn leave_out(
        &mut self,
        can_go: impl Fn(&PlannedStep) -> bool,
        (excess, keep): (u64, u64),
        found_by: Option<&Text>,
    ) -> Option<u64> {
        let newest = self.shown.len().checked_sub(1)?;
        let can_go = |step: &PlannedStep| !step.is_left_out && can_go(step);
        let places: Vec<usize> = (0..newest).filter(|place| can_go(&self.shown[*place])).collect();
        let mut rest: u64 = places.iter().map(|place| self.shown[*place].tokens).sum();
        // The note is made of the numbers alone, so each step is looked at once.
        let mut noted = self.left_out(found_by).unwrap_or_default();
        noted.found_by = found_by.cloned();
        let (mut tokens, mut note, mut gone) = (0, self.note, Vec::new());
        for place in places {
            if tokens + self.note >= excess + note || rest <= keep {
                break;
            }
            let step = &mut self.shown[place];
            step.is_left_out = true;
            tokens += step.tokens;
            rest -= step.tokens;
            gone.push(place);
            noted.add(step.tools.iter());
            note = self.tokens_of_note(&noted);
        }
        if tokens + self.note <= note {
            gone.iter().for_each(|place| self.shown[*place].is_left_out = false);
            return None;
        }
        let saved = tokens + self.note - note;
        self.note = note;
        Some(saved)
    }

    /// What is recorded of the steps that are left out, given the tool by which the model finds what is not shown.
    pub(super) fn left_out(&self, found_by: Option<&Text>) -> Option<LeftOutSteps> {
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
            record.found_by = found_by.cloned();
        }
        (!record.events.is_empty()).then_some(record)
    }

    /// How many steps are left out that were shown before.
    pub(super) fn newly_left_out(&self) -> usize {
        self.shown.iter().filter(|step| step.is_left_out).count()
    }

    /// Tokens of the note about the steps of this record.
    fn tokens_of_note(&self, record: &LeftOutSteps) -> u64 {
        let seq = self.shown.first().map_or(0, |step| step.events.0);
        // Whose turn it is and when it was does not count.
        let kind = EventKind::StopFeedback { refusals: Vec::new() };
        tokens::of_event(&record.note(&Event { seq, turn: "".into(), at: Default::default(), kind }))
    }
}
