//! The blocks of a reply that is being received, and the parts of a message that they become.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::message::{Part, ProviderBlock, Thought};

use super::WIRE;
use super::body::CITATIONS;

/// A block of a reply.
pub(super) enum Block {
    Text {
        text: String,
        citations: Vec<Value>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    Call {
        id: String,
        name: String,
        json: String,
        whole: Option<Value>,
    },
    /// The arguments of the forced tool. They are the reply's text for everybody behind the client.
    Object {
        json: String,
    },
    /// A block that only the provider reads, kept as it came. `json` is its input, which comes in pieces.
    Opaque {
        block: Value,
        json: String,
    },
}

/// Where the text of a block is pushed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Text,
    Thinking,
}

impl Block {
    /// The text of the block so far, if viewers see it.
    pub(super) fn visible(&self) -> Option<(Channel, &str)> {
        match self {
            Self::Text { text, .. } | Self::Object { json: text } => Some((Channel::Text, text)),
            Self::Thinking { text, .. } => Some((Channel::Thinking, text)),
            Self::Call { .. } | Self::Opaque { .. } => None,
        }
    }

    /// The parts of the message's content that the block becomes.
    pub(super) fn parts(&self) -> Vec<Part> {
        let opaque = |block: Value| Part::from(ProviderBlock { provider: WIRE.into(), block: Arc::new(block) });
        match self {
            Self::Text { text, citations } => {
                let said = (!text.is_empty()).then(|| Part::text(text.as_str()));
                let cited = || opaque(json!({ "type": CITATIONS, CITATIONS: citations }));
                said.into_iter().chain((!citations.is_empty()).then(cited)).collect()
            }
            Self::Thinking { text, signature } => {
                let signature = (!signature.is_empty()).then(|| signature.as_str().into());
                match (text.is_empty(), &signature) {
                    (true, None) => Vec::new(),
                    _ => vec![Thought { text: text.as_str().into(), signature }.into()],
                }
            }
            Self::Object { json } if json.is_empty() => Vec::new(),
            Self::Object { json } => vec![Part::text(json.as_str())],
            Self::Call { .. } => Vec::new(),
            Self::Opaque { block, json } => {
                let mut block = block.clone();
                // An input that is not JSON was cut off, and is left as it was at the start of the block.
                if let (false, Ok(input)) = (json.is_empty(), serde_json::from_str::<Value>(json)) {
                    block["input"] = input;
                }
                vec![opaque(block)]
            }
        }
    }

    /// The id, name and arguments of a call; `None` for any other block. `parse` makes arguments of the text.
    pub(super) fn call(&mut self, parse: fn(&str) -> Arc<Value>) -> Option<(String, String, Arc<Value>)> {
        let Self::Call { id, name, json, whole } = self else { return None };
        let arguments = match (json.is_empty(), whole.take()) {
            (true, Some(input)) => Arc::new(input),
            _ => parse(json),
        };
        Some((std::mem::take(id), std::mem::take(name), arguments))
    }
}

/// The arguments at the start of a block: some servers send all of them there.
pub(super) fn whole_input(block: &Value) -> Option<&Value> {
    block.get("input").filter(|input| input.as_object().is_some_and(|input| !input.is_empty()))
}
