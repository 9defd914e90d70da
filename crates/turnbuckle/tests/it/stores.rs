//! What every store promises; here, the memory store.

use std::sync::Arc;

use turnbuckle::store::Store;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::conformance;

#[tokio::test]
async fn the_memory_store_conforms() {
    conformance::check(|| Arc::new(MemoryStore::default())).await;
    assert!(!MemoryStore::default().is_durable());
}
