//! What an agent is made of, as it is recorded with each turn: the names by which another process decides whether it may
//! carry the turn on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Access, RequiredApproval};
use crate::message::Text;

/// What an agent is made of. It is stored with an open turn. Everything in it is as the configuration says it, by stable
/// names: neither what was discovered at run time nor the version of the program is part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentParts {
    /// The names of its tools.
    pub tools: Vec<Text>,
    /// The names of tools that servers offered at run time. A turn does not need them to be carried on: a server may offer others
    /// later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<Text>,
    /// Those of them whose calls need a person's approval; `None` if the program that began the turn did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<Vec<Text>>,
    /// The rules by which calls of its tools, and of its sub-agents' tools, must be approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<RequiredApproval>,
    /// Its hooks, in order.
    #[serde(default)]
    pub hooks: Vec<HookPart>,
    /// The agents that it offers to its model as tools, and what those are made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_agents: Vec<(Text, Arc<AgentParts>)>,
    /// The options of the command line that the turn was started with, for people who carry it on. No secret is in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started_with: Vec<String>,
}

/// A hook of an agent, as it is recorded with a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HookPart {
    /// Unique in its agent.
    pub name: Text,
    /// Which kind of hook it is: what `use` says in a configuration, `code` for a hook that a program adds by itself.
    #[serde(rename = "use")]
    pub used: Text,
    /// Whether its failure blocks at any of its points. A turn that began with such a hook is not carried on without it.
    pub blocks: bool,
    /// Of its options; `None` if a program made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Text>,
    /// Whether it is called when a turn is over. If an agent without this hook ends the turn, the call is left for one
    /// that has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub on_ended: bool,
    /// The types of log events that its `on_logged` is given. Whoever writes such an event for this agent leaves a job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged: Vec<Text>,
    /// When it is reminded of a question: percent of the question's time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reminders: Vec<u8>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Something that a turn began with and that an agent lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MissingPart {
    /// A tool, by name.
    Tool(Text),
    /// A hook whose failure blocks, by name and `use`.
    Hook {
        /// Its name.
        name: Text,
        /// Its `use`.
        used: Text,
    },
    /// An approval: calls of the tool ran only with it, and would run without it, or with that of fewer or other people.
    Approval {
        /// The tool.
        tool: Text,
        /// Whose approval, if a rule says so.
        by: Option<Text>,
    },
    /// Something of a sub-agent.
    OfSubAgent {
        /// The sub-agent's name.
        agent: Text,
        /// What it lacks.
        missing: Box<MissingPart>,
    },
}

impl fmt::Display for MissingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(name) => write!(f, "tool {name}"),
            Self::Hook { name, used } if name == used => write!(f, "hook {name}"),
            Self::Hook { name, used } => write!(f, "hook {name} (use = {used:?})"),
            Self::Approval { tool, by: None } => write!(f, "the approval of tool {tool}"),
            Self::Approval { tool, by: Some(by) } => write!(f, "the approval of tool {tool} by {by}"),
            Self::OfSubAgent { agent, missing } => write!(f, "{missing} of sub-agent {agent}"),
        }
    }
}

impl HookPart {
    /// What `use` says of it, if a configuration made it.
    pub(crate) fn configured_use(&self) -> Option<&Text> {
        // Only a configuration's hooks have a digest of their options.
        self.options.as_ref().map(|_| &self.used)
    }

    fn is_same_hook(&self, other: &Self) -> bool {
        self.name == other.name && self.used == other.used
    }
}

impl AgentParts {
    /// What a turn that began with `before` needs and these parts lack.
    pub(crate) fn missing_of(&self, before: &Self) -> Vec<MissingPart> {
        let mut missing = self.missing_beside_rules(before, &self.approvals);
        for rule in
            before.approvals.iter().filter(|rule| self.rule_for(&rule.tool).is_none_or(|own| own.asks_less_than(rule)))
        {
            missing.push(MissingPart::Approval { tool: rule.tool.clone(), by: Some(rule.who().into()) });
        }
        missing
    }

    /// Whether the model can call it, whoever offers it.
    fn has(&self, tool: &Text) -> bool {
        self.tools.contains(tool) || self.offered.contains(tool)
    }

    fn rule_for(&self, tool: &Text) -> Option<&RequiredApproval> {
        self.approvals.iter().find(|rule| rule.tool == *tool)
    }

    /// What these parts lack, but for rules about approvals. `rules` are those in force now.
    fn missing_beside_rules(&self, before: &Self, rules: &[RequiredApproval]) -> Vec<MissingPart> {
        let tools = before.tools.iter().filter(|tool| !self.tools.contains(tool));
        let lacks = |hook: &&HookPart| hook.blocks && !self.hooks.iter().any(|own| own.is_same_hook(hook));
        let hooks = before.hooks.iter().filter(lacks);
        let mut missing: Vec<_> = tools.cloned().map(MissingPart::Tool).collect();
        missing.extend(hooks.map(|hook| MissingPart::Hook { name: hook.name.clone(), used: hook.used.clone() }));
        if let (Some(own), Some(old)) = (&self.approve, &before.approve) {
            let is_asked = |tool: &Text| own.contains(tool) || rules.iter().any(|rule| rule.tool == *tool);
            let had_rule = |tool: &Text| before.approvals.iter().any(|rule| rule.tool == *tool);
            let gone = old.iter().filter(|tool| self.has(tool) && !is_asked(tool) && !had_rule(tool));
            missing.extend(gone.map(|tool| MissingPart::Approval { tool: tool.clone(), by: None }));
        }
        for (agent, parts) in &before.sub_agents {
            let Some(own) = self.sub_agent(agent) else { continue };
            let of = |missing| MissingPart::OfSubAgent { agent: agent.clone(), missing: Box::new(missing) };
            missing.extend(own.missing_beside_rules(parts, rules).into_iter().map(of));
        }
        missing
    }

    /// What is different from `before` without keeping a turn from being carried on, for people to read.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut tell = |what: &str, name: &Text, how: &str| changes.push(format!("{what} {name} {how}"));
        for tool in self.tools.iter().filter(|tool| !before.tools.contains(tool)) {
            tell("tool", tool, "was added");
        }
        if let (Some(own), Some(old)) = (&self.approve, &before.approve) {
            let kept = |tool: &&Text| self.has(tool) && before.has(tool);
            for tool in old.iter().filter(|tool| !own.contains(tool)).filter(kept) {
                tell("tool", tool, "no longer needs approval");
            }
            for tool in own.iter().filter(|tool| !old.contains(tool)).filter(kept) {
                tell("tool", tool, "needs approval now");
            }
        }
        for rule in self.approvals.iter().filter(|rule| !before.approvals.contains(rule)) {
            tell("tool", &rule.tool, &format!("must be approved by {} now", rule.who()));
        }
        for hook in &self.hooks {
            match before.hooks.iter().find(|old| old.is_same_hook(hook)) {
                None => tell("hook", &hook.name, "was added"),
                Some(old) if old.options != hook.options => tell("hook", &hook.name, "has other options"),
                Some(old) if old.blocks != hook.blocks => tell("hook", &hook.name, "has another on_failure"),
                Some(_) => {}
            }
        }
        for hook in before.hooks.iter().filter(|old| !self.hooks.iter().any(|hook| hook.is_same_hook(old))) {
            tell("hook", &hook.name, "was removed");
        }
        changes
    }

    /// The names of its tools and of its sub-agents' tools, each once.
    fn all_tools(&self) -> Vec<Text> {
        let mut all: Vec<Text> = self.tools.iter().chain(&self.offered).cloned().collect();
        all.extend(self.sub_agents.iter().flat_map(|(_, parts)| parts.all_tools()));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The rules by which calls of its tools must be approved.
    pub(crate) fn rules_of(&self, access: &dyn Access) -> Vec<RequiredApproval> {
        self.all_tools().iter().filter_map(|tool| RequiredApproval::of(access, tool)).collect()
    }

    pub(crate) fn sub_agent(&self, name: &str) -> Option<&Arc<Self>> {
        self.sub_agents.iter().find(|(own, _)| **own == *name).map(|(_, parts)| parts)
    }
}
