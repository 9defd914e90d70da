//! Many conversations share a commit; a refused write in the middle of others takes back only itself.

use futures_util::future::join_all;
use turnbuckle::ConversationId;
use turnbuckle::store::{Store, StoreError};

use crate::kit::{NOW, Place, batch, claim, said};

/// Commits an append, with so many conversations at work at once.
#[allow(clippy::print_stdout, reason = "the figures, for whoever asks with --nocapture")]
async fn commits_per_append(conversations: u64, appends: u64) -> f64 {
    let place = Place::new();
    let store = place.store();
    let ids: Vec<_> = (0..conversations).map(|n| ConversationId::from(format!("c{n}"))).collect();
    let claims = join_all(ids.iter().map(|id| claim(&store, id, "w", NOW))).await;
    let before = store.commits();
    let start = std::time::Instant::now();
    let tasks: Vec<_> = ids
        .into_iter()
        .zip(claims)
        .map(|(id, claimed)| {
            let (store, epoch) = (store.clone(), claimed.unwrap().epoch);
            tokio::spawn(async move {
                for seq in 0..appends {
                    store.append(batch(&id, epoch, seq, &[said(seq + 1, "a few words")])).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (commits, all) = (store.commits() - before, conversations * appends);
    let took = start.elapsed();
    println!("{conversations} conversations: {all} appends in {commits} commits, {took:?}");
    commits as f64 / all as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_more_conversations_the_fewer_commits_an_append() {
    assert_eq!(commits_per_append(1, 50).await, 1.0);
    assert!(commits_per_append(100, 20).await < 0.2);
    assert!(commits_per_append(1000, 10).await < 0.05);
}

#[tokio::test]
async fn a_refused_write_among_others_takes_back_only_itself() {
    let place = Place::new();
    let store = place.store();
    let ids: Vec<_> = (0..50).map(|n| ConversationId::from(format!("c{n}"))).collect();
    for id in &ids {
        claim(&store, id, "w", NOW).await.unwrap();
    }
    let before = store.commits();
    let event = [said(1, "one")];
    let gap = [said(1, "one"), said(3, "three")];
    let written = join_all(ids.iter().zip(0..).map(|(id, n)| {
        let events = if n % 3 == 1 { &gap[..] } else { &event[..] };
        store.append(batch(id, if n % 3 == 2 { 7 } else { 1 }, 0, events))
    }))
    .await;
    assert!(store.commits() - before < 10);
    for ((id, n), written) in ids.iter().zip(0..).zip(written) {
        match n % 3 {
            0 => written.unwrap(),
            1 => assert!(matches!(written, Err(StoreError::WrongSeq { .. }))),
            _ => assert!(matches!(written, Err(StoreError::Fenced { .. }))),
        }
        assert_eq!(store.log(id, 1, usize::MAX).await.unwrap().len(), usize::from(n % 3 == 0));
    }
}
