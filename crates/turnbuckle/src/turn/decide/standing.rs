//! Standing approvals as the evidence for a call.

use super::{Approvals, CallReview};
use crate::access::AnswerRule;
use crate::event::{EventKind, Evidence, Resolved, StandingBasis};
use crate::store::StandingRequest;
use crate::turn::active::Interrupt;

impl CallReview<'_> {
    /// Uses a standing approval for the call, if there is one. Who gave it must be someone who may approve the call.
    pub(super) async fn standing_approval(
        &mut self,
        basis: Option<&StandingBasis>,
        rule: Option<&AnswerRule>,
    ) -> Result<Option<Approvals>, Interrupt> {
        let (ctx, call) = (&self.turn.ctx, &self.open.call);
        let (Some(basis), Some(requester)) = (basis, ctx.scope.user_id()) else { return Ok(None) };
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
        for approval in ctx.store().standing().await? {
            if !approval.covers(request) {
                continue;
            }
            let may_approve = match &rule {
                Some(rule) => rule.permits(&approval.by),
                None => ctx.may_answer(&approval.by).await?,
            };
            if may_approve && ctx.store().use_standing(&approval.id, request.now).await? {
                let by = approval.by.author();
                let evidence = Evidence {
                    digest: Some(self.digest().text().clone()),
                    standing: Some(approval.id.clone()),
                    ..Evidence::default()
                };
                let (call, decision) = (call.call.clone(), Resolved::Approved);
                let used = EventKind::Resolution { call, decision, by: by.clone(), reason: None, evidence };
                self.used = Some(Box::new(used));
                return Ok(Some(Approvals { last: Some(by.clone()), all: vec![by] }));
            }
        }
        Ok(None)
    }
}
