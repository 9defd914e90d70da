//! The shape of an answer: a JSON schema that a reply's object is held to.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::message::{Reply, Text};

/// What an answer must look like, for one turn or for all of an agent's.
///
/// The model is offered no tools then: it answers with the object. Providers that can hold a model to a schema do; what
/// comes back is validated here either way, and a reply that does not fit is asked for once more, with the complaint.
///
/// ```
/// use serde_json::json;
/// use turnbuckle::{Agent, UserInput, Conversations, TurnStatus, Scope, OutputSchema, models::Script};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let shape = OutputSchema::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))?;
/// let agent = Agent::builder("counter", Script::says(["three, I think", "{\"n\": 3}"])).build()?;
/// let conversations = Conversations::in_memory(agent);
/// let rest = conversations.turn(&"c_1".into(), UserInput::new("how many?").with_schema(shape), Scope::local()).await?;
/// let TurnStatus::Ended(ended) = rest else { unreachable!() };
/// assert_eq!(ended.object(), Some(&json!({"n": 3})));
/// # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct OutputSchema(Arc<Inner>);

struct Inner {
    schema: Arc<Value>,
    validator: jsonschema::Validator,
}

/// A schema that is none.
#[derive(Debug, thiserror::Error)]
#[error("this is not a JSON schema: {problem}")]
pub struct SchemaError {
    problem: String,
}

/// How many complaints a model is told at once.
const COMPLAINTS: usize = 5;

impl OutputSchema {
    /// Compiles the schema.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        let validator =
            jsonschema::validator_for(&schema).map_err(|error| SchemaError { problem: error.to_string() })?;
        Ok(Self(Arc::new(Inner { schema: Arc::new(schema), validator })))
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Value> {
        &self.0.schema
    }

    /// The object that stands in a reply's text: what transformers and hooks let through, whatever a provider gave beside
    /// it. Else what is wrong, for the model.
    pub(crate) fn object_of(&self, reply: &Reply) -> Result<Arc<Value>, Text> {
        if !reply.calls.is_empty() {
            return Err("answer with the object; there are no tools to call".into());
        }
        let object = match serde_json::from_str(unfenced(&reply.content.text())) {
            Ok(object) => Arc::new(object),
            Err(error) => return Err(format!("the answer must be JSON and nothing else: {error}").into()),
        };
        let errors: Vec<String> = self.0.validator.iter_errors(&object).take(COMPLAINTS).map(complaint).collect();
        match errors.is_empty() {
            true => Ok(object),
            false => Err(format!("the answer does not fit the schema: {}", errors.join("; ")).into()),
        }
    }
}

fn complaint(error: jsonschema::ValidationError<'_>) -> String {
    format!("{} (at {:?})", error, error.instance_path().as_str())
}

/// Without the fence that models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).unwrap_or(text).trim()
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shape").field(&self.0.schema).finish()
    }
}
