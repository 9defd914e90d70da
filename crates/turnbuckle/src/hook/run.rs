//! How one hook is run: polled first; clocks, timers and events only for a hook that did not finish at its first poll.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::record::panic_text;
use super::{HookEntry, HookFailure, Named, OnFailure, Point, Record};
use crate::BoxError;
use crate::BoxFuture;
use crate::feed::LiveEvent;
use crate::id::CallId;
use crate::message::Text;
use crate::scope::Author;
use crate::turn::{AbortCause, AbortToken, Interrupt, TurnContext, Verdict};

/// Room for the records of one write, so that a chain of hooks does not grow it step by step.
const AT_FIRST: usize = 8;

/// One run about to happen.
pub(crate) struct Run<'a> {
    pub(crate) ctx: &'a TurnContext,
    pub(crate) hook: &'a Text,
    pub(crate) point: Point,
    pub(crate) timeout: Duration,
    pub(crate) call: Option<&'a CallId>,
    /// What cuts it short: the turn's, or nothing for what runs after the turn.
    pub(crate) abort: Option<&'a AbortToken>,
    /// When it begins, if that is known already.
    pub(crate) began: Option<Duration>,
}

/// What came of it. A record is made of it where it is kept: most hooks just pass, and a record is large.
pub(crate) struct FinishedHook<'a, T> {
    pub(crate) result: Result<T, HookFailure>,
    /// What it added to the context.
    pub(crate) tokens: u32,
    /// By the coarse clock.
    pub(crate) ended: Duration,
    took: Duration,
    hook: &'a Text,
    call: Option<&'a CallId>,
    point: Point,
    /// Whether it was told that it started.
    waited: bool,
}

type Running<'f, T> = BoxFuture<'f, Result<T, BoxError>>;

impl<'a> Run<'a> {
    pub(crate) fn new(ctx: &'a TurnContext, entry: &'a HookEntry, point: Point) -> Self {
        let (hook, timeout) = (&entry.name, entry.time_limit());
        Self { ctx, hook, point, timeout, call: None, abort: Some(&ctx.abort), began: None }
    }

    pub(crate) fn for_call(mut self, call: &'a CallId) -> Self {
        self.call = Some(call);
        self
    }

    /// Runs right behind another one: the end of that is the beginning of this, and the clock is read once less.
    pub(crate) fn behind(mut self, ended: Option<Duration>) -> Self {
        self.began = ended;
        self
    }

    /// Runs it even though the turn is over.
    pub(crate) fn after_the_turn(mut self) -> Self {
        self.abort = None;
        self
    }

    /// Runs it to its decision, its failure, or the end of the turn.
    pub(crate) async fn decide<T>(self, mut future: Running<'_, T>) -> Result<FinishedHook<'a, T>, AbortCause> {
        let began = self.began.unwrap_or_else(|| self.ctx.clock.coarse());
        match poll_fn(|cx| Poll::Ready(contained(future.as_mut(), cx))).await {
            Poll::Ready(result) => {
                let ended = self.ctx.clock.coarse();
                Ok(self.finished(result, ended, ended.saturating_sub(began)))
            }
            Poll::Pending => Box::pin(self.wait(future, began)).await,
        }
    }

    async fn wait<T>(self, mut future: Running<'_, T>, started: Duration) -> Result<FinishedHook<'a, T>, AbortCause> {
        self.ctx.publish(LiveEvent::HookStarted { hook: self.hook.clone(), point: self.point });
        let first_poll = self.ctx.clock.coarse().saturating_sub(started);
        let began = self.ctx.clock.elapsed();
        let mut timer = self.ctx.clock.sleep(self.timeout);
        let decided = poll_fn(|cx| {
            if let Poll::Ready(result) = contained(future.as_mut(), cx) {
                return Poll::Ready(result);
            }
            timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(self.timeout)))
        });
        let result = match self.abort {
            Some(abort) => abort.race(decided).await,
            None => Ok(decided.await),
        };
        let took = first_poll + self.ctx.clock.elapsed().saturating_sub(began);
        match result {
            Ok(result) => Ok(FinishedHook { waited: true, ..self.finished(result, self.ctx.clock.coarse(), took) }),
            Err(abort) => {
                let (point, hook, call) = (self.point, self.hook.clone(), self.call.cloned());
                let decision = "cancelled".into();
                let record = Record { point, hook, decision, took, tokens: 0, shed: 0, call, failure: None };
                self.ctx.publish(LiveEvent::hook_finished(&record));
                self.ctx.record(record);
                Err(abort)
            }
        }
    }

    fn finished<T>(&self, result: Result<T, HookFailure>, ended: Duration, took: Duration) -> FinishedHook<'a, T> {
        let Self { hook, call, point, .. } = *self;
        FinishedHook { result, tokens: 0, ended, took, hook, call, point, waited: false }
    }
}

impl<T: Named> FinishedHook<'_, T> {
    /// Tells and records it, and gives back what it decided. A hook that just passed is not told of.
    pub(crate) fn recorded(self, ctx: &TurnContext, records: &mut Vec<Record>) -> Result<T, HookFailure> {
        let (decision, failure) = match &self.result {
            Ok(decision) => (decision.name(), None),
            Err(failure) => ("failed", Some(failure.to_string())),
        };
        if records.capacity() == 0 {
            records.reserve(AT_FIRST);
        }
        records.push(Record {
            point: self.point,
            hook: self.hook.clone(),
            decision: decision.into(),
            took: self.took,
            tokens: self.tokens,
            shed: 0,
            call: self.call.cloned(),
            failure,
        });
        if self.waited || !matches!(decision, "continue" | "accept") {
            records.last().into_iter().for_each(|record| ctx.publish(LiveEvent::hook_finished(record)));
        }
        self.result
    }

    /// The decision, or `None` where the failure is to be ignored. A failure that blocks ends the turn `failed`.
    pub(crate) fn unless_blocked(
        self,
        ctx: &TurnContext,
        entry: &HookEntry,
        records: &mut Vec<Record>,
    ) -> Result<Option<T>, Interrupt> {
        let point = self.point;
        match self.recorded(ctx, records) {
            Ok(decision) => Ok(Some(decision)),
            Err(_) if entry.failure_policy(point) == OnFailure::Ignore => Ok(None),
            Err(failure) => Err(blocked(&entry.name, point, &failure)),
        }
    }
}

/// A failure that ends the turn.
pub(crate) fn blocked(hook: &Text, point: Point, failure: &HookFailure) -> Interrupt {
    Verdict::failed(format!("hook {hook} failed at {point}: {failure}")).by(Author::hook(hook)).into()
}

/// Polls; a panic inside is a failure.
pub(crate) fn contained<T>(
    future: Pin<&mut (dyn Future<Output = Result<T, BoxError>> + Send + '_)>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, HookFailure>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => poll.map_err(HookFailure::Error),
        Err(payload) => Poll::Ready(Err(HookFailure::Panicked(panic_text(payload)))),
    }
}
