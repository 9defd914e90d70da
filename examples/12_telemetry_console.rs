//! OpenTelemetry on the console: a turn as a tree of spans, named by the GenAI conventions.
//!
//! ```sh
//! cargo run --example 12_telemetry_console
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use serde_json::json;
use turnbuckle::hook::{AfterModel, guard};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError, Conversations, Reply, Scope, Turn};
use turnbuckle_hooks::Telemetry;
use turnbuckle_hooks::telemetry::TelemetryOptions;

/// An exporter that keeps spans until they are printed. `Telemetry::new` sends to a collector instead.
#[derive(Clone, Debug, Default)]
struct Console(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Console {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(batch);
        Ok(())
    }
}

fn print_below(spans: &[SpanData], parent: SpanId, depth: usize) {
    let mut below: Vec<&SpanData> = spans.iter().filter(|span| span.parent_span_id == parent).collect();
    below.sort_by_key(|span| span.start_time);
    for span in below {
        let took = span.end_time.duration_since(span.start_time).unwrap_or_default();
        let shown = ["gen_ai.usage.output_tokens", "turnbuckle.decision", "turnbuckle.outcome"];
        let notes = span.attributes.iter().filter(|attribute| shown.contains(&attribute.key.as_str()));
        let notes: Vec<String> = notes.map(|attribute| format!("{}={}", attribute.key, attribute.value)).collect();
        println!("{:>6} ms  {}{}  {}", took.as_millis(), "  ".repeat(depth), span.name, notes.join(" "));
        print_below(spans, span.span_context.span_id(), depth + 1);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let console = Console::default();
    let traces = SdkTracerProvider::builder().with_simple_exporter(console.clone()).build();
    let telemetry = Telemetry::with_providers(&traces, &SdkMeterProvider::default(), TelemetryOptions::default());

    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let weather = function_with_schema("weather", "The weather.", schema, Effect::Pure, |_, _| async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        Ok("sunny".to_owned())
    });
    let polite = guard("polite", |_: Turn, reply: Arc<Reply>| async move {
        let rude = reply.content.text() == "Sunny.";
        Ok(if rude { AfterModel::Regenerate("Say it in a whole sentence.".into()) } else { AfterModel::Continue })
    });
    let script = Script::of([
        ScriptReply::calls("c1", "weather", json!({"city": "Rome"})),
        ScriptReply::says("Sunny."),
        ScriptReply { delay_ms: 20, ..ScriptReply::says("It is sunny in Rome.") },
    ]);
    let agent = Agent::builder("forecaster", script).tool(weather).hook(polite).hook(telemetry).build()?;

    let conversations = Conversations::in_memory(agent);
    let ended = conversations.run("How is the weather in Rome?", Scope::user("ann")).await?;
    println!("{}\n", ended.text());
    // Spans are made beside the turn: wait for them.
    conversations.drain(Duration::from_secs(5)).await;
    let spans = console.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    print_below(&spans, SpanId::INVALID, 0);
    Ok(())
}
