//! Standing approvals: making one of a call that waits, looking at them, revoking them. They begin with the answer to that
//! call.

use std::time::Duration;

use super::conversations::Conversations;
use super::error::{ResolveError, TurnHandle};
use crate::event::{Question, StandingBasis};
use crate::id::{CallId, ConversationId};
use crate::message::Text;
use crate::scope::{Actor, Scope};
use crate::store::{Act, ActKind, Answer, ArgumentMatch, StandingApproval, StoreError};

/// How long a standing approval holds if nothing else is said.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// "Always", and what that means.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Always {
    /// How long it holds. Default: 7 days.
    pub lasts: Duration,
    /// How often it may be used. Default: as often as needed.
    pub times: Option<u32>,
    /// What the arguments must be like. Default: as they are in the call, in the parts that the tool names for it
    /// ([`Spec::standing_by`](crate::tool::Spec)), or all of them.
    pub arguments: Option<Vec<ArgumentMatch>>,
}

impl Default for Always {
    fn default() -> Self {
        Self { lasts: WEEK, times: None, arguments: None }
    }
}

impl Conversations {
    /// The standing approval that can be made of a call that waits, to be shown first. Nothing is stored: answering the call
    /// with [`Answer::always`](crate::store::Answer::always) does that.
    ///
    /// Only someone who may answer the call can give one, and only where a standing approval can answer at all: never what a
    /// hook asks, and never where a rule wants several approvals or another person than the requester.
    pub async fn propose_standing(
        &self,
        id: &ConversationId,
        call: &CallId,
        always: &Always,
        scope: &Scope,
    ) -> Result<StandingApproval, ResolveError> {
        let conversation = self.answerable(id, call, scope).await?;
        let unfit = |why: &str| ResolveError::Unfit { call: call.clone(), why: why.into() };
        let Some(pending) = conversation.feed.pending(call) else {
            return Err(self.not_asked(&conversation, call).await);
        };
        if pending.expires <= self.runtime.services.clock.now() {
            return Err(ResolveError::Stale { call: call.clone(), why: "it has expired".into() });
        }
        if always.lasts.is_zero() {
            return Err(unfit("a standing approval must hold for some time"));
        }
        let Question::Approval { tool: Some(tool), arguments, standing, redacted, .. } = &pending.question else {
            return Err(unfit("only the approval of a tool can be a standing one"));
        };
        if *redacted {
            return Err(unfit(
                "its arguments are redacted, and a standing approval would name what must not be stored",
            ));
        }
        let Some(basis) = standing else {
            return Err(unfit("a hook or a rule wants to be asked each time"));
        };
        let services = &self.runtime.services;
        let Some(scratch) = services.store.scratch(id).await? else { return Err(ResolveError::nothing_asked(call)) };
        let Some(requester) = scratch.actor.user_id() else {
            return Err(unfit("no user asked for it"));
        };
        let now = services.clock.now();
        let parts = always.arguments.clone().unwrap_or_else(|| parts_of(basis, arguments));
        Ok(StandingApproval {
            id: Text::from(services.ids.mint("s_").as_str()),
            agent: basis.agent.clone().unwrap_or(scratch.agent),
            tool: tool.clone(),
            definition: basis.definition.clone(),
            arguments: parts,
            // Of the turn: the answer may be given elsewhere.
            project: scratch.project,
            requester: Text::from(&**requester),
            by: scope.actor().clone(),
            at: now,
            expires: now.after(always.lasts),
            uses_left: always.times,
            from: (id.clone(), call.clone()),
        })
    }

    /// Approves a call, and from now on calls like it, for programs that have shown what that means in their own way. The
    /// answer and the standing approval are stored in one write. The handle follows the turn, as with
    /// [`resolve`](Self::resolve).
    pub async fn approve_always(
        &self,
        id: &ConversationId,
        call: &CallId,
        always: &Always,
        scope: &Scope,
    ) -> Result<(StandingApproval, TurnHandle), ResolveError> {
        let approval = self.propose_standing(id, call, always, scope).await?;
        let answer = Answer::Approve.always(approval.clone());
        let handle = self.resolve(id, call, answer, None, scope.clone()).await?;
        Ok((approval, handle))
    }

    /// The standing approvals that the actor gave, or that calls for the actor use, the oldest first.
    pub async fn standing(&self, scope: &Scope) -> Result<Vec<StandingApproval>, StoreError> {
        let mut all = self.runtime.services.store.standing().await?;
        all.retain(|approval| concerns(approval, scope.actor()));
        Ok(all)
    }

    /// Revokes a standing approval. False if the actor has none of this id.
    pub async fn revoke_standing(&self, approval: &str, scope: &Scope) -> Result<bool, StoreError> {
        if !self.standing(scope).await?.iter().any(|own| *own.id == *approval) {
            return Ok(false);
        }
        let (store, now) = (&self.runtime.services.store, self.runtime.services.clock.now());
        let revoked = store.revoke_standing(approval).await?;
        if revoked {
            tracing::info!(approval, by = %scope.by(), "revoked a standing approval");
            store.record_act(Act::new(ActKind::Revoked, approval, scope.by(), now)).await?;
        }
        Ok(revoked)
    }
}

/// The parts of the arguments that must stay the same.
fn parts_of(basis: &StandingBasis, arguments: &serde_json::Value) -> Vec<ArgumentMatch> {
    if basis.arguments.is_empty() {
        return vec![ArgumentMatch::equals("", arguments.clone())];
    }
    let part = |pointer: &Text| arguments.pointer(pointer).cloned().unwrap_or_default();
    basis.arguments.iter().map(|pointer| ArgumentMatch::equals(&**pointer, part(pointer))).collect()
}

fn concerns(approval: &StandingApproval, actor: &Actor) -> bool {
    match actor.user_id() {
        Some(id) => approval.by.is_same_user(actor) || *approval.requester == **id,
        None => true,
    }
}
