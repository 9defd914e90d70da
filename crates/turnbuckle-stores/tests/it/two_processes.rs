//! Two processes on one file never both write.

use rustix::process::{Pid, Signal, kill_process};
use turnbuckle::ConversationId;
use turnbuckle::store::{LEASE, Store, StoreError};

use crate::child::Other;
use crate::kit::{NOW, Place, batch, claim, said};

#[tokio::test]
async fn a_living_owner_is_respected_and_a_dead_one_is_replaced_at_once() {
    let place = Place::new();
    let mut other = Other::start("hold", &place.file());
    assert_eq!(other.next().unwrap(), "claimed");
    let (store, id) = (place.store(), ConversationId::from("c"));
    // Also under the very name of the other: names are no proof.
    for name in ["parent", "child"] {
        assert!(matches!(claim(&store, &id, name, NOW).await, Err(StoreError::InUse { .. })));
    }
    other.tell();
    assert_eq!(other.next().unwrap(), "written");
    other.kill();
    while other.next().is_some() {}
    // Nobody has waited for it yet: it is a zombie, which is dead enough.
    let claimed = loop {
        match claim(&store, &id, "parent", NOW).await {
            Ok(claimed) => break claimed,
            Err(StoreError::InUse { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((claimed.epoch, claimed.seq), (2, 1));
    drop(other);
    store.append(batch(&id, 2, 1, &[said(2, "of the parent")])).await.unwrap();
}

#[tokio::test]
async fn a_writer_that_slept_through_its_lease_is_fenced() {
    let place = Place::new();
    let mut other = Other::start("hold", &place.file());
    assert_eq!(other.next().unwrap(), "claimed");
    let pid = Pid::from_child(&other.process);
    kill_process(pid, Signal::STOP).unwrap();
    let (store, id) = (place.store(), ConversationId::from("c"));
    assert!(matches!(claim(&store, &id, "parent", NOW).await, Err(StoreError::InUse { .. })), "stopped is not dead");
    let epoch = claim(&store, &id, "parent", NOW.after(LEASE)).await.unwrap().epoch;
    kill_process(pid, Signal::CONT).unwrap();
    other.tell();
    assert_eq!(other.next().unwrap(), "fenced");
    let ours = [said(1, "of the parent")];
    store.append(batch(&id, epoch, 0, &ours)).await.unwrap();
    assert_eq!(store.log(&id, 1, usize::MAX).await.unwrap(), ours);
}

#[tokio::test]
async fn two_programs_may_make_the_same_file_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let mut others: Vec<_> = (0..4).map(|_| Other::start("append", &place.file())).collect();
        // One of them gets each conversation; the others end at `InUse`, which is as it should be.
        let said = others.iter_mut().filter_map(Other::next).count();
        assert!(said >= 1);
    }
}
