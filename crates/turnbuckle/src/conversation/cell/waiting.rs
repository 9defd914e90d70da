//! Those who wait for a turn, and the scopes they came with.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{Cell, Inner, Waiter};
use crate::conversation::outcome::{TurnError, TurnStatus};
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
    pub(crate) fn wait_for(&self, turn: &TurnId) -> oneshot::Receiver<Result<TurnStatus, TurnError>> {
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

    /// Tells those who wait for this turn; without one, those who wait for the open one.
    pub(crate) fn tell_rest(&self, turn: Option<&TurnId>, rest: Result<TurnStatus, TurnError>) {
        let waits = |_: &Inner, wanted: &Option<TurnId>| wanted.is_none() || wanted.as_ref() == turn;
        self.tell_those(waits, rest);
    }

    /// The driver goes, and with it every turn: tells all but those whose message is still on its way into the inbox.
    /// Whoever puts it there sees to it that it is taken up.
    pub(crate) fn tell_all(&self, rest: &Result<TurnStatus, TurnError>) {
        let waits = |inner: &Inner, wanted: &Option<TurnId>| {
            let arrives = |kept: &KeptScope| !kept.stored && Some(&kept.turn) == wanted.as_ref();
            !inner.scopes.iter().any(arrives)
        };
        self.tell_those(waits, rest.clone());
    }

    fn tell_those(&self, waits: impl Fn(&Inner, &Option<TurnId>) -> bool, rest: Result<TurnStatus, TurnError>) {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.waiters);
        let mut told: SmallVec<[_; 1]> = SmallVec::new();
        for (wanted, waiter) in all {
            if waits(&inner, &wanted) {
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

    /// A message goes into the inbox beside the driver, for whoever waits for its turn.
    pub(crate) fn arriving(self: &Arc<Self>, turn: &TurnId, scope: Scope, waiter: Waiter) -> Arriving {
        self.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: false });
        self.add_waiter(Some(turn.clone()), waiter);
        Arriving { cell: self.clone(), turn: turn.clone(), stored: false }
    }

    /// For a turn whose message is in the inbox.
    pub(crate) fn keep_scope(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push(KeptScope { turn: turn.clone(), scope, stored: true });
    }

    pub(crate) fn scope_of(&self, turn: &TurnId) -> Option<Scope> {
        self.lock().scopes.iter().find(|kept| kept.turn == *turn).map(|kept| kept.scope.clone())
    }

    pub(crate) fn drop_scope(&self, turn: &TurnId) {
        self.lock().scopes.retain(|kept| kept.turn != *turn);
    }

    /// The message of this turn is in the inbox, unless the turn is over already.
    fn scope_is_stored(&self, turn: &TurnId) {
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

/// A message on its way into the inbox. Whatever keeps it from getting there leaves nothing behind.
pub(crate) struct Arriving {
    cell: Arc<Cell>,
    turn: TurnId,
    stored: bool,
}

impl Arriving {
    pub(crate) fn stored(mut self) {
        self.stored = true;
        self.cell.scope_is_stored(&self.turn);
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.stored {
            self.cell.drop_scope(&self.turn);
        }
    }
}

#[cfg(test)]
mod tests {
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
