//! What a process keeps of a conversation at rest, and how it becomes smaller when nothing happens for a while.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::shared::Conversation;
use crate::context::layout::ContextCache;
use crate::event::Event;
use crate::feed::EventFeed;
use crate::turn::{RequestMemory, State};

/// How many conversations that came to rest last keep what makes their next turn cheaper.
const WARM: usize = 64;

/// What this process has loaded of a conversation: the fold of its log, and the messages rendered from it.
pub(crate) struct Loaded {
    pub(crate) state: Box<State>,
    pub(crate) cache: ContextCache,
    /// What is known of the last requests.
    pub(crate) memory: Box<RequestMemory>,
}

impl Loaded {
    /// Keeps what follows from the rest no longer, and makes arguments of calls text, as in a conversation that was read back. Not
    /// if somebody watches, who holds the events as well.
    pub(super) fn pack(&mut self, feed: &EventFeed) {
        feed.repack(|held| {
            // What a new process does not have either.
            (self.cache, self.memory) = (ContextCache::default(), Box::default());
            let window = &mut self.state.window;
            // Stubs and notes have the seqs of events that the feed has as they were.
            let is_held = |event: &Arc<Event>| {
                held.binary_search_by_key(&event.seq, |held| held.seq).is_ok_and(|at| Arc::ptr_eq(&held[at], event))
            };
            let shared: Vec<bool> = window.events().iter().map(is_held).collect();
            drop(held);
            window.pack();
            let mut kept = Vec::with_capacity(shared.iter().filter(|is_shared| **is_shared).count());
            kept.extend(
                window.events().iter().zip(shared).filter(|(_, is_shared)| *is_shared).map(|(event, _)| event.clone()),
            );
            kept
        });
    }
}

/// The conversations that came to rest last, the one first that has been at rest longest. A conversation may be in it more than once.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<VecDeque<(u64, Weak<Conversation>)>>);

impl Resting {
    /// This conversation came to rest. Makes one smaller that has been at rest longer.
    pub(crate) fn add(&self, conversation: Arc<Conversation>) {
        let one = (conversation.idle_since(), Arc::downgrade(&conversation));
        drop(conversation);
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        resting.push_back(one);
        let oldest = if resting.len() > WARM { resting.pop_front() } else { None };
        drop(resting);
        if let Some((since, conversation)) = oldest
            && let Some(conversation) = conversation.upgrade()
        {
            conversation.pack(since);
        }
    }
}
