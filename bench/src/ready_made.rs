//! Ready-made hooks by name, as `bench/hooks` counts them. A new one is one line in [`ROWS`].

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::hook::{HookEntry, HookExt};
use turnbuckle::hooks::{ReadyMade, Redact, Surroundings};
use turnbuckle::model::Model;
use turnbuckle::models::Script;
use turnbuckle_hooks::{
    AuditLog, Cache, CircuitBreaker, Concurrency, Dream, Monitor, Notify, NotifyOptions, RateLimit, Recall, Remember,
    Telemetry, Timeout, tower,
};

use crate::Failure;

/// A hook on the measured turn.
pub struct Row {
    /// What `bench/hooks` and the table call it.
    pub name: &'static str,
    /// Makes it; `None` for the turn without a hook.
    pub make: fn(&Path) -> Result<Option<HookEntry>, Failure>,
    /// Whether every turn sends the same message, so that a cache knows it.
    pub same: bool,
}

const fn row(name: &'static str, make: fn(&Path) -> Result<Option<HookEntry>, Failure>) -> Row {
    Row { name, make, same: false }
}

/// Nobody listens there: what is sent is lost, by threads that are not measured.
const NOWHERE: &str = "http://127.0.0.1:9";

/// The turn without a hook, then one row a hook.
pub const ROWS: &[Row] = &[
    row("none", |_| Ok(None)),
    row("redact", |_| Ok(Some(Redact::standard()?.into()))),
    Row { same: true, ..row("cache, known request", |folder| ready::<Cache>(folder, json!({}))) },
    row("cache, new request", |folder| ready::<Cache>(folder, json!({}))),
    row("rate_limit", |folder| ready::<RateLimit>(folder, json!({"limit": 1_000_000, "around": "both"}))),
    row("concurrency", |folder| ready::<Concurrency>(folder, json!({"around": "both"}))),
    row("timeout", |folder| ready::<Timeout>(folder, json!({"around": "both"}))),
    row("circuit_breaker", |folder| ready::<CircuitBreaker>(folder, json!({"around": "both"}))),
    row("monitor", |folder| ready::<Monitor>(folder, json!({"max_error_rate": 0.5}))),
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

/// A hook as configuration builds it.
fn ready<H: ReadyMade>(folder: &Path, options: Value) -> Result<Option<HookEntry>, Failure> {
    let open_model = |_: &str| Ok(Arc::new(Script::says(["[]"])) as Arc<dyn Model>);
    let around = Surroundings { folder, data: folder, open_model: &open_model };
    let hook = H::from_options(serde_json::from_value(options)?, &around)?;
    Ok(Some(hook.named(H::USE)))
}
