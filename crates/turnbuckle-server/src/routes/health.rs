//! Whether the server works, and whether it takes work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::time::Instant;
use turnbuckle::Scope;
use turnbuckle::access::Action;
use turnbuckle::conversation::SendError;

use crate::rejection::{Code, Rejection};
use crate::server::App;
use crate::wire::{ErrorBody, Health};

/// How long it counts whether the store could be read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Whether the process answers
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "it lives", body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the server takes work
///
/// 503 when it shuts down or its store cannot be read.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "it takes work", body = Health), (status = 503, description = "it takes no work", body = ErrorBody)))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Health>, Rejection> {
    if app.is_closing() {
        return Err(Rejection::new(Code::InUse, "the server shuts down"));
    }
    // Anybody may ask, as often as they like: the store is read once a second at most.
    let is_readable = match app.store_read.known() {
        Some(known) => known,
        None => app.store_read.found(is_readable(&app).await),
    };
    match is_readable {
        true => Ok(Json(Health { status: "ok" })),
        false => Err(Rejection::new(Code::InUse, "the store cannot be read")),
    }
}

/// Whether the store could be read when it was last tried.
#[derive(Debug, Default)]
pub(crate) struct StoreRead {
    last: Mutex<Option<(Instant, bool)>>,
}

impl StoreRead {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, bool)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found a moment ago. `None`: find it out; whoever asks meanwhile is told what was found before.
    fn known(&self) -> Option<bool> {
        let mut last = self.lock();
        let (at, was_readable) = (*last)?;
        if at.elapsed() < READ_EVERY {
            return Some(was_readable);
        }
        *last = Some((Instant::now(), was_readable));
        None
    }

    fn found(&self, is_readable: bool) -> bool {
        *self.lock() = Some((Instant::now(), is_readable));
        is_readable
    }
}

async fn is_readable(app: &App) -> bool {
    // Any read will do; there is no conversation of this name, or there is one.
    match app.conversations.may(&"readyz".into(), Action::Read, &Scope::system()).await {
        Ok(()) | Err(SendError::NotFound { .. }) => true,
        Err(error) => {
            tracing::warn!(%error, "not ready: the store cannot be read");
            false
        }
    }
}
