//! What was acknowledged survives `kill -9`, at whatever moment it comes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use turnbuckle::ConversationId;
use turnbuckle::store::Store;

use crate::child::Other;
use crate::kit::{Place, said};

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_by_forty_kills() {
    let place = Place::new();
    let mut acknowledged = [0u64; 4];
    for round in 0..40 {
        let mut other = Other::start("append", &place.file());
        let first = other.next().expect("it writes at once: the owner before it is dead");
        note(&mut acknowledged, &first);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        std::thread::sleep(Duration::from_micros(u64::from(nanos / 7 % 25_000)));
        other.kill();
        while let Some(line) = other.next() {
            note(&mut acknowledged, &line);
        }
        drop(other);
        let store = place.store();
        for (n, told) in acknowledged.iter().enumerate() {
            let id = ConversationId::from(format!("c{n}"));
            let Some(_) = store.owner(&id).await.unwrap() else {
                assert_eq!(*told, 0);
                continue;
            };
            let log = store.log(&id, 1, usize::MAX).await.unwrap();
            assert!(log.len() as u64 >= *told, "round {round}: {id} was told {told}, has {}", log.len());
            assert_eq!(log.len() % 2, 0, "round {round}: half a batch in {id}");
            for (event, seq) in log.iter().zip(1..) {
                assert_eq!(*event, said(seq, &format!("{id} {seq}")));
            }
        }
    }
    assert!(acknowledged.iter().sum::<u64>() > 40, "{acknowledged:?}");
}

fn note(acknowledged: &mut [u64; 4], line: &str) {
    let (n, seq) = line.split_once(' ').unwrap();
    acknowledged[n.parse::<usize>().unwrap()] = seq.parse().unwrap();
}
