//! Numbers for operators, as Prometheus reads them.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, FORWARDED, VIA};
use axum::http::request::Parts;
use axum::http::{HeaderName, Version};
use axum::response::{IntoResponse, Response};

use crate::caller::{Caller, Identity, check_is_local};
use crate::metrics::{self, Exposition, Kind};
use crate::rejection::{Code, Rejection};
use crate::server::App;
use crate::wire::ErrorBody;

/// The role of those who may read metrics from anywhere.
const ROLE: &str = "metrics";
/// What proxies put into the requests that they pass on.
const FORWARDING: [HeaderName; 7] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("cf-connecting-ip"),
];

/// Someone who may read metrics: by a token with the role `metrics`, or a program on this machine.
pub(crate) struct Operator;

impl FromRequestParts<Arc<App>> for Operator {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Rejection> {
        // A token that is given decides, also on this machine: a wrong one in the scraper's configuration must be noticed.
        if app.tokens.is_some() && parts.headers.contains_key(AUTHORIZATION) {
            let caller = Caller::from_request_parts(parts, app).await?;
            return match caller.scope.has_role(ROLE) {
                true => Ok(Self),
                false => Err(Rejection::new(Code::Forbidden, "this needs a token with the role `metrics`")),
            };
        }
        if !is_from_this_machine(parts) {
            let code = if app.tokens.is_some() { Code::Unauthorized } else { Code::Forbidden };
            let what = "metrics are for this machine, and for tokens with the role `metrics`";
            return Err(Rejection::new(code, what));
        }
        check_is_local(parts)?;
        app.limits.admit(Identity::Local)?;
        Ok(Self)
    }
}

/// Whether a program on this machine asks for itself. A proxy on this machine connects from loopback as well, and passes on what the
/// world asks: it gives itself away by its headers, or by HTTP/1.0, which nginx speaks unless it is told otherwise and adds no
/// header to.
fn is_from_this_machine(parts: &Parts) -> bool {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback())
        && parts.version > Version::HTTP_10
        && !FORWARDING.iter().any(|name| parts.headers.contains_key(name))
}

/// Numbers for operators, in the text format of Prometheus
///
/// Needs a token with the role `metrics`, or a request from this machine that no proxy passed on.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "the numbers", body = String, content_type = "text/plain"), (status = "4XX", description = "nothing was read: `unauthorized`, `forbidden`", body = ErrorBody)))]
pub(crate) async fn metrics(_: Operator, State(app): State<Arc<App>>) -> Response {
    let seen = app.looker.seen(&app.conversations, &*app.clock).await;
    let mut out = Exposition::default();
    out.family("turnbuckle_build_info", Kind::Gauge, "The version of the server.");
    out.sample("turnbuckle_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    app.metrics.write(&mut out);
    let is_up = f64::from(u8::from(seen.is_some()));
    out.single("turnbuckle_store_up", Kind::Gauge, "Whether the store could be read last.", is_up);
    if let Some(seen) = seen {
        seen.write(&mut out);
    }
    let (conversations, limits) = (&app.conversations, &app.limits);
    let gauges = [
        (
            "turnbuckle_working_conversations",
            "Conversations that this process works on.",
            conversations.running_count(),
        ),
        ("turnbuckle_resident_conversations", "Conversations in memory.", conversations.resident_count()),
        ("turnbuckle_open_streams", "Open streams of events.", limits.open_streams()),
    ];
    for (name, help, count) in gauges {
        out.single(name, Kind::Gauge, help, count as f64);
    }
    for gauge in &app.gauges {
        if let Some(value) = (gauge.value)() {
            out.single(&gauge.name, Kind::Gauge, &gauge.help, value);
        }
    }
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], out.into_text()).into_response()
}
