//! What a session waits for beside what the conversation tells: times, sizes, lines, files, other processes.

use std::time::{Duration, Instant};

use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use turnbuckle::conversation::Conversations;
use turnbuckle::{ConversationId, Scope};

use super::super::own_command::OwnCommand;

/// How often it is looked whether another process wrote to the conversation, or made a guarded file.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ready at this time.
pub(super) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

pub(super) async fn next_resize(resized: &mut Option<Signal>) -> Option<()> {
    match resized {
        Some(resized) => resized.recv().await,
        None => std::future::pending().await,
    }
}

pub(super) async fn next_line(own: &mut Option<OwnCommand>) -> Option<String> {
    match own {
        Some(own) => own.lines.recv().await,
        None => std::future::pending().await,
    }
}

/// The project's files. A list that was not made is empty.
pub(super) async fn listed(files: &mut Option<oneshot::Receiver<Vec<String>>>) -> Vec<String> {
    match files {
        Some(files) => files.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Reads the store again and again: only a read makes events of other processes visible in this one.
pub(super) async fn follow_others(conversations: Conversations, id: ConversationId, scope: Scope) {
    while conversations.is_durable() {
        tokio::time::sleep(LOOK_EVERY).await;
        // What cannot be read now is read the next time.
        let _ = conversations.snapshot(&id, scope.clone()).await;
    }
    std::future::pending().await
}
