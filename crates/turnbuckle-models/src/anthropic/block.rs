//! The blocks of a reply under way, and what they become.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::message::Part;

use super::WIRE;
use super::body::CITATIONS;

/// A block of the reply under way.
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
    /// The forced tool's arguments: to everybody else they are what the model says.
    Object {
        json: String,
    },
    /// Of the provider's own: kept as it came, with the input that came in pieces.
    Sealed {
        block: Value,
        json: String,
    },
}

/// What kind of thing is said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Text,
    Thinking,
}

impl Block {
    /// What it tells people so far.
    pub(super) fn said(&self) -> Option<(Lane, &str)> {
        match self {
            Self::Text { text, .. } | Self::Object { json: text } => Some((Lane::Text, text)),
            Self::Thinking { text, .. } => Some((Lane::Thinking, text)),
            Self::Call { .. } | Self::Sealed { .. } => None,
        }
    }

    /// What stands in the content for it.
    pub(super) fn parts(&self) -> Vec<Part> {
        let sealed = |block: Value| Part::Provider { provider: WIRE.into(), block: Arc::new(block) };
        match self {
            Self::Text { text, citations } => {
                let said = (!text.is_empty()).then(|| Part::text(text.as_str()));
                let cited = || sealed(json!({ "type": CITATIONS, CITATIONS: citations }));
                said.into_iter().chain((!citations.is_empty()).then(cited)).collect()
            }
            Self::Thinking { text, signature } => {
                let signature = (!signature.is_empty()).then(|| signature.as_str().into());
                match (text.is_empty(), &signature) {
                    (true, None) => Vec::new(),
                    _ => vec![Part::Thinking { text: text.as_str().into(), signature }],
                }
            }
            Self::Object { json } if json.is_empty() => Vec::new(),
            Self::Object { json } => vec![Part::text(json.as_str())],
            Self::Call { .. } => Vec::new(),
            Self::Sealed { block, json } => {
                let mut block = block.clone();
                if let (false, Ok(input)) = (json.is_empty(), serde_json::from_str::<Value>(json)) {
                    block["input"] = input;
                }
                vec![sealed(block)]
            }
        }
    }

    /// The call that it is; `read` makes arguments of its text.
    pub(super) fn call(&mut self, read: fn(&str) -> Arc<Value>) -> Option<(String, String, Arc<Value>)> {
        let Self::Call { id, name, json, whole } = self else { return None };
        let arguments = match (json.is_empty(), whole.take()) {
            (true, Some(input)) => Arc::new(input),
            _ => read(json),
        };
        Some((std::mem::take(id), std::mem::take(name), arguments))
    }
}

/// Some servers send the arguments whole, at the start of the block.
pub(super) fn whole_input(block: &Value) -> Option<&Value> {
    block.get("input").filter(|input| input.as_object().is_some_and(|input| !input.is_empty()))
}
