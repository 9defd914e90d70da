//! What lossy viewers share: the latest events, each kept until all of them have read it.
//!
//! It is protected by the feed's lock, so publishing takes one lock. It holds as many events as the slowest viewer is
//! behind.

use std::collections::VecDeque;
use std::task::Waker;

use smallvec::SmallVec;

use super::FeedEvent;

/// How many events the ring holds for a lossy viewer that is behind. A viewer that is alone takes all of them at once, so it
/// may have as many again in its hands.
const ROOM: usize = 1024;
/// How many events fit before the ring grows. Allocated by the subscriber, so that a plain turn does not have to.
pub(super) const FIRST_ROOM: usize = 24;
/// How many events a viewer takes at once if it shares them with others, so that it locks less often.
const AT_ONCE: usize = 16;

#[derive(Default)]
pub(super) struct Ring {
    /// Events that at least one viewer has not read yet, oldest first.
    events: VecDeque<FeedEvent>,
    /// For each of `events`, how many viewers have not read it. It never shrinks from one event to the next, because
    /// viewers read in order.
    unread: VecDeque<usize>,
    /// The number of the first of `events`, counted from 0.
    first: u64,
    /// By place; `None` where a viewer has gone.
    viewers: Vec<Option<Viewer>>,
    /// How many viewers there are.
    watching: usize,
    /// How many of them wait for an event.
    asleep: usize,
}

struct Viewer {
    /// The number of the event that it reads next.
    next: u64,
    /// Set while it waits for an event.
    waker: Option<Waker>,
}

/// What a viewer finds.
pub(super) enum Read {
    /// There are events in `taken`.
    Taken,
    /// It was too far behind: so many events are gone.
    Lagged(u64),
    Nothing,
}

impl Ring {
    pub(super) fn is_watched(&self) -> bool {
        self.watching > 0
    }

    /// Adds a viewer that reads what is published from now on. Returns its place.
    pub(super) fn join(&mut self) -> usize {
        self.events.reserve(FIRST_ROOM.saturating_sub(self.events.len()));
        self.unread.reserve(FIRST_ROOM.saturating_sub(self.unread.len()));
        self.watching += 1;
        let viewer = Some(Viewer { next: self.first + self.events.len() as u64, waker: None });
        match self.viewers.iter_mut().enumerate().find(|(_, place)| place.is_none()) {
            Some((index, place)) => {
                *place = viewer;
                index
            }
            None => {
                self.viewers.push(viewer);
                self.viewers.len() - 1
            }
        }
    }

    /// Removes a viewer. Returns its waker, to be dropped once the lock is released.
    pub(super) fn leave(&mut self, place: usize) -> Option<Waker> {
        let viewer = self.viewers.get_mut(place).and_then(Option::take)?;
        self.watching -= 1;
        self.asleep -= usize::from(viewer.waker.is_some());
        if self.watching == 0 {
            // Gives the memory back: a conversation at rest may stay long after its last viewer.
            self.first += self.events.len() as u64;
            (self.events, self.unread) = (VecDeque::new(), VecDeque::new());
            return viewer.waker;
        }
        let read = viewer.next.saturating_sub(self.first) as usize;
        self.unread.iter_mut().skip(read).for_each(|unread| *unread -= 1);
        self.drop_read();
        viewer.waker
    }

    /// Only for a ring that is watched.
    #[inline(always)]
    pub(super) fn push(&mut self, event: FeedEvent) {
        if self.events.len() >= ROOM {
            self.drop_first();
        }
        self.events.push_back(event);
        self.unread.push_back(self.watching);
    }

    /// Drops events that every viewer has read.
    fn drop_read(&mut self) {
        while self.unread.front().is_some_and(|unread| *unread == 0) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        self.events.pop_front();
        self.unread.pop_front();
        self.first += 1;
    }

    /// Moves events that this viewer has not read to `taken`, which is empty. Otherwise says why there are none.
    pub(super) fn read(&mut self, place: usize, taken: &mut VecDeque<FeedEvent>) -> Read {
        let Some(Some(viewer)) = self.viewers.get_mut(place) else { return Read::Nothing };
        if viewer.next < self.first {
            let missed = self.first - viewer.next;
            viewer.next = self.first;
            return Read::Lagged(missed);
        }
        let begin = ((viewer.next - self.first) as usize).min(self.events.len());
        if begin == self.events.len() {
            return Read::Nothing;
        }
        if self.watching == 1 && begin == 0 {
            // Nobody else reads these events: all of them are handed over without copying one.
            viewer.next += self.events.len() as u64;
            self.first = viewer.next;
            self.unread.clear();
            std::mem::swap(&mut self.events, taken);
            return Read::Taken;
        }
        taken.extend(self.events.range(begin..).take(AT_ONCE).cloned());
        viewer.next += taken.len() as u64;
        self.unread.range_mut(begin..).take(AT_ONCE).for_each(|unread| *unread -= 1);
        self.drop_read();
        Read::Taken
    }

    /// Wakes the viewer when something is published. Returns the waker it had before, to be dropped once the lock is
    /// released.
    pub(super) fn sleep(&mut self, place: usize, waker: &Waker) -> Option<Waker> {
        let viewer = self.viewers.get_mut(place)?.as_mut()?;
        match &viewer.waker {
            Some(before) if before.will_wake(waker) => return None,
            Some(_) => {}
            None => self.asleep += 1,
        }
        viewer.waker.replace(waker.clone())
    }

    pub(super) fn has_sleepers(&self) -> bool {
        self.asleep > 0
    }

    /// Those who wait, to be woken once the lock is released.
    pub(super) fn sleepers(&mut self) -> SmallVec<[Waker; 1]> {
        self.asleep = 0;
        self.viewers.iter_mut().flatten().filter_map(|viewer| viewer.waker.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Cursor, FeedItem, LiveEvent};

    fn event(position: u64) -> FeedEvent {
        let item = FeedItem::Live(LiveEvent::Lagged { missed: 0 });
        FeedEvent {
            conversation: "c".into(),
            turn: None,
            cursor: Cursor { epoch: 1, position },
            at: Default::default(),
            item,
        }
    }

    /// A viewer with the events it took and did not give out yet. Returns positions, 0 for nothing.
    struct Reader {
        place: usize,
        taken: VecDeque<FeedEvent>,
    }

    impl Reader {
        fn joins(ring: &mut Ring) -> Self {
            Self { place: ring.join(), taken: VecDeque::new() }
        }

        fn read(&mut self, ring: &mut Ring) -> u64 {
            if self.taken.is_empty()
                && let Read::Lagged(missed) = ring.read(self.place, &mut self.taken)
            {
                panic!("lagged by {missed}");
            }
            self.taken.pop_front().map_or(0, |event| event.cursor.position)
        }
    }

    #[test]
    fn an_event_is_kept_until_all_have_read_it_and_not_longer() {
        let mut ring = Ring::default();
        let (mut one, mut two) = (Reader::joins(&mut ring), Reader::joins(&mut ring));
        (1..=3).for_each(|number| ring.push(event(number)));
        assert_eq!([(); 4].map(|()| one.read(&mut ring)), [1, 2, 3, 0]);
        assert_eq!(ring.events.len(), 3);
        assert_eq!(two.read(&mut ring), 1);
        assert!(ring.events.is_empty(), "what both have taken is gone");
        (4..=5).for_each(|number| ring.push(event(number)));
        assert_eq!(one.read(&mut ring), 4);
        ring.leave(two.place);
        assert!(ring.events.is_empty() && ring.is_watched());
        assert_eq!([(); 2].map(|()| one.read(&mut ring)), [5, 0]);
    }

    #[test]
    fn who_comes_later_reads_only_what_is_published_later() {
        let mut ring = Ring::default();
        let mut one = Reader::joins(&mut ring);
        ring.push(event(1));
        let mut two = Reader::joins(&mut ring);
        ring.push(event(2));
        assert_eq!(two.read(&mut ring), 2);
        assert_eq!([(); 3].map(|()| one.read(&mut ring)), [1, 2, 0]);
        assert!(ring.events.is_empty());
        ring.leave(one.place);
        assert_eq!(ring.join(), one.place, "a place that was left is taken again");
    }

    #[test]
    fn a_viewer_that_is_alone_takes_everything_and_goes_on_behind_it() {
        let mut ring = Ring::default();
        let mut one = Reader::joins(&mut ring);
        for round in 0..3 {
            (1..=40).for_each(|number| ring.push(event(40 * round + number)));
            let read: Vec<u64> = (0..40).map(|_| one.read(&mut ring)).collect();
            assert_eq!(read, (40 * round + 1..=40 * round + 40).collect::<Vec<_>>());
            assert_eq!(one.read(&mut ring), 0);
        }
        let mut two = Reader::joins(&mut ring);
        ring.push(event(121));
        assert_eq!((one.read(&mut ring), two.read(&mut ring)), (121, 121));
    }

    #[test]
    fn a_viewer_that_is_too_far_behind_is_told_by_how_much() {
        let mut ring = Ring::default();
        let mut reader = Reader::joins(&mut ring);
        (1..=ROOM as u64 + 5).for_each(|number| ring.push(event(number)));
        assert!(matches!(ring.read(reader.place, &mut reader.taken), Read::Lagged(5)));
        assert_eq!(reader.read(&mut ring), 6);
    }
}
