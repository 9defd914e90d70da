//! What can become of a call.

use std::sync::Arc;

use super::standing::StandingUse;
use crate::access::AnswerRule;
use crate::digest::CallDigest;
use crate::event::{EventKind, Question};
use crate::id::CallId;
use crate::message::ToolCall;
use crate::tool::{Output, Tool};
use crate::turn::view::Turn;

/// A call of which is decided what becomes of it.
pub(in crate::turn) struct DecidedCall {
    pub(in crate::turn) call: CallId,
    /// Standing approvals that could be used instead of asking.
    pub(in crate::turn) standing: Vec<StandingUse>,
    pub(in crate::turn) decision: CallDecision,
}

/// What becomes of a call.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "most calls run, and a box for each would cost more than the space")]
pub(in crate::turn) enum CallDecision {
    /// It runs now. The log says so first, unless it says so already.
    Run { call: ReadyCall, is_logged: bool },
    /// Someone must answer first: those whom the rule names or, without one, whom the access rules allow. In a box: most calls
    /// run, and every decision is moved.
    Suspend(Box<(Question, Option<AnswerRule>)>),
    /// It has its result.
    Finish(Output),
}

impl CallDecision {
    pub(super) fn suspend(question: Question, rule: Option<AnswerRule>) -> Self {
        Self::Suspend(Box::new((question, rule)))
    }
}

/// A call that is about to run.
#[derive(Clone)]
pub(in crate::turn) struct ReadyCall {
    pub(in crate::turn) turn: Turn,
    pub(in crate::turn) call: ToolCall,
    pub(in crate::turn) tool: Arc<dyn Tool>,
    /// The call was started once and left no result: ask the outside world first whether it happened.
    pub(in crate::turn) reconcile: bool,
}

impl ReadyCall {
    /// Says in the log that the call runs, with what, and who approved it.
    pub(in crate::turn) fn started(&self) -> EventKind {
        let ToolCall { call, name, arguments } = &self.call;
        let approvals = self.turn.in_tool.as_ref().map(|in_tool| &in_tool.approvals);
        EventKind::ToolStarted {
            call: call.clone(),
            arguments: arguments.clone().into(),
            digest: CallDigest::of_call(name.clone(), arguments.clone(), self.turn.ctx.conversation.clone()),
            approvals: approvals.filter(|approvals| !approvals.is_empty()).map(|approvals| Box::new(approvals.clone())),
        }
    }
}
