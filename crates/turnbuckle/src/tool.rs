//! The tool contract: who runs it, who must allow it, and what a crash in the middle means.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::BoxError;
use crate::BoxFuture;
use crate::access::AnswerRule;
use crate::agent::Agent;
pub use crate::context::plan::Retention;
pub use crate::event::Executor;
use crate::event::Question;
use crate::message::{Content, Part, Text, ToolCall};
pub use crate::model::Definition;
use crate::store::ArgumentMatch;
use crate::turn::Turn;

/// Something a model can call.
pub trait Tool: Send + Sync + 'static {
    /// Fixed facts; read when the agent is built.
    fn spec(&self) -> &Spec;

    /// Why a call with these arguments must be answered by a person, whatever approvals, rules and hooks would let it through. The
    /// reason stands in the question. Rarely needed: who must allow a tool's calls is said by [`Spec::approval`].
    fn always_ask(&self, arguments: &Value) -> Option<Text> {
        let _ = arguments;
        None
    }

    /// Whether these rules allow a call with these arguments, in their normal form. Rules are in the tool's own language; standing
    /// approvals of its calls may consist of them. A tool that has no such language, or cannot read one of the rules, allows nothing.
    fn allowed_by(&self, rules: &[String], arguments: &Value) -> bool {
        let _ = (rules, arguments);
        false
    }

    /// Whether a standing approval of these parts may cover a call with these arguments, which are like them. A tool says no where an approval
    /// must name what it is for: of a file that decides what runs, say, which nobody has in mind who approves all files of a folder.
    fn standing_covers(&self, parts: &[ArgumentMatch], arguments: &Value) -> bool {
        let _ = (parts, arguments);
        true
    }

    /// Runs it. Called for server tools only; the arguments were in their normal form when the call was decided, and fit the
    /// schema. A failure becomes an error result that the
    /// model reads. May be dropped at any await: the turn was cancelled or the time is up.
    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>>;

    /// What the call would change, for the person who is asked whether it may run. It changes nothing and may be asked at any
    /// time, with arguments in their normal form; the world may be another one when the call runs. `None` if the tool cannot
    /// say; an error says why the call would be refused now.
    fn preview<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Preview>, BoxError>> {
        let _ = call;
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// What a call would change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// In the unified format, for people. What is too long is left out, and it says so.
    pub diff: Text,
}

impl Preview {
    /// A diff in the unified format.
    pub fn of_diff(diff: impl Into<Text>) -> Self {
        Self { diff: diff.into() }
    }
}

/// The facts of a tool.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What the model is told.
    pub definition: Definition,
    /// Who runs the tool.
    pub executor: Executor,
    /// Who must allow it.
    pub approval: Approval,
    /// What a crash between start and result means.
    pub effect: Effect,
    /// Which of its results may be shortened when a context becomes too large.
    pub retention: Retention,
    /// Brings arguments to their normal form before anything looks at them. `None`: they are used as they are.
    pub normalize: Option<Arc<dyn Normalize>>,
    /// How long it may run.
    pub timeout: Duration,
    /// Whether it needs a user: called by the system it fails as an error result.
    pub needs_user: bool,
    /// The agent inside, if the tool is a sub-agent: its turns are cancelled with the call, and its hooks do the jobs
    /// that its turns left.
    pub sub_agent: Option<Agent>,
    /// The parts of the arguments by which a standing approval knows a call again, as JSON pointers: `/path` of a file
    /// tool, so that an approval of one file covers whatever is written into it. Empty: all arguments must be the same.
    pub standing_by: Vec<Text>,
    /// Whether a standing approval covers only calls with the very same arguments, or those that rules of the tool allow
    /// ([`Tool::allowed_by`]): of a command, a pattern of its text would cover whatever is written behind it.
    pub standing_exact: bool,
    /// What everybody should know who is asked about a call: what it could reach, say. It stands in each question.
    pub approval_note: Option<Text>,
    /// The server that offered the tool at run time, if it is not the agent's own. A turn that began with such a tool is carried on
    /// also by an agent to which the server offers others now.
    pub origin: Option<Text>,
}

impl Spec {
    /// A server tool that runs by itself for at most two minutes.
    pub fn server(name: impl Into<Text>, description: impl Into<Text>, parameters: Value, effect: Effect) -> Self {
        Self {
            definition: Definition {
                name: name.into(),
                description: description.into(),
                parameters: parameters.into(),
            },
            executor: Executor::Server,
            approval: Approval::NotRequired,
            effect,
            retention: Retention::default(),
            normalize: None,
            timeout: Duration::from_secs(120),
            needs_user: false,
            sub_agent: None,
            standing_by: Vec::new(),
            standing_exact: false,
            approval_note: None,
            origin: None,
        }
    }
}

/// Who must allow a call. For server and client tools only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Nobody has to.
    NotRequired,
    /// A person, or a hook that approves.
    Required,
}

/// What to do with a call that was started and left no result: the process died in between.
#[derive(Clone)]
pub enum Effect {
    /// No effect on the world: run it again.
    Pure,
    /// Run it again: the call id is the key by which the world tells a repetition.
    Idempotent,
    /// Ask the world whether it happened; what comes back is the result.
    Reconcile(Arc<dyn Reconcile>),
    /// Ask a person whether it may run again.
    Ask,
    /// Never again: an error result says that nobody knows whether it happened.
    Never,
}

impl Effect {
    /// [`Reconcile`](Self::Reconcile) by a function: the result if the call happened, `None` if it did not.
    ///
    /// ```
    /// use turnbuckle::tool::{Effect, Output};
    /// let booked = Effect::reconcile(|_, call| async move {
    ///     // Ask the booking system for this call id here.
    ///     Ok((call.call.as_str() == "c1").then(|| Output::ok("booked")))
    /// });
    /// ```
    pub fn reconcile<F, Fut>(ask: F) -> Self
    where
        F: Fn(Turn, ToolCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Output>, BoxError>> + Send + 'static,
    {
        Self::Reconcile(Arc::new(Asking(ask)))
    }
}

/// A function that asks the world.
struct Asking<F>(F);

impl<F, Fut> Reconcile for Asking<F>
where
    F: Fn(Turn, ToolCall) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Option<Output>, BoxError>> + Send + 'static,
{
    fn reconcile<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
        Box::pin((self.0)(turn.clone(), call.clone()))
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::Reconcile(_) => "reconcile",
            Self::Ask => "ask",
            Self::Never => "never",
        })
    }
}

/// Asks the world whether a call had its effect.
pub trait Reconcile: Send + Sync {
    /// `Some` result if it happened; `None` if it did not, and then it runs.
    fn reconcile<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>>;
}

/// Brings the arguments of a call to their normal form: one spelling for everything that means the same, such as the path of
/// a file.
///
/// It runs before the arguments are validated, and again on what a `before_tool` hook made of them. Hooks, questions to
/// people, digests and `tool_started` have the normal form; only `tool_call` keeps what the model wrote. What the normal form
/// depends on may change before the tool runs, so the tool must check it again.
pub trait Normalize: Send + Sync {
    /// The arguments in their normal form; `None` if they have it already. Arguments that do not fit the tool's schema are left
    /// as they are: validation refuses them. An error refuses the call, and the model reads it; no hook is asked.
    fn normalize<'a>(&'a self, arguments: &'a Value) -> BoxFuture<'a, Result<Option<Value>, BoxError>>;
}

impl fmt::Debug for dyn Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Normalize")
    }
}

/// Allows calls that would need approval: rules that the acting user gave for this run.
///
/// It answers the approval that a tool or the agent asks for. It never answers what a hook asks, nor a rule of the access rules.
pub trait AllowCalls: Send + Sync {
    /// The rule by which a call may run without being asked about, as the user wrote it; `None`: it is asked about. The arguments are
    /// in their normal form. The rule is recorded with the call, as the evidence for it.
    fn allows(&self, tool: &str, arguments: &Value) -> Option<Text>;
}

impl fmt::Debug for dyn AllowCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllowCalls")
    }
}

/// What a tool gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Whether it did what it was asked.
    pub ok: bool,
    /// What the model reads.
    pub content: Content,
    /// Set by [`wait`](Self::wait): there is no result yet. In a box: few tools wait, and results are moved often.
    pub(crate) waits: Option<Box<OwnQuestion>>,
}

/// What a tool asks instead of giving a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnQuestion {
    pub(crate) question: Question,
    /// Who may answer. Without one the access rules say so.
    pub(crate) rule: Option<Arc<AnswerRule>>,
}

/// What a result may hold; what is beyond it is left out, and the result says so.
pub const MAX_RESULT_BYTES: usize = 256 * 1024;

impl Output {
    /// It worked.
    pub fn ok(content: impl Into<Content>) -> Self {
        Self { ok: true, content: content.into(), waits: None }
    }

    /// It did not, and the model should know why.
    pub fn error(content: impl Into<Content>) -> Self {
        Self { ok: false, content: content.into(), waits: None }
    }

    /// The same with other content: what an `after_tool` hook that changes a result gives back.
    #[must_use]
    pub fn with_content(self, content: impl Into<Content>) -> Self {
        Self { content: content.into(), ..self }
    }

    /// No result yet: someone must answer `question` first. The call suspends; once answered, the tool is called again
    /// with the answer in [`Turn::answer`].
    pub fn wait(question: Question) -> Self {
        Self::wait_for(OwnQuestion { question, rule: None })
    }

    /// Whether there is no result yet, because someone must answer first. A wrap passes such an output on as it is.
    pub fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// Like [`wait`](Self::wait), for a question that has a rule already: a sub-agent's.
    pub(crate) fn wait_for(question: OwnQuestion) -> Self {
        Self { ok: true, content: Content::default(), waits: Some(Box::new(question)) }
    }

    /// Bytes that should be text. What is not UTF-8 is replaced, and the result says so.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::ok(text),
            Err(error) => {
                let text = String::from_utf8_lossy(error.as_bytes());
                Self::ok(format!("[not UTF-8: replaced by \u{FFFD}]\n{text}"))
            }
        }
    }

    /// At most [`MAX_RESULT_BYTES`] of text: beginning and end, and how much is missing between.
    pub(crate) fn capped(self) -> Self {
        let size: usize = self.content.parts().iter().filter_map(Part::as_text).map(str::len).sum();
        if size <= MAX_RESULT_BYTES {
            return self;
        }
        let text = self.content.text();
        let head = &text[..text.floor_char_boundary(MAX_RESULT_BYTES * 3 / 4)];
        let tail = &text[text.ceil_char_boundary(text.len() - MAX_RESULT_BYTES / 4)..];
        let missing = text.len() - head.len() - tail.len();
        let short = format!("{head}\n[… {missing} of {size} bytes left out …]\n{tail}");
        let others = self.content.parts().iter().filter(|part| part.as_text().is_none()).cloned();
        Self { content: [Part::text(short)].into_iter().chain(others).collect(), ..self }
    }
}

impl<T: Into<Content>> From<T> for Output {
    fn from(content: T) -> Self {
        Self::ok(content)
    }
}

/// What the function of a tool may return: everything that is `Into<Output>`. It is a trait of its own so that the compiler
/// can say what to do about a type that is not.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    label = "neither text, nor JSON, nor an `Output`",
    note = "wrap a type that implements `Serialize` in `turnbuckle::tool::Json(…)`, or return a `String`, a `serde_json::Value` or an `Output`"
)]
pub trait IntoOutput {
    /// The result that the model reads.
    fn into_output(self) -> Output;
}

// Without this the compiler would report that `Content: From<T>` is missing, which says nothing about tools.
#[diagnostic::do_not_recommend]
impl<T: Into<Output>> IntoOutput for T {
    fn into_output(self) -> Output {
        self.into()
    }
}

/// Any value that can be serialised, as a tool's result: the model reads it as JSON.
///
/// ```
/// use turnbuckle::tool::{Effect, Json};
/// use turnbuckle::tools::function_with_schema;
///
/// #[derive(serde::Serialize)]
/// struct Weather { city: String, degrees: i32 }
///
/// let weather = function_with_schema("weather", "The weather.", serde_json::json!({"type": "object"}), Effect::Pure, |_, _| async {
///     Ok(Json(Weather { city: "Rome".into(), degrees: 21 }))
/// });
/// # let _ = weather;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> From<Json<T>> for Output {
    fn from(Json(value): Json<T>) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => value.into(),
            Err(error) => Self::error(format!("the result cannot be written as JSON: {error}")),
        }
    }
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::ok(text),
            value => Self::ok(value.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_50_mb_keeps_both_ends_and_says_what_is_missing() {
        let output = Output::ok(format!("begin{}end", "é".repeat(25_000_000))).capped();
        let text = output.content.text();
        assert!(text.len() < MAX_RESULT_BYTES + 100);
        assert!(text.starts_with("begin") && text.ends_with("end"));
        assert!(text.contains("of 50000008 bytes left out"));
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced_and_it_is_said() {
        assert_eq!(Output::bytes(b"plain".to_vec()).content.text(), "plain");
        assert!(Output::bytes(vec![0xff, b'a']).content.text().starts_with("[not UTF-8"));
    }
}
