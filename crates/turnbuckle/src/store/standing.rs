//! Standing approvals: "always, for this rule, until …". They answer the approval that a tool or the agent asks for, and
//! nothing else.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::id::{CallId, ConversationId};
use crate::message::Text;
use crate::scope::Actor;

/// An approval that holds for more than one call: of one agent, one tool, one project and one requester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StandingApproval {
    /// Its id, by which it is revoked and which the log names with every use.
    pub id: Text,
    /// The name of the agent whose calls it approves.
    pub agent: Text,
    /// The tool.
    pub tool: Text,
    /// The digest of the tool's definition: a tool that changes is asked about again.
    pub definition: Text,
    /// What the arguments must be like; all of these must match.
    pub arguments: Vec<ArgumentMatch>,
    /// The project it was given in.
    pub project: Text,
    /// The id of the user whose messages the calls serve.
    pub requester: Text,
    /// Who gave it, with the roles that they had.
    pub by: Actor,
    /// When it was given.
    pub at: Timestamp,
    /// Until when it holds.
    pub expires: Timestamp,
    /// How often it may still be used; `None`: as often as needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// The call that it was made from.
    pub from: (ConversationId, CallId),
}

/// What a part of the arguments must be like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArgumentMatch {
    /// Which part, as a JSON pointer (RFC 6901). Empty: all of them.
    pub pointer: String,
    /// What it must be.
    #[serde(flatten)]
    pub must: MustBe,
}

/// What a part of the arguments must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MustBe {
    /// Exactly this value. `null` also stands for a part that is not there.
    Equals(Value),
    /// A text that this pattern matches: `*` stands for any characters, `?` for one.
    Like(String),
}

impl ArgumentMatch {
    /// The part at `pointer` must be this value.
    pub fn equals(pointer: impl Into<String>, value: Value) -> Self {
        Self { pointer: pointer.into(), must: MustBe::Equals(value) }
    }

    /// The part at `pointer` must be a text like this pattern.
    pub fn like(pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), must: MustBe::Like(pattern.into()) }
    }

    fn matches(&self, arguments: &Value) -> bool {
        let part = arguments.pointer(&self.pointer).unwrap_or(&Value::Null);
        match &self.must {
            MustBe::Equals(value) => part == value,
            MustBe::Like(pattern) => part.as_str().is_some_and(|text| wildmatch::WildMatch::new(pattern).matches(text)),
        }
    }
}

impl std::fmt::Display for ArgumentMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.pointer.as_str() {
            "" => "arguments",
            pointer => pointer.trim_start_matches('/'),
        };
        match &self.must {
            MustBe::Equals(value) => write!(f, "{what} = {value}"),
            MustBe::Like(pattern) => write!(f, "{what} like {pattern:?}"),
        }
    }
}

/// A call that needs approval, as far as a standing approval is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandingRequest<'a> {
    pub(crate) agent: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) definition: &'a str,
    pub(crate) arguments: &'a Value,
    pub(crate) project: &'a str,
    pub(crate) requester: &'a str,
    pub(crate) now: Timestamp,
}

impl StandingApproval {
    /// Whether it covers this call.
    pub(crate) fn covers(&self, request: StandingRequest<'_>) -> bool {
        *self.agent == *request.agent
            && *self.tool == *request.tool
            && *self.definition == *request.definition
            && *self.project == *request.project
            && *self.requester == *request.requester
            && self.is_usable(request.now)
            && self.arguments.iter().all(|part| part.matches(request.arguments))
    }

    /// Whether it has neither expired nor been used up.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.expires > now && self.uses_left != Some(0)
    }
}

impl std::fmt::Display for StandingApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { agent, tool, requester, expires, .. } = self;
        write!(f, "agent {agent} may call {tool}")?;
        for (index, part) in self.arguments.iter().enumerate() {
            write!(f, "{} {part}", if index == 0 { " with" } else { " and" })?;
        }
        write!(f, " for user {requester}")?;
        if !self.project.is_empty() {
            write!(f, " in {}", self.project)?;
        }
        write!(f, " until {expires}")?;
        match self.uses_left {
            Some(0) => write!(f, ", with no use left"),
            Some(1) => write!(f, ", once"),
            Some(times) => write!(f, ", {times} times"),
            None => Ok(()),
        }
    }
}
