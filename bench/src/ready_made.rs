//! Ready-made hooks by name, as `bench/hooks` counts them. A new one is one line in [`ROWS`].

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::hook::{HookEntry, HookExt};
use turnbuckle::hooks::{Approval, CheckResult, DryRun, Fallback, Format, Guard, Instructions, Permit, Quota};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, Retry, Trim, ValidateInput};
use turnbuckle::model::Model;
use turnbuckle::models::{OnExhausted, Script};
use turnbuckle_hooks::notify::NotifyOptions;
use turnbuckle_hooks::{
    AuditLog, Cache, CircuitBreaker, Concurrency, Critic, Dream, Monitor, Notify, RateLimit, Recall, Redact, Refine,
    Remember, Suggest, Telemetry, Timeout, tower,
};
use turnbuckle_tools::{Lint, Persist};

use crate::BoxError;

/// A hook on the measured turn.
pub struct Row {
    /// What `bench/hooks` and the table call it.
    pub name: &'static str,
    /// Makes it; `None` for the turn without a hook.
    pub make: fn(&Path) -> Result<Option<HookEntry>, BoxError>,
    /// Whether every turn sends the same message, so that a cache knows it.
    pub same: bool,
}

const fn row(name: &'static str, make: fn(&Path) -> Result<Option<HookEntry>, BoxError>) -> Row {
    Row { name, make, same: false }
}

/// Nobody listens there: what is sent is lost, by threads that are not measured.
const NOWHERE: &str = "http://127.0.0.1:9";

/// The turn without a hook, then one row a hook.
pub const ROWS: &[Row] = &[
    row("none", |_| Ok(None)),
    row("validate_input", |folder| ready::<ValidateInput>(folder, json!({"forbid": "(?i)password"}))),
    row("quota", |folder| ready::<Quota>(folder, json!({"requests": 1_000_000}))),
    row("instructions", |folder| ready::<Instructions>(folder, json!({"files": [], "text": "Today is {date}."}))),
    row("redact", |_| Ok(Some(Redact::standard()?.into()))),
    row("trim", |folder| ready::<Trim>(folder, json!({}))),
    row("retry", |folder| ready::<Retry>(folder, json!({}))),
    row("fallback", |folder| ready::<Fallback>(folder, json!({"models": ["silent"]}))),
    row("refine, good at once", |folder| ready::<Refine>(folder, json!({"model": "content"}))),
    row("critic, approves at once", |folder| ready::<Critic>(folder, json!({"model": "content"}))),
    row("guard", |folder| ready::<Guard>(folder, json!({"rules": [{"forbid": "secret"}]}))),
    row("approval", |folder| ready::<Approval>(folder, json!({"rules": [{"tool": "shell"}]}))),
    row("permit", |folder| ready::<Permit>(folder, json!({"rules": [{"allow": ["*"]}]}))),
    row("dry_run, of a pure tool", |folder| ready::<DryRun>(folder, json!({}))),
    row("check_result", |folder| ready::<CheckResult>(folder, json!({"schema": {"type": "integer"}}))),
    row("lint, nothing touched", |folder| ready::<Lint>(folder, json!({"run": "true"}))),
    row("format", |folder| ready::<Format>(folder, json!({"template": "{text} ({agent})"}))),
    row("persist", |folder| ready::<Persist>(folder, json!({"file": "{turn}.txt"}))),
    row("suggest", |folder| ready::<Suggest>(folder, json!({"model": "suggesting"}))),
    Row { same: true, ..row("cache, known request", |folder| ready::<Cache>(folder, json!({}))) },
    row("cache, new request", |folder| ready::<Cache>(folder, json!({}))),
    row("rate_limit", |folder| ready::<RateLimit>(folder, json!({"limit": 1_000_000, "around": "both"}))),
    row("concurrency", |folder| ready::<Concurrency>(folder, json!({"around": "both"}))),
    row("timeout", |folder| ready::<Timeout>(folder, json!({"around": "both"}))),
    row("circuit_breaker", |folder| ready::<CircuitBreaker>(folder, json!({"around": "both"}))),
    row("monitor", |folder| ready::<Monitor>(folder, json!({"max_error_rate": 0.5, "fallback": "content"}))),
    row("monitor, every limit", |folder| {
        let limits = json!({"max_error_rate": 0.5, "max_refusal_rate": 0.5, "max_latency": "1m", "max_cost": 100.0});
        let levers = json!({"fallback": "content", "concurrency": 8, "budget": 40, "around": "both"});
        ready::<Monitor>(folder, merged(limits, levers))
    }),
    row("audit_log", |folder| ready::<AuditLog>(folder, json!({}))),
    row("notify", |_| {
        let options = NotifyOptions { url: NOWHERE.into(), tries: 1, ..Default::default() };
        Ok(Some(Notify::new(options, "secret")?.into()))
    }),
    row("telemetry", |folder| ready::<Telemetry>(folder, json!({"endpoint": NOWHERE}))),
    row("recall", |folder| ready::<Recall>(folder, json!({}))),
    row("remember", |folder| ready::<Remember>(folder, json!({"model": "silent"}))),
    row("dream", |folder| ready::<Dream>(folder, json!({"model": "silent"}))),
    row("tower, no layer", |_| Ok(Some(tower::around_models(::tower::layer::util::Identity::new()).into()))),
];

/// A model that a hook asks: content with everything, with a proposal, or with nothing to say.
fn adviser(name: &str) -> Script {
    let content = r#"{"verdict": "approve", "marks": 10, "critique": ""}"#;
    let says = match name {
        "content" => content,
        "suggesting" => r#"["And then?"]"#,
        _ => "[]",
    };
    Script::says([says]).when_exhausted(OnExhausted::Repeat)
}

/// A hook as configuration builds it.
fn ready<H: ConfigHook>(folder: &Path, options: Value) -> Result<Option<HookEntry>, BoxError> {
    let open_model = |name: &str| Ok(Arc::new(adviser(name)) as Arc<dyn Model>);
    let context = HookBuildContext {
        folder,
        data: folder,
        withheld_env: &[],
        open_model: &open_model,
        program_check: None,
        databases: None,
        tool_servers: None,
        link_maker: None,
        ignores_project: false,
        read_by_others: &[],
    };
    let hook = H::from_options(serde_json::from_value(options)?, &context)?;
    Ok(Some(hook.named(H::NAME)))
}

/// The fields of both objects.
fn merged(mut one: Value, two: Value) -> Value {
    if let (Value::Object(one), Value::Object(two)) = (&mut one, two) {
        one.extend(two);
    }
    one
}
