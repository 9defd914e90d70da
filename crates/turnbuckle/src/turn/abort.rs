//! How a turn is cut short: cancelled, or out of time. Everybody who works for a turn that is over is cut off, too.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use super::state::Verdict;
use crate::event::Outcome;
use crate::message::Text;
use crate::scope::{Author, SystemAuthor};

/// Why a turn was cut short.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AbortCause {
    Cancelled(Author),
    TimeUp,
    /// An observer failed whose failure blocks.
    Blocked {
        hook: Text,
        why: Text,
    },
    /// The turn is over, or rests: for what it started and what is still at work.
    Over,
}

impl AbortCause {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Cancelled(by) => Verdict { outcome: Outcome::Cancelled, reason: None, by: Some(by.clone()) },
            Self::TimeUp => Verdict::exhausted("turn_timeout"),
            Self::Blocked { hook, why } => Verdict::failed(why.clone()).by(Author::hook(hook)),
            Self::Over => Verdict::new(Outcome::Cancelled, "the call that it worked for is over"),
        }
    }
}

/// Set once, from anywhere; every wait of a turn but a write watches it.
#[derive(Clone, Debug)]
pub(crate) struct AbortToken(Arc<AbortState>);

#[derive(Debug)]
struct AbortState {
    why: OnceLock<AbortCause>,
    /// Made when somebody waits for it or asks for it: most turns are never cut and never wait.
    token: OnceLock<CancellationToken>,
    /// Held by who cuts and by who makes the token, so that neither misses the other.
    order: Mutex<()>,
    /// Whose cut is this one's, too.
    parent: Option<AbortToken>,
}

impl AbortToken {
    pub(crate) fn new() -> Self {
        Self::with(OnceLock::new(), None)
    }

    /// Cut when the parent is, too.
    pub(crate) fn child(&self) -> Self {
        Self::with(self.token().child_token().into(), Some(self.clone()))
    }

    fn with(token: OnceLock<CancellationToken>, parent: Option<Self>) -> Self {
        Self(Arc::new(AbortState { why: OnceLock::new(), token, order: Mutex::new(()), parent }))
    }

    fn in_order(&self) -> MutexGuard<'_, ()> {
        self.0.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn abort(&self, why: AbortCause) {
        let order = self.in_order();
        // The first reason stands.
        let _ = self.0.why.set(why);
        drop(order);
        if let Some(token) = self.0.token.get() {
            token.cancel();
        }
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        if let Some(token) = self.0.token.get() {
            return token;
        }
        let order = self.in_order();
        let token = self.0.token.get_or_init(CancellationToken::new);
        let abort = self.0.why.get().is_some();
        drop(order);
        if abort {
            token.cancel();
        }
        token
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // A token that nobody has cannot be cancelled.
        self.0.why.get().is_some() || self.0.token.get().is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) fn check(&self) -> Result<(), AbortCause> {
        if self.is_aborted() { Err(self.why()) } else { Ok(()) }
    }

    /// Its own reason, or the one that its parent was cut for.
    fn why(&self) -> AbortCause {
        match (self.0.why.get(), &self.0.parent) {
            (Some(why), _) => why.clone(),
            (None, Some(parent)) => parent.why(),
            (None, None) => AbortCause::Cancelled(Author::System(SystemAuthor::Recovery)),
        }
    }

    /// `future`, unless the turn is cut first; then it is dropped, and what it gave at that moment with it.
    pub(crate) async fn race<F: Future>(&self, future: F) -> Result<F::Output, AbortCause> {
        self.check()?;
        let mut future = pin!(future);
        let mut cancelled = pin!(None);
        let output = poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if cancelled.is_none() {
                cancelled.set(Some(self.token().cancelled()));
            }
            cancelled.as_mut().as_pin_mut().map_or(Poll::Pending, |cancelled| cancelled.poll(cx).map(|()| None))
        })
        .await;
        match output {
            Some(output) => self.check().map(|()| output),
            None => Err(self.why()),
        }
    }
}
