//! What stands beside the log: what a turn needs to go on and is not history.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Answer;
use crate::agent_parts::AgentParts;
use crate::digest::CallDigest;
use crate::event::Warning;
use crate::id::{CallId, ConversationId, TurnId};
use crate::limits::{Limits, UsedBudget};
use crate::message::{Content, Injection, Reply, Text};
use crate::scope::{Actor, Author};

/// What a turn needs to go on and is not history. Deleted with `turn_ended`. What few turns have is in a box: every turn makes
/// and moves one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scratch {
    /// The turn it belongs to.
    pub turn: TurnId,
    /// Who sent the message, roles included.
    pub actor: Actor,
    /// The agent that took the message up.
    pub agent: Text,
    /// The name by which people choose its model.
    #[serde(default)]
    pub model: Text,
    /// The project that it was about: a standing approval of one of its calls holds there.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub project: Text,
    /// Of its configuration.
    pub digest: Text,
    /// What it was made of: an agent that lacks a tool or a blocking hook of it leaves the turn. `None` if an older
    /// program began the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Arc<AgentParts>>,
    /// What the answer must look like, if the message said so.
    #[serde(default)]
    pub schema: Option<Arc<Value>>,
    /// The limits in force: a later configuration does not change a turn under way.
    pub limits: Limits,
    /// What `before_agent` hooks added for this turn only.
    pub injections: Vec<Injection>,
    /// What they added behind messages that steered the turn, each with the seq of its message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<(u64, Injection)>,
    /// Attempts at the present reply that were discarded.
    pub regeneration: Option<Box<Regeneration>>,
    /// A reply that a person must approve.
    pub asked: Option<Box<PendingReply>>,
    /// The approval of the present reply as a whole, by a hook or by people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_reply: Option<ApprovedReply>,
    /// Answers that are not results yet.
    pub answers: Vec<(CallId, Answer)>,
    /// Who gave them, with their roles: whoever carries the turn on checks again that they may. Several for a call that
    /// needs several approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered_by: Vec<(CallId, Actor)>,
    /// If hooks redact arguments: what the calls of the last reply run with, as far as their form in the log is another.
    /// `None`: the log has arguments as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Vec<(CallId, Arc<Value>)>>,
    /// Files that tools touched in this turn.
    pub touched: Vec<String>,
    /// How long the turn was at work when this was written.
    pub active: Duration,
    /// What the time stamps of the log gave for that at the same moment. After a crash, the time since then is the
    /// difference to what they give now.
    #[serde(default)]
    pub worked: Duration,
    /// Model calls, tokens and money that the log does not tell: of discarded attempts, and of models that hooks asked.
    #[serde(default)]
    pub unlogged: UsedBudget,
    /// What each sub-agent of the turn has used, of what is in `unlogged`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_agents: Vec<(ConversationId, UsedBudget)>,
    /// The limit that was reached, if the model is asked for a last answer or has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<Text>,
    /// What stop hooks left to be said when the turn ends after a pause, by hook.
    pub advice: Vec<(Text, Content)>,
    /// What `turn_ended` will say went wrong.
    pub warnings: Vec<Warning>,
}

impl Scratch {
    /// Who answered the present question about a call, with their roles.
    pub(crate) fn answered_by(&self, call: &CallId) -> Vec<Actor> {
        let by = self.answered_by.iter().filter(|(answered, _)| answered == call);
        by.map(|(_, actor)| actor.clone()).collect()
    }
}

fn is_empty(text: &Text) -> bool {
    text.is_empty()
}

/// Why the present reply is being made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regeneration {
    /// How often it was asked for, by all hooks together.
    pub count: u32,
    /// Of these, because the reply did not fit its schema.
    #[serde(default)]
    pub reshaped: u32,
    /// Attempts made before this one.
    pub attempts: u32,
    /// The reply that was discarded last.
    pub discarded: Content,
    /// What was wrong with it.
    pub feedback: Text,
    /// Who said so.
    pub hook: Text,
}

/// A whole reply that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingReply {
    /// The minted call.
    pub call: CallId,
    /// Which attempt it was.
    pub attempt: u32,
    /// As it was let through.
    pub reply: Reply,
    /// Whether people saw it.
    pub told: bool,
}

/// A whole reply that was approved. It opens the gates of its calls as long as they run with the arguments that were
/// approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovedReply {
    /// Everyone who approved it, the last one last.
    pub approvals: Vec<Author>,
    /// Its calls, each with the digest of tool, arguments and conversation as they were judged.
    pub calls: Vec<(CallId, Text)>,
}

impl ApprovedReply {
    /// Whether it is an approval of this call with these arguments.
    pub(crate) fn covers(&self, call: &CallId, digest: &CallDigest) -> bool {
        self.calls.iter().any(|(approved, of)| approved == call && of == digest.text())
    }
}
