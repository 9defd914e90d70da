//! A store as a process that may crash sees it: every call is a boundary, and one that was cut off there gets no answer.

use std::sync::Arc;

use super::life::{BoundaryKind, Life};
use crate::event::Event;
use crate::id::ConversationId;
use crate::store::{Batch, Lease, Store, StoreCall, StoreFuture, StoreLayer};

/// `store`, for one life.
pub(super) struct CrashingStore<S> {
    pub(super) store: S,
    pub(super) life: Arc<Life>,
}

/// Where, if it is not the main conversation.
pub(super) fn inside(id: &ConversationId) -> String {
    if id.is_sub_agent() { format!(" in {id}") } else { String::new() }
}

/// What a write is about.
fn content(batch: &Batch<'_>) -> String {
    let told = |event: &Arc<Event>| {
        let json = serde_json::to_value(&event.kind).unwrap_or_default();
        let word = |key: &str| json.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let (kind, call) = (word("type").unwrap_or_default(), word("call"));
        call.map_or_else(|| kind.clone(), |call| format!("{kind} {call}"))
    };
    let events: Vec<String> = batch.events.iter().map(told).collect();
    match (events.is_empty(), batch.lease) {
        (false, _) => events.join(", "),
        (true, Lease::Release) => "the claim is given back".to_owned(),
        (true, Lease::Keep) => "no event".to_owned(),
    }
}

impl<S: Store> StoreLayer for CrashingStore<S> {
    type Inner = S;
    fn inner(&self) -> &S {
        &self.store
    }
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: StoreCall<'a>,
        ask: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        StoreFuture::later(async move {
            let place = call.conversation.map(inside).unwrap_or_default();
            self.life.pass(BoundaryKind::Store, format!("before {}{place}", call.method)).await;
            self.life.take_time().await;
            let answer = ask().await;
            self.life.pass(BoundaryKind::Store, format!("after {}{place}", call.method)).await;
            answer
        })
    }
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let number = self.life.count(BoundaryKind::Append) / 2 + 1;
            let name = format!("append {number} ({}){}", content(&batch), inside(batch.conversation));
            self.life.pass(BoundaryKind::Append, format!("before {name} is written")).await;
            self.life.take_time().await;
            let written = self.store.append(batch).await;
            self.life.pass(BoundaryKind::Append, format!("after {name} was written")).await;
            written
        })
    }
    /// It outlives the process that dies here.
    fn is_durable(&self) -> bool {
        true
    }
}
