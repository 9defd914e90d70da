//! Where hooks of another process are: in a program that is started here, or in a service.

use std::sync::Arc;

use turnbuckle::hook::Point;

use super::ask::{Hooks, Peer};
use super::error::WorkerError;
use super::service::Service;
use super::supervisor::Worker;

/// A worker, running or not, or a service.
#[derive(Clone, Debug)]
pub(crate) enum Remote {
    Worker(Arc<Worker>),
    Service(Arc<Service>),
}

impl Remote {
    pub(super) async fn peer(&self) -> Result<Peer, WorkerError> {
        Ok(match self {
            Self::Worker(worker) => Peer::Worker(worker.connection().await?),
            Self::Service(service) => Peer::Service(service.clone()),
        })
    }

    pub(super) async fn hooks(&self, point: Point) -> Result<Hooks, WorkerError> {
        Ok(Hooks { peer: self.peer().await?, point })
    }
}
