//! What a program under check is sent.

use std::path::Path;

use serde_json::{Value, json};
use turnbuckle::hook::Point;

use super::super::message::Served;

pub(super) fn initialize(protocol: u32, cwd: &Path) -> Value {
    let runtime = json!({"name": "turnbuckle", "version": env!("CARGO_PKG_VERSION")});
    let points: Vec<&str> = Point::ALL.into_iter().map(Point::name).collect();
    json!({"protocol": protocol, "runtime": runtime, "name": "conform", "points": points, "cwd": cwd.to_string_lossy()})
}

pub(super) fn turn(said: &str) -> Value {
    json!({
        "conversation": "c_1", "id": "t_1", "agent": "coder", "parent_agent": null, "permission_mode": "headless",
        "actor": {"user": "ann"}, "user_message": [{"type": "text", "text": said}], "stop_active": false, "touched": [],
        "budget": {"model_calls": 49, "tokens": 120000, "cost": 0.75},
        "added_later": {"by": "a newer runtime"},
    })
}

pub(super) fn reply() -> Value {
    json!({
        "content": [{"type": "text", "text": "done – ünïcode"}], "calls": [], "stop_reason": "end",
        "usage": {"input": 10, "output": 5, "cache_read": 0, "cache_write": 0}, "object": null,
    })
}

/// The params of a call, as a run could have them, with a key that a newer runtime may add.
pub(super) fn params(hook: &Served, said: &str) -> Value {
    let request = json!({"system": "Be brief.", "messages": [{"role": "user", "content": [{"type": "text", "text": said}]}], "tools": ["shell"]});
    let call = json!({"id": "c1", "name": "shell", "arguments": {"command": "ls", "path": "a.txt"}});
    let mut params = match hook.point {
        Point::OnConversation => json!({"conversation": "c_1", "actor": {"user": "ann"}, "what": "started"}),
        Point::BeforeAgent => json!({"turn": turn(said), "prompt": [{"type": "text", "text": said}]}),
        Point::BeforeModel | Point::WrapModelCall => json!({"turn": turn(said), "request": request}),
        Point::Stream => json!({
            "conversation": "c_1", "turn": "t_1", "agent": "coder", "attempt": 1, "kind": "text", "stream": 1,
            "chunks": [said], "last": true,
        }),
        Point::AfterModel => json!({"turn": turn(said), "reply": reply()}),
        Point::BeforeTool | Point::WrapToolCall => json!({"turn": turn(said), "call": call}),
        Point::AfterTool => {
            json!({"turn": turn(said), "call": call, "result": {"ok": true, "content": [{"type": "text", "text": "a.txt"}]}})
        }
        Point::OnStop => json!({"turn": turn(said), "reply": reply(), "tools": []}),
        Point::AfterAgent => json!({"turn": turn(said), "reply": reply(), "result": null}),
        Point::Background => json!({
            "conversation": "c_1", "turn": "t_1", "agent": "coder", "actor": {"user": "ann"}, "outcome": "completed",
            "messages": request["messages"], "reply": reply(),
        }),
        Point::BeforeCompaction => json!({
            "conversation": "c_1", "turn": "t_1", "agent": "coder", "actor": {"user": "ann"}, "turns": 2,
            "transcript": format!("user: {said}\nassistant: done"),
        }),
        Point::OnEnded => json!({
            "conversation": "c_1", "turn": "t_1", "agent": "coder", "permission_mode": "headless", "outcome": "completed",
            "reason": null, "model_calls": 1, "usage": {"input": 10, "output": 5, "cache_read": 0, "cache_write": 0}, "ms": 5,
        }),
        Point::OnLogged => json!({
            "key": "c_1_t_1_3", "agent": "coder", "tries": 1, "reminder": null,
            "event": {"plane": "log", "type": "suspension", "conversation": "c_1", "turn": "t_1", "seq": 3},
        }),
        _ => {
            json!({"event": {"plane": "live", "type": "text_delta", "conversation": "c_1", "turn": "t_1", "text": "x"}})
        }
    };
    params["hook"] = json!(hook.name);
    params["added_later"] = json!([1, 2, 3]);
    params
}

#[cfg(test)]
mod tests {
    use turnbuckle::json_schema::JsonSchema;

    use super::*;

    #[test]
    fn at_every_point_the_schema_has_what_is_sent_and_wants_all_of_it() {
        let schema = include_str!("../../../../../docs/hook-workers.schema.json");
        let schema = JsonSchema::compile(&serde_json::from_str(schema).unwrap()).unwrap();
        for point in Point::ALL {
            let hook = Served::of_service("h".to_owned(), point);
            let request = |params| json!({"jsonrpc": "2.0", "id": 1, "method": point.name(), "params": params});
            let whole = params(&hook, "hello");
            assert_eq!(schema.complaint(&request(whole.clone())), None, "{point}");
            for key in whole.as_object().unwrap().keys().filter(|key| *key != "added_later") {
                let mut less = whole.clone();
                less.as_object_mut().unwrap().remove(key);
                assert!(!schema.accepts(&request(less)), "{point} without `{key}`");
            }
        }
    }
}
