//! The tool that the runtime and the hand-written loop share.

use serde_json::{Value, json};
use turnbuckle::tool::{Effect, Output, Spec, Tool};
use turnbuckle::{BoxError, BoxFuture, ToolCall, Turn};

/// Adds `a` and `b`.
#[derive(Debug)]
pub struct Add(Spec);

impl Default for Add {
    fn default() -> Self {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "required": ["a", "b"],
        });
        Self(Spec::server("add", "Adds two numbers.", schema, Effect::Pure))
    }
}

impl Add {
    /// The sum as text.
    pub fn add(&self, arguments: &Value) -> Result<Output, BoxError> {
        let number = |name: &str| arguments.get(name).and_then(Value::as_i64).ok_or("an argument is missing");
        Ok(Output::ok((number("a")? + number("b")?).to_string()))
    }
}

impl Tool for Add {
    fn spec(&self) -> &Spec {
        &self.0
    }
    fn call<'a>(&'a self, _: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move { self.add(&call.arguments) })
    }
}
