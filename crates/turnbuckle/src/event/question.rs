//! What a suspension asks, how it is answered, and what stands behind the answer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::is_false;
use crate::message::Text;
use crate::scope::Author;

/// What a suspension asks, and of whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "prompt", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// May this run? For a whole reply `tool` is null and `arguments` hold the reply.
    Approval {
        /// The tool.
        tool: Option<Text>,
        /// The arguments it would run with.
        arguments: Arc<Value>,
        /// What an approval is bound to.
        digest: Text,
        /// Why it is asked.
        why: Option<Text>,
        /// Whether the call was started before and left no result: approved, it runs again.
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
        /// Whether `arguments` are a redacted form: the call runs with others, of which the digest is.
        #[serde(default, skip_serializing_if = "is_false")]
        redacted: bool,
        /// What a standing approval of this call would be bound to; `None` if none can answer it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        standing: Option<Arc<StandingBasis>>,
    },
    /// A person's answer is the result.
    Elicitation {
        /// What the person is asked.
        question: Text,
        /// What the answer must look like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Arc<Value>>,
    },
    /// A browser or an editor runs it.
    ClientExec {
        /// The tool.
        tool: Text,
        /// The arguments to run it with.
        arguments: Arc<Value>,
    },
    /// A stop hook wants a person to look. Approve ends the turn, deny refuses the stop.
    Pause {
        /// Which hook.
        hook: Text,
        /// The reason that was given.
        reason: Text,
    },
}

/// What a standing approval of a call would be bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingBasis {
    /// The agent whose call it is; it may be a sub-agent of the one that the conversation belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Text>,
    /// The digest of the tool's definition.
    pub definition: Text,
    /// Which parts of the arguments must stay the same, as JSON pointers. Empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Text>,
}

impl Question {
    /// Notes an approval of it. Arguments that the approver put in the place of those asked about void earlier approvals,
    /// and are what is asked about from now on.
    pub(crate) fn note_approval(&mut self, by: &Author, evidence: &Evidence, approvals: &mut Vec<Author>) {
        if let (Some(edited), Self::Approval { arguments, digest, redacted, .. }) = (&evidence.arguments, self) {
            arguments.clone_from(edited);
            *redacted = evidence.redacted;
            if let Some(of_edited) = &evidence.digest {
                digest.clone_from(of_edited);
            }
            approvals.clear();
        }
        approvals.push(by.clone());
    }

    /// The digest of what is to be approved, if it asks for an approval.
    pub fn digest(&self) -> Option<&Text> {
        match self {
            Self::Approval { digest, .. } => Some(digest),
            Self::Elicitation { .. } | Self::ClientExec { .. } | Self::Pause { .. } => None,
        }
    }

    /// The tool that it is about, if it is about one.
    pub fn tool(&self) -> Option<&Text> {
        match self {
            Self::Approval { tool, .. } => tool.as_ref(),
            Self::ClientExec { tool, .. } => Some(tool),
            Self::Elicitation { .. } | Self::Pause { .. } => None,
        }
    }
}

/// How a suspension ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolved {
    /// It may run, or the turn may end.
    Approved,
    /// It may not.
    Denied,
    /// With a result.
    Answered,
    /// Nobody answered in time.
    Expired,
    /// The turn was cancelled.
    Cancelled,
}

/// What an answer was about, and how it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Whether the question stays open, because further approvals are needed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
    /// The arguments that the approver put in the place of those shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arc<Value>>,
    /// Whether `arguments` are a redacted form of them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub redacted: bool,
    /// The digest of what was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text>,
    /// The standing approval that was used: nobody was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Text>,
    /// How the answer came, if it was not through a program of Turnbuckle: `link`, `mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Text>,
}
