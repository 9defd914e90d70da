//! What every store promises; here, the memory store, by itself and behind a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnbuckle::store::{Store, StoreCall, StoreFuture, StoreLayer};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::conformance;

#[tokio::test]
async fn the_memory_store_conforms() {
    conformance::check(|| Arc::new(MemoryStore::default())).await;
    assert!(!MemoryStore::default().is_durable());
}

/// Counts what passes through it.
struct Counted {
    store: MemoryStore,
    calls: Arc<AtomicUsize>,
}

impl StoreLayer for Counted {
    type Inner = MemoryStore;
    fn inner(&self) -> &MemoryStore {
        &self.store
    }
    fn around<'a, T: Send + 'a>(
        &'a self,
        _call: StoreCall<'a>,
        ask: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        ask()
    }
}

#[tokio::test]
async fn a_layer_that_changes_nothing_conforms_and_sees_every_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let layered = || -> Arc<dyn Store> { Arc::new(Counted { store: MemoryStore::default(), calls: calls.clone() }) };
    conformance::check(layered).await;
    assert!(calls.load(Ordering::Relaxed) > 100, "calls went past the layer");
    assert!(!layered().is_durable());
}
