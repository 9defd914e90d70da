//! How a turn is cut short: cancelled, or out of time.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use super::state::Verdict;
use crate::event::Outcome;
use crate::scope::{By, System};

/// Why a turn was cut short.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cut {
    Cancelled(By),
    TimeUp,
}

impl Cut {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Cancelled(by) => Verdict { outcome: Outcome::Cancelled, reason: None, by: Some(by.clone()) },
            Self::TimeUp => Verdict::exhausted("turn_timeout"),
        }
    }
}

/// Set once, from anywhere; every wait of a turn but a write watches it.
#[derive(Clone, Debug)]
pub(crate) struct CutToken {
    token: CancellationToken,
    why: Arc<OnceLock<Cut>>,
    /// Whose cut is this one's, too.
    parent: Option<Box<CutToken>>,
}

impl CutToken {
    pub(crate) fn new() -> Self {
        Self { token: CancellationToken::new(), why: Arc::default(), parent: None }
    }

    /// Cut when the parent is, too.
    pub(crate) fn child(&self) -> Self {
        Self { token: self.token.child_token(), why: Arc::default(), parent: Some(Box::new(self.clone())) }
    }

    pub(crate) fn cut(&self, why: Cut) {
        // The first reason stands.
        let _ = self.why.set(why);
        self.token.cancel();
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.token.is_cancelled()
    }

    pub(crate) fn check(&self) -> Result<(), Cut> {
        if self.is_cut() { Err(self.why()) } else { Ok(()) }
    }

    /// Its own reason, or the one that its parent was cut for.
    fn why(&self) -> Cut {
        match (self.why.get(), &self.parent) {
            (Some(why), _) => why.clone(),
            (None, Some(parent)) => parent.why(),
            (None, None) => Cut::Cancelled(By::System(System::Recovery)),
        }
    }

    /// `future`, unless the turn is cut first; then it is dropped, and what it gave at that moment with it.
    pub(crate) async fn race<F: Future>(&self, future: F) -> Result<F::Output, Cut> {
        self.check()?;
        tokio::select! {
            biased;
            output = future => self.check().map(|()| output),
            () = self.token.cancelled() => Err(self.why()),
        }
    }
}
