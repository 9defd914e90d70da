//! Routes of a program of its own behind the server's doors: whoever calls is known before they see a request.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use turnbuckle::{BoxFuture, Scope};

use crate::caller::Caller;
use crate::extract::with_whole_body;
use crate::rejection::Rejection;
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
            Ok::<_, Rejection>(handler(caller.scope, request).await)
        };
        router.route(&mount.path, any(answer))
    })
}
