//! What stands on spans and measurements, by the names of the GenAI semantic conventions.

use opentelemetry::{Array, KeyValue, StringValue, Value};
use serde_json::json;
use turnbuckle::message::{Content, Message, StopReason};
use turnbuckle::model::Request;

use super::calls::Call;

/// Splits `anthropic:claude` into the provider `anthropic` and the model `claude`. A name without a provider is both.
pub(super) fn provider_and_model(name: &str) -> (String, String) {
    let (provider, model) = name.split_once(':').unwrap_or((name, name));
    // `openai@http://…:MODEL`: an address is no provider.
    let provider = provider.split('@').next().unwrap_or(provider);
    let model = if name.contains("://") { name.rsplit(':').next().unwrap_or(model) } else { model };
    (provider.to_owned(), model.to_owned())
}

/// The attributes of the metrics of a model call.
pub(super) fn of_chat(call: &Call) -> Vec<KeyValue> {
    let (provider, model) = provider_and_model(&call.model);
    let mut all = vec![
        KeyValue::new("gen_ai.operation.name", "chat"),
        KeyValue::new("gen_ai.provider.name", provider),
        KeyValue::new("gen_ai.request.model", model),
    ];
    if let Err(kind) = call.result {
        all.push(KeyValue::new("error.type", kind));
    }
    all
}

/// The attributes that only its span has.
pub(super) fn of_chat_span(call: &Call) -> Vec<KeyValue> {
    let mut all = of_chat(call);
    let count = |name: &'static str, count: u64| KeyValue::new(name, i64::try_from(count).unwrap_or(i64::MAX));
    if let Ok(reason) = call.result {
        let reasons = Array::String(vec![StringValue::from(finish(reason))]);
        all.push(KeyValue::new("gen_ai.response.finish_reasons", Value::Array(reasons)));
        all.push(count("gen_ai.usage.input_tokens", call.usage.input));
        all.push(count("gen_ai.usage.output_tokens", call.usage.output));
        if call.usage.cache_read > 0 {
            all.push(count("gen_ai.usage.cache_read.input_tokens", call.usage.cache_read));
        }
        if call.usage.cache_write > 0 {
            all.push(count("gen_ai.usage.cache_creation.input_tokens", call.usage.cache_write));
        }
    }
    if let Some((request, reply)) = &call.said {
        all.push(KeyValue::new("gen_ai.system_instructions", parts_of(&[("text", &request.system)]).to_string()));
        all.push(KeyValue::new("gen_ai.input.messages", input(request)));
        if let Some(content) = reply {
            let reason = call.result.map_or("error", finish);
            let said = json!([{"role": "assistant", "parts": parts(content), "finish_reason": reason}]);
            all.push(KeyValue::new("gen_ai.output.messages", said.to_string()));
        }
    }
    all
}

fn finish(reason: StopReason) -> &'static str {
    match reason {
        StopReason::End => "stop",
        StopReason::ToolCalls => "tool_call",
        StopReason::Length => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Cancelled => "error",
    }
}

/// The messages in the JSON form of the semantic conventions.
fn input(request: &Request) -> String {
    let message = |message: &Message| match message {
        Message::Assistant { content, calls } => {
            let calls = calls.iter().map(
                |call| json!({"type": "tool_call", "id": call.call, "name": call.name, "arguments": call.arguments}),
            );
            let all: Vec<_> = parts(content).into_iter().chain(calls).collect();
            json!({"role": "assistant", "parts": all})
        }
        Message::Result { call, content, .. } => {
            json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": call, "response": content.text()}]})
        }
        other => json!({"role": "user", "parts": parts(other.content())}),
    };
    serde_json::Value::Array(request.messages.iter().map(message).collect()).to_string()
}

/// Text only: pictures and documents are too large for an attribute.
fn parts(content: &Content) -> Vec<serde_json::Value> {
    let text = content.parts().iter().filter_map(|part| part.as_text());
    text.map(|text| json!({"type": "text", "content": text})).collect()
}

fn parts_of(parts: &[(&str, &str)]) -> serde_json::Value {
    parts.iter().map(|(kind, content)| json!({"type": kind, "content": content})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_and_model_are_told_apart() {
        let pair = |name| provider_and_model(name);
        assert_eq!(pair("anthropic:claude-x"), ("anthropic".into(), "claude-x".into()));
        assert_eq!(pair("openai@http://host:1/v1:gpt"), ("openai".into(), "gpt".into()));
        assert_eq!(pair("demo"), ("demo".into(), "demo".into()));
    }
}
