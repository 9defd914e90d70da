//! Messages that steer the turn that runs, and what is kept of the inbox when it is read again.

use std::collections::VecDeque;
use std::sync::MutexGuard;

use super::{Conversation, Inner, MAX_ORDERS, Order};
use crate::id::{ItemId, TurnId};
use crate::scope::Author;
use crate::store::InboxItem;
use crate::turn::TurnError;

/// Messages for the next model call of one turn. All of them are in the inbox, too: a write of the turn takes each out.
pub(super) struct Steering {
    turn: TurnId,
    /// Not given to the turn yet, oldest first, at most [`MAX_ORDERS`]. What does not fit stays in the inbox, and is brought
    /// by a later look.
    waiting: VecDeque<InboxItem>,
    /// Ids of those that the turn was given. A message may be brought several times: by its sender and by a look into the inbox.
    given: Vec<ItemId>,
    /// Those that get a turn of their own, each with its sender. What its sender says after it comes after it.
    deferred: Vec<(ItemId, Author)>,
}

impl Steering {
    fn of(turn: &TurnId) -> Self {
        Self { turn: turn.clone(), waiting: VecDeque::new(), given: Vec::new(), deferred: Vec::new() }
    }

    /// The inbox is about to be read again, and everything that waits is in it.
    fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    fn has(&self, id: &ItemId) -> bool {
        let mut deferred = self.deferred.iter().map(|(deferred, _)| deferred);
        self.given.contains(id)
            || deferred.any(|deferred| deferred == id)
            || self.waiting.iter().any(|waiting| waiting.id == *id)
    }
}

/// How many messages that were taken back are remembered.
const REMEMBERED: usize = MAX_ORDERS;

/// Messages that were taken back here. The next write takes them out of the inbox.
#[derive(Default)]
pub(super) struct TakenBack {
    turns: VecDeque<TurnId>,
    /// The turn that the driver is about to run: its message cannot be taken back any more.
    pub(super) beginning: Option<TurnId>,
}

impl Inner {
    /// Takes a message back whose turn has not begun. False if it has.
    pub(super) fn take_back(&mut self, turn: &TurnId) -> bool {
        let has_begun = self.running.iter().chain(&self.starting).any(|slot| slot.turn == *turn)
            || self.taken_back.beginning.as_ref() == Some(turn);
        let item = ItemId::of_turn(turn);
        let was_given = self.steering.as_ref().is_some_and(|steering| steering.given.contains(&item));
        if has_begun || was_given || self.taken_back.turns.contains(turn) {
            return false;
        }
        if let Some(steering) = &mut self.steering {
            steering.waiting.retain(|waiting| waiting.id != item);
            steering.deferred.retain(|(deferred, _)| *deferred != item);
        }
        if self.taken_back.turns.len() >= REMEMBERED {
            self.taken_back.turns.pop_front();
        }
        self.taken_back.turns.push_back(turn.clone());
        // The last write of the turn that runs takes it out of the inbox.
        self.acknowledged.push(item);
        true
    }

    /// Whether the driver or the running turn has this inbox item.
    pub(super) fn has_item(&self, id: &ItemId) -> bool {
        self.acknowledged.contains(id) || self.answers.contains(id)
    }

    /// The driver or the running turn has this order from now on.
    pub(super) fn keep_item(&mut self, order: &Order) {
        let kept = if matches!(order, Order::Answer(_)) { &mut self.answers } else { &mut self.acknowledged };
        kept.extend(order.item().cloned());
    }

    /// Forgets orders that are answers in the inbox, because these were read there anew. They have nobody to tell.
    fn drop_copies(&mut self) {
        self.orders.retain(|order| !matches!(order, Order::Answer(answer) if answer.item().is_some()));
    }

    /// The next message that steers this turn. One whose sender has an earlier message that is deferred is deferred as well.
    pub(super) fn next_steering(&mut self, turn: &TurnId) -> Option<InboxItem> {
        let steering = self.steering.as_mut().filter(|steering| steering.turn == *turn)?;
        while let Some(next) = steering.waiting.pop_front() {
            let by = next.from.author();
            if steering.deferred.iter().any(|(_, sender)| *sender == by) {
                steering.deferred.push((next.id, by));
                continue;
            }
            steering.given.push(next.id.clone());
            return Some(next);
        }
        None
    }

    /// The turn was given this message, which gets a turn of its own instead. It can be taken back again.
    pub(super) fn defer_steering(&mut self, turn: &TurnId, message: ItemId, by: Author) {
        if let Some(steering) = self.steering.as_mut().filter(|steering| steering.turn == *turn) {
            steering.given.retain(|given| *given != message);
            steering.deferred.push((message, by));
        }
    }
}

impl Conversation {
    /// Takes a message back whose turn has not begun, and tells those who wait for it. False if its turn has begun.
    pub(super) fn take_back(&self, mut inner: MutexGuard<'_, Inner>, turn: &TurnId) -> bool {
        let taken = inner.take_back(turn);
        // Under the same lock: otherwise the driver, which does not find the message any more, might tell them first that
        // another process has it.
        let waiters = taken.then(|| self.waiters.take(turn));
        drop(inner);
        if let Some(waiters) = waiters {
            waiters.tell(&TurnError::TakenBack);
        }
        taken
    }

    /// Notes that the running turn has acted on an inbox item. False if that turn does not run any more.
    pub(crate) fn acknowledge(&self, turn: &TurnId, item: ItemId) -> bool {
        let mut inner = self.lock();
        let runs = inner.running.as_ref().is_some_and(|slot| slot.turn == *turn);
        if runs {
            inner.acknowledged.push(item);
        }
        runs
    }

    /// The driver has just read the inbox, and has the answers with these ids. One that a turn before took in from there and
    /// did not get to is among them, so the copy here is forgotten: an answer must not count twice.
    pub(crate) fn inbox_was_read(&self, answers: Vec<ItemId>) {
        let mut inner = self.lock();
        inner.acknowledged.clear();
        inner.answers = answers;
        if let Some(steering) = &mut inner.steering {
            steering.forget_waiting();
        }
        inner.drop_copies();
    }

    /// The running turn has just read these answers in the inbox, and takes them up itself.
    pub(super) fn keep_answers<'a>(&self, answers: impl Iterator<Item = &'a InboxItem>) {
        let mut inner = self.lock();
        for item in answers {
            if !inner.answers.contains(&item.id) {
                inner.answers.push(item.id.clone());
            }
        }
        inner.drop_copies();
    }

    /// Keeps a message that is in the inbox for the next model call of the turn that it steers. False if that turn does not run
    /// here, or has the message already.
    pub(crate) fn steer(&self, item: InboxItem) -> bool {
        let mut inner = self.lock();
        let Some(turn) = item.steers().cloned() else { return false };
        if inner.running.as_ref().is_none_or(|slot| slot.turn != turn) {
            return false;
        }
        let steering = inner.steering.get_or_insert_with(|| Box::new(Steering::of(&turn)));
        if steering.turn != turn {
            **steering = Steering::of(&turn);
        }
        if steering.has(&item.id) || steering.waiting.len() >= MAX_ORDERS {
            return false;
        }
        steering.waiting.push_back(item);
        true
    }

    /// Whether this message was taken back here.
    pub(crate) fn was_taken_back(&self, turn: &TurnId) -> bool {
        self.lock().taken_back.turns.contains(turn)
    }

    /// The driver is about to run this turn. False if its message was taken back.
    pub(crate) fn begin_turn(&self, turn: &TurnId) -> bool {
        let mut inner = self.lock();
        let may_begin = !inner.taken_back.turns.contains(turn);
        inner.taken_back.beginning = may_begin.then(|| turn.clone());
        may_begin
    }

    /// Whether one more message that steers the running turn can be kept.
    pub(crate) fn has_room_to_steer(&self) -> bool {
        self.lock().steering.as_ref().is_none_or(|steering| steering.waiting.len() < MAX_ORDERS)
    }
}
