//! Standing approvals: making one of a call that waits, looking at them, revoking them.

use std::time::Duration;

use super::conversations::Conversations;
use super::error::ResolveError;
use crate::event::{Question, StandingBasis};
use crate::id::{CallId, ConversationId};
use crate::message::Text;
use crate::scope::{Actor, Scope};
use crate::store::{Act, ActKind, ArgumentMatch, StandingApproval, StandingRequest, StoreError};

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
    /// The standing approval that [`approve_always`](Self::approve_always) would make of a call that waits, to be shown
    /// first. Nothing is stored.
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
        let Some(pending) = conversation.feed.pending(call) else { return Err(ResolveError::nothing_asked(call)) };
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

    /// Stores the standing approval that [`propose_standing`](Self::propose_standing) made and a person was shown: this one
    /// and no other. It must still be one that they can give, of the call that it names and as that call is now asked about.
    /// The call itself is not answered by it: [`resolve`](Self::resolve) does that.
    pub async fn store_standing(&self, shown: StandingApproval, scope: &Scope) -> Result<(), ResolveError> {
        let (id, call) = &shown.from;
        let now = self.runtime.services.clock.now();
        let proposed = self.propose_standing(id, call, &Always::default(), scope).await?;
        let pending = self.runtime.conversation(id, &self.agent, self.parent.as_ref()).feed.pending(call);
        let Some(Question::Approval { arguments, .. }) = pending.map(|pending| pending.question) else {
            return Err(ResolveError::nothing_asked(call));
        };
        let request = StandingRequest {
            agent: &proposed.agent,
            tool: &proposed.tool,
            definition: &proposed.definition,
            arguments: &arguments,
            project: &proposed.project,
            requester: &proposed.requester,
            now,
        };
        if !shown.covers(request) || shown.by != proposed.by {
            let why = "it is not an approval of this call as it is asked about now".into();
            return Err(ResolveError::Stale { call: call.clone(), why });
        }
        self.runtime.services.store.add_standing(shown.clone()).await?;
        tracing::info!(conversation = %id, %call, by = %scope.by(), approval = %shown, "stored a standing approval");
        Ok(())
    }

    /// Makes and stores a standing approval in one step, for programs that have shown its terms in their own way.
    pub async fn approve_always(
        &self,
        id: &ConversationId,
        call: &CallId,
        always: &Always,
        scope: &Scope,
    ) -> Result<StandingApproval, ResolveError> {
        let approval = self.propose_standing(id, call, always, scope).await?;
        self.store_standing(approval.clone(), scope).await?;
        Ok(approval)
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
