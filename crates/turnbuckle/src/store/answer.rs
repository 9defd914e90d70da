//! Answers to suspended calls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StandingApproval;
use crate::message::Text;

/// What a person or a client says to a suspended call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// It may run.
    Approve,
    /// It may run with these arguments in the place of those shown.
    ApproveWith(Arc<Value>),
    /// It may not.
    Deny(Option<Text>),
    /// The result.
    Result(Value),
    /// There is no result, and why.
    Error(Text),
}

impl Answer {
    /// The same answer, and from now on this standing approval. Both are stored in one write, or neither is. Only a plain
    /// [`Approve`](Self::Approve) can be given for more than one call.
    ///
    /// [`propose_standing`](crate::Conversations::propose_standing) makes the standing approval, to be shown to the person
    /// who gives it.
    pub fn always(self, standing: StandingApproval) -> GivenAnswer {
        GivenAnswer { answer: self, standing: Some(Box::new(standing)) }
    }
}

/// An answer, and what is stored together with it. An [`Answer`] becomes one by `into()`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GivenAnswer {
    /// The answer.
    pub answer: Answer,
    /// The standing approval that begins with it; see [`Answer::always`].
    pub standing: Option<Box<StandingApproval>>,
}

impl From<Answer> for GivenAnswer {
    fn from(answer: Answer) -> Self {
        Self { answer, standing: None }
    }
}
