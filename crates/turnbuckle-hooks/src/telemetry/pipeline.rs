//! Where spans and measurements go: the SDK's providers, and the instruments.

use std::time::Duration;

use opentelemetry::metrics::{Histogram, Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider};
use turnbuckle::BoxError;

use super::TelemetryOptions;
use super::http::Client;

const SCOPE: &str = "turnbuckle";
/// How long dropping the hook waits for spans and metrics that are not sent yet.
const LINGER: Duration = Duration::from_secs(3);

/// The histogram buckets that the conventions recommend for tokens.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// The histogram buckets that the conventions recommend for seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The tracer and the instruments.
pub(super) struct Pipeline {
    pub(super) tracer: SdkTracer,
    pub(super) chat: Histogram<f64>,
    pub(super) first_chunk: Histogram<f64>,
    pub(super) tokens: Histogram<u64>,
    pub(super) agent: Histogram<f64>,
    pub(super) tool: Histogram<f64>,
    pub(super) hook: Histogram<f64>,
    /// The providers that this hook made and must shut down.
    own: Option<(SdkTracerProvider, SdkMeterProvider)>,
}

impl Pipeline {
    /// Uses providers that the caller owns and shuts down.
    pub(super) fn lent(traces: &SdkTracerProvider, metrics: &SdkMeterProvider) -> Self {
        let meter = metrics.meter(SCOPE);
        Self {
            tracer: traces.tracer(SCOPE),
            chat: seconds(&meter, "gen_ai.client.operation.duration"),
            first_chunk: seconds(&meter, "gen_ai.client.operation.time_to_first_chunk"),
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_boundaries(TOKENS.into())
                .build(),
            agent: seconds(&meter, "gen_ai.invoke_agent.duration"),
            tool: seconds(&meter, "gen_ai.execute_tool.duration"),
            hook: seconds(&meter, "turnbuckle.hook.duration"),
            own: None,
        }
    }

    /// Sends to a collector over HTTP.
    pub(super) fn to_collector(options: &TelemetryOptions) -> Result<Self, BoxError> {
        let base = options.endpoint.trim_end_matches('/');
        let spans = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/traces"))
            .with_http_client(Client::default())
            .build()?;
        let measurements = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/metrics"))
            .with_http_client(Client::default())
            .build()?;
        let resource = Resource::builder().with_service_name(options.service.clone()).build();
        let every = options.export_every.0;
        let batch = BatchConfigBuilder::default().with_scheduled_delay(every).build();
        let traces = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(spans).with_batch_config(batch).build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(options.sample))))
            .with_resource(resource.clone())
            .build();
        let reader = PeriodicReader::builder(measurements).with_interval(every.saturating_mul(10)).build();
        let metrics = SdkMeterProvider::builder().with_reader(reader).with_resource(resource).build();
        let mut pipeline = Self::lent(&traces, &metrics);
        pipeline.own = Some((traces, metrics));
        Ok(pipeline)
    }
}

fn seconds(meter: &Meter, name: &'static str) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_boundaries(SECONDS.into()).build()
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if let Some((traces, metrics)) = self.own.take() {
            // Fails if the collector is unreachable; there is nobody left to report that to.
            let _ = traces.shutdown_with_timeout(LINGER);
            let _ = metrics.shutdown_with_timeout(LINGER);
        }
    }
}
