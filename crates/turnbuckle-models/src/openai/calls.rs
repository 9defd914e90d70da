//! Tool calls that come in pieces. Servers differ in which fields a piece has.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use turnbuckle::ToolCall;

use crate::arguments;
use crate::positions::Positions;
use crate::wire::Str;

/// One piece of a call.
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
    /// Mostly a piece of JSON text. Some servers send a whole object instead.
    #[serde(default)]
    arguments: Value,
}

#[derive(Debug, Default)]
struct Call {
    id: Arc<str>,
    name: String,
    arguments: String,
}

/// The calls of one reply, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The latest call with this index.
    by_index: Positions<u64>,
    /// The call with this id.
    by_id: Positions<Arc<str>>,
    /// The call with this index and id, for servers that number every call 0.
    by_both: Positions<(u64, Arc<str>)>,
}

impl Calls {
    pub(super) fn take(&mut self, delta: CallDelta<'_>) {
        let is_named = delta.function.as_ref().is_some_and(|function| !function.name.is_empty());
        // A server that invents a new id for every piece names the tool in the first piece only.
        let id = if is_named || delta.index.is_none() { &*delta.id } else { "" };
        let position = self.find(delta.index, id).unwrap_or_else(|| self.begin(delta.index));
        // Some servers repeat id and name in every piece. The first ones count.
        if self.calls[position].id.is_empty() && !delta.id.is_empty() {
            self.set_id(position, delta.index, Arc::from(&*delta.id));
        }
        let call = &mut self.calls[position];
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

    /// The call that a piece belongs to: by index; without one, by id; without both, the last. An index that comes with
    /// another id than before is another call: there are servers that number every call 0.
    fn find(&self, index: Option<u64>, id: &str) -> Option<usize> {
        match index {
            Some(index) => {
                // Only the latest call of an index can lack an id: the next id that comes with the index becomes its id.
                let latest = self.by_index.get(index)?;
                let is_same = id.is_empty() || self.calls[latest].id.is_empty() || *self.calls[latest].id == *id;
                if is_same { Some(latest) } else { self.by_both.get((index, id.into())) }
            }
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.by_id.get(id.into()),
        }
    }

    fn begin(&mut self, index: Option<u64>) -> usize {
        let position = self.calls.len();
        self.calls.push(Call::default());
        if let Some(index) = index {
            self.by_index.set(index, position);
        }
        position
    }

    fn set_id(&mut self, position: usize, index: Option<u64>, id: Arc<str>) {
        if let Some(index) = index {
            self.by_both.set((index, id.clone()), position);
        }
        self.by_id.set(id.clone(), position);
        self.calls[position].id = id;
    }

    /// The calls, each with an id. `read_last` parses the arguments of the last one, which the reply's length may have cut.
    pub(super) fn finish(self, ordinal: u64, read_last: fn(&str) -> Arc<Value>) -> Vec<ToolCall> {
        let named: Vec<Call> = self.calls.into_iter().filter(|call| !call.name.is_empty()).collect();
        let count = named.len();
        let make = |(at, call): (usize, Call)| {
            let read = if at + 1 == count { read_last } else { arguments::received };
            ToolCall {
                call: match call.id.is_empty() {
                    true => format!("call_{ordinal}_{}", at + 1).into(),
                    false => (&*call.id).into(),
                },
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
    use crate::positions::comparisons;
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
    #[test]
    fn a_piece_costs_the_same_however_many_calls_there_are() {
        for pieces_of in [
            (|call| piece(call, &format!("c{call}"), "f", "")) as fn(u64) -> Value,
            |call| piece(0, &format!("c{call}"), "f", ""),
            |call| json!({ "id": format!("c{call}"), "function": { "name": "f" } }),
            |call| json!({ "index": call, "function": { "name": "f" } }),
        ] {
            comparisons::assert_linear(
                |n| n,
                |n| {
                    let pieces: Vec<Value> = (0..n as u64).chain(0..n as u64).map(pieces_of).collect();
                    assert_eq!(calls(&pieces).len(), n);
                },
            );
        }
    }
}
