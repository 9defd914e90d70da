//! Who waits for the turns of a conversation, and the scopes of those turns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::shared::Conversation;
use crate::id::TurnId;
use crate::report::TurnStatus;
use crate::scope::Scope;
use crate::turn::{TurnError, Waiter};

/// Who waits for turns, and with which scope those turns run. Callers add themselves, the driver tells them.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Never held while a waiter is told: a task that wakes up may lock it.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Who wants to know when a turn ends or waits.
    waiters: SmallVec<[(TurnId, Waiter); 1]>,
    /// Scopes of queued and open turns. The store keeps the actor but not the things in the scope's bag.
    scopes: SmallVec<[KeptScope; 1]>,
    /// How often the inbox has been read, or begun to be.
    reads: u64,
}

/// The scope of a turn that has not ended.
struct KeptScope {
    turn: TurnId,
    scope: Scope,
    /// Set when the message is in the inbox, where another process may take it up as well: the last read of the inbox that may
    /// have missed it.
    stored: Option<u64>,
}

impl Inner {
    /// Whether the message of this turn is still on its way into the inbox.
    fn is_being_stored(&self, turn: &TurnId) -> bool {
        self.scopes.iter().any(|kept| kept.stored.is_none() && kept.turn == *turn)
    }

    /// Whether the last read of the inbox may have been too early for the message of this turn.
    fn may_have_been_missed(&self, turn: &TurnId) -> bool {
        let is_new = |stored: Option<u64>| stored.is_none_or(|read| read == self.reads);
        self.scopes.iter().any(|kept| kept.turn == *turn && is_new(kept.stored))
    }
}

/// Those who wait for a turn that will not come.
#[must_use]
pub(crate) struct TakenWaiters {
    told: SmallVec<[(TurnId, Waiter); 1]>,
    /// Dropped without a lock: what is in a scope's bag is not ours.
    _scopes: SmallVec<[KeptScope; 1]>,
}

impl TakenWaiters {
    /// Tells them. Not to be called while something is locked: a task that wakes up may lock it.
    pub(crate) fn tell(self, why: &TurnError) {
        for (_, waiter) in self.told {
            // A caller may have gone away.
            drop(waiter.send(Err(why.clone())));
        }
    }
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, turn: &TurnId, waiter: Waiter) {
        let mut inner = self.lock();
        // Callers whose message was refused have gone away and closed theirs.
        inner.waiters.retain(|(_, waiter)| !waiter.is_closed());
        inner.waiters.push((turn.clone(), waiter));
    }

    /// Tells everyone who waits for this turn.
    pub(crate) fn tell(&self, turn: &TurnId, status: Result<TurnStatus, TurnError>) {
        self.tell_those_who(|_, waiting_for| waiting_for == turn, status);
    }

    /// The turn is over: its scope is dropped, and everyone who waits for it is told.
    pub(crate) fn finish(&self, turn: &TurnId, status: Result<TurnStatus, TurnError>) {
        self.lock().scopes.retain(|kept| kept.turn != *turn);
        self.tell(turn, status);
    }

    /// Takes everyone who waits for this turn out, with its scope: from now on nobody else tells them anything.
    pub(crate) fn take(&self, turn: &TurnId) -> TakenWaiters {
        let mut inner = self.lock();
        let (told, kept) = std::mem::take(&mut inner.waiters).into_iter().partition(|(of, _)| of == turn);
        inner.waiters = kept;
        let (scopes, kept) = std::mem::take(&mut inner.scopes).into_iter().partition(|kept| kept.turn == *turn);
        inner.scopes = kept;
        TakenWaiters { told, _scopes: scopes }
    }

    /// The message of `from` has become part of `turn`: whoever waited for a turn of its own waits for that one.
    pub(crate) fn join(&self, from: &TurnId, turn: &TurnId) {
        let mut inner = self.lock();
        for (waiting_for, _) in inner.waiters.iter_mut().filter(|(waiting_for, _)| waiting_for == from) {
            waiting_for.clone_from(turn);
        }
        let kept: SmallVec<[KeptScope; 1]> = std::mem::take(&mut inner.scopes);
        let (gone, kept): (SmallVec<[KeptScope; 1]>, _) = kept.into_iter().partition(|kept| kept.turn == *from);
        inner.scopes = kept;
        drop(inner);
        // Dropped after unlocking: what is in a scope's bag is not ours.
        drop(gone);
    }

    /// The driver goes, and with it every turn. Tells all but those whose message is still being stored: its sender
    /// starts a new driver once it is.
    pub(crate) fn tell_all(&self, why: &TurnError) {
        self.tell_those_who(|inner, turn| !inner.is_being_stored(turn), Err(why.clone()));
    }

    fn tell_those_who(&self, wait: impl Fn(&Inner, &TurnId) -> bool, status: Result<TurnStatus, TurnError>) {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.waiters);
        let mut told: SmallVec<[Waiter; 1]> = SmallVec::new();
        for (turn, waiter) in all {
            if wait(&inner, &turn) {
                told.push(waiter);
            } else if !waiter.is_closed() {
                inner.waiters.push((turn, waiter));
            }
        }
        drop(inner);
        let last = told.pop();
        // A caller may have gone away.
        for waiter in told {
            drop(waiter.send(status.clone()));
        }
        if let Some(waiter) = last {
            drop(waiter.send(status));
        }
    }

    /// The inbox is about to be read. A message that is stored from now on may not be among what is found.
    pub(crate) fn inbox_is_read(&self) {
        self.lock().reads += 1;
    }

    /// Turns that someone here waits for and that `is_known`, after a read of the inbox, does not know: another process has
    /// taken them up or ended them.
    pub(crate) fn elsewhere(&self, is_known: impl Fn(&TurnId) -> bool) -> SmallVec<[TurnId; 1]> {
        let inner = self.lock();
        let queued = inner.scopes.iter().map(|kept| &kept.turn);
        let turns = queued.chain(inner.waiters.iter().map(|(turn, _)| turn));
        turns.filter(|turn| !inner.may_have_been_missed(turn) && !is_known(turn)).cloned().collect()
    }

    /// Keeps the scope of a turn whose message is in the inbox.
    pub(crate) fn keep_scope(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: Some(0) });
    }

    pub(crate) fn scope_of(&self, turn: &TurnId) -> Option<Scope> {
        self.lock().scopes.iter().find(|kept| kept.turn == *turn).map(|kept| kept.scope.clone())
    }

    /// Whether nothing is lost if the conversation is evicted: nobody waits and, where scopes cannot be made again, no
    /// scope is kept.
    pub(crate) fn can_go(&self, keeps_scopes: bool) -> bool {
        let inner = self.lock();
        inner.waiters.iter().all(|(_, waiter)| waiter.is_closed()) && (!keeps_scopes || inner.scopes.is_empty())
    }
}

/// A message on its way into the inbox, beside the driver. If it does not get there, nothing is left behind.
pub(crate) struct Storing {
    conversation: Arc<Conversation>,
    turn: TurnId,
    stored: bool,
}

impl Storing {
    pub(crate) fn new(conversation: &Arc<Conversation>, turn: &TurnId, scope: Scope, waiter: Waiter) -> Self {
        let waiters = &conversation.waiters;
        waiters.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: None });
        waiters.add(turn, waiter);
        Self { conversation: conversation.clone(), turn: turn.clone(), stored: false }
    }

    pub(crate) fn stored(mut self) {
        self.stored = true;
        let mut inner = self.conversation.waiters.lock();
        let read = inner.reads;
        // The turn may be over already; then there is no scope to mark.
        for kept in inner.scopes.iter_mut().filter(|kept| kept.turn == self.turn) {
            kept.stored = Some(read);
        }
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        if !self.stored {
            self.conversation.waiters.lock().scopes.retain(|kept| kept.turn != self.turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_message_that_is_stored_while_the_inbox_is_read_is_not_elsewhere() {
        let (waiters, turn) = (Waiters::default(), TurnId::from("t_1"));
        let stored = |read| KeptScope { turn: turn.clone(), scope: Scope::local(), stored: read };
        waiters.inbox_is_read();
        for (read, is_elsewhere) in [(None, false), (Some(1), false), (Some(0), true)] {
            waiters.lock().scopes = SmallVec::from_buf([stored(read)]);
            assert_eq!(!waiters.elsewhere(|_| false).is_empty(), is_elsewhere, "{read:?}");
        }
    }

    #[test]
    fn those_whose_message_was_refused_do_not_pile_up() {
        let waiters = Waiters::default();
        let (waiter, staying) = oneshot::channel();
        waiters.add(&"t_0".into(), waiter);
        for _ in 0..1000 {
            waiters.add(&"t_1".into(), oneshot::channel().0);
        }
        assert!(waiters.lock().waiters.len() <= 2);
        drop(staying);
    }
}
