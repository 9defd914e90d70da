//! The fold of a log, for tests: what the runtime makes of the events that it finds.

use std::sync::Arc;

use crate::event::Event;
use crate::feed::ConversationState;
use crate::store::Totals;
use crate::turn::{Progress, State, next};

/// A conversation, as far as its log tells. Equal folds go on in the same way.
///
/// ```
/// use turnbuckle::feed::ConversationState;
/// use turnbuckle::testing::Fold;
/// assert_eq!(Fold::new(10_000).state(), ConversationState::Idle);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Fold(Box<State>);

impl Fold {
    /// The fold of an empty log. Ended turns may hold `capacity` tokens together, as long as no
    /// context was too large.
    pub fn new(capacity: u64) -> Self {
        Self(Box::new(State::new(capacity)))
    }

    /// The fold of a log of which `log` is the end and `totals` are the sums, if no
    /// context was ever too large; `None` if older events are needed.
    pub fn revive(capacity: u64, totals: Totals, log: &[Arc<Event>]) -> Option<Self> {
        State::revive(capacity, totals, None, log).map(Self)
    }

    /// Folds one event in.
    pub fn apply(&mut self, event: &Arc<Event>) {
        self.0.apply(event);
    }

    /// The stage that comes next, or `waiting`, or `idle`.
    pub fn state(&self) -> ConversationState {
        next(&self.0, &Progress::default()).into()
    }

    /// The sums over all ended turns.
    pub fn totals(&self) -> Totals {
        self.0.window.totals()
    }
}
