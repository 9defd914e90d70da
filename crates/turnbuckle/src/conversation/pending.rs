//! Calls that wait for someone, over all conversations, and who could answer them.

use std::sync::Arc;

use super::conversations::Conversations;
use super::error::PendingCall;
use super::read_back::pending_of;
use crate::access::{AnswerRule, may_store_answer};
use crate::event::{Event, EventKind};
use crate::feed::projection::Pending;
use crate::id::CallId;
use crate::scope::{Author, Scope};
use crate::store::{Answer, ConversationStatus, InboxFilter, InboxItem, InboxKind, StoreError};

impl Conversations {
    /// Calls of any agent in the store that wait for an answer which the actor may still give, the oldest question first.
    /// What has lapsed, has an answer in the inbox, or was approved by the actor already is left out. A question is for those
    /// who may answer it: seeing it here is not recorded as reading the conversation of another.
    pub async fn pending(&self, scope: Scope) -> Result<Vec<PendingCall>, StoreError> {
        let (mut calls, now) = (Vec::new(), self.runtime.services.clock.now());
        for one in self.store().list().await? {
            // A turn that runs may wait for one call while it works on another.
            if one.id.is_sub_agent() || one.status == ConversationStatus::Idle {
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
            open.retain(|(_, pending)| takes_approval(pending, &stored, &scope.by()));
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

/// Whether an approval by this author would still count, next to those that were given and the answers in the inbox.
fn takes_approval(pending: &Pending, stored: &[InboxItem], by: &Author) -> bool {
    let answers = stored.iter().filter_map(|item| match &item.kind {
        InboxKind::Answer { call, answer, .. } if *call == pending.call => {
            Some((item.from.author(), *answer == Answer::Approve))
        }
        _ => None,
    });
    let waiting: Vec<_> = answers.collect();
    let has_approved = pending.approvals.contains(by);
    !has_approved && may_store_answer(pending.rule.as_deref(), &pending.approvals, &waiting, (by, true))
}
