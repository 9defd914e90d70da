//! Connections: accepted up to a limit, with a deadline for their headers, and let go in good order.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

use crate::server::Server;
use crate::tls::Certificate;

/// How long the headers of a request may take.
const HEADER_PATIENCE: Duration = Duration::from_secs(15);
/// The largest headers, in bytes.
const MAX_HEADERS: usize = 64 << 10;
/// How long connections may take to finish their requests when turns are at rest.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether turns are at rest.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Without tokens everyone who reaches the server may do everything.
    #[error("{address} can be reached from other machines, and there are no tokens")]
    NotLoopback {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The listener does not say where it listens.
    #[error("the address of the listener could not be read")]
    Address(#[source] io::Error),
}

impl Server {
    /// Serves until `shutdown` is ready. Then, in this order: `/readyz` reports it and no work is taken any more, streams are told and
    /// end, turns come to rest or are left to the next start, and connections finish what they do.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        if self.app.tokens.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback { address });
        }
        let connections = Connections::new(self);
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            never = connections.accept(&listener) => match never {},
            () = &mut shutdown => {}
        }
        self.app.close();
        let resting = async {
            let deadline = Instant::now() + self.app.rest_within;
            while self.app.conversations.running_count() > 0 && Instant::now() < deadline {
                sleep(LOOK_EVERY).await;
            }
        };
        // Accepting goes on, so that whoever asks whether the server is ready is told that it is not.
        tokio::select! {
            never = connections.accept(&listener) => match never {},
            () = resting => {}
        }
        drop(listener);
        let left = self.app.conversations.running_count();
        if left > 0 {
            tracing::warn!(left, "turns did not come to rest in time; the next start carries them on");
        }
        if timeout(LEAVE_WITHIN, connections.graceful.shutdown()).await.is_err() {
            tracing::info!("connections were cut off");
        }
        Ok(())
    }
}

/// No value: accepting never ends by itself.
enum Never {}

struct Connections {
    router: axum::Router,
    certificate: Option<Certificate>,
    builder: Builder<TokioExecutor>,
    graceful: GracefulShutdown,
    room: Arc<Semaphore>,
}

impl Connections {
    fn new(server: &Server) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_PATIENCE)
            .max_buf_size(MAX_HEADERS)
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADERS as u32)
            .max_concurrent_streams(200);
        Self {
            router: server.router(),
            certificate: server.app.certificate.clone(),
            builder,
            graceful: GracefulShutdown::new(),
            room: Arc::new(Semaphore::new(server.app.limits.limits().connections.clamp(1, Semaphore::MAX_PERMITS))),
        }
    }

    async fn accept(&self, listener: &TcpListener) -> Never {
        loop {
            // More connections than there is room for wait in the queue of the listener.
            let Ok(room) = self.room.clone().acquire_owned().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Too many open files, mostly: others must be closed first.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            self.begin(stream, peer, room);
        }
    }

    fn begin(&self, stream: TcpStream, peer: SocketAddr, room: OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection without TCP_NODELAY");
        }
        let (http, watcher) =
            (Http { router: self.router.clone(), builder: self.builder.clone() }, self.graceful.watcher());
        match self.certificate.clone() {
            None => tokio::spawn(http.serve(stream, peer, watcher, room)),
            // Beside the accepting of others: a handshake takes as long as the client likes, up to its deadline.
            Some(certificate) => tokio::spawn(async move {
                match certificate.handshake(stream).await {
                    Ok(Some(stream)) => http.serve(stream, peer, watcher, room).await,
                    Ok(None) => tracing::debug!("a connection without TLS was refused"),
                    Err(error) => tracing::debug!(%error, "a handshake failed"),
                }
            }),
        };
    }
}

/// What a connection needs to be served.
struct Http {
    router: axum::Router,
    builder: Builder<TokioExecutor>,
}

impl Http {
    async fn serve<S>(self, stream: S, peer: SocketAddr, watcher: Watcher, room: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = TowerToHyperService::new(self.router.map_request(with_peer(peer)));
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            // A client that went away, or that speaks no HTTP.
            tracing::debug!(error = %error, "a connection ended");
        }
        drop(room);
    }
}

/// Puts into each request of a connection who is at its other end.
fn with_peer<B>(peer: SocketAddr) -> impl Fn(Request<B>) -> Request<B> + Clone {
    move |mut request| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    }
}
