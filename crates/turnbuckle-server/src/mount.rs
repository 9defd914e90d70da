//! Routes of a program of its own behind the server's doors: whoever calls is known before they see a request.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use turnbuckle::{BoxFuture, Scope};

use crate::caller::Caller;
use crate::extract::with_whole_body;
use crate::rejection::{Code, Rejection};
use crate::server::App;

/// Answers requests to one path.
pub(crate) struct Mount {
    pub(crate) path: String,
    pub(crate) handler: Handler,
}

pub(crate) type Handler = Arc<dyn Fn(Scope, Request) -> BoxFuture<'static, Response> + Send + Sync>;

/// The routes of all of them. What a caller may do is for the handler to ask of the conversations, with the scope that it is given.
pub(crate) fn router(mounts: &[Mount]) -> Router<Arc<App>> {
    mounts.iter().fold(Router::new(), |router, mount| {
        let handler = mount.handler.clone();
        let answer = async move |State(app): State<Arc<App>>, caller: Caller, request: Request| {
            app.takes_work()?;
            let request = with_whole_body(request, &app).await?;
            Ok::<_, Rejection>(with_shape_of_errors(handler(caller.scope, request).await))
        };
        router.route(&mount.path, any(answer))
    })
}

/// An error that a handler tells as text, or not at all, gets the shape of all errors. One that is JSON is of a protocol that the
/// handler speaks.
fn with_shape_of_errors(response: Response) -> Response {
    let status = response.status();
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let allowed = response.headers().get(ALLOW).cloned();
    let code = Code::of_status(status);
    let message = status.canonical_reason().unwrap_or("the request failed").to_ascii_lowercase();
    let mut answer = Rejection::new(code, message).into_response();
    if let Some(allowed) = allowed {
        answer.headers_mut().insert(ALLOW, allowed);
    }
    answer
}
