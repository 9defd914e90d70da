//! Tools from closures.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde_json::{Value, json};

use crate::BoxError;
use crate::BoxFuture;
use crate::message::{Text, ToolCall};
use crate::tool::{Approval, Effect, Executor, IntoOutput, Output, Retention, Spec, Tool};
use crate::turn::Turn;

type Run = dyn Fn(Turn, Value) -> BoxFuture<'static, Result<Output, BoxError>> + Send + Sync;

/// A server tool made of a closure.
pub struct FunctionTool {
    spec: Spec,
    run: Box<Run>,
}

/// A tool whose arguments are a Rust type: its JSON schema is the tool's. What the tool does to the world has to be said.
///
/// ```
/// use turnbuckle::{tool::Effect, tools::function};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add { a: i64, b: i64 }
/// let add = function("add", "Adds two numbers.", Effect::Pure, |_turn, add: Add| async move {
///     Ok((add.a + add.b).to_string())
/// });
/// # let _ = add;
/// ```
#[cfg(feature = "schemars")]
pub fn function<A, O, F, Fut>(
    name: impl Into<Text>,
    description: impl Into<Text>,
    effect: Effect,
    run: F,
) -> FunctionTool
where
    A: serde::de::DeserializeOwned + schemars::JsonSchema,
    O: IntoOutput,
    F: Fn(Turn, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, BoxError>> + Send + 'static,
{
    let schema = schemars::schema_for!(A).to_value();
    let run = std::sync::Arc::new(run);
    function_with_schema(name, description, schema, effect, move |turn, arguments| {
        let run = run.clone();
        async move {
            let arguments = serde_json::from_value(arguments)?;
            run(turn, arguments).await
        }
    })
}

/// A tool with a hand-written JSON schema; the closure is given the arguments as they are.
pub fn function_with_schema<O, F, Fut>(
    name: impl Into<Text>,
    description: impl Into<Text>,
    schema: Value,
    effect: Effect,
    run: F,
) -> FunctionTool
where
    O: IntoOutput,
    F: Fn(Turn, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, BoxError>> + Send + 'static,
{
    let boxed = move |turn, arguments| -> BoxFuture<'static, Result<Output, BoxError>> {
        let future = run(turn, arguments);
        Box::pin(async move { future.await.map(IntoOutput::into_output) })
    };
    FunctionTool { spec: Spec::server(name, description, schema, effect), run: Box::new(boxed) }
}

impl FunctionTool {
    /// A person, or a hook that approves, must allow each call.
    pub fn requires_approval(mut self) -> Self {
        self.spec.approval = Approval::Required;
        self
    }
    /// How long a call may run.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = timeout;
        self
    }
    /// Called by the system it fails.
    pub fn needs_user(mut self) -> Self {
        self.spec.needs_user = true;
        self
    }
    /// The parts of the arguments, as JSON pointers, by which a standing approval knows a call again. Without this all
    /// arguments must be the same.
    pub fn standing_by<P: Into<Text>>(mut self, pointers: impl IntoIterator<Item = P>) -> Self {
        self.spec.standing_by = pointers.into_iter().map(Into::into).collect();
        self
    }

    /// Which of its results may be shortened when a context becomes too large. By default those that are older than the turn
    /// before the present one.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.spec.retention = retention;
        self
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        (self.run)(turn.clone(), (*call.arguments).clone())
    }
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// A tool that a person or a client runs. The call suspends until it is answered.
#[derive(Debug)]
pub struct Ask {
    spec: Spec,
}

/// A question to a person: the answer is the result.
pub fn human(name: impl Into<Text>, description: impl Into<Text>) -> Ask {
    let schema = json!({
        "type": "object",
        "properties": {
            "question": { "type": "string", "description": "What to ask." },
            "schema": { "type": "object", "description": "A JSON schema of the answer, if it must have a shape." },
        },
        "required": ["question"],
        "additionalProperties": false,
    });
    // What a person said cannot be had by asking again.
    let (executor, retention) = (Executor::Human, Retention::Keep);
    Ask { spec: Spec { executor, retention, ..Spec::server(name, description, schema, Effect::Pure) } }
}

/// Work for a browser or an editor. Its result is not trusted, and the log says who ran it.
pub fn client(name: impl Into<Text>, description: impl Into<Text>, schema: Value) -> Ask {
    Ask { spec: Spec { executor: Executor::Client, ..Spec::server(name, description, schema, Effect::Pure) } }
}

impl Ask {
    /// A person must allow each call before the client is asked to run it. Refused for a question to a person when the
    /// agent is built.
    pub fn requires_approval(mut self) -> Self {
        self.spec.approval = Approval::Required;
        self
    }
}

impl Tool for Ask {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn call<'a>(&'a self, _: &'a Turn, _: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async { Err("this tool is not run here".into()) })
    }
}
