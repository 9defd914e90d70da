//! Standing approvals as the evidence for a call.

use super::{CallDecision, CallReview};
use crate::access::AnswerRule;
use crate::agent::CompiledTool;
use crate::event::{Approvals, EventKind, Evidence, Resolved, StandingBasis};
use crate::message::Text;
use crate::store::{StandingApproval, StandingRequest};
use crate::turn::active::Interrupt;

/// A standing approval that covers a call.
#[derive(Clone)]
pub(in crate::turn) struct StandingUse {
    pub(in crate::turn) approval: Text,
    /// How often it could still be used when it was read; `None`: as often as needed.
    pub(in crate::turn) uses_left: Option<u32>,
    /// Says that it was used, and is written before what was decided. The store counts the use in the same write.
    pub(in crate::turn) event: EventKind,
    /// What becomes of the call then.
    pub(in crate::turn) decision: CallDecision,
}

impl CallReview<'_> {
    /// The standing approvals that cover the call, the oldest first, and what becomes of it with each. Who gave one must be
    /// someone who may approve the call. Which of them is used, if any, is decided by the write that says so.
    pub(super) async fn standing_uses(
        &self,
        compiled: &CompiledTool,
        basis: &StandingBasis,
        rule: Option<&AnswerRule>,
    ) -> Result<Vec<StandingUse>, Interrupt> {
        let (ctx, call) = (&self.turn.ctx, &self.open.call);
        let Some(requester) = ctx.scope.user_id() else { return Ok(Vec::new()) };
        let request = StandingRequest {
            agent: ctx.agent_name(),
            tool: &call.name,
            definition: &basis.definition,
            arguments: &call.arguments,
            project: &ctx.services.project,
            requester,
            now: ctx.clock().now(),
        };
        let rule = match rule {
            Some(rule) => Some(ctx.completed(rule.clone()).await?),
            None => None,
        };
        let mut uses = Vec::new();
        for approval in ctx.store().standing().await? {
            let is_close = approval.is_exact() || approval.is_by_rules();
            let is_too_open = compiled.tool.spec().standing_exact && !is_close;
            let allowed_by = |rules: &[String]| compiled.tool.allowed_by(rules, &call.arguments);
            let covers = || {
                approval.covers(request, &allowed_by)
                    && compiled.tool.standing_covers(&approval.arguments, &call.arguments)
            };
            if is_too_open || !covers() {
                continue;
            }
            let may_approve = match &rule {
                Some(rule) => rule.permits(&approval.by),
                None => ctx.may_answer(&approval.by).await?,
            };
            if may_approve {
                uses.push(self.use_of(compiled, approval));
            }
        }
        Ok(uses)
    }

    fn use_of(&self, compiled: &CompiledTool, approval: StandingApproval) -> StandingUse {
        let by = approval.by.author();
        let evidence = Evidence {
            digest: Some(self.digest().text().clone()),
            standing: Some(approval.id.clone()),
            ..Evidence::default()
        };
        let (call, decision) = (self.open.call.call.clone(), Resolved::Approved);
        let event =
            EventKind::Resolution { call, decision, by: by.clone(), reason: None, evidence: Box::new(evidence) };
        let decision = self.proceed(compiled, Approvals { last: Some(by.clone()), all: vec![by], rule: None });
        StandingUse { approval: approval.id, uses_left: approval.uses_left, event, decision }
    }
}
