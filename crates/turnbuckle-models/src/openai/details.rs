//! OpenRouter's `reasoning_details`: entries that come in pieces and go back to the server as they came.

use serde_json::{Number, Value};

use crate::positions::Positions;

/// Fields whose pieces follow each other. Of every other field the latest value counts.
const TEXTS: [&str; 3] = ["text", "summary", "data"];

/// The entries of one reply.
#[derive(Default)]
pub(super) struct Details {
    entries: Vec<Value>,
    /// By index and type. Reasoning text and its encrypted form may share an index and are still two entries.
    positions: Positions<(Number, String)>,
}

impl Details {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a piece: to the entry with the same index and type, or as a new entry. A piece without an index is always one.
    pub(super) fn add(&mut self, piece: Value) {
        let Some(key) = key(&piece) else {
            self.entries.push(piece);
            return;
        };
        match self.positions.get(key.clone()) {
            Some(position) => merge(&mut self.entries[position], piece),
            None => {
                self.positions.set(key, self.entries.len());
                self.entries.push(piece);
            }
        }
    }

    pub(super) fn into_entries(self) -> Vec<Value> {
        self.entries
    }
}

fn key(piece: &Value) -> Option<(Number, String)> {
    let index = piece.get("index")?.as_number()?.clone();
    Some((index, piece.get("type").and_then(Value::as_str).unwrap_or_default().to_owned()))
}

fn merge(entry: &mut Value, piece: Value) {
    let (Some(entry), Value::Object(piece)) = (entry.as_object_mut(), piece) else { return };
    for (name, value) in piece {
        match (entry.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(more)) if TEXTS.contains(&&*name) => text.push_str(&more),
            (_, Value::Null) => {}
            (_, value) => {
                entry.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::comparisons;
    use serde_json::json;

    fn merged(pieces: impl IntoIterator<Item = Value>) -> Vec<Value> {
        let mut details = Details::default();
        pieces.into_iter().for_each(|piece| details.add(piece));
        details.into_entries()
    }

    #[test]
    fn pieces_with_the_same_index_and_type_are_one_entry() {
        let pieces = [
            json!({ "type": "reasoning.text", "index": 0, "text": "a", "signature": null }),
            json!({ "type": "reasoning.encrypted", "index": 0, "data": "x" }),
            json!({ "type": "reasoning.text", "index": 0, "text": "b", "signature": "s" }),
            json!({ "type": "reasoning.encrypted", "index": 0, "data": "y" }),
            json!({ "type": "reasoning.text", "index": 1, "text": "c" }),
            json!({ "type": "reasoning.text", "text": "no index" }),
            json!({ "type": "reasoning.text", "text": "no index" }),
            json!("not an object"),
        ];
        let expected = [
            json!({ "type": "reasoning.text", "index": 0, "text": "ab", "signature": "s" }),
            json!({ "type": "reasoning.encrypted", "index": 0, "data": "xy" }),
            json!({ "type": "reasoning.text", "index": 1, "text": "c" }),
            json!({ "type": "reasoning.text", "text": "no index" }),
            json!({ "type": "reasoning.text", "text": "no index" }),
            json!("not an object"),
        ];
        assert_eq!(merged(pieces), expected);
    }

    #[test]
    fn a_piece_costs_the_same_however_many_entries_there_are() {
        let piece = |index: usize| json!({ "type": "reasoning.text", "index": index, "text": "a" });
        comparisons::assert_linear(
            |n| n,
            |n| {
                let entries = merged((0..n).chain(0..n).map(piece));
                assert_eq!((entries.len(), &entries[n - 1]["text"]), (n, &json!("aa")));
            },
        );
    }
}
