//! Digests: what an approval is bound to.

use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use crate::id::ConversationId;
use crate::message::Text;

/// Of a JSON value, in one spelling: keys sorted, no white space.
pub(crate) fn of(value: &Value) -> Text {
    let mut speller = Speller::new();
    speller.value(value);
    speller.digest()
}

/// Of a call: tool, effective arguments, conversation.
pub(crate) fn of_call(tool: &str, arguments: &Value, conversation: &ConversationId) -> Text {
    let mut speller = Speller::new();
    speller.sized(tool);
    speller.sized(conversation.as_str());
    speller.value(arguments);
    speller.digest()
}

/// Bytes on their way into the hash: it is fed in pieces of some size, since each feeding has its cost.
struct Speller {
    hash: Sha256,
    waiting: [u8; 256],
    used: usize,
}

impl Speller {
    fn new() -> Self {
        Self { hash: Sha256::new(), waiting: [0; 256], used: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.used + bytes.len() > self.waiting.len() {
            self.hash.update(&self.waiting[..self.used]);
            self.used = 0;
        }
        match self.waiting.get_mut(self.used..self.used + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            None => self.hash.update(bytes),
        }
    }

    fn sized(&mut self, text: &str) {
        self.put(&(text.len() as u64).to_le_bytes());
        self.put(text.as_bytes());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.put(b"[");
                for item in items {
                    self.value(item);
                    self.put(b",");
                }
                self.put(b"]");
            }
            Value::Object(fields) => {
                self.put(b"{");
                if fields.keys().is_sorted() {
                    fields.iter().for_each(|(key, item)| self.field(key, item));
                } else {
                    let mut pairs: Vec<_> = fields.iter().collect();
                    pairs.sort_unstable_by_key(|(key, _)| *key);
                    pairs.into_iter().for_each(|(key, item)| self.field(key, item));
                }
                self.put(b"}");
            }
            Value::String(text) => self.text(text),
            Value::Null => self.put(b"n"),
            Value::Bool(yes) => self.put(if *yes { b"t" } else { b"f" }),
            Value::Number(number) => {
                self.put(b"#");
                self.number(number);
                self.put(b";");
            }
        }
    }

    fn number(&mut self, number: &Number) {
        let mut digits = itoa::Buffer::new();
        match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => self.put(digits.format(whole).as_bytes()),
            (None, Some(whole)) => self.put(digits.format(whole).as_bytes()),
            (None, None) => self.put(number.to_string().as_bytes()),
        }
    }

    fn field(&mut self, key: &str, item: &Value) {
        self.text(key);
        self.value(item);
    }

    fn text(&mut self, text: &str) {
        self.put(b"\"");
        self.sized(text);
    }

    fn digest(mut self) -> Text {
        self.hash.update(&self.waiting[..self.used]);
        hex(&self.hash.finalize())
    }
}

fn hex(bytes: &[u8]) -> Text {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = SmallVec::<[u8; 64]>::from_elem(0, 2 * bytes.len());
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    std::str::from_utf8(&text).unwrap_or_default().into()
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
