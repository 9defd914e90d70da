//! What lossy viewers share: the last words told, each kept until all of them have read it.
//!
//! It is protected by the feed's lock, so publishing takes one lock. It holds as much as the slowest viewer is behind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;

use super::FeedEvent;

/// How many words a lossy viewer may be behind.
const ROOM: usize = 1024;
/// Enough for a plain turn. Allocated by the subscriber, so that the turn does not have to.
const FIRST_ROOM: usize = 32;

#[derive(Default)]
pub(super) struct Ring {
    /// Events that at least one viewer has not read yet, oldest first.
    words: VecDeque<Word>,
    /// The number of the first of `words`, counted from 0.
    first: u64,
    /// By place; `None` where a viewer has gone.
    viewers: Vec<Option<Viewer>>,
    watching: usize,
    asleep: usize,
}

struct Word {
    told: Arc<FeedEvent>,
    /// How many viewers have not read it. Never more than of a later word: viewers read in order.
    unread: usize,
}

struct Viewer {
    /// The number of the word that it reads next.
    next: u64,
    /// Set while it waits for a word.
    waker: Option<Waker>,
}

/// What a viewer finds.
pub(super) enum Read {
    Word(Arc<FeedEvent>),
    /// It was too far behind: so many words are gone.
    Lagged(u64),
    Nothing,
}

impl Ring {
    pub(super) fn is_watched(&self) -> bool {
        self.watching > 0
    }

    /// A viewer that reads what is told from now on; gives back its place.
    pub(super) fn join(&mut self) -> usize {
        self.words.reserve(FIRST_ROOM.saturating_sub(self.words.len()));
        self.watching += 1;
        let viewer = Some(Viewer { next: self.first + self.words.len() as u64, waker: None });
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

    pub(super) fn leave(&mut self, place: usize) {
        let Some(viewer) = self.viewers.get_mut(place).and_then(Option::take) else { return };
        self.watching -= 1;
        self.asleep -= usize::from(viewer.waker.is_some());
        let read = viewer.next.saturating_sub(self.first) as usize;
        self.words.iter_mut().skip(read).for_each(|word| word.unread -= 1);
        while self.words.front().is_some_and(|word| word.unread == 0) {
            self.drop_first();
        }
    }

    /// Only for a ring that is watched.
    pub(super) fn push(&mut self, told: Arc<FeedEvent>) {
        if self.words.len() >= ROOM {
            self.drop_first();
        }
        self.words.push_back(Word { told, unread: self.watching });
    }

    fn drop_first(&mut self) -> Option<Arc<FeedEvent>> {
        self.first += 1;
        self.words.pop_front().map(|word| word.told)
    }

    pub(super) fn read(&mut self, place: usize) -> Read {
        let Some(Some(viewer)) = self.viewers.get_mut(place) else { return Read::Nothing };
        if viewer.next < self.first {
            let missed = self.first - viewer.next;
            viewer.next = self.first;
            return Read::Lagged(missed);
        }
        let index = (viewer.next - self.first) as usize;
        let Some(word) = self.words.get_mut(index) else { return Read::Nothing };
        viewer.next += 1;
        word.unread -= 1;
        if index > 0 || word.unread > 0 {
            return Read::Word(word.told.clone());
        }
        self.drop_first().map_or(Read::Nothing, Read::Word)
    }

    /// Reads on while there are words, so many at most.
    pub(super) fn read_on(&mut self, place: usize, into: &mut VecDeque<Arc<FeedEvent>>, most: usize) {
        while into.len() < most {
            let Read::Word(told) = self.read(place) else { return };
            into.push_back(told);
        }
    }

    /// Wakes the viewer when something is told.
    pub(super) fn sleep(&mut self, place: usize, waker: &Waker) {
        let Some(Some(viewer)) = self.viewers.get_mut(place) else { return };
        match &mut viewer.waker {
            Some(old) => old.clone_from(waker),
            None => {
                viewer.waker = Some(waker.clone());
                self.asleep += 1;
            }
        }
    }

    /// Those who wait, to be woken once the lock is released.
    pub(super) fn sleepers(&mut self) -> SmallVec<[Waker; 1]> {
        if std::mem::take(&mut self.asleep) == 0 {
            return SmallVec::new();
        }
        self.viewers.iter_mut().flatten().filter_map(|viewer| viewer.waker.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Cursor, FeedItem, LiveEvent};

    fn word(position: u64) -> Arc<FeedEvent> {
        let item = FeedItem::Live(LiveEvent::Lagged { missed: 0 });
        Arc::new(FeedEvent {
            conversation: "c".into(),
            turn: None,
            cursor: Cursor { epoch: 1, position },
            at: Default::default(),
            item,
        })
    }

    fn position(read: Read) -> u64 {
        match read {
            Read::Word(told) => told.cursor.position,
            Read::Lagged(missed) => panic!("lagged by {missed}"),
            Read::Nothing => 0,
        }
    }

    #[test]
    fn a_word_is_kept_until_all_have_read_it_and_not_longer() {
        let mut ring = Ring::default();
        let (one, two) = (ring.join(), ring.join());
        (1..=3).for_each(|number| ring.push(word(number)));
        assert_eq!([(); 4].map(|()| position(ring.read(one))), [1, 2, 3, 0]);
        assert_eq!(ring.words.len(), 3);
        assert_eq!([(); 2].map(|()| position(ring.read(two))), [1, 2]);
        assert_eq!(ring.words.len(), 1);
        ring.leave(two);
        assert!(ring.words.is_empty() && ring.is_watched());
    }

    #[test]
    fn who_comes_later_reads_only_what_is_told_later() {
        let mut ring = Ring::default();
        let one = ring.join();
        ring.push(word(1));
        let two = ring.join();
        ring.push(word(2));
        assert_eq!(position(ring.read(two)), 2);
        assert_eq!([(); 3].map(|()| position(ring.read(one))), [1, 2, 0]);
        assert!(ring.words.is_empty());
        ring.leave(one);
        assert_eq!(ring.join(), one, "a place that was left is taken again");
    }

    #[test]
    fn whoever_is_too_far_behind_is_told_by_how_much() {
        let mut ring = Ring::default();
        let place = ring.join();
        (1..=ROOM as u64 + 5).for_each(|number| ring.push(word(number)));
        assert!(matches!(ring.read(place), Read::Lagged(5)));
        assert_eq!(position(ring.read(place)), 6);
    }
}
