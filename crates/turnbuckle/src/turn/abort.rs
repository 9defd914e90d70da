//! How a turn is stopped before its end: cancelled, out of time, or because the call it works for is over.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use super::state::Verdict;
use crate::event::{Cause, Outcome};
use crate::message::Text;
use crate::point::Point;
use crate::scope::{Author, SystemAuthor};

/// Why a turn is stopped before its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AbortCause {
    /// Someone cancelled it.
    Cancelled(Author),
    /// `turn_timeout` has passed.
    TimedOut,
    /// An observer failed, and its failure blocks.
    ObserverFailed {
        hook: Text,
        /// What the turn's end says, for people.
        reason: Text,
    },
    /// The turn has ended or waits. For what it started and what is still running.
    TurnOver,
}

impl AbortCause {
    /// How a turn ends that was stopped for this reason.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Cancelled(by) => {
                Verdict { outcome: Outcome::Cancelled, reason: None, cause: None, by: Some(by.clone()) }
            }
            Self::TimedOut => Verdict::exhausted("turn_timeout"),
            Self::ObserverFailed { hook, reason } => {
                let cause = Cause::HookFailed { hook: hook.clone(), point: Point::OnEvent };
                Verdict::failed(reason.clone(), cause).by(Author::hook(hook))
            }
            Self::TurnOver => Verdict::new(Outcome::Cancelled, "the call that it worked for is over", Cause::CallOver),
        }
    }
}

/// Stops a turn from anywhere, once. Everything that a turn awaits is raced against it, except writes.
#[derive(Clone, Debug)]
pub(crate) struct AbortToken(Arc<AbortState>);

#[derive(Debug)]
struct AbortState {
    cause: OnceLock<AbortCause>,
    /// Made when someone first waits for it or asks for it. Most turns are never stopped and never wait.
    token: OnceLock<CancellationToken>,
    /// Held while the cause is set and while the token is made, so that a token made at that moment is cancelled.
    order: Mutex<()>,
    /// The turn of the parent agent: stopping it stops this one.
    parent: Option<AbortToken>,
}

impl AbortToken {
    pub(crate) fn new() -> Self {
        Self::with(OnceLock::new(), None)
    }

    /// A token for a sub-agent's turn: it is stopped with this one.
    pub(crate) fn child(&self) -> Self {
        Self::with(self.token().child_token().into(), Some(self.clone()))
    }

    fn with(token: OnceLock<CancellationToken>, parent: Option<Self>) -> Self {
        Self(Arc::new(AbortState { cause: OnceLock::new(), token, order: Mutex::new(()), parent }))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the turn. If it was stopped before, the first cause stands.
    pub(crate) fn abort(&self, cause: AbortCause) {
        let order = self.lock();
        let token = match self.0.cause.set(cause) {
            Ok(()) => self.0.token.get(),
            Err(_) => None,
        };
        drop(order);
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// The same signal as hooks and tools know it.
    pub(crate) fn token(&self) -> &CancellationToken {
        if let Some(token) = self.0.token.get() {
            return token;
        }
        let order = self.lock();
        let token = self.0.token.get_or_init(CancellationToken::new);
        let aborted = self.0.cause.get().is_some();
        drop(order);
        if aborted {
            token.cancel();
        }
        token
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // Only a token that exists can have been cancelled from outside or by the parent.
        self.0.cause.get().is_some() || self.0.token.get().is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) fn check(&self) -> Result<(), AbortCause> {
        if self.is_aborted() { Err(self.cause()) } else { Ok(()) }
    }

    /// Its own cause, or the parent's.
    fn cause(&self) -> AbortCause {
        match (self.0.cause.get(), &self.0.parent) {
            (Some(cause), _) => cause.clone(),
            (None, Some(parent)) => parent.cause(),
            // A hook or a tool cancelled the token that it was given.
            (None, None) => AbortCause::Cancelled(Author::System(SystemAuthor::Program)),
        }
    }

    /// Runs `future` until the turn is stopped. If both happen at once, the stop wins and the output is dropped.
    pub(crate) async fn race<F: Future>(&self, future: F) -> Result<F::Output, AbortCause> {
        self.check()?;
        let mut future = pin!(future);
        let mut cancelled = pin!(None);
        let output = poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // A future that is ready at its first poll never makes the token.
            if cancelled.is_none() {
                cancelled.set(Some(self.token().cancelled()));
            }
            cancelled.as_mut().as_pin_mut().map_or(Poll::Pending, |cancelled| cancelled.poll(cx).map(|()| None))
        })
        .await;
        match output {
            Some(output) => self.check().map(|()| output),
            None => Err(self.cause()),
        }
    }
}
