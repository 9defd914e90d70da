//! Telemetry: OpenTelemetry spans and metrics of every turn, by the GenAI semantic conventions.
//!
//! # What it does
//!
//! Every turn is a trace: `invoke_agent AGENT`, below it a span for each stage, and below the stages `chat MODEL` for
//! each model call, `execute_tool TOOL` for each tool call, and `hook NAME` for each hook that was reported (one that
//! decided something, took its time, or failed). A sub-agent's turn stands below the tool call that started it. The
//! conversation is on every span as `gen_ai.conversation.id`: it may last for days, which is too long for a span.
//! Background hooks have spans in the trace of their turn.
//!
//! Metrics: `gen_ai.client.operation.duration`, `gen_ai.client.operation.time_to_first_chunk`, `gen_ai.client.token.usage`,
//! `gen_ai.invoke_agent.duration`, `gen_ai.execute_tool.duration`, and `turnbuckle.hook.duration`.
//!
//! What was said is not sent unless `content` is set; then messages, arguments and results are attributes as the
//! conventions have them. Names follow version 1.41 of the conventions, which are still in development.
//!
//! Spans are made beside the turn, from its events, and sent by threads of the SDK, with bounded queues: a collector that
//! is slow or gone costs spans, not time. The wrap only notes when a model call began and ended. It sees one call where
//! wraps further in make several: register it after `retry` and `fallback` to see each attempt. Headers for the collector
//! come from `OTEL_EXPORTER_OTLP_HEADERS`.
//!
//! # Points
//!
//! `wrap_model_call`, `on_event`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `endpoint` | `"http://127.0.0.1:4318"` | the collector's OTLP address over HTTP; `/v1/traces` and `/v1/metrics` are added |
//! | `service` | `"turnbuckle"` | `service.name` |
//! | `content` | `false` | whether what was said is sent, too |
//! | `sample` | 1.0 | which part of the turns is traced, 0 to 1; metrics count all |
//! | `export_every` | `"5s"` | how often spans are sent; metrics every tenth time |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::telemetry::{Telemetry, TelemetryOptions};
//!
//! let hook = Telemetry::new(TelemetryOptions { service: "shop".into(), ..Default::default() })?;
//! assert!(Telemetry::new(TelemetryOptions { endpoint: "localhost".into(), ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod attributes;
mod calls;
mod http;
mod pipeline;
mod spans;

use std::sync::{Mutex, OnceLock, PoisonError};

use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::Deserialize;
use turnbuckle::feed::FeedEvent;
use turnbuckle::hook::{Hook, ModelNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::{BoxError, Reply, Turn};

use self::calls::{Calls, Watch};
use self::pipeline::Pipeline;
use self::spans::Spans;
use crate::time;

/// The options of [`Telemetry`].
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryOptions {
    /// The collector's OTLP address over HTTP.
    pub endpoint: String,
    /// The `service.name` of all spans and metrics.
    pub service: String,
    /// Whether messages, arguments and results are sent as well.
    pub content: bool,
    /// The fraction of turns that is traced, from 0 to 1.
    pub sample: f64,
    /// How often spans are sent.
    pub export_every: HumanDuration,
}

/// Without the address, which may have a password.
impl std::fmt::Debug for TelemetryOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TelemetryOptions").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        let (endpoint, service) = ("http://127.0.0.1:4318".into(), "turnbuckle".into());
        Self { endpoint, service, content: false, sample: 1.0, export_every: HumanDuration::secs(5) }
    }
}

/// Sends OpenTelemetry spans and metrics of every turn. See the [module](self) for rules and options.
pub struct Telemetry {
    options: TelemetryOptions,
    /// Made with the first event, so that checking a configuration starts no threads.
    pipeline: OnceLock<Option<Pipeline>>,
    spans: Mutex<Spans>,
    calls: Calls,
}

impl Telemetry {
    /// Checks the options. Sends to a collector from the first event on.
    pub fn new(options: TelemetryOptions) -> Result<Self, OptionError> {
        time::checked("export_every", options.export_every)?;
        if !(0.0..=1.0).contains(&options.sample) {
            return Err(OptionError::new("sample", format!("must be 0 to 1, and is {}", options.sample)));
        }
        if options.service.trim().is_empty() {
            return Err(OptionError::new("service", "must name the service"));
        }
        http::check(&options.endpoint)?;
        let spans = Mutex::new(Spans::new(options.content));
        Ok(Self { options, pipeline: OnceLock::new(), spans, calls: Calls::default() })
    }

    /// Uses existing providers, for another exporter or to share those of the program. The caller shuts them down. Of the
    /// options only `content` is used.
    pub fn with_providers(traces: &SdkTracerProvider, metrics: &SdkMeterProvider, options: TelemetryOptions) -> Self {
        let spans = Mutex::new(Spans::new(options.content));
        let pipeline = OnceLock::from(Some(Pipeline::lent(traces, metrics)));
        Self { options, pipeline, spans, calls: Calls::default() }
    }

    fn pipeline(&self) -> Option<&Pipeline> {
        self.pipeline.get_or_init(|| Pipeline::to_collector(&self.options).ok()).as_ref()
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").field("service", &self.options.service).finish_non_exhaustive()
    }
}

impl Hook for Telemetry {
    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let said = self.options.content.then_some(request);
        let mut watch = Watch::start(&self.calls, turn, next.model().name(), said);
        let result = next.run(request, &mut watch.sink(out)).await;
        watch.ended(&result);
        result
    }

    async fn on_event(&self, told: &FeedEvent) -> Result<(), BoxError> {
        let Some(pipeline) = self.pipeline() else { return Err("the OpenTelemetry exporter could not be made".into()) };
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.take(told, &self.calls, pipeline);
        Ok(())
    }
}

impl ConfigHook for Telemetry {
    const NAME: &'static str = "telemetry";
    const SUMMARY: &'static str = "sends OpenTelemetry spans and metrics of every turn";
    type Options = TelemetryOptions;

    fn from_options(options: TelemetryOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
