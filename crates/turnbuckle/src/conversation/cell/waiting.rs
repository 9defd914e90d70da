//! Those who wait for a turn, and the scopes they came with.

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{Cell, Waiter};
use crate::conversation::outcome::{Rest, TurnError};
use crate::id::TurnId;
use crate::scope::Scope;

/// The scope of a turn that has not ended.
pub(super) struct KeptScope {
    turn: TurnId,
    scope: Scope,
    /// Whether its message was put into the inbox, where another process may take it up as well.
    stored: bool,
}

impl Cell {
    pub(crate) fn wait_for(&self, turn: &TurnId) -> oneshot::Receiver<Result<Rest, TurnError>> {
        let (sender, receiver) = oneshot::channel();
        self.add_waiter(Some(turn.clone()), sender);
        receiver
    }

    pub(crate) fn add_waiter(&self, turn: Option<TurnId>, waiter: Waiter) {
        let mut inner = self.lock();
        // Those whose message was refused have gone again.
        inner.waiters.retain(|(_, waiter)| !waiter.is_closed());
        inner.waiters.push((turn, waiter));
    }

    /// Tells those who wait for this turn.
    pub(crate) fn tell_rest(&self, turn: Option<&TurnId>, rest: Result<Rest, TurnError>) {
        let mut inner = self.lock();
        let waits = |wanted: &Option<TurnId>| turn.is_none() || wanted.is_none() || wanted.as_ref() == turn;
        let all = std::mem::take(&mut inner.waiters);
        let mut told: SmallVec<[_; 1]> = SmallVec::new();
        for (wanted, waiter) in all {
            if waits(&wanted) {
                told.push(waiter);
            } else if !waiter.is_closed() {
                inner.waiters.push((wanted, waiter));
            }
        }
        drop(inner);
        let last = told.pop();
        // Whoever waited may have gone.
        for waiter in told {
            let _ = waiter.send(rest.clone());
        }
        if let Some(waiter) = last {
            let _ = waiter.send(rest);
        }
    }

    /// For a turn whose message is in the inbox.
    pub(crate) fn keep_scope(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: true });
    }

    /// For a turn whose message is about to be put there.
    pub(crate) fn keep_scope_for_now(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: false });
    }

    pub(crate) fn scope_of(&self, turn: &TurnId) -> Option<Scope> {
        self.lock().scopes.iter().find(|kept| kept.turn == *turn).map(|kept| kept.scope.clone())
    }

    pub(crate) fn drop_scope(&self, turn: &TurnId) {
        self.lock().scopes.retain(|kept| kept.turn != *turn);
    }

    /// The message of this turn is in the inbox, unless the turn is over already.
    pub(crate) fn scope_is_stored(&self, turn: &TurnId) {
        for kept in self.lock().scopes.iter_mut().filter(|kept| kept.turn == *turn) {
            kept.stored = true;
        }
    }

    /// Turns that were queued here and that `is_left` does not know any more: another process has taken them up.
    pub(crate) fn taken_elsewhere(&self, is_left: impl Fn(&TurnId) -> bool) -> SmallVec<[TurnId; 1]> {
        let inner = self.lock();
        let gone = inner.scopes.iter().filter(|kept| kept.stored && !is_left(&kept.turn));
        gone.map(|kept| kept.turn.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Agent;
    use crate::clock::SystemClock;
    use crate::models::Script;

    #[test]
    fn those_whose_message_was_refused_do_not_pile_up() {
        let agent = Agent::builder("a", Script::says(["x"])).build().unwrap();
        let cell = Cell::new("c".into(), agent, None, Arc::new(SystemClock::default()));
        let staying = cell.wait_for(&"t_0".into());
        for _ in 0..1000 {
            drop(cell.wait_for(&"t_1".into()));
        }
        assert!(cell.lock().waiters.len() <= 2);
        drop(staying);
    }
}
