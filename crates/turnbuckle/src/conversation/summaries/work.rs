//! What a try at a summary takes: its model calls, what they cost, and what the audit keeps of them.

use super::SummaryError;
use crate::audit::{AuditWrite, AuditedCall, CallPurpose};
use crate::id::TurnId;
use crate::limits::UsedBudget;
use crate::message::Reply;
use crate::model::{Model, ModelError, Request, Sink};
use crate::record::Record;
use crate::store::{Job, PartialSummary, StoreError};
use crate::turn::{AuditMemory, TurnContext};

/// What one try has taken and made so far. It outlives a try that is cut off.
pub(super) struct Work {
    pub(super) spent: UsedBudget,
    /// What hooks decided about it.
    pub(super) records: Vec<Record>,
    /// Notes about the pieces that were read, by this try or by one before.
    pub(super) partial: Option<PartialSummary>,
    audit: Option<AuditWrite>,
    memory: AuditMemory,
    turn: TurnId,
    seq: u64,
}

struct Unstreamed;

impl Sink for Unstreamed {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}

impl Work {
    pub(super) fn of(ctx: &TurnContext, job: &Job) -> Self {
        let options = ctx.services.audit.as_ref();
        let audit =
            options.map(|options| AuditWrite { calls: Vec::new(), contents: Vec::new(), limits: options.limits });
        let (spent, memory) = (UsedBudget::default(), AuditMemory::default());
        let partial = job.partial.clone();
        Self { spent, records: Vec::new(), partial, audit, memory, turn: job.turn.clone(), seq: job.seq }
    }

    /// Asks the model, and notes what that took.
    pub(super) async fn ask(
        &mut self,
        ctx: &TurnContext,
        model: &dyn Model,
        request: &Request,
        version: u32,
    ) -> Result<Reply, ModelError> {
        let began = ctx.clock().coarse();
        self.spent.calls += 1;
        let answer = model.stream(request, &mut Unstreamed).await;
        let usage = answer.as_ref().map(|reply| reply.usage).unwrap_or_default();
        let cost = answer.is_ok().then(|| model.price(&usage)).flatten();
        self.spent.usage += usage;
        self.spent.cost += cost.unwrap_or(0.0);
        let (Some(write), Some(options)) = (&mut self.audit, &ctx.services.audit) else { return answer };
        let error = answer.as_ref().err().map(|error| options.redacted_text(&error.to_string()));
        let took = ctx.clock().coarse().saturating_sub(began);
        let stored = self.memory.store(request, model, options, &mut write.contents);
        write.calls.push(AuditedCall {
            turn: self.turn.clone(),
            purpose: CallPurpose::Summary,
            made_at: self.seq,
            attempt: self.spent.calls,
            at: ctx.clock().now(),
            model: model.name().into(),
            ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            usage,
            cost,
            error,
            summary: Some(version),
            cut: None,
            injected: Vec::new(),
            system: stored.system,
            tools: stored.tools,
            tools_withheld: request.withholds_tools(),
            schema: stored.schema,
            fields: stored.fields,
            messages: stored.messages,
        });
        answer
    }

    /// The last reply was no summary: the audit says why.
    pub(super) fn note_refused(&mut self, ctx: &TurnContext, error: &SummaryError) {
        let call = self.audit.as_mut().and_then(|write| write.calls.last_mut());
        if let (Some(call), Some(options)) = (call, &ctx.services.audit) {
            call.error = Some(options.redacted_text(&error.to_string()));
        }
    }

    /// Stores what the audit keeps, if there is one and if there is anything.
    pub(super) async fn store_audit(&mut self, ctx: &TurnContext) -> Result<(), StoreError> {
        let Some(write) = self.audit.as_mut().filter(|write| !write.calls.is_empty()) else { return Ok(()) };
        ctx.store().add_audited(&ctx.conversation, write).await?;
        write.calls.clear();
        write.contents.clear();
        Ok(())
    }

    /// What all tries at this job have taken; `None` if that is nothing.
    pub(super) fn spent_on(&self, job: &Job) -> Option<UsedBudget> {
        let mut all = job.spent.unwrap_or_default();
        all.calls = all.calls.saturating_add(self.spent.calls);
        all.usage += self.spent.usage;
        all.cost += self.spent.cost;
        (all.calls > 0).then_some(all)
    }
}
