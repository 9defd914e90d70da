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
}

/// The scope of a turn that has not ended.
struct KeptScope {
    turn: TurnId,
    scope: Scope,
    /// Whether the message is in the inbox, where another process may take it up as well.
    stored: bool,
}

impl Inner {
    /// Whether the message of this turn is still on its way into the inbox.
    fn is_being_stored(&self, turn: &TurnId) -> bool {
        self.scopes.iter().any(|kept| !kept.stored && kept.turn == *turn)
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

    /// Turns that someone here waits for and that `is_known` does not know: another process has taken them up or ended
    /// them.
    pub(crate) fn elsewhere(&self, is_known: impl Fn(&TurnId) -> bool) -> SmallVec<[TurnId; 1]> {
        let inner = self.lock();
        let queued = inner.scopes.iter().filter(|kept| kept.stored).map(|kept| &kept.turn);
        let turns = queued.chain(inner.waiters.iter().map(|(turn, _)| turn));
        turns.filter(|turn| !inner.is_being_stored(turn) && !is_known(turn)).cloned().collect()
    }

    /// Keeps the scope of a turn whose message is in the inbox.
    pub(crate) fn keep_scope(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: true });
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
        waiters.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: false });
        waiters.add(turn, waiter);
        Self { conversation: conversation.clone(), turn: turn.clone(), stored: false }
    }

    pub(crate) fn stored(mut self) {
        self.stored = true;
        let mut inner = self.conversation.waiters.lock();
        // The turn may be over already; then there is no scope to mark.
        for kept in inner.scopes.iter_mut().filter(|kept| kept.turn == self.turn) {
            kept.stored = true;
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
