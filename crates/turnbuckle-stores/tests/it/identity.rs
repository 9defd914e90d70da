//! The id of a database: chosen when it is made, the same ever after, also elsewhere.

use turnbuckle_stores::{DatabaseId, SqliteError, SqliteStore};

use crate::kit::Place;

#[test]
fn a_database_keeps_the_id_that_it_was_made_with() {
    let place = Place::new();
    let (first, second) = (DatabaseId::random().unwrap(), DatabaseId::random().unwrap());
    assert_ne!(first, second);
    let store = SqliteStore::open_as(place.file(), &first).unwrap();
    assert_eq!(store.id(), Some(&first));
    assert_eq!(SqliteStore::id_of(place.file()).unwrap().as_ref(), Some(&first), "while it is open");
    drop(store);
    assert_eq!(SqliteStore::open_as(place.file(), &second).unwrap().id(), Some(&first));
    assert_eq!(place.store().id(), Some(&first));
    let copy = place.folder.path().join("copy.db");
    std::fs::copy(place.file(), &copy).unwrap();
    assert_eq!(SqliteStore::id_of(copy).unwrap(), Some(first));
}

#[test]
fn every_database_has_an_id_of_its_own() {
    let (one, other) = (Place::new(), Place::new());
    assert!(one.store().id().is_some());
    assert_ne!(one.store().id(), other.store().id());
    assert_eq!(SqliteStore::open_read_only(one.file()).unwrap().id(), None, "reading looks at nothing but the log");
}

#[test]
fn an_id_of_another_form_is_refused_and_never_part_of_a_path() {
    assert_eq!(DatabaseId::parse("../../../../etc/turnbuckle/000000"), None);
    assert_eq!(DatabaseId::parse(&"A".repeat(32)), None);
    assert!(DatabaseId::parse(&"a".repeat(32)).is_some());
    let place = Place::new();
    drop(place.store());
    for forged in ["UPDATE database SET id = '../../x'", "DELETE FROM database"] {
        rusqlite::Connection::open(place.file()).unwrap().execute_batch(forged).unwrap();
        let refused = SqliteStore::id_of(place.file()).unwrap_err();
        assert!(matches!(refused, SqliteError::Unreadable { .. }), "{refused:?}");
        assert!(matches!(place.error(), SqliteError::Unreadable { .. }));
    }
}

#[test]
fn two_that_make_a_file_at_once_find_the_same_id_in_it() {
    let place = Place::new();
    let make = || {
        let chosen = DatabaseId::random().unwrap();
        SqliteStore::open_as(place.file(), &chosen).unwrap().id().cloned()
    };
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|id| id == &found[0] && id.is_some()), "{found:?}");
}
