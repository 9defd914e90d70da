//! Whether the server works, and whether it takes work.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use turnbuckle::Scope;
use turnbuckle::access::Action;
use turnbuckle::conversation::SendError;

use crate::rejection::{Code, Rejection};
use crate::server::App;
use crate::wire::{ErrorBody, Health};

/// Whether the process answers
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the server takes work
///
/// 503 when it shuts down or its store cannot be read.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = Health), (status = 503, body = ErrorBody)))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Health>, Rejection> {
    if app.is_closing() {
        return Err(Rejection::new(Code::InUse, "the server shuts down"));
    }
    // Any read will do; there is no conversation of this name, or there is one.
    match app.conversations.may(&"readyz".into(), Action::Read, &Scope::system()).await {
        Ok(()) | Err(SendError::NotFound { .. }) => Ok(Json(Health { status: "ok" })),
        Err(error) => {
            tracing::warn!(%error, "not ready: the store cannot be read");
            Err(Rejection::new(Code::InUse, "the store cannot be read"))
        }
    }
}
