//! One life of a process: it passes boundaries, and dies at one of them.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

/// A place at which a process can die.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Of which kind.
    pub kind: BoundaryKind,
    /// In words: `after append 5 (tool_result c1) was written`.
    pub name: String,
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a process was about to do, or had just done, when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BoundaryKind {
    /// A write to the log: before it is written, and after it but before anybody knows.
    Append,
    /// Any other call of the store.
    Store,
    /// The start or the end of a model call.
    Model,
    /// The start or the end of a tool.
    Tool,
    /// The start or the end of a hook.
    Hook,
    /// An effect on the world: before it, and after it.
    Effect,
    /// Whoever talks to the agent was told that a message or an answer is stored.
    Acknowledged,
    /// A tool, a hook, a model call, or whoever talks to the agent awaits something.
    Wait,
}

/// One life. Once it is dead, nothing that belongs to it goes on.
#[derive(Default)]
pub(super) struct Life {
    /// Which life of the run it is, from 1.
    pub(super) number: usize,
    /// The boundary at which it dies, counted from 0.
    dies_at: Option<usize>,
    passed: Mutex<Vec<Boundary>>,
    dead: Mutex<bool>,
    died: Notify,
    /// Grows whenever something happens.
    activity: AtomicU64,
}

impl Life {
    pub(super) fn new(number: usize, dies_at: Option<usize>) -> Self {
        Self { number, dies_at, ..Self::default() }
    }

    fn lock<'a, T>(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes back if the process lives on.
    pub(super) async fn pass(&self, kind: BoundaryKind, name: String) {
        if !self.survives(kind, name) {
            pending::<()>().await;
        }
    }

    fn survives(&self, kind: BoundaryKind, name: String) -> bool {
        self.activity.fetch_add(1, Ordering::Relaxed);
        let mut dead = Self::lock(&self.dead);
        if *dead {
            return false;
        }
        let mut passed = Self::lock(&self.passed);
        *dead = self.dies_at == Some(passed.len());
        passed.push(Boundary { kind, name });
        if *dead {
            self.died.notify_one();
        }
        !*dead
    }

    /// A store on a disk takes its time, and others go on meanwhile: whoever was told of a message before, for instance.
    pub(super) async fn take_time(&self) {
        tokio::task::yield_now().await;
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    /// How many boundaries of a kind were passed so far.
    pub(super) fn count(&self, kind: BoundaryKind) -> usize {
        Self::lock(&self.passed).iter().filter(|boundary| boundary.kind == kind).count()
    }

    pub(super) fn boundaries(&self) -> Vec<Boundary> {
        Self::lock(&self.passed).clone()
    }

    pub(super) fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    fn is_dead(&self) -> bool {
        *Self::lock(&self.dead)
    }

    /// Where it died, if it did.
    pub(super) fn death(&self) -> Option<Boundary> {
        self.is_dead().then(|| Self::lock(&self.passed).last().cloned()).flatten()
    }

    /// `work`, with a boundary before it, after it, and wherever it waits.
    pub(super) async fn through<T>(&self, kind: BoundaryKind, what: String, work: impl Future<Output = T>) -> T {
        self.pass(kind, format!("before {what}")).await;
        let done = self.waiting(&what, work).await;
        self.pass(kind, format!("after {what}")).await;
        done
    }

    /// `work`; each poll that leaves it waiting is a boundary.
    async fn waiting<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let (mut work, mut waits) = (pin!(work), 0);
        poll_fn(|cx| {
            if self.is_dead() {
                return Poll::Pending;
            }
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                waits += 1;
                self.survives(BoundaryKind::Wait, format!("at wait {waits} of {what}"));
            }
            polled
        })
        .await
    }

    /// `work`, unless the life ends before.
    pub(super) async fn lead<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.unless_dead(self.waiting("whoever talks to the agent", work)).await
    }

    /// `work`, unless the life is over or ends before.
    pub(super) async fn unless_dead<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut died) = (pin!(work), pin!(self.died.notified()));
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx).map(Some);
            // Woken by whoever died elsewhere.
            let _ = died.as_mut().poll(cx);
            if self.is_dead() { Poll::Ready(None) } else { polled }
        })
        .await
    }
}
