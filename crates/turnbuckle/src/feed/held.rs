//! The view of a feed, which may forget events that nothing else in this process holds: they are stored, and are read again
//! for those who want to see them.

use std::sync::Arc;

use super::Cursor;
use super::projection::Projection;
use crate::event::Event;

/// Fewer new events than these are not worth a search for those that can be forgotten.
const WORTH_A_SEARCH: usize = 16;

/// The view of everything that was published.
#[derive(Default)]
pub(super) struct HeldView {
    /// Exact but for forgotten events, which are missing among its events.
    pub(super) view: Projection,
    /// The seq of the first event that it shows, forgotten or not; 0 if it shows none.
    first: u64,
    /// The seq of the last one.
    last: u64,
    /// How many events came since the last search for those that can be forgotten.
    unsearched: usize,
}

impl HeldView {
    /// The view of a log that begins or ends as this one does.
    pub(super) fn of_log(log: &[Arc<Event>]) -> Self {
        let view = Projection::of_log(log);
        let seq = |event: Option<&Arc<Event>>| event.map_or(0, |event| event.seq);
        let (first, last, unsearched) = (seq(view.events.first()), seq(view.events.last()), view.events.len());
        Self { view, first, last, unsearched }
    }

    /// The seq of the last event.
    pub(super) fn last_seq(&self) -> u64 {
        self.last
    }

    /// Adds an event of the log that is new.
    #[inline(always)]
    pub(super) fn add(&mut self, cursor: Cursor, event: &Arc<Event>) {
        self.view.apply_new_event(cursor, event);
        if self.last == 0 {
            self.first = event.seq;
        }
        (self.last, self.unsearched) = (event.seq, self.unsearched + 1);
        self.first = self.view.trim(self.first);
    }

    /// Forgets events that nothing else holds. Those that the state of the conversation holds take no more room here than a
    /// pointer, and stay: read again, they would be in memory twice.
    pub(super) fn forget_unshared(&mut self) {
        if self.unsearched < WORTH_A_SEARCH {
            return;
        }
        self.unsearched = 0;
        // Whoever lets go of an event at the same time only makes it stay until the next search.
        let events = &mut self.view.events;
        let before = events.len();
        events.retain(|event| Arc::strong_count(event) > 1);
        if events.len() < before {
            events.shrink_to_fit();
        }
    }

    /// Holds what `pack` leaves of the events that are held. The others are stored, and forgotten here.
    pub(super) fn repack(&mut self, pack: impl FnOnce(Vec<Arc<Event>>) -> Vec<Arc<Event>>) {
        self.view.events = pack(std::mem::take(&mut self.view.events));
        self.unsearched = 0;
    }

    /// From which event on how many must be read, so that all forgotten ones are among them.
    pub(super) fn forgotten(&self) -> Option<(u64, usize)> {
        let events = &self.view.events;
        if self.last == 0 || events.len() as u64 > self.last - self.first {
            return None;
        }
        let before = events.iter().zip(self.first..).take_while(|(event, seq)| event.seq == *seq).count() as u64;
        let last = events.last().map_or(0, |event| event.seq);
        let mut behind = 0;
        if last == self.last {
            behind =
                events.iter().rev().zip((0..=last).rev()).take_while(|(event, seq)| event.seq == *seq).count() as u64;
        }
        let (from, to) = (self.first + before, self.last - behind);
        Some((from, usize::try_from(to + 1 - from).unwrap_or(usize::MAX)))
    }

    /// Takes forgotten events back from what was read. History is never rewritten, so it does not matter when that was.
    pub(super) fn take_back(&mut self, read: &[Arc<Event>]) {
        let events = &mut self.view.events;
        let here = events.len();
        for event in read.iter().filter(|event| (self.first..=self.last).contains(&event.seq)) {
            if events[..here].binary_search_by_key(&event.seq, |event| event.seq).is_err() {
                events.push(event.clone());
            }
        }
        // Two runs in order, which are merged.
        events.sort_by_key(|event| event.seq);
        self.unsearched += events.len() - here;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::EventKind;

    fn event(seq: u64) -> Arc<Event> {
        let kind = EventKind::Injection {
            hook: "h".into(),
            content: "c".into(),
            place: crate::event::InjectionTarget::NextTurn,
        };
        Arc::new(Event { seq, turn: "t".into(), at: Default::default(), kind })
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// So many events are published, of which every n-th is held by the state as well.
        Publish(u16, usize),
        Forget,
        Look,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (1..700_u16, 1..9_usize).prop_map(|(events, every)| Step::Publish(events, every)),
            2 => Just(Step::Forget),
            1 => Just(Step::Look),
        ];
        proptest::collection::vec(step, 1..12)
    }

    proptest! {
        #[test]
        fn a_view_that_forgot_events_and_took_them_back_is_one_that_never_did(begin in 1..900_u64, steps in steps()) {
            let (mut log, mut shared): (Vec<Arc<Event>>, Vec<Arc<Event>>) = (Vec::new(), Vec::new());
            let (mut held, mut whole) = (HeldView::default(), Projection::default());
            let mut position = 0;
            for step in steps.into_iter().chain([Step::Forget, Step::Look]) {
                match step {
                    Step::Publish(events, every) => {
                        for _ in 0..events {
                            let event = event(begin + log.len() as u64);
                            position += 1;
                            let cursor = Cursor { epoch: 1, position };
                            held.add(cursor, &event);
                            // The store and the view that is compared have copies of their own.
                            let stored = Arc::new((*event).clone());
                            whole.apply_new_event(cursor, &stored);
                            whole.trim(whole.events[0].seq);
                            log.push(stored);
                            if log.len() % every == 0 {
                                shared.push(event);
                            }
                        }
                    }
                    Step::Forget => {
                        held.forget_unshared();
                        prop_assert_eq!(held.last_seq(), log.last().map_or(0, |last| last.seq));
                    }
                    Step::Look => {
                        if let Some((from, most)) = held.forgotten() {
                            let read: Vec<_> =
                                log.iter().filter(|event| event.seq >= from).take(most).cloned().collect();
                            held.take_back(&read);
                        }
                        prop_assert_eq!(held.forgotten(), None);
                        prop_assert_eq!(&held.view, &whole);
                        // What the state holds is not here a second time.
                        let is_shared = |event: &&Arc<Event>| held.view.events.iter().any(|one| Arc::ptr_eq(one, event));
                        let visible = shared.iter().filter(|event| event.seq >= held.first);
                        prop_assert!(visible.into_iter().all(|event| is_shared(&event)));
                    }
                }
            }
        }
    }

    #[test]
    fn only_what_nothing_else_holds_is_forgotten() {
        let log: Vec<_> = (1..=20).map(event).collect();
        let mut held = HeldView::of_log(&log);
        held.forget_unshared();
        assert_eq!(held.forgotten(), None, "the log holds them all");
        let shared: Vec<_> = log.iter().filter(|event| event.seq % 5 == 0).cloned().collect();
        let copies: Vec<_> = log.iter().map(|event| Arc::new((**event).clone())).collect();
        drop(log);
        let mut held = HeldView::of_log(&copies);
        drop(copies);
        held.forget_unshared();
        assert_eq!((held.forgotten(), held.last_seq()), (Some((1, 20)), 20));
        let mut held = HeldView::of_log(&shared);
        held.forget_unshared();
        assert_eq!(shared.len(), held.view.events.len());
    }
}
