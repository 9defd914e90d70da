//! Stream transformers: what a model says, changed on its way out.

use serde_json::{Map, Value};

use crate::id::{ConversationId, TurnId};
use crate::message::Text;
use crate::{BoxError, BoxFuture};

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

/// A transformer whose answers take a while, because it asks another process. While it works, the model goes on; what the model
/// says meanwhile is given to it together, so it sees batches of chunks.
///
/// Each answer has the hook's time limit. One that is late or fails blocks the turn: nothing that it did not let through is told.
/// Its place in the order is that of its hook. A reply that passes one is told in the batches that it lets through, so hooks that
/// need every chunk at once use [`Transformer`].
pub trait AsyncTransformer: Send {
    /// The next chunks of one stretch of text or thinking, in order. The last batch of a stretch may be empty: then only what is
    /// held back is flushed or dropped. Dropped when the reply is discarded.
    fn transform<'a>(
        &'a mut self,
        stretch: &'a Stretch,
        batch: TransformBatch,
    ) -> BoxFuture<'a, Result<TransformedBatch, BoxError>>;
}

/// What an [`AsyncTransformer`] is given at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransformBatch {
    /// In the order in which they were said.
    pub chunks: Vec<String>,
    /// Whether the stretch ends with it.
    pub is_last: bool,
}

/// What an [`AsyncTransformer`] lets through.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransformedBatch {
    /// May be empty: then everything was dropped or is held back.
    pub text: String,
    /// Put beside the message that is made of this text.
    pub annotations: Map<String, Value>,
}

/// Where the text comes from that an [`AsyncTransformer`] sees.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stretch {
    /// Of which conversation.
    pub conversation: ConversationId,
    /// Of which turn.
    pub turn: TurnId,
    /// The agent's name.
    pub agent: Text,
    /// Which attempt at the reply.
    pub attempt: u32,
    /// Whether it is the answer or a thought.
    pub kind: StretchKind,
}

/// What a stretch of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchKind {
    /// The answer.
    Text,
    /// A thought.
    Thinking,
}
