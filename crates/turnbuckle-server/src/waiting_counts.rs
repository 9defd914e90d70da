//! How many questions wait for a user: shown on every page, and remembered for a moment, because counting looks at every conversation
//! that is not at rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use turnbuckle::Scope;
use turnbuckle::store::StoreError;

use crate::server::App;

/// How long a count is shown.
const REMEMBERED: Duration = Duration::from_secs(2);
/// For how many users. Beyond that all are forgotten.
const MAX_USERS: usize = 1_024;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct WaitingCounts {
    /// By user. A user has the same roles through every token of theirs for as long as a count is shown, or sees an old one.
    known: Mutex<HashMap<Arc<str>, (Instant, usize)>>,
}

impl WaitingCounts {
    /// How many wait for this user, as of a moment ago.
    pub(crate) async fn of(&self, app: &App, scope: &Scope) -> Result<usize, StoreError> {
        let now = Instant::now();
        self.of_since(app, scope, now.checked_sub(REMEMBERED).unwrap_or(now)).await
    }

    /// How many wait for this user, counted at this moment or later.
    pub(crate) async fn of_since(&self, app: &App, scope: &Scope, since: Instant) -> Result<usize, StoreError> {
        let Some(user) = scope.user_id() else { return Ok(0) };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(user).copied();
        if let Some((_, count)) = known.filter(|(at, _)| *at >= since) {
            return Ok(count);
        }
        // What is asked while it is counted may be missing.
        let began = Instant::now();
        let count = app.waits_for(scope).await?.len();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_USERS {
            known.clear();
        }
        known.insert(user.clone(), (began, count));
        Ok(count)
    }
}
