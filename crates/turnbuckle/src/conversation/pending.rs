//! Calls that wait for someone, over all conversations, and who could answer them.

use std::sync::Arc;

use super::conversations::Conversations;
use super::error::PendingCall;
use super::read_back::pending_of;
use crate::access::AnswerRule;
use crate::event::{Event, EventKind};
use crate::feed::projection::Pending;
use crate::id::CallId;
use crate::scope::{Author, Scope};
use crate::store::{AnswerTally, InboxFilter, InboxItem, ListPart, StoreError};

impl Conversations {
    /// Calls of any agent in the store that wait for an answer which the actor may still give, the oldest question first.
    /// What has lapsed, has an answer in the inbox, or was approved by the actor already is left out. A question is for those
    /// who may answer it: seeing it here is not recorded as reading the conversation of another.
    pub async fn pending(&self, scope: Scope) -> Result<Vec<PendingCall>, StoreError> {
        let (mut calls, now) = (Vec::new(), self.runtime.services.clock.now());
        // A turn that runs may wait for one call while it works on another.
        for one in self.store().list_part(ListPart::Open).await? {
            if one.id.is_sub_agent() {
                continue;
            }
            let open = pending_of(self.store(), &one.id).await?;
            let mine = |pending: &Pending| {
                pending.expires > now && self.may_answer(&one.id, &one.owner, pending.rule.as_deref(), scope.actor())
            };
            let mut open: Vec<_> = open.into_iter().filter(|(_, pending)| mine(pending)).collect();
            if open.is_empty() {
                continue;
            }
            let stored = self.store().inbox(&one.id, InboxFilter::Control).await?;
            open.retain(|(_, pending)| takes_answer(pending, &stored, &scope.by()));
            // Without one, the turn ended meanwhile.
            let Some(scratch) = self.store().scratch(&one.id).await? else { continue };
            for (asked, pending) in open {
                let (conversation, agent) = (one.id.clone(), scratch.agent.clone());
                calls.push(PendingCall { conversation, agent, requester: scratch.actor.author(), asked, pending });
            }
        }
        calls.sort_by_key(|call| call.asked);
        Ok(calls)
    }
}

/// Who could answer what was asked last under this id, if the log that is shown has it.
pub(super) fn rule_of_last_question(log: &[Arc<Event>], call: &CallId) -> Option<Arc<AnswerRule>> {
    log.iter().rev().find_map(|event| match &event.kind {
        EventKind::Suspension { call: of, rule, .. } if of == call => Some(rule.clone()),
        _ => None,
    })?
}

/// A question and the answers to it, in the log and in the inbox.
pub(super) fn tally_of(pending: &Pending, stored: &[InboxItem]) -> AnswerTally {
    let Pending { call, question, expires, rule, approvals } = pending;
    let mut tally = AnswerTally::new(rule.as_deref(), question, approvals.clone(), *expires);
    tally.count_waiting(stored.iter().filter(|item| item.answers() == Some(call)));
    tally
}

/// Whether an answer of this author would still count.
fn takes_answer(pending: &Pending, stored: &[InboxItem], by: &Author) -> bool {
    let tally = tally_of(pending, stored);
    !tally.is_settled() && !tally.is_approved_by(by)
}
