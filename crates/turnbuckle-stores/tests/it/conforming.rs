//! The SQLite store keeps what every store promises.

use std::sync::Arc;

use turnbuckle::store::Store;
use turnbuckle::testing::conformance;
use turnbuckle_stores::SqliteStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_store_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::check(|| {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = SqliteStore::open(folder.path().join(format!("new/folder/{n}.db"))).unwrap();
        assert!(store.is_durable());
        Arc::new(store)
    })
    .await;
}
