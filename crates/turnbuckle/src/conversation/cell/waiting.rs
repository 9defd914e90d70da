//! Those who wait for a turn, and the scopes they came with.

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{Cell, Waiter};
use crate::conversation::outcome::{Rest, TurnError};
use crate::id::TurnId;
use crate::scope::Scope;

impl Cell {
    pub(crate) fn wait_for(&self, turn: &TurnId) -> oneshot::Receiver<Result<Rest, TurnError>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().waiters.push((Some(turn.clone()), sender));
        receiver
    }

    pub(crate) fn add_waiter(&self, turn: Option<TurnId>, waiter: Waiter) {
        self.lock().waiters.push((turn, waiter));
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

    pub(crate) fn keep_scope(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push((turn.clone(), scope));
    }

    pub(crate) fn scope_of(&self, turn: &TurnId) -> Option<Scope> {
        self.lock().scopes.iter().find(|(of, _)| of == turn).map(|(_, scope)| scope.clone())
    }

    pub(crate) fn drop_scope(&self, turn: &TurnId) {
        self.lock().scopes.retain(|(of, _)| of != turn);
    }
}
