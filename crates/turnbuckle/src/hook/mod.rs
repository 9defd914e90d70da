//! The hook contract: code that runs at a point of a turn and answers with a decision.
//!
//! Hooks decide, wraps execute. A decision is data: it is recorded, and it can suspend a turn for a day. A wrap is code
//! in flight around one execution; it cannot suspend, by type, so none is ever in flight across a wait or a restart.
//!
//! Order: registration order everywhere; of wraps the first registered is the outermost.

pub(crate) mod call;
mod closure;
pub(crate) mod decision;
mod entry;
pub(crate) mod erased;
mod fence;
mod logged;
mod next;
mod parallel;
mod transformer;
mod view;

use std::future::Future;
use std::sync::Arc;

pub use crate::change::{Change, Edit, Edited, InjectedText, InjectionSpan};
pub use crate::message::Injection;
pub use crate::point::{OnFailure, Point, Points};
pub use crate::record::{Decision, HookFailure, Mismatched, MustBlock, Record, WrapFailure};
pub use closure::{background, gate, guard, observe, post, pre, stop, transform};
pub use decision::{AfterAgent, AfterModel, AfterTool, BeforeAgent, BeforeCompaction, BeforeModel, BeforeTool, OnStop};
pub(crate) use entry::Code;
pub use entry::{HookEntry, HookExt, Release, Settings};
pub use fence::Fence;
pub use logged::LoggedContext;
pub use next::{ModelNext, OwnedModelNext, OwnedToolNext, ToolNext};
pub use parallel::{Member, Parallel, member, parallel};
pub use transformer::{
    AsyncTransformer, Stretch, StretchKind, TransformBatch, TransformOutput, TransformedBatch, Transformer,
};
pub(crate) use view::WhenSummarised;
pub use view::{
    AfterAgentContext, BackgroundContext, BeforeAgentContext, BeforeCompactionContext, BeforeModelContext, Lifecycle,
    OnConversationContext, OnStopContext, ToolTrace,
};

use serde_json::Value;

use crate::BoxError;
use crate::feed::FeedEvent;
use crate::message::{Reply, ToolCall};
use crate::model::{ModelError, Request, Sink};
use crate::report::TurnReport;
use crate::store::SideStore;
use crate::tool::Output;
use crate::turn::Turn;
use erased::{Pass, Unhooked};

/// Code on a turn. Implement the points you want with plain `async fn`; the others cost nothing.
///
/// Which points a hook implements is found by type when the agent is built: nobody declares it, so nobody forgets it.
/// Returning `Err`, a panic, or taking longer than the hook's timeout is the hook's *failure*, and
/// [`OnFailure`] says what that means. A hook that never awaits cannot be timed out.
///
/// A hook's future may be dropped at any await (the turn was cancelled, the time is up); its edits are applied only when
/// it has returned well, so no half edit is left behind.
///
/// ```
/// use turnbuckle::{BoxError, hook::{BeforeAgent, Hook, BeforeAgentContext}};
///
/// struct Polite;
/// impl Hook for Polite {
///     async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
///         if turn.user_message().text().contains("damn") {
///             return Ok(BeforeAgent::Halt("mind your language".into()));
///         }
///         turn.inject("Answer politely.");
///         Ok(BeforeAgent::Continue)
///     }
/// }
/// ```
#[doc(alias = "AgentLifecycle")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    label = "not a hook",
    note = "implement `turnbuckle::hook::Hook` for it, or use a closure: `pre`, `post`, `guard`, `gate`, `stop`, `background`, `observe`",
    note = "a `Box<dyn Hook>` cannot exist: collect hooks of different types as `Vec<HookEntry>`, each made with `.into()`"
)]
pub trait Hook: Send + Sync + 'static {
    /// Unique in an agent. By default the type's name in snake case.
    fn name(&self) -> String {
        entry::snake_case(std::any::type_name::<Self>())
    }

    /// What the hook itself asks for; the agent's builder may override it.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Where the hook keeps text of conversations beside the store, if it does: deleting a conversation reaches it there.
    fn side_store(&self) -> Option<Arc<dyn SideStore>> {
        None
    }

    /// The form of a call's arguments that the log has, and with it every context, viewer and person who is asked; `None` if
    /// the hook leaves them as they are. The tool runs with the arguments themselves, also after a crash and after an
    /// approval: they are kept apart until the model calls again or the turn ends. The digest of the call is of what runs.
    ///
    /// Asked only if [`Settings::redacts_arguments`] is set, of each hook in order, with what the one before made of them. A
    /// failure puts a note in the place of all arguments: nothing is stored that the hook has not seen.
    fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError> {
        let _ = arguments;
        Ok(None)
    }

    /// The form of a text that records of hooks have, where they tell what a hook [changed](Change); `None` if the hook leaves it as
    /// it is. Asked only if [`Settings::hides_changes`] is set. A failure puts a note in the place of the text.
    fn redact_text(&self, text: &str) -> Result<Option<String>, BoxError> {
        let _ = text;
        Ok(None)
    }

    /// A conversation started, was revived, or ended. What it injects stands in the turn that follows.
    fn on_conversation(
        &self,
        context: &mut OnConversationContext,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = context;
        Unhooked::new(Pass::<()>::new())
    }

    /// Once a turn, on the incoming message; never twice for a turn once its results are written.
    fn before_agent(
        &self,
        turn: &mut BeforeAgentContext,
    ) -> impl Future<Output = Result<BeforeAgent, BoxError>> + Send {
        let _ = turn;
        Unhooked::new(Pass::<BeforeAgent>::new())
    }

    /// Before each model call, on the assembled context.
    fn before_model(
        &self,
        turn: &mut BeforeModelContext,
    ) -> impl Future<Output = Result<BeforeModel, BoxError>> + Send {
        let _ = turn;
        Unhooked::new(Pass::<BeforeModel>::new())
    }

    /// Around each model call: run `next` once, many times, with a changed request, on another model, or not at all.
    fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> impl Future<Output = Result<Reply, ModelError>> + Send {
        let _ = turn;
        Unhooked::new(next.run(request, out))
    }

    /// A new stream transformer, one for each stretch of text or thinking; `None` if the hook has none.
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        None
    }

    /// Like [`transformer`](Self::transformer), for one whose answers take a while. A hook has one or the other.
    fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
        None
    }

    /// A reply is complete and no tool has run.
    fn after_model(
        &self,
        turn: &Turn,
        reply: &Arc<Reply>,
    ) -> impl Future<Output = Result<AfterModel, BoxError>> + Send {
        let _ = (turn, reply);
        Unhooked::new(Pass::<AfterModel>::new())
    }

    /// Per call, arguments valid. All calls of a reply are decided before any of them runs.
    fn before_tool(&self, turn: &Turn, call: &ToolCall) -> impl Future<Output = Result<BeforeTool, BoxError>> + Send {
        let _ = (turn, call);
        Unhooked::new(Pass::<BeforeTool>::new())
    }

    /// Around a server tool: retry, limit its time, cache, change the result. The arguments are decided by now: `next` runs the
    /// tool with `call` and with nothing else.
    fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> impl Future<Output = Result<Output, BoxError>> + Send {
        let _ = turn;
        Unhooked::new(next.run(call))
    }

    /// Per result that a tool, a person, a client or an `Answer` gave.
    fn after_tool(
        &self,
        turn: &Turn,
        call: &ToolCall,
        output: &Output,
    ) -> impl Future<Output = Result<AfterTool, BoxError>> + Send {
        let _ = (turn, call, output);
        Unhooked::new(Pass::<AfterTool>::new())
    }

    /// The model answered without calls. Stop hooks run side by side; all finish.
    fn on_stop(&self, turn: &OnStopContext) -> impl Future<Output = Result<OnStop, BoxError>> + Send {
        let _ = turn;
        Unhooked::new(Pass::<OnStop>::new())
    }

    /// The turn is about to end `completed`.
    fn after_agent(&self, turn: &mut AfterAgentContext) -> impl Future<Output = Result<AfterAgent, BoxError>> + Send {
        let _ = turn;
        Unhooked::new(Pass::<AfterAgent>::new())
    }

    /// After a completed turn, aside: at least once, keyed by the turn, with bounded retries.
    fn background(&self, context: &BackgroundContext) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = context;
        Unhooked::new(Pass::<()>::new())
    }

    /// A summary of the oldest turns is about to be made: between turns, from the outbox, beside whatever comes next. May name
    /// what must be kept word for word, or skip the summary. A failure that blocks fails the try; after three no summary is made.
    fn before_compaction(
        &self,
        context: &mut BeforeCompactionContext,
    ) -> impl Future<Output = Result<BeforeCompaction, BoxError>> + Send {
        let _ = context;
        Unhooked::new(Pass::<BeforeCompaction>::new())
    }

    /// Every turn, whatever the outcome, after it is written. At least once over crashes, once within a process.
    fn on_ended(&self, report: &TurnReport) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = report;
        Unhooked::new(Pass::<()>::new())
    }

    /// Log events of the types in [`Settings::logged`], and reminders of questions without an answer. A job for each is stored
    /// with the event itself, so no crash loses one: at least once, keyed by [`LoggedContext::key`]. A failure is told as a
    /// notice and tried again up to eight times, with waits that double from 5 s on; then the job is parked with its error.
    ///
    /// What is due later (another try, a reminder) is done by a process that runs
    /// [`run_maintenance`](crate::Conversations::run_maintenance) on the store, or takes the conversation up again.
    fn on_logged(&self, context: &LoggedContext) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = context;
        Unhooked::new(Pass::<()>::new())
    }

    /// Every log and live event, in order, beside the turn. A slow observer slows the turn, to a deadline.
    ///
    /// Of its failures the first of a turn is told. With [`OnFailure::Block`] one ends the turn, and a turn does not
    /// complete before the observer has seen what was told of it.
    fn on_event(&self, event: &FeedEvent) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = event;
        Unhooked::new(Pass::<()>::new())
    }
}
