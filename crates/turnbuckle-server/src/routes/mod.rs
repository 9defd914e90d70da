//! The routes of the API.

mod answers;
mod conversations;
mod description;
mod health;
mod links;
mod messages;
mod metrics;
mod page;
mod turns;

pub(crate) use health::StoreRead;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::events;
use crate::mount;
use crate::observe::observed;
use crate::page_caller;
use crate::rejection::Rejection;
use crate::server::App;

/// What `openapi.json` says about the whole API.
#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "Turnbuckle",
    description = "Conversations with an agent. Events are those of docs/http.md.",
    license(name = "MIT OR Apache-2.0")
))]
struct Description;

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(conversations::create, conversations::list))
        .routes(routes!(conversations::view, conversations::delete, conversations::change))
        .routes(routes!(conversations::history))
        .routes(routes!(messages::send))
        .routes(routes!(messages::cancel))
        .routes(routes!(answers::answer))
        .routes(routes!(answers::pending))
        .routes(routes!(answers::approvals))
        .routes(routes!(answers::revoke))
        .routes(routes!(links::show, links::answer))
        .routes(routes!(turns::turn))
        .routes(routes!(events::events))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::metrics))
}

/// The API as JSON.
pub(crate) fn openapi() -> serde_json::Value {
    let (_, api) = described().split_for_parts();
    // The description is made of plain data, which always is JSON.
    description::completed(serde_json::to_value(api).unwrap_or_default())
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let (routes, _) = described().split_for_parts();
    let description = openapi();
    let body_bytes = app.limits.limits().body_bytes;
    routes
        .merge(page::router())
        .merge(mount::router(&app.mounts))
        .route("/openapi.json", get(move || std::future::ready(axum::Json(description.clone()))))
        .fallback(page_caller::nothing_here)
        .layer(DefaultBodyLimit::max(body_bytes))
        .layer(CatchPanicLayer::custom(Rejection::of_panic))
        .layer(from_fn_with_state(app.clone(), observed))
        .with_state(app)
}
