//! How one hook is run: polled first; clocks, timers and events only for a hook that did not finish at its first poll.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::record::panic_text;
use super::{HookEntry, HookFailure, Named, OnFailure, Point, Record};
use crate::Failure;
use crate::clock::Boxed;
use crate::id::CallId;
use crate::live::Live;
use crate::message::Text;
use crate::scope::By;
use crate::turn::{Cut, CutToken, Frame, Interrupt, Verdict};

/// One run about to happen.
pub(crate) struct Run<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) hook: &'a Text,
    pub(crate) point: Point,
    pub(crate) timeout: Duration,
    pub(crate) call: Option<&'a CallId>,
    /// What cuts it short: the turn's, or nothing for what runs after the turn.
    pub(crate) cut: Option<&'a CutToken>,
}

/// What came of it.
pub(crate) struct Ran<T> {
    pub(crate) result: Result<T, HookFailure>,
    pub(crate) record: Record,
    /// Whether it was told that it started.
    waited: bool,
}

type Running<'f, T> = Boxed<'f, Result<T, Failure>>;

impl<'a> Run<'a> {
    pub(crate) fn new(frame: &'a Frame, entry: &'a HookEntry, point: Point) -> Self {
        Self { frame, hook: &entry.name, point, timeout: entry.time_limit(), call: None, cut: Some(&frame.cut) }
    }

    pub(crate) fn for_call(mut self, call: &'a CallId) -> Self {
        self.call = Some(call);
        self
    }

    /// Runs it even though the turn is over.
    pub(crate) fn after_the_turn(mut self) -> Self {
        self.cut = None;
        self
    }

    /// Runs it to its decision, its failure, or the end of the turn.
    pub(crate) async fn decide<T: Named>(self, mut future: Running<'_, T>) -> Result<Ran<T>, Cut> {
        let began = self.frame.clock.coarse();
        let first = poll_fn(|cx| Poll::Ready(contained(future.as_mut(), cx))).await;
        match first {
            Poll::Ready(result) => {
                let took = self.frame.clock.coarse().saturating_sub(began);
                Ok(self.ran(result, took))
            }
            Poll::Pending => Box::pin(self.wait(future, began)).await,
        }
    }

    async fn wait<T: Named>(self, mut future: Running<'_, T>, started: Duration) -> Result<Ran<T>, Cut> {
        self.frame.tell(Live::HookStarted { hook: self.hook.clone(), point: self.point });
        let first_poll = self.frame.clock.coarse().saturating_sub(started);
        let began = self.frame.clock.elapsed();
        let mut timer = self.frame.clock.sleep(self.timeout);
        let decided = poll_fn(|cx| {
            if let Poll::Ready(result) = contained(future.as_mut(), cx) {
                return Poll::Ready(result);
            }
            timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(self.timeout)))
        });
        let result = match self.cut {
            Some(cut) => cut.race(decided).await,
            None => Ok(decided.await),
        };
        let took = first_poll + self.frame.clock.elapsed().saturating_sub(began);
        match result {
            Ok(result) => Ok(Ran { waited: true, ..self.ran(result, took) }),
            Err(cut) => {
                let record = self.record("cancelled", took, None);
                self.frame.tell(Live::hook_finished(&record));
                self.frame.record(record);
                Err(cut)
            }
        }
    }

    fn ran<T: Named>(&self, result: Result<T, HookFailure>, took: Duration) -> Ran<T> {
        let (decision, failure) = match &result {
            Ok(decision) => (decision.name(), None),
            Err(failure) => ("failed", Some(failure.to_string())),
        };
        Ran { result, record: self.record(decision, took, failure), waited: false }
    }

    fn record(&self, decision: &'static str, took: Duration, failure: Option<String>) -> Record {
        let (point, hook, call) = (self.point, self.hook.clone(), self.call.cloned());
        Record { point, hook, decision: decision.into(), took, tokens: 0, shed: 0, call, failure }
    }
}

impl<T> Ran<T> {
    /// Tells and records it, and gives back what it decided. A hook that just passed is not told of.
    pub(crate) fn recorded(self, frame: &Frame, records: &mut Vec<Record>) -> Result<T, HookFailure> {
        if self.waited || !matches!(&*self.record.decision, "continue" | "accept") {
            frame.tell(Live::hook_finished(&self.record));
        }
        records.push(self.record);
        self.result
    }

    /// The decision, or `None` where the failure is to be ignored. A failure that blocks ends the turn `failed`.
    pub(crate) fn unless_blocked(
        self,
        frame: &Frame,
        entry: &HookEntry,
        records: &mut Vec<Record>,
    ) -> Result<Option<T>, Interrupt> {
        let point = self.record.point;
        match self.recorded(frame, records) {
            Ok(decision) => Ok(Some(decision)),
            Err(_) if entry.failure_policy(point) == OnFailure::Ignore => Ok(None),
            Err(failure) => Err(blocked(&entry.name, point, &failure)),
        }
    }
}

/// A failure that ends the turn.
pub(crate) fn blocked(hook: &Text, point: Point, failure: &HookFailure) -> Interrupt {
    Verdict::failed(format!("hook {hook} failed at {point}: {failure}")).by(By::hook(hook)).into()
}

/// Polls; a panic inside is a failure.
pub(crate) fn contained<T>(
    future: Pin<&mut (dyn Future<Output = Result<T, Failure>> + Send + '_)>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, HookFailure>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => poll.map_err(HookFailure::Error),
        Err(payload) => Poll::Ready(Err(HookFailure::Panicked(panic_text(payload)))),
    }
}
