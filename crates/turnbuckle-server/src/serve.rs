//! Connections: accepted up to a limit, beyond which clients are told to come back, and let go in good order.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONNECTION;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::connection::Http;
use crate::rejection::{Code, Rejection};
use crate::server::Server;
use crate::tls::Certificate;

/// How many clients are told at once that there is no room for them; others find their connection closed.
const MOST_REFUSED: usize = 256;
/// How long it may take to tell them.
const REFUSE_WITHIN: Duration = Duration::from_secs(2);
/// How often the log says so.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// When they may try again.
const COME_BACK_AFTER: Duration = Duration::from_secs(5);
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
        if timeout(LEAVE_WITHIN, connections.leave()).await.is_err() {
            tracing::info!("connections were cut off");
        }
        Ok(())
    }
}

/// No value: accepting never ends by itself.
enum Never {}

struct Connections {
    router: Router,
    /// What those are told for whom there is no room.
    refusing: Router,
    certificate: Option<Certificate>,
    http: Http,
    /// True when connections are to end. Each holds a receiver while it is open.
    leaving: watch::Sender<bool>,
    room: Arc<Semaphore>,
    /// Room for those that are told that there is none.
    refusals: Arc<Semaphore>,
}

impl Connections {
    fn new(server: &Server) -> Self {
        let permits = |most: usize| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Self {
            router: server.router(),
            refusing: Router::new().fallback(async || {
                let rejection = Rejection::new(Code::InUse, "too many connections are open");
                // Without this a client would go on to ask over a connection that is about to be closed.
                ([(CONNECTION, "close")], rejection.retry_after(COME_BACK_AFTER))
            }),
            certificate: server.app.certificate.clone(),
            http: Http::new(),
            leaving: watch::Sender::new(false),
            room: permits(server.app.limits.limits().connections),
            refusals: permits(MOST_REFUSED),
        }
    }

    async fn accept(&self, listener: &TcpListener) -> Never {
        let mut told: Option<Instant> = None;
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Too many open files, mostly: others must be closed first.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if let Ok(room) = self.room.clone().try_acquire_owned() {
                self.begin(stream, peer, room);
                continue;
            }
            if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                tracing::warn!("connections are refused: as many are open as `connections` allows");
                told = Some(Instant::now());
            }
            if let Ok(room) = self.refusals.clone().try_acquire_owned() {
                self.refuse(stream, peer, room);
            }
        }
    }

    fn begin(&self, stream: TcpStream, peer: SocketAddr, room: OwnedSemaphorePermit) {
        let serving = self.serving(stream, peer, self.router.clone());
        tokio::spawn(async move {
            serving.await;
            drop(room);
        });
    }

    /// A client hears why it is not served, in the version of HTTP that it speaks, and the connection is closed.
    fn refuse(&self, stream: TcpStream, peer: SocketAddr, room: OwnedSemaphorePermit) {
        let serving = self.serving(stream, peer, self.refusing.clone());
        tokio::spawn(async move {
            if timeout(REFUSE_WITHIN, serving).await.is_err() {
                tracing::debug!("a connection for which there was no room was cut off");
            }
            drop(room);
        });
    }

    /// Serves a connection beside the accepting of others: a handshake takes as long as the client likes, up to its deadline.
    fn serving(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        routes: Router,
    ) -> impl Future<Output = ()> + Send + 'static {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection without TCP_NODELAY");
        }
        let (http, certificate, leaving) = (self.http.clone(), self.certificate.clone(), self.leaving.subscribe());
        async move {
            // In boxes of their own: an idle connection would otherwise be as large as one with TLS.
            match certificate {
                None => Box::pin(http.serve(stream, peer, routes, leaving)).await,
                Some(certificate) => match Box::pin(certificate.handshake(stream)).await {
                    Ok(Some(stream)) => Box::pin(http.serve(stream, peer, routes, leaving)).await,
                    Ok(None) => tracing::debug!("a connection without TLS was refused"),
                    Err(error) => tracing::debug!(%error, "a handshake failed"),
                },
            }
        }
    }

    /// Ready when all connections have ended.
    async fn leave(&self) {
        self.leaving.send_replace(true);
        self.leaving.closed().await;
    }
}
