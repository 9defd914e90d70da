//! One connection: until it is clear what it speaks, while requests are under way, and when it is idle.

mod activity;
mod opening;

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower::ServiceExt as _;

use self::activity::Activity;
use self::opening::Opening;

/// How long it may take until it is clear which version of HTTP a client speaks, and how long the headers of a request may take.
const HEADER_PATIENCE: Duration = Duration::from_secs(15);
/// How long a connection stays open on which nothing is asked. Over HTTP/1.1 the next headers have less time than that.
const IDLE: Duration = Duration::from_secs(60);
/// How often a client that speaks HTTP/2 is asked whether it is still there, and how long it may take to answer.
const ASK_EVERY: Duration = Duration::from_secs(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// How long a client may take to go when it was told that the connection ends.
const GO_WITHIN: Duration = Duration::from_secs(5);
/// The largest headers, in bytes.
const MAX_HEADERS: usize = 64 << 10;

/// What connections are served with.
#[derive(Clone)]
pub(crate) struct Http {
    builder: Builder<TokioExecutor>,
}

impl Http {
    pub(crate) fn new() -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_PATIENCE)
            .max_buf_size(MAX_HEADERS)
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(ASK_EVERY)
            .keep_alive_timeout(ANSWER_WITHIN)
            .max_header_list_size(MAX_HEADERS as u32)
            .max_concurrent_streams(200);
        Self { builder }
    }

    /// Answers the requests of a connection until either side ends it, or `leaving` turns true and what it does is done.
    pub(crate) async fn serve<S>(&self, stream: S, peer: SocketAddr, routes: Router, mut leaving: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let activity = Activity::default();
        let counted = activity.counted(routes.map_request(with_peer(peer)));
        let stream = TokioIo::new(Opening::new(stream, HEADER_PATIENCE));
        let mut connection = pin!(self.builder.serve_connection(stream, TowerToHyperService::new(counted)));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            // An error means that nobody serves any more.
            _ = leaving.wait_for(|leaving| *leaving) => None,
            () = activity.idle(IDLE) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    // What is under way is waited for. There is a deadline for all connections together.
                    () = activity.idle(GO_WITHIN) => return tracing::debug!("a connection was cut off"),
                }
            }
        };
        if let Err(error) = ended {
            // A client that went away, or that speaks no HTTP.
            tracing::debug!(error = %error, "a connection ended");
        }
    }
}

/// Puts into each request of a connection who is at its other end.
fn with_peer<B>(peer: SocketAddr) -> impl Fn(Request<B>) -> Request<B> + Clone {
    move |mut request| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    }
}
