//! Tool calls that come in pieces, from servers that differ in what a piece holds.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use turnbuckle::ToolCall;

use crate::arguments;
use crate::wire::Str;

/// A piece of a call.
#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    name: Str<'a>,
    /// Text in pieces, as it should be, or an object in one.
    #[serde(default)]
    arguments: Value,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// The calls of one reply.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

impl Calls {
    pub(super) fn take(&mut self, delta: CallDelta<'_>) {
        let is_named = delta.function.as_ref().is_some_and(|function| !function.name.is_empty());
        // A server that makes up a new id for every piece names the tool in the first one only.
        let id = if is_named || delta.index.is_none() { &*delta.id } else { "" };
        let at = self.place(delta.index, id);
        let call = &mut self.0[at];
        // Some servers say id and name in every piece: they are said once.
        if call.id.is_empty() {
            call.id.push_str(&delta.id);
        }
        let Some(function) = delta.function else { return };
        if call.name.is_empty() {
            call.name.push_str(&function.name);
        }
        match function.arguments {
            Value::String(piece) => call.arguments.push_str(&piece),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }

    /// Which call a piece belongs to: by index; without one, by id; without both, the last. An index that comes with
    /// another id than before is another call: there are servers that number every call 0.
    fn place(&mut self, index: Option<u64>, id: &str) -> usize {
        let same_id = |call: &Call| id.is_empty() || call.id.is_empty() || call.id == id;
        let found = match index {
            Some(_) => self.0.iter().rposition(|call| call.index == index && same_id(call)),
            None if id.is_empty() => self.0.len().checked_sub(1),
            None => self.0.iter().rposition(|call| call.id == id),
        };
        found.unwrap_or_else(|| {
            self.0.push(Call { index, ..Call::default() });
            self.0.len() - 1
        })
    }

    /// The calls, each with an id; `read_last` makes arguments of the last one's text.
    pub(super) fn finish(self, ordinal: u64, read_last: fn(&str) -> Arc<Value>) -> Vec<ToolCall> {
        let named: Vec<Call> = self.0.into_iter().filter(|call| !call.name.is_empty()).collect();
        let count = named.len();
        let make = |(at, call): (usize, Call)| {
            let read = if at + 1 == count { read_last } else { arguments::received };
            ToolCall {
                call: if call.id.is_empty() { format!("call_{ordinal}_{}", at + 1) } else { call.id }.into(),
                name: call.name.into(),
                arguments: read(&call.arguments),
            }
        };
        named.into_iter().enumerate().map(make).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(pieces: &[Value]) -> Vec<(String, String, Value)> {
        let mut calls = Calls::default();
        for piece in pieces {
            let text = piece.to_string();
            calls.take(serde_json::from_str(&text).unwrap());
        }
        let shown = |call: ToolCall| (call.call.to_string(), call.name.to_string(), (*call.arguments).clone());
        calls.finish(3, arguments::received).into_iter().map(shown).collect()
    }

    fn piece(index: u64, id: &str, name: &str, arguments: &str) -> Value {
        json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    fn call(id: &str, name: &str, arguments: Value) -> (String, String, Value) {
        (id.to_owned(), name.to_owned(), arguments)
    }

    #[test]
    fn pieces_that_repeat_id_and_name_are_one_call() {
        let pieces = [piece(0, "a", "f", "{\"x\""), piece(0, "a", "f", ":1}"), piece(0, "a", "f", "")];
        assert_eq!(calls(&pieces), [call("a", "f", json!({ "x": 1 }))]);
    }

    #[test]
    fn an_id_made_up_anew_for_every_piece_makes_no_new_call() {
        let pieces = [piece(0, "a", "f", "{\"x\""), piece(0, "b", "", ":1"), piece(0, "c", "", "}")];
        assert_eq!(calls(&pieces), [call("a", "f", json!({ "x": 1 }))]);
    }

    #[test]
    fn parallel_calls_are_told_apart_by_index_and_where_all_have_index_0_by_id() {
        let later = |index: u64, arguments: &str| json!({ "index": index, "function": { "arguments": arguments } });
        let mixed = [piece(0, "a", "f", ""), piece(1, "b", "g", "{"), later(0, "{}"), later(1, "}")];
        let expected = [call("a", "f", json!({})), call("b", "g", json!({}))];
        assert_eq!(calls(&mixed), expected);
        assert_eq!(calls(&[piece(0, "a", "f", "{}"), piece(0, "b", "g", "{}")]), expected);
        let without = |id: &str, name: &str| json!({ "id": id, "function": { "name": name, "arguments": {} } });
        assert_eq!(calls(&[without("a", "f"), without("b", "g")]), expected);
    }

    #[test]
    fn a_call_without_arguments_or_id_is_still_a_call() {
        let bare = json!({ "index": 0, "function": { "name": "f" } });
        assert_eq!(calls(&[bare]), [call("call_3_1", "f", json!({}))]);
        assert_eq!(calls(&[piece(0, "a", "f", "")]), [call("a", "f", json!({}))]);
        let null = json!({ "index": 0, "id": "a", "function": { "name": "f", "arguments": null } });
        assert_eq!(calls(&[null]), [call("a", "f", json!({}))]);
        assert_eq!(calls(&[piece(0, "a", "f", "{\"x\":")]), [call("a", "f", json!("{\"x\":"))]);
    }
}
