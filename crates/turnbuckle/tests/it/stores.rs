//! What every store promises; here, the memory store, by itself and behind a layer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use turnbuckle::store::{Store, StoreCall, StoreFuture, StoreLayer};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::conformance;

#[tokio::test]
async fn the_memory_store_conforms() {
    conformance::check(|| Arc::new(MemoryStore::default())).await;
    assert!(!MemoryStore::default().is_durable());
}

type Called = Arc<Mutex<BTreeSet<String>>>;

/// Notes which methods are called through it.
struct Watched {
    store: MemoryStore,
    called: Called,
}

impl StoreLayer for Watched {
    type Inner = MemoryStore;
    fn inner(&self) -> &MemoryStore {
        &self.store
    }
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: StoreCall<'a>,
        ask: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.called.lock().unwrap().insert(call.method.to_owned());
        ask()
    }
}

/// The methods of the contract, from its source: one that a later version adds is among them, whether layers pass it on or not.
fn methods() -> BTreeSet<String> {
    let source = include_str!("../../src/store.rs");
    let (_, body) = source.split_once("\npub trait Store:").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let name = |line: &str| Some(line.strip_prefix("    fn ")?.split(['<', '(']).next()?.to_owned());
    let names: BTreeSet<String> = body.lines().filter_map(name).collect();
    assert!(names.len() > 40 && names.contains("list_part"), "{names:?}");
    names
}

#[tokio::test]
async fn a_layer_that_changes_nothing_conforms_and_sees_every_call() {
    let called = Called::default();
    let layered = || -> Arc<dyn Store> { Arc::new(Watched { store: MemoryStore::default(), called: called.clone() }) };
    conformance::check(layered).await;
    let mut expected = methods();
    assert!(expected.remove("is_durable"), "it asks nothing of the store");
    assert_eq!(*called.lock().unwrap(), expected, "calls went past the layer");
    assert!(!layered().is_durable());
}
