//! Call ids are unique in a conversation: a provider's id that repeats becomes `ID~2`.

use std::collections::HashSet;

use super::active::Interrupt;
use super::context::TurnContext;
use super::state::State;
use crate::id::CallId;
use crate::message::Reply;

/// Gives every call of a reply an id that no other call of the conversation has.
pub(super) async fn make_unique(state: &State, ctx: &TurnContext, reply: &mut Reply) -> Result<(), Interrupt> {
    let count = reply.calls.len() + reply.hosted.len();
    if count == 0 {
        return Ok(());
    }
    let mut ids = KnownIds { state, ctx, known: None };
    if count > 1 {
        // With many calls a set is cheaper than a search through the window for each.
        ids.known = Some(state.window.events().iter().filter_map(|event| event.kind.names_call()).cloned().collect());
    }
    let hosted = reply.hosted.iter_mut().map(|hosted| &mut hosted.call);
    for call in hosted.chain(&mut reply.calls) {
        call.call = ids.free(&call.call).await?;
        if let Some(known) = &mut ids.known {
            known.insert(call.call.clone());
        }
    }
    Ok(())
}

/// The ids that are taken: those in the window, those given to calls before, and those in the store.
struct KnownIds<'a> {
    state: &'a State,
    ctx: &'a TurnContext,
    known: Option<HashSet<CallId>>,
}

impl KnownIds<'_> {
    /// The id itself, or with the lowest number that is free. It is found by doubling and then halving, because a long
    /// conversation may have used thousands of numbers.
    async fn free(&self, id: &CallId) -> Result<CallId, Interrupt> {
        let numbered = |number: u64| CallId::from(format!("{id}~{number}"));
        if !self.is_taken(id).await? {
            return Ok(id.clone());
        }
        let (mut taken, mut free) = (1, 2);
        while self.is_taken(&numbered(free)).await? {
            (taken, free) = (free, free.saturating_mul(2));
        }
        while free - taken > 1 {
            let middle = taken + (free - taken) / 2;
            match self.is_taken(&numbered(middle)).await? {
                true => taken = middle,
                false => free = middle,
            }
        }
        Ok(numbered(free))
    }

    async fn is_taken(&self, id: &CallId) -> Result<bool, Interrupt> {
        let known = match &self.known {
            Some(known) => known.contains(id),
            None => self.state.has_call(id),
        };
        if known || self.state.is_whole() {
            return Ok(known);
        }
        Ok(self.ctx.store().has_call(&self.ctx.conversation, id).await?)
    }
}
