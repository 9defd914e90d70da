//! What an answer must look like: a JSON schema that a reply's object is held to.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::json_schema::{JsonSchema, SchemaError, unfenced};
use crate::message::{Reply, Text};

/// What an answer must look like, for one turn or for all turns of an agent.
///
/// The model is offered no tools then: it answers with the object. Providers that can hold a model to a schema do so.
/// What comes back is validated here either way, and a reply that does not fit is asked for once more, with the complaint.
///
/// ```
/// use serde_json::json;
/// use turnbuckle::{Agent, Conversations, OutputSchema, Scope, UserInput, models::Script};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let schema = OutputSchema::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))?;
/// let agent = Agent::builder("counter", Script::says(["three, I think", "{\"n\": 3}"])).build()?;
/// let input = UserInput::new("how many?").with_schema(schema);
/// let report = Conversations::in_memory(agent).run(input, Scope::local()).await?;
/// assert_eq!(report.object(), Some(&json!({"n": 3})));
/// # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct OutputSchema(Arc<Inner>);

struct Inner {
    schema: Arc<Value>,
    compiled: JsonSchema,
}

impl OutputSchema {
    /// Compiles the schema.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        let compiled = JsonSchema::compile(&schema)?;
        Ok(Self(Arc::new(Inner { schema: Arc::new(schema), compiled })))
    }

    /// The schema of a Rust type. [`TurnReport::parse`](crate::TurnReport::parse) reads the answer back into it.
    #[cfg(feature = "schemars")]
    pub fn of<T: schemars::JsonSchema>() -> Result<Self, SchemaError> {
        Self::new(schemars::schema_for!(T).to_value())
    }

    /// The schema as JSON.
    pub fn schema(&self) -> &Arc<Value> {
        &self.0.schema
    }

    /// The object in a reply's text, or what is wrong with it, for the model to read. The text is what transformers and
    /// hooks let through; what a provider gave beside it does not count.
    pub(crate) fn object_of(&self, reply: &Reply) -> Result<Arc<Value>, Text> {
        if !reply.calls.is_empty() {
            return Err("answer with the object; there are no tools to call".into());
        }
        let object = match serde_json::from_str(unfenced(&reply.content.text())) {
            Ok(object) => Arc::new(object),
            Err(error) => return Err(format!("the answer must be JSON and nothing else: {error}").into()),
        };
        match self.0.compiled.complaint(&object) {
            None => Ok(object),
            Some(complaint) => Err(format!("the answer does not fit the schema: {complaint}").into()),
        }
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.0.schema).finish()
    }
}
