//! The page: what people see, the forms that they send, and the stream that keeps it in step. `crate::page` renders; here it is
//! decided who sees what.

mod forms;
mod login;
mod pages;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::{get, post};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};

use crate::page::assets;
use crate::server::App;

/// Below this size an answer is not compressed, in bytes.
const WORTH_COMPRESSING: u64 = 1_024;

/// The routes of the page.
pub(super) fn router() -> Router<Arc<App>> {
    let mut routes = Router::new()
        .route("/", get(pages::list))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/page/waiting", get(pages::waiting))
        .route("/page/c", post(forms::begin))
        .route("/page/c/{id}", get(pages::conversation))
        .route("/page/c/{id}/events", get(stream::events))
        .route("/page/c/{id}/messages", post(forms::send))
        .route("/page/c/{id}/answer", post(forms::answer))
        .route("/page/c/{id}/cancel", post(forms::cancel))
        .route("/page/c/{id}/queue", post(forms::take_back))
        .route("/page/c/{id}/title", post(forms::rename))
        .route("/page/c/{id}/delete", get(pages::confirm_delete).post(forms::delete))
        .route("/page/c/{id}/turns/{turn}", get(pages::turn));
    for asset in assets() {
        let headers = [(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
        routes = routes.route(&asset.path, get(move || std::future::ready((headers, asset.content))));
    }
    // A compressed stream would be held back until there is enough of it.
    let compressed = SizeAbove::new(WORTH_COMPRESSING).and(NotForContentType::const_new("text/event-stream"));
    routes.layer(CompressionLayer::new().compress_when(compressed))
}
