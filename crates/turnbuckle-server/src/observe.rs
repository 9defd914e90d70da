//! What is done around every request: one line in the log, a count, and headers for browsers.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;

use crate::caller::{KnownUser, check_is_local};
use crate::page_caller::as_asked_for;
use crate::rejection::with_body_of_405;
use crate::server::App;

/// Unless a handler says otherwise.
const HEADERS: [(HeaderName, &str); 8] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    // A browser would look up the hosts of links that a model wrote.
    (HeaderName::from_static("x-dns-prefetch-control"), "off"),
];

/// One line for each request, when its answer begins: what was asked, by whom, and how it went. No ids of the path, no query and no
/// content.
pub(crate) async fn observed(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let known = KnownUser::default();
    request.extensions_mut().insert(known.clone());
    let (parts, body) = request.into_parts();
    // A server without tokens answers nothing to pages of other sites, also where the answer is that there is nothing.
    let refused = match app.tokens {
        None => check_is_local(&parts).err(),
        Some(_) => None,
    };
    let mut response = match refused {
        Some(rejection) => as_asked_for(&parts.headers, rejection),
        None => with_body_of_405(next.run(Request::from_parts(parts, body)).await),
    };
    for (name, value) in HEADERS {
        if !response.headers().contains_key(&name) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    let took = begun.elapsed();
    app.metrics.answered(&method, path.as_ref().map(MatchedPath::as_str), response.status(), took);
    tracing::info!(
        %method,
        path = path.as_ref().map_or("-", MatchedPath::as_str),
        status = response.status().as_u16(),
        ms = (took.as_secs_f64() * 1e6).round() / 1e3,
        user = known.0.get().map_or("-", |user| &**user),
        "request"
    );
    response
}
