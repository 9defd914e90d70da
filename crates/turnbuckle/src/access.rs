//! Who may do what: one contract for every entry, from Rust, the command line, another process or a sub-agent.

use std::fmt;

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::id::ConversationId;
use crate::message::Text;
use crate::scope::{Actor, Author};

/// Something that is done with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Look at it: its log, its records, its live events. Every other action includes this one.
    Read,
    /// Send a message, carry a turn on, close it.
    Say,
    /// Answer what it asks: approve, deny, give a result.
    Answer,
    /// Cancel its turn.
    Cancel,
    /// Remove it, hold it, release it.
    Delete,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Say, Self::Answer, Self::Cancel, Self::Delete];

    /// As `[access]` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Say => "say",
            Self::Answer => "answer",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A conversation, as far as access is decided by it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AccessTo<'a> {
    /// The conversation. A sub-agent's is decided like the one that it works for.
    pub id: &'a ConversationId,
    /// Who opened it.
    pub owner: &'a Actor,
}

impl<'a> AccessTo<'a> {
    /// The conversation `id` of `owner`.
    pub fn new(id: &'a ConversationId, owner: &'a Actor) -> Self {
        Self { id, owner }
    }
}

/// Decides who may do what. The default is [`OwnerOnly`]; [`RoleAccess`] adds roles; a closure decides by itself:
///
/// ```
/// use turnbuckle::access::{AccessTo, Action};
/// use turnbuckle::{Actor, Agent, Conversations, models::Script, stores::MemoryStore};
///
/// let agent = Agent::builder("support", Script::says(["hello"])).build()?;
/// let conversations = Conversations::builder(agent, MemoryStore::default())
///     .access(|actor: &Actor, to: AccessTo<'_>, action: Action| {
///         actor.is_same_user(to.owner) || (action == Action::Read && actor.has_role("auditor"))
///     })
///     .build();
/// # drop(conversations);
/// # Ok::<(), turnbuckle::BoxError>(())
/// ```
///
/// It is asked about users. The system ([`Actor::System`]), which is the program itself, may always read, say, cancel and
/// delete, and never answers and never insists.
pub trait Access: Send + Sync + 'static {
    /// Whether this user may.
    fn may(&self, actor: &Actor, to: AccessTo<'_>, action: Action) -> bool;

    /// Who could, for a person who may not and is told so.
    fn who(&self, action: Action) -> String {
        let _ = action;
        "its owner".to_owned()
    }

    /// Who may answer a question that is asked now, about this tool or, with `None`, about something else. It is stored with
    /// the question, and then it decides alone, in every process. `None`: [`may`](Self::may) decides where the answer is
    /// given.
    fn answer_rule(&self, tool: Option<&str>) -> Option<AnswerRule> {
        let _ = tool;
        None
    }
}

impl<F: Fn(&Actor, AccessTo<'_>, Action) -> bool + Send + Sync + 'static> Access for F {
    fn may(&self, actor: &Actor, to: AccessTo<'_>, action: Action) -> bool {
        self(actor, to, action)
    }
    fn who(&self, _: Action) -> String {
        "whoever the program allows".to_owned()
    }
}

/// The owner of a conversation may do everything with it, and nobody else anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerOnly;

impl Access for OwnerOnly {
    fn may(&self, actor: &Actor, to: AccessTo<'_>, _: Action) -> bool {
        actor.is_same_user(to.owner)
    }

    fn answer_rule(&self, _: Option<&str>) -> Option<AnswerRule> {
        Some(AnswerRule { owner: true, ..AnswerRule::default() })
    }
}

/// The owner, and for each action the users with certain roles: `[access]` in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleAccess {
    /// Roles that may read.
    pub read: Vec<Text>,
    /// Roles that may say something.
    pub say: Vec<Text>,
    /// Roles that may answer.
    pub answer: Vec<Text>,
    /// Roles that may cancel.
    pub cancel: Vec<Text>,
    /// Roles that may delete.
    pub delete: Vec<Text>,
    /// Who may approve which tool. The first rule that names a tool counts. A tool that a rule names needs approval,
    /// whatever else says that it does not.
    pub approve: Vec<ApproveRule>,
}

/// Who may approve calls of some tools, and how many of them must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproveRule {
    /// The tool's name, or a glob.
    pub tool: Text,
    /// Roles that may approve. Empty: those that may answer otherwise.
    pub by: Vec<Text>,
    /// Whether the user who sent the message may not.
    pub not_requester: bool,
    /// How many different users must approve.
    pub n: u32,
}

impl RoleAccess {
    fn roles(&self, action: Action) -> &[Text] {
        match action {
            Action::Read => &self.read,
            Action::Say => &self.say,
            Action::Answer => &self.answer,
            Action::Cancel => &self.cancel,
            Action::Delete => &self.delete,
        }
    }

    fn approvers(&self) -> impl Iterator<Item = &Text> {
        self.approve.iter().flat_map(|rule| &rule.by)
    }
}

impl Access for RoleAccess {
    fn may(&self, actor: &Actor, to: AccessTo<'_>, action: Action) -> bool {
        let has_any = |roles: &[Text]| roles.iter().any(|role| actor.has_role(role));
        let reads = || {
            Action::ALL.iter().any(|other| has_any(self.roles(*other)))
                || self.approvers().any(|role| actor.has_role(role))
        };
        actor.is_same_user(to.owner) || has_any(self.roles(action)) || (action == Action::Read && reads())
    }

    fn who(&self, action: Action) -> String {
        match self.roles(action) {
            [] => "its owner".to_owned(),
            roles => format!("its owner, or {}", named("role", roles)),
        }
    }

    fn answer_rule(&self, tool: Option<&str>) -> Option<AnswerRule> {
        let matches = |rule: &&ApproveRule| tool.is_some_and(|tool| WildMatch::new(&rule.tool).matches(tool));
        match self.approve.iter().find(matches) {
            Some(rule) => Some(AnswerRule {
                roles: if rule.by.is_empty() { self.answer.clone() } else { rule.by.clone() },
                owner: rule.by.is_empty(),
                not_requester: rule.not_requester,
                n: rule.n.max(1),
                required: true,
                ..AnswerRule::default()
            }),
            None => Some(AnswerRule { roles: self.answer.clone(), owner: true, ..AnswerRule::default() }),
        }
    }
}

/// A rule by which calls of a tool must be approved, as it is recorded with each turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequiredApproval {
    /// The tool.
    pub tool: Text,
    /// Users with one of these roles may approve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Text>,
    /// Whether the owner of the conversation may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owner: bool,
    /// Whether the user who sent the message may not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_requester: bool,
    /// How many different users must approve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub n: u32,
}

impl RequiredApproval {
    /// The rule for a tool, if calls of it must be approved whatever the tool, the agent or a hook says.
    pub(crate) fn of(access: &dyn Access, tool: &Text) -> Option<Self> {
        let rule = access.answer_rule(Some(tool)).filter(|rule| rule.required)?;
        let AnswerRule { roles, owner, not_requester, n, .. } = rule;
        Some(Self { tool: tool.clone(), roles, owner, not_requester, n })
    }

    /// Whether this rule lets through what the other would not: fewer people must approve, or others may.
    pub(crate) fn asks_less_than(&self, other: &Self) -> bool {
        self.n < other.n
            || (other.not_requester && !self.not_requester)
            || (self.owner && !other.owner)
            || self.roles.iter().any(|role| !other.roles.contains(role))
    }

    /// Who must approve, for people.
    pub(crate) fn who(&self) -> String {
        let mut who = Vec::new();
        if self.owner {
            who.push("the owner".to_owned());
        }
        if !self.roles.is_empty() {
            who.push(named("role", &self.roles));
        }
        let mut text = if who.is_empty() { "nobody".to_owned() } else { who.join(" or ") };
        if self.not_requester {
            text += ", but not who asked for it";
        }
        if self.n > 1 {
            text = format!("{} of {text}", self.n);
        }
        text
    }
}

/// Who may answer a question. It is stored with the question by the agent that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRule {
    /// Users with one of these roles may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Text>,
    /// These users may. The owner of the conversation is put here when the question is stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<Text>,
    /// This user may not: the one who sent the message, put here when the question is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<Text>,
    /// How many different users must approve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub n: u32,
    /// Whether the question is asked once more, because arguments that an approver had edited were changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_look: bool,
    /// Whether the owner of the conversation may answer.
    #[serde(skip)]
    pub owner: bool,
    /// Whether the user who sent the message may not.
    #[serde(skip)]
    pub not_requester: bool,
    /// Whether the call needs approval because of this rule, whatever the tool, the agent or a hook says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Default for AnswerRule {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            users: Vec::new(),
            not: None,
            n: 1,
            second_look: false,
            owner: false,
            not_requester: false,
            required: false,
        }
    }
}

impl AnswerRule {
    /// The rule by which those who approved are asked once more, all of them. `None` if they were asked once more already.
    pub(crate) fn second_look(before: Option<&Self>, approvals: &[Author]) -> Option<Self> {
        let user = |by: &Author| match by {
            Author::User(id) => Some(Text::from(&**id)),
            _ => None,
        };
        let users: Vec<_> = approvals.iter().filter_map(user).collect();
        let (n, not) = before.map_or((1, None), |rule| (rule.n, rule.not.clone()));
        let is_first = before.is_none_or(|rule| !rule.second_look);
        (is_first && !users.is_empty()).then(|| Self { users, not, n, second_look: true, ..Self::default() })
    }

    /// Whether this actor may answer.
    pub fn permits(&self, actor: &Actor) -> bool {
        let Some(id) = actor.user_id() else { return false };
        let is_excluded = self.not.as_ref().is_some_and(|not| **not == **id);
        let is_named = self.users.iter().any(|user| **user == **id);
        !is_excluded && (is_named || self.roles.iter().any(|role| actor.has_role(role)))
    }

    /// Whether these approvals are enough: as many different users as needed, each of whom may.
    pub(crate) fn is_met_by(&self, approvals: &[Actor]) -> bool {
        let mut users: Vec<_> =
            approvals.iter().filter(|actor| self.permits(actor)).filter_map(Actor::user_id).collect();
        users.sort_unstable();
        users.dedup();
        users.len() >= self.n as usize
    }

    /// Who could answer, for people.
    pub fn who(&self) -> String {
        let mut who = Vec::new();
        if !self.users.is_empty() {
            who.push(named("user", &self.users));
        }
        if !self.roles.is_empty() {
            who.push(named("role", &self.roles));
        }
        let mut text = if who.is_empty() { "nobody".to_owned() } else { who.join(", or ") };
        if let Some(not) = &self.not {
            text += &format!(", but not user {not}, who asked for it");
        }
        if self.n > 1 {
            text += &format!("; {} of them must approve", self.n);
        }
        text
    }
}

fn named(what: &str, names: &[Text]) -> String {
    match names {
        [name] => format!("{what} {name}"),
        names => format!("{what}s {}", names.join(", ")),
    }
}
