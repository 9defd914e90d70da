//! `next`: the rest of a chain of wraps, with the model or the tool at its end.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use super::call::contained;
use super::{Decision, Hook, HookEntry, HookFailure, OnFailure, Point, Record, WrapFailure};
use crate::BoxError;
use crate::BoxFuture;
use crate::feed::LiveEvent;
use crate::limits::Limits;
use crate::message::{Reply, Text, ToolCall, Usage};
use crate::model::{Model, ModelError, Request, Sink};
use crate::record::panic_text;
use crate::tool::{Output, Tool};
use crate::turn::{Attempt, SentAttempt, Turn, TurnContext};

/// The rest of the chain around a model call. `Copy`: run it any number of times, with any request, into any sink.
#[derive(Clone, Copy)]
pub struct ModelNext<'a> {
    rest: &'a [HookEntry],
    turn: &'a Turn,
    model: &'a Arc<dyn Model>,
    /// The wrap that has it, and which request that one was given.
    holder: Option<(&'a Text, RequestIdentity)>,
    /// The last wrap that passed another request on than it was given.
    changed_by: Option<&'a Text>,
}

/// Tells two requests apart by where their texts are, without looking into them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RequestIdentity([usize; 3]);

impl RequestIdentity {
    fn of(request: &Request) -> Self {
        let messages = Arc::as_ptr(&request.messages) as usize;
        Self([messages, request.system.as_ptr() as usize, request.tools().as_ptr() as usize])
    }
}

impl<'a> ModelNext<'a> {
    pub(crate) fn new(rest: &'a [HookEntry], turn: &'a Turn, model: &'a Arc<dyn Model>) -> Self {
        Self { rest, turn, model, holder: None, changed_by: None }
    }

    /// Notes if the wrap that has it passes another request on than it was given.
    fn noting_change(self, request: &Request) -> Self {
        match self.holder {
            Some((hook, given)) if given != RequestIdentity::of(request) => Self { changed_by: Some(hook), ..self },
            _ => self,
        }
    }

    /// Runs the rest of the chain, and at its end the model: one more attempt, unless a wrap answers first.
    pub fn run<'s>(self, request: &'s Request, out: &'s mut dyn Sink) -> BoxFuture<'s, Result<Reply, ModelError>>
    where
        'a: 's,
    {
        let this = self.noting_change(request);
        match this.rest.split_first() {
            None => Box::pin(attempt(this.turn, this.model, request, out, this.changed_by)),
            Some((entry, rest)) => match entry.hook() {
                Some(hook) => {
                    let holder = Some((&entry.name, RequestIdentity::of(request)));
                    hook.wrap_model_call(entry, request, out, Self { rest, holder, ..this })
                }
                None => Self { rest, ..this }.run(request, out),
            },
        }
    }

    /// Like [`run`](Self::run), without a box where no wrap is left.
    pub(crate) async fn run_in_place(self, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
        match self.rest.is_empty() {
            true => attempt(self.turn, self.model, request, out, self.changed_by).await,
            false => self.run(request, out).await,
        }
    }

    /// The model at the end of the chain, unless a wrap further in puts another there.
    pub fn model(self) -> &'a Arc<dyn Model> {
        self.model
    }

    /// The same chain with another model at its end.
    pub fn on(self, model: &'a Arc<dyn Model>) -> Self {
        Self { model, ..self }
    }

    /// A form that can be kept and sent elsewhere. After the turn is over it answers
    /// [`ModelError::Cancelled`] and calls nothing.
    pub fn to_owned(self) -> OwnedModelNext {
        OwnedModelNext {
            rest: self.rest.into(),
            turn: self.turn.clone(),
            model: self.model.clone(),
            holder: self.holder.map(|(hook, given)| (hook.clone(), given)),
            changed_by: self.changed_by.cloned(),
        }
    }
}

impl fmt::Debug for ModelNext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelNext").field("rest", &self.rest).field("model", &self.model.name()).finish_non_exhaustive()
    }
}

/// [`ModelNext`] with nothing borrowed, for layers that keep state over calls.
#[derive(Clone)]
pub struct OwnedModelNext {
    rest: Arc<[HookEntry]>,
    turn: Turn,
    model: Arc<dyn Model>,
    holder: Option<(Text, RequestIdentity)>,
    changed_by: Option<Text>,
}

impl OwnedModelNext {
    /// Like [`ModelNext::run`].
    pub fn run<'s>(&'s self, request: &'s Request, out: &'s mut dyn Sink) -> BoxFuture<'s, Result<Reply, ModelError>> {
        self.borrowed().run(request, out)
    }

    fn borrowed(&self) -> ModelNext<'_> {
        ModelNext {
            holder: self.holder.as_ref().map(|(hook, given)| (hook, *given)),
            changed_by: self.changed_by.as_ref(),
            ..ModelNext::new(&self.rest, &self.turn, &self.model)
        }
    }
}

impl fmt::Debug for OwnedModelNext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrowed().fmt(f)
    }
}

/// One attempt: counted, refused when the turn is over or has used its calls.
async fn attempt(
    turn: &Turn,
    model: &Arc<dyn Model>,
    request: &Request,
    out: &mut dyn Sink,
    changed_by: Option<&Text>,
) -> Result<Reply, ModelError> {
    let ctx = &turn.ctx;
    if ctx.abort.is_aborted() {
        return Err(ModelError::Cancelled);
    }
    let is_own = Arc::ptr_eq(model, ctx.agent.model());
    let name: Text = if is_own { ctx.agent.model_choice().clone() } else { model.name().into() };
    if !is_own {
        fits(ctx, model, &name, request)?;
    }
    let (attempt, ordinal) = ctx.budget.begin(&ctx.limits)?;
    let mut request = request.clone();
    (request.attempt, request.ordinal) = (attempt, ordinal);
    out.begin(attempt);
    // Noted before the model speaks: a reply that is cut off names its model as well.
    ctx.budget.note_attempt(Attempt { model: Some(name.clone()), cost: 0.0 });
    let began = ctx.clock().coarse();
    let mut reply = match call_model(model, &request, out).await {
        Ok(reply) => reply,
        Err(error) => {
            if ctx.services.audit.is_some() {
                let (model, usage, took) =
                    (model.clone(), Usage::default(), ctx.clock().coarse().saturating_sub(began));
                let (changed_by, error_text) = (changed_by.cloned(), Some(error.to_string().into()));
                ctx.note_sent(Box::new(SentAttempt {
                    request,
                    model,
                    name,
                    usage,
                    cost: None,
                    took,
                    changed_by,
                    error: error_text,
                }));
            }
            return Err(error);
        }
    };
    let cost = model.price(&reply.usage);
    ctx.budget.spend(reply.usage, cost);
    if let Some(estimated) = request.estimated().filter(|_| request.is_text()) {
        ctx.services.calibrations.learn(&name, estimated, reply.usage.input);
    }
    if let Some(cost) = cost {
        ctx.budget.note_attempt(Attempt { model: Some(name.clone()), cost });
    }
    reply.model = Some(name.clone());
    ctx.note_sent(Box::new(SentAttempt {
        model: model.clone(),
        name,
        usage: reply.usage,
        cost,
        took: ctx.clock().coarse().saturating_sub(began),
        changed_by: changed_by.cloned(),
        error: None,
        request,
    }));
    Ok(reply)
}

/// Refuses a request that another model than the agent's own cannot take: the context was made for the agent's.
fn fits(ctx: &TurnContext, model: &Arc<dyn Model>, name: &Text, request: &Request) -> Result<(), ModelError> {
    let (Some(window), Some(estimated)) = (model.context_window(), request.estimated()) else { return Ok(()) };
    let (factor, limit) = (ctx.services.calibrations.factor(name), Limits::ceiling(window));
    if factor.with_margin(estimated) <= limit {
        return Ok(());
    }
    let size = factor.apply(estimated);
    let message = format!("it has about {size} tokens, and {name} takes {window}, of which {limit} may be context");
    Err(ModelError::TooLong { message, status: None, limit: Some(limit), size: Some(size) })
}

async fn call_model(model: &Arc<dyn Model>, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
    let mut future = pin!(async move { model.stream(request, out).await });
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll,
        Err(payload) => Poll::Ready(Err(ModelError::Panicked(panic_text(payload)))),
    })
    .await
}

/// A wrap in its chain: contained, timed and recorded; without it where its failure is to be ignored.
///
/// Generic over the hook, so that one box holds all of it.
pub(super) async fn wrapped<H: Hook>(
    hook: &H,
    entry: &HookEntry,
    request: &Request,
    out: &mut dyn Sink,
    next: ModelNext<'_>,
) -> Result<Reply, ModelError> {
    let finished = {
        let wrap = pin!(async {
            match hook.wrap_model_call(next.turn, request, &mut *out, next).await {
                Err(ModelError::Hook { hook, cause }) if hook == entry.name => Err(cause),
                result => Ok(result),
            }
        });
        timed(&next.turn.ctx, entry, Point::WrapModelCall, None, wrap).await
    };
    match finished {
        Ok(result) => result,
        Err(failure) if entry.ignores(Point::WrapModelCall, &failure) => next.run(request, out).await,
        Err(cause) => Err(ModelError::Hook { hook: entry.name.clone(), cause }),
    }
}

/// The rest of the chain around a tool call. `Copy`: run it any number of times.
#[derive(Clone, Copy)]
pub struct ToolNext<'a> {
    rest: &'a [HookEntry],
    turn: &'a Turn,
    tool: &'a Arc<dyn Tool>,
    /// The call as it was approved and logged: the tool runs with nothing else.
    decided: &'a ToolCall,
    /// Kept by a wrap whose failure is to be ignored.
    probe: Option<&'a WrapProbe>,
}

impl<'a> ToolNext<'a> {
    pub(crate) fn new(rest: &'a [HookEntry], turn: &'a Turn, tool: &'a Arc<dyn Tool>, decided: &'a ToolCall) -> Self {
        Self { rest, turn, tool, decided, probe: None }
    }

    /// Runs the rest of the chain, and at its end the tool. `call` must be the call that the wrap was given: one with other
    /// arguments was approved by nobody and is not in the log, so it fails and nothing runs.
    pub fn run<'s>(self, call: &'s ToolCall) -> BoxFuture<'s, Result<Output, BoxError>>
    where
        'a: 's,
    {
        if let Some(probe) = self.probe {
            return Box::pin(probe.watch(Self { probe: None, ..self }, call));
        }
        let mine = self.rest.iter().position(|entry| entry.matches_tool(&self.decided.name));
        match mine {
            _ if !is_same(call, self.decided) => {
                Box::pin(async { Err("a hook would run the tool with other arguments than those decided on".into()) })
            }
            None if self.turn.ctx.abort.is_aborted() => Box::pin(async { Err("the turn is over".into()) }),
            None => Box::pin(call_tool(self.tool, self.turn, call)),
            Some(index) => {
                let (entry, rest) = (&self.rest[index], &self.rest[index + 1..]);
                match entry.hook() {
                    Some(hook) => hook.wrap_tool_call(entry, call, Self { rest, ..self }),
                    None => Self { rest, ..self }.run(call),
                }
            }
        }
    }

    /// Like [`run`](Self::run), without a box where no wrap is left.
    pub(crate) async fn run_in_place(self, call: &ToolCall) -> Result<Output, BoxError> {
        match self.rest.is_empty() && self.probe.is_none() {
            true if self.turn.ctx.abort.is_aborted() => Err("the turn is over".into()),
            true => call_tool(self.tool, self.turn, call).await,
            false => self.run(call).await,
        }
    }

    /// A form that can be kept and sent elsewhere. After the turn is over it fails and calls nothing.
    pub fn to_owned(self) -> OwnedToolNext {
        if let Some(probe) = self.probe {
            // Nobody sees any more whether it is run.
            probe.begun.store(true, Ordering::Relaxed);
        }
        let decided = self.decided.clone();
        OwnedToolNext { rest: self.rest.into(), turn: self.turn.clone(), tool: self.tool.clone(), decided }
    }
}

impl fmt::Debug for ToolNext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolNext").field("rest", &self.rest).finish_non_exhaustive()
    }
}

/// [`ToolNext`] with nothing borrowed.
#[derive(Clone)]
pub struct OwnedToolNext {
    rest: Arc<[HookEntry]>,
    turn: Turn,
    tool: Arc<dyn Tool>,
    decided: ToolCall,
}

impl OwnedToolNext {
    /// Like [`ToolNext::run`].
    pub fn run<'s>(&'s self, call: &'s ToolCall) -> BoxFuture<'s, Result<Output, BoxError>> {
        ToolNext::new(&self.rest, &self.turn, &self.tool, &self.decided).run(call)
    }
}

impl fmt::Debug for OwnedToolNext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ToolNext::new(&self.rest, &self.turn, &self.tool, &self.decided).fmt(f)
    }
}

/// Whether two calls are the same. Most wraps pass on what they were given, which is seen without looking into it.
fn is_same(call: &ToolCall, decided: &ToolCall) -> bool {
    std::ptr::eq(call, decided)
        || (call.call == decided.call
            && call.name == decided.name
            && (Arc::ptr_eq(&call.arguments, &decided.arguments) || call.arguments == decided.arguments))
}

/// The tool's own panic is the tool's failure, not that of a wrap around it.
async fn call_tool(tool: &Arc<dyn Tool>, turn: &Turn, call: &ToolCall) -> Result<Output, BoxError> {
    let mut future = pin!(async move { tool.call(turn, call).await });
    Ok(poll_fn(|cx| contained(future.as_mut(), cx)).await?)
}

/// What a wrap did with the rest of its chain: a tool never runs twice because a wrap around it failed.
#[derive(Default)]
struct WrapProbe {
    begun: AtomicBool,
    /// What it came to last.
    output: Mutex<Option<Output>>,
}

impl WrapProbe {
    async fn watch(&self, rest: ToolNext<'_>, call: &ToolCall) -> Result<Output, BoxError> {
        self.begun.store(true, Ordering::Relaxed);
        let result = rest.run(call).await;
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = result.as_ref().ok().cloned();
        result
    }

    /// As if the wrap that failed had not been there.
    async fn without(
        self,
        next: ToolNext<'_>,
        call: &ToolCall,
        failure: impl fmt::Display,
    ) -> Result<Output, BoxError> {
        match self.output.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(output) => Ok(output),
            None if self.begun.into_inner() => {
                Err(format!("it was begun, and a hook around it failed: {failure}").into())
            }
            None => next.run(call).await,
        }
    }
}

/// Like [`wrapped`], around a tool.
pub(super) async fn wrapped_tool<H: Hook>(
    hook: &H,
    entry: &HookEntry,
    call: &ToolCall,
    next: ToolNext<'_>,
) -> Result<Output, BoxError> {
    let ignored = entry.failure_policy(Point::WrapToolCall) == OnFailure::Ignore;
    let probe = WrapProbe::default();
    let finished = {
        let watched = ToolNext { probe: ignored.then_some(&probe), ..next };
        let wrap = pin!(async {
            match hook.wrap_tool_call(next.turn, call, watched).await {
                Err(error) => match error.downcast::<WrapFailure>() {
                    Ok(failure) => Err(HookFailure::from(failure.0)),
                    Err(error) => Ok(Err(error)),
                },
                result => Ok(result),
            }
        });
        timed(&next.turn.ctx, entry, Point::WrapToolCall, Some(call), wrap).await
    };
    match finished {
        Ok(result) => result,
        Err(failure) if ignored && !failure.must_block() => probe.without(next, call, failure).await,
        Err(failure) => Err(format!("hook {} failed around the tool: {failure}", entry.name).into()),
    }
}

/// Runs a wrap: panics contained, its own time limit if it has one, recorded. The inner error is a failure that the wrap itself
/// reports, as opposed to one of what it wraps.
async fn timed<T>(
    ctx: &TurnContext,
    entry: &HookEntry,
    point: Point,
    call: Option<&ToolCall>,
    mut wrap: Pin<&mut (dyn Future<Output = Result<T, HookFailure>> + Send + '_)>,
) -> Result<T, HookFailure> {
    let began = ctx.clock().coarse();
    let mut timer = None;
    let result = poll_fn(|cx| {
        match catch_unwind(AssertUnwindSafe(|| wrap.as_mut().poll(cx))) {
            Ok(Poll::Ready(result)) => return Poll::Ready(result),
            Err(payload) => return Poll::Ready(Err(HookFailure::Panicked(panic_text(payload)))),
            Ok(Poll::Pending) => {}
        }
        let Some(limit) = entry.settings.timeout else { return Poll::Pending };
        let timer = timer.get_or_insert_with(|| ctx.clock().sleep(limit));
        timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(limit)))
    })
    .await;
    let failure: Option<Text> = result.as_ref().err().map(|failure| Record::cut(failure.to_string().into()));
    let decision = if failure.is_some() { Decision::Failed } else { Decision::Wrap };
    let took = ctx.clock().coarse().saturating_sub(began);
    let call = call.map(|call| call.call.clone());
    let record = Record { call, failure, ..Record::new(point, entry.name.clone(), decision, took) };
    if record.failure.is_some() {
        ctx.publish(LiveEvent::hook_finished(&record));
    }
    ctx.record(record);
    result
}
