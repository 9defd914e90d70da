//! Stream transformers: what a model says, changed on its way out.

use serde_json::{Map, Value};

use crate::BoxError;

/// Sees every chunk of one attempt's text, or of one attempt's thinking, in order, and decides what gets through.
///
/// What is pushed to `out` is passed; what is not is dropped, or held back until a later chunk or
/// [`finish`](Self::finish). A transformer that fails blocks the turn: nothing it did not let through is told.
///
/// ```
/// use turnbuckle::{BoxError, hook::{TransformOutput, Transformer}};
/// struct Shout;
/// impl Transformer for Shout {
///     fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
///         out.push(&text.to_uppercase());
///         Ok(())
///     }
/// }
/// ```
pub trait Transformer: Send {
    /// One more chunk.
    fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError>;

    /// No further chunk comes: flush or drop what is held back.
    fn finish(&mut self, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
        let _ = out;
        Ok(())
    }
}

/// What a transformer lets through.
#[derive(Debug)]
pub struct TransformOutput<'a> {
    text: &'a mut String,
    annotations: &'a mut Map<String, Value>,
}

impl<'a> TransformOutput<'a> {
    /// Into these.
    pub fn new(text: &'a mut String, annotations: &'a mut Map<String, Value>) -> Self {
        Self { text, annotations }
    }

    /// Lets text through.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Puts something beside the message that is made of this text: citations, for instance.
    pub fn annotate(&mut self, key: impl Into<String>, value: Value) {
        self.annotations.insert(key.into(), value);
    }
}
