//! Connections: accepted up to a limit, with a deadline for their headers, and let go in good order.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::server::Server;

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
    service: TowerToHyperService<axum::Router>,
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
            service: TowerToHyperService::new(server.router()),
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
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Too many open files, mostly: others must be closed first.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            self.begin(stream, room);
        }
    }

    fn begin(&self, stream: TcpStream, room: tokio::sync::OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection without TCP_NODELAY");
        }
        let connection = self.builder.serve_connection(TokioIo::new(stream), self.service.clone()).into_owned();
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                // A client that went away, or that speaks no HTTP.
                tracing::debug!(error = %error, "a connection ended");
            }
            drop(room);
        });
    }
}
