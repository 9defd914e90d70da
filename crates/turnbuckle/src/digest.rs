//! Digests: what an approval is bound to.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::id::ConversationId;
use crate::message::Text;

/// The digest of a JSON value: the same for every order of its keys.
pub(crate) fn of(value: &Value) -> Text {
    let mut bytes = Vec::with_capacity(256);
    write_value(&mut bytes, value);
    hex(&bytes)
}

/// The digest of a call: tool, effective arguments, conversation.
pub(crate) fn of_call(tool: &str, arguments: &Value, conversation: &ConversationId) -> Text {
    let mut bytes = Vec::with_capacity(256);
    write_sized(&mut bytes, tool);
    write_sized(&mut bytes, conversation.as_str());
    write_value(&mut bytes, arguments);
    hex(&bytes)
}

/// The digest of a call, made when it is first looked at: most calls need no approval and are never stored, and hashing
/// costs more than the rest of such a call.
#[derive(Clone)]
pub struct CallDigest(Digest);

/// Small, because every event of a log has room for it.
#[derive(Clone)]
enum Digest {
    Known(Text),
    OfCall(Arc<DigestedCall>),
}

/// A call whose digest was perhaps not looked at yet.
struct DigestedCall {
    text: OnceLock<Text>,
    tool: Text,
    arguments: Arc<Value>,
    conversation: ConversationId,
}

impl CallDigest {
    pub(crate) fn of_call(tool: Text, arguments: Arc<Value>, conversation: ConversationId) -> Self {
        Self(Digest::OfCall(Arc::new(DigestedCall { text: OnceLock::new(), tool, arguments, conversation })))
    }

    /// The digest as text.
    pub fn text(&self) -> &Text {
        match &self.0 {
            Digest::Known(text) => text,
            Digest::OfCall(call) => call.text.get_or_init(|| of_call(&call.tool, &call.arguments, &call.conversation)),
        }
    }
}

impl From<Text> for CallDigest {
    fn from(text: Text) -> Self {
        Self(Digest::Known(text))
    }
}

impl PartialEq for CallDigest {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl std::fmt::Debug for CallDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

impl Serialize for CallDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CallDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer).map(Self::from)
    }
}

fn write_sized(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'"');
    write_sized(bytes, text);
}

/// One spelling for every value: keys sorted, no white space, lengths before texts.
fn write_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Array(items) => {
            bytes.push(b'[');
            for item in items {
                write_value(bytes, item);
                bytes.push(b',');
            }
            bytes.push(b']');
        }
        Value::Object(fields) => {
            let mut pairs: Vec<_> = fields.iter().collect();
            pairs.sort_unstable_by_key(|(key, _)| *key);
            bytes.push(b'{');
            for (key, item) in pairs {
                write_text(bytes, key);
                write_value(bytes, item);
            }
            bytes.push(b'}');
        }
        Value::String(text) => write_text(bytes, text),
        Value::Null => bytes.push(b'n'),
        Value::Bool(yes) => bytes.push(if *yes { b't' } else { b'f' }),
        Value::Number(number) => {
            bytes.push(b'#');
            bytes.extend_from_slice(number.to_string().as_bytes());
            bytes.push(b';');
        }
    }
}

fn hex(bytes: &[u8]) -> Text {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An approval that waits in a store must still fit after an update.
    #[test]
    fn the_spelling_never_changes() {
        let all = json!({"whole": 3, "less": -4, "part": 1.5, "big": u64::MAX, "text": "t", "list": [true, null]});
        expect_test::expect!["c017ce54cc997dde56c4734db50c5c157b0ffd9e756ef7805acd667a13989913"].assert_eq(&of_call(
            "tool",
            &all,
            &"c_1".into(),
        ));
    }

    #[test]
    fn the_order_of_keys_does_not_matter_and_everything_else_does() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(of(&parse(r#"{"a":1,"b":[2,3]}"#)), of(&parse(r#"{"b":[2,3],"a":1}"#)));
        let all =
            [json!({"a": 1}), json!({"a": "1"}), json!([["a"], 1]), json!(["a", [1]]), json!({"a": null}), json!({})];
        let digests: std::collections::BTreeSet<_> = all.iter().map(of).collect();
        assert_eq!(digests.len(), all.len());
    }
}
