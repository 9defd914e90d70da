//! Whatever happened in a conversation: the JSON that both clients make of its requests follows the rules of both APIs.

use std::collections::HashSet;

use serde_json::{Value, json};
use turnbuckle::model::Model;

use crate::kit::{Ear, anthropic, anthropic_events, delta, finish, openai, openai_chunks};
use crate::random_conversations::{converse, signature};
use crate::stand_in::{StandIn, streaming};

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn is_plain(name: &str, most: usize) -> bool {
    !name.is_empty()
        && name.len() <= most
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Whether something is said: a text that is empty or blank is refused.
fn says(content: &Value) -> bool {
    match content {
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(parts) => {
            !parts.is_empty()
                && parts.iter().all(|part| part["type"] != "text" || !text(part, "text").trim().is_empty())
        }
        _ => false,
    }
}

/// The rules of Anthropic's Messages.
fn anthropic_complaint(body: &Value) -> Option<String> {
    let messages = list(&body["messages"]);
    if messages.first().is_none_or(|first| first["role"] != "user") {
        return Some("no user speaks first".into());
    }
    if messages.last().is_none_or(|last| last["role"] != "user") {
        return Some("an assistant has the last word".into());
    }
    if body.to_string().matches("\"cache_control\"").count() > 4 {
        return Some("more than four cache marks".into());
    }
    if let Some(tool) = list(&body["tools"]).iter().find(|tool| !is_plain(text(tool, "name"), 128)) {
        return Some(format!("the name of {tool}"));
    }
    let (mut ids, mut open, mut before) = (HashSet::new(), Vec::new(), "assistant");
    for message in messages {
        let (role, content) = (text(message, "role"), &message["content"]);
        if !["user", "assistant"].contains(&role) {
            return Some(format!("the role {role:?}"));
        }
        if !says(content) {
            return Some(format!("{role} says nothing: {message}"));
        }
        if role == "assistant" && before == "assistant" {
            return Some("two replies with nothing between them".into());
        }
        before = role;
        let (mut has_spoken, mut has_results, mut hosted) = (false, true, Vec::new());
        for block in list(content) {
            let (kind, id) = (text(block, "type"), text(block, "id"));
            match (role, kind) {
                ("assistant", "thinking") => {
                    if has_spoken || text(block, "signature") != &*signature(text(block, "thinking")) {
                        return Some(format!("a thought that is not as it was: {block}"));
                    }
                    continue;
                }
                ("assistant", "tool_use") => {
                    if !is_plain(id, 64) || !is_plain(text(block, "name"), 128) || !block["input"].is_object() {
                        return Some(format!("a call that is none: {block}"));
                    }
                    if !ids.insert(id.to_owned()) {
                        return Some(format!("{id} is there twice"));
                    }
                    open.push(id.to_owned());
                }
                ("assistant", "server_tool_use") => hosted.push(id.to_owned()),
                ("assistant", "web_search_tool_result") => {
                    if hosted.pop().as_deref() != Some(text(block, "tool_use_id")) {
                        return Some(format!("a result without a call: {block}"));
                    }
                }
                ("user", "tool_result") => {
                    let place = open.iter().position(|open| open == text(block, "tool_use_id"));
                    match place {
                        Some(place) if has_results => drop(open.remove(place)),
                        _ => return Some(format!("a result in the wrong place: {block}")),
                    }
                    continue;
                }
                (_, "text" | "image" | "document") => has_results = false,
                other => return Some(format!("{other:?}")),
            }
            has_spoken = true;
        }
        if !hosted.is_empty() || role == "user" && !open.is_empty() {
            return Some(format!("{open:?} {hosted:?} have no results"));
        }
    }
    None
}

/// The rules of OpenAI's chat completions.
fn openai_complaint(body: &Value) -> Option<String> {
    let (mut ids, mut open, mut before) = (HashSet::new(), Vec::<String>::new(), "");
    let messages = list(&body["messages"]);
    for (place, message) in messages.iter().enumerate() {
        let (role, content) = (text(message, "role"), &message["content"]);
        if role != "tool" && !open.is_empty() {
            return Some(format!("{open:?} have no results"));
        }
        match role {
            "system" | "developer" if place == 0 => {}
            "user" if says(content) => {}
            "assistant" => {
                let calls = list(&message["tool_calls"]);
                if before == "assistant" || calls.is_empty() && !says(content) {
                    return Some(format!("a reply behind a reply, or one that says nothing: {message}"));
                }
                for call in calls {
                    let (id, function) = (text(call, "id"), &call["function"]);
                    let arguments: Option<Value> = serde_json::from_str(text(function, "arguments")).ok();
                    if id.is_empty() || id.len() > 40 || !is_plain(text(function, "name"), 64) {
                        return Some(format!("a call that is none: {call}"));
                    }
                    if !arguments.is_some_and(|arguments| arguments.is_object()) || !ids.insert(id.to_owned()) {
                        return Some(format!("a call that is none, or is there twice: {call}"));
                    }
                    open.push(id.to_owned());
                }
            }
            "tool" => {
                let Some(place) = open.iter().position(|open| open == text(message, "tool_call_id")) else {
                    return Some(format!("a result without a call: {message}"));
                };
                open.remove(place);
            }
            _ => return Some(format!("{message}")),
        }
        before = role;
    }
    match messages.last().map(|last| text(last, "role")) {
        Some("user" | "tool") if open.is_empty() => None,
        last => Some(format!("{last:?} has the last word, and {open:?} have no results")),
    }
}

#[tokio::test]
async fn what_both_clients_send_of_random_conversations_follows_the_rules_of_their_apis() {
    let said = anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "ok" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
    ]);
    let chunks = openai_chunks(&[delta(json!({ "content": "ok" })), finish("stop")]);
    let servers = [StandIn::playing(vec![streaming(&said)]).await, StandIn::playing(vec![streaming(&chunks)]).await];
    let models: [Box<dyn Model>; 2] = [Box::new(anthropic(&servers[0].url)), Box::new(openai(&servers[1].url))];
    let complaints = [anthropic_complaint, openai_complaint];
    let (mut bodies, mut hosted) = (0, 0);
    for seed in 1..=12 {
        let conversed = converse(seed).await;
        for (n, request) in conversed.requests.iter().enumerate() {
            for ((model, server), complaint) in models.iter().zip(&servers).zip(complaints) {
                model.stream(request, &mut Ear::default()).await.unwrap();
                let body = server.received.lock().unwrap().pop().unwrap().body;
                if let Some(complaint) = complaint(&body) {
                    panic!("seed {seed}, request {n} to {}: {complaint}\n{body:#}", model.name());
                }
                (bodies, hosted) = (bodies + 1, hosted + usize::from(body.to_string().contains("server_tool_use")));
            }
        }
    }
    assert!(bodies > 1_000 && hosted > 20, "{bodies} bodies, {hosted} with calls that the provider ran");
}
