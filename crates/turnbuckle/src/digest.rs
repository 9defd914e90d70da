//! Digests: what an approval is bound to.

use std::io::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use crate::id::ConversationId;
use crate::message::Text;

/// Of a JSON value, in one spelling: keys sorted, no white space.
pub(crate) fn of(value: &Value) -> Text {
    let mut hash = Sha256::new();
    feed(&mut hash, value);
    hex(&hash.finalize())
}

/// Of a call: tool, effective arguments, conversation.
pub(crate) fn of_call(tool: &str, arguments: &Value, conversation: &ConversationId) -> Text {
    let mut hash = Sha256::new();
    for part in [tool, conversation.as_str()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    feed(&mut hash, arguments);
    hex(&hash.finalize())
}

fn feed(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Array(items) => {
            hash.update(b"[");
            items.iter().for_each(|item| {
                feed(hash, item);
                hash.update(b",");
            });
            hash.update(b"]");
        }
        Value::Object(fields) => {
            hash.update(b"{");
            if fields.keys().is_sorted() {
                fields.iter().for_each(|(key, item)| feed_field(hash, key, item));
            } else {
                let mut pairs: Vec<_> = fields.iter().collect();
                pairs.sort_unstable_by_key(|(key, _)| *key);
                pairs.into_iter().for_each(|(key, item)| feed_field(hash, key, item));
            }
            hash.update(b"}");
        }
        Value::String(text) => feed_text(hash, text),
        Value::Null => hash.update(b"n"),
        Value::Bool(yes) => hash.update(if *yes { b"t" } else { b"f" }),
        Value::Number(number) => {
            hash.update(b"#");
            let mut text = SmallVec::<[u8; 32]>::new();
            // Writing to a vector cannot fail.
            let _ = write!(text, "{number}");
            hash.update(&text);
            hash.update(b";");
        }
    }
}

fn feed_field(hash: &mut Sha256, key: &str, item: &Value) {
    feed_text(hash, key);
    feed(hash, item);
}

fn feed_text(hash: &mut Sha256, text: &str) {
    hash.update(b"\"");
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

fn hex(bytes: &[u8]) -> Text {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: SmallVec<[u8; 64]> = digits.map(|digit| DIGITS[usize::from(digit)]).collect();
    std::str::from_utf8(&text).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
