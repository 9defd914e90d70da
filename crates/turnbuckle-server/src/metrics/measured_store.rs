//! A store that notes what is written to it, for the metrics.

use std::fmt;

use tokio::time::Instant;
use turnbuckle::store::{Batch, Store, StoreFuture, StoreLayer};

use super::{Metrics, Noted};

/// A store whose writes are counted and timed, made by [`Metrics::measured`]. Every turn of the agent and of its sub-agents ends
/// in a write, with the records of its hooks, so nothing is missed and no hook has to watch.
pub struct MeasuredStore<S> {
    store: S,
    metrics: Metrics,
}

impl<S> MeasuredStore<S> {
    pub(super) fn new(store: S, metrics: Metrics) -> Self {
        Self { store, metrics }
    }
}

impl<S> fmt::Debug for MeasuredStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeasuredStore")
    }
}

impl<S: Store> StoreLayer for MeasuredStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }

    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        let (noted, begun) = (Noted::of(&batch), Instant::now());
        match self.store.append(batch) {
            StoreFuture::Now(answer) => {
                let answer = answer.into_inner();
                self.metrics.wrote(noted, begun.elapsed(), answer.is_ok());
                StoreFuture::now(answer)
            }
            StoreFuture::Later(answer) => StoreFuture::later(async move {
                let answer = answer.await;
                self.metrics.wrote(noted, begun.elapsed(), answer.is_ok());
                answer
            }),
        }
    }
}
