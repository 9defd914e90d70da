//! What a hub does until it ends: takes in what its conversation tells, and looks after what no event says.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use turnbuckle::Scope;
use turnbuckle::conversation::SendError;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent, Subscription};

use super::changes::takes_from_queue;
use super::{Change, Hub, Hubs, LOOK_EVERY, MAX_QUEUE_SHOWN, MAX_QUEUED_TEXT};
use crate::page::Queued;

/// Takes a hub away when its task ends, however it ends: a hub without a task would be stuck.
struct Task {
    hubs: Arc<Hubs>,
    hub: Arc<Hub>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.hubs.remove(&mut self.hubs.lock(), &self.hub);
    }
}

/// What a hub does until it ends.
pub(super) async fn run(
    hubs: Arc<Hubs>,
    hub: Arc<Hub>,
    mut subscription: Subscription,
    mut asked: watch::Receiver<()>,
) {
    let _task = Task { hubs: hubs.clone(), hub: hub.clone() };
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = hub.changed.subscribe();
    loop {
        tokio::select! {
            event = subscription.next() => match event {
                Some(FeedEvent { item: FeedItem::Live(LiveEvent::Lagged { missed }), .. }) => {
                    // This task was too slow, or another process wrote: what is known here is not the whole view any more.
                    match hubs.subscribe(&hub.id).await {
                        Ok(again) => subscription = again,
                        Err(error) => {
                            tracing::warn!(conversation = %hub.id, %error, "a watched conversation could not be read again");
                            break;
                        }
                    }
                    hub.start_again(&subscription, missed);
                }
                Some(event) => {
                    hub.publish(&event);
                    if takes_from_queue(&event) && hub.renders() {
                        look_at_queue(&hubs, &hub).await;
                    }
                }
                // The conversation was deleted or closed.
                None => break,
            },
            _ = look.tick() => {
                if hubs.end_if_unused(&hub) {
                    return;
                }
                if hub.unwatched_since().is_none() && !catch_up(&hubs, &hub).await {
                    break;
                }
                if hub.renders() {
                    look_at_queue(&hubs, &hub).await;
                }
            }
            () = hub.queue_changed.notified() => {
                if hub.renders() {
                    look_at_queue(&hubs, &hub).await;
                }
            }
            // The sender is in the hub.
            Ok(()) = asked.changed() => hub.look_at_questions(),
            () = is_ended(&mut ended) => return,
        }
    }
}

async fn is_ended(changed: &mut watch::Receiver<Change>) {
    // The sender is in the hub, which the waiting task holds.
    drop(changed.wait_for(|change| change.ended).await);
}

/// Brings in what another process wrote. False if the conversation is gone.
async fn catch_up(hubs: &Hubs, hub: &Hub) -> bool {
    match hubs.conversations.snapshot(&hub.id, Scope::system()).await {
        Ok(_) => true,
        Err(SendError::NotFound { .. } | SendError::Deleted { .. }) => false,
        Err(error) => {
            tracing::warn!(conversation = %hub.id, %error, "a watched conversation could not be read");
            true
        }
    }
}

/// Brings in the messages that wait.
pub(super) async fn look_at_queue(hubs: &Hubs, hub: &Hub) {
    match hubs.conversations.queued(&hub.id, &Scope::system()).await {
        Ok(queued) => {
            let shown = queued.into_iter().take(MAX_QUEUE_SHOWN).map(|message| Queued {
                id: message.turn.as_str().to_owned(),
                text: message.content.text().chars().take(MAX_QUEUED_TEXT).collect(),
                steers: message.steers,
            });
            hub.set_queue(shown.collect());
        }
        Err(SendError::NotFound { .. } | SendError::Deleted { .. }) => {}
        Err(error) => tracing::warn!(conversation = %hub.id, %error, "the messages that wait could not be read"),
    }
}
