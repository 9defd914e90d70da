//! How one hook is called: polled first. Timers and events are only made for a hook that does not finish at its first
//! poll.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::HookEntry;
use super::decision::HookDecision;
use crate::BoxError;
use crate::event::Cause;
use crate::feed::LiveEvent;
use crate::id::CallId;
use crate::message::Text;
use crate::point::Point;
use crate::record::{Decision, HookFailure, Record, panic_text};
use crate::scope::Author;
use crate::turn::{AbortCause, Interrupt, TurnContext, Verdict};

/// Room for the records of one write, so that a chain of hooks does not grow the list step by step.
const RECORDS: usize = 8;

/// Calls the hooks of one chain at one point, one after the other.
pub(crate) struct HookCaller<'a> {
    ctx: &'a TurnContext,
    point: Point,
    /// The call that the hooks run for, at the tool points.
    call: Option<&'a CallId>,
    /// When the last hook ended, by the coarse clock. The next one begins at that moment, which saves a clock read.
    now: Duration,
    /// False for hooks that run after the turn: its end does not stop them.
    abortable: bool,
    /// The digest of what the hooks are given, for an audit.
    input: Option<Text>,
}

/// A hook that has returned, failed or timed out.
pub(crate) struct HookRun<T> {
    pub(crate) result: Result<T, HookFailure>,
    /// Tokens it added to the context. Set by the stage.
    pub(crate) tokens: u32,
    took: Duration,
    /// Whether viewers were told that it started.
    announced: bool,
}

impl<'a> HookCaller<'a> {
    pub(crate) fn new(ctx: &'a TurnContext, point: Point) -> Self {
        Self { ctx, point, call: None, now: ctx.clock().coarse(), abortable: true, input: None }
    }

    pub(crate) fn for_call(mut self, call: &'a CallId) -> Self {
        self.call = Some(call);
        self
    }

    /// Notes the digest of what the hooks are given, if there is an audit.
    pub(crate) fn given(mut self, input: impl FnOnce() -> String) -> Self {
        if self.ctx.services.audit.is_some() {
            self.input = Some(crate::audit::digest(&input()));
        }
        self
    }

    /// For hooks that run after the turn.
    pub(crate) fn after_turn(mut self) -> Self {
        self.abortable = false;
        self
    }

    /// Runs a hook until it has decided or failed, or until the turn is stopped. The future is given by reference, because
    /// moving it costs more than polling it.
    pub(crate) fn run<T>(
        &mut self,
        entry: &HookEntry,
        future: Pin<&mut (impl Future<Output = Result<T, BoxError>> + Send)>,
    ) -> impl Future<Output = Result<HookRun<T>, AbortCause>> {
        self.run_as(&entry.name, entry.time_limit(), future)
    }

    /// Like [`run`](Self::run), under another name: members of a group have their own.
    pub(crate) async fn run_as<T>(
        &mut self,
        name: &Text,
        limit: Duration,
        mut future: Pin<&mut (impl Future<Output = Result<T, BoxError>> + Send)>,
    ) -> Result<HookRun<T>, AbortCause> {
        let began = self.now;
        let first = poll_fn(|cx| Poll::Ready(contained(future.as_mut(), cx))).await;
        self.now = self.ctx.clock().coarse();
        let took = self.now.saturating_sub(began);
        match first {
            Poll::Ready(result) => Ok(HookRun { result, tokens: 0, took, announced: false }),
            // Boxed: most hooks never get here, and their futures need not have room for it.
            Poll::Pending => Box::pin(self.wait(name, limit, future, took)).await,
        }
    }

    async fn wait<T>(
        &mut self,
        name: &Text,
        limit: Duration,
        mut future: Pin<&mut (impl Future<Output = Result<T, BoxError>> + Send)>,
        first_poll: Duration,
    ) -> Result<HookRun<T>, AbortCause> {
        let (ctx, point) = (self.ctx, self.point);
        ctx.publish(LiveEvent::HookStarted { hook: name.clone(), point });
        let began = ctx.clock().elapsed();
        let mut timer = ctx.clock().sleep(limit);
        let decided = poll_fn(|cx| {
            if let Poll::Ready(result) = contained(future.as_mut(), cx) {
                return Poll::Ready(result);
            }
            timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(limit)))
        });
        let result = match self.abortable {
            true => ctx.abort.race(decided).await,
            false => Ok(decided.await),
        };
        let took = first_poll + ctx.clock().elapsed().saturating_sub(began);
        self.now = ctx.clock().coarse();
        match result {
            Ok(result) => Ok(HookRun { result, tokens: 0, took, announced: true }),
            Err(cause) => {
                let record = Record::new(point, name.clone(), Decision::Cancelled, took);
                let record = Record { call: self.call.cloned(), ..record };
                ctx.publish(LiveEvent::hook_finished(&record));
                ctx.record(record);
                Err(cause)
            }
        }
    }

    /// Records a run, and returns what the hook decided.
    pub(crate) fn record<T: HookDecision>(
        &self,
        name: &Text,
        run: HookRun<T>,
        records: &mut Vec<Record>,
    ) -> Result<T, HookFailure> {
        let HookRun { result, tokens, took, announced } = run;
        let (decision, reason, failure) = match &result {
            Ok(decided) => (decided.decision(), decided.reason().cloned().map(Record::cut), None),
            Err(failure) => (Decision::Failed, None, Some(Record::cut(failure.to_string().into()))),
        };
        if records.capacity() == 0 {
            records.reserve(RECORDS);
        }
        // Made where it stays: it is large, and there is one for each call of a hook.
        records.push(Record {
            point: self.point,
            hook: name.clone(),
            decision,
            took,
            tokens,
            shed: 0,
            call: self.call.cloned(),
            failure,
            reason,
            outcome: None,
            input: self.input.clone(),
            change: None,
        });
        // Viewers are not told of a hook that just let things pass.
        if let (true, Some(record)) = (announced || !decision.is_quiet(), records.last()) {
            self.ctx.publish(LiveEvent::hook_finished(record));
        }
        result
    }

    /// Records a run. Returns what the hook decided, or `None` if it failed and its failure is ignored. A failure that
    /// blocks ends the turn.
    pub(crate) fn unless_blocked<T: HookDecision>(
        &self,
        entry: &HookEntry,
        run: HookRun<T>,
        records: &mut Vec<Record>,
    ) -> Result<Option<T>, Interrupt> {
        match self.record(&entry.name, run, records) {
            Ok(decision) => Ok(Some(decision)),
            Err(failure) if entry.ignores(self.point, &failure) => Ok(None),
            Err(failure) => Err(blocked(&entry.name, self.point, &failure)),
        }
    }
}

/// A failure that ends the turn.
pub(crate) fn blocked(hook: &Text, point: Point, failure: &HookFailure) -> Interrupt {
    let name = hook.clone();
    let cause = match (failure.is_mismatch(), failure.must_block()) {
        (true, _) => Cause::HookMismatched { hook: name, point },
        (false, true) => Cause::HookMustBlock { hook: name, point },
        (false, false) => Cause::HookFailed { hook: name, point },
    };
    Verdict::failed(format!("hook {hook} failed at {point}: {failure}"), cause).by(Author::hook(hook)).into()
}

/// Polls a future of foreign code; a panic inside is a failure.
pub(crate) fn contained<T>(
    future: Pin<&mut (impl Future<Output = Result<T, BoxError>> + ?Sized)>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, HookFailure>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => poll.map_err(HookFailure::from),
        Err(payload) => Poll::Ready(Err(HookFailure::Panicked(panic_text(payload)))),
    }
}
