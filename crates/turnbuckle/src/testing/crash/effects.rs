//! Effects and policies: how often a call had its effect, and whether its tool said that it may.

use std::collections::BTreeSet;

use super::caller::is_again;
use super::run::Run;
use super::world::Call;
use crate::event::{EventKind, Resolved};
use crate::hook::{HookEntry, Point};
use crate::message::Text;
use crate::tool::Effect;

/// A run with a crash beside the one without, and what the tools of both say of themselves.
pub(super) struct Policies<'a> {
    pub(super) reference: &'a Run,
    pub(super) run: &'a Run,
}

impl Policies<'_> {
    /// What each call did that its tool's policy does not allow.
    pub(super) fn broken(&self) -> Vec<String> {
        let noted = self.reference.deeds.effects.iter().chain(&self.run.deeds.effects).map(|(call, _)| call);
        let calls: BTreeSet<&Call> = noted.chain(self.run.deeds.runs.keys()).collect();
        let mut broken = Vec::new();
        for call in calls {
            let Some((tool, effect)) = self.policy(call) else { continue };
            let complaints = [self.count(call), self.again(call, &effect)].into_iter().flatten();
            broken.extend(complaints.map(|text| format!("call {} of {tool} ({effect:?}) {text}", call.1)));
        }
        broken
    }

    /// The tool of a call, and its policy.
    fn policy(&self, of: &Call) -> Option<(Text, Effect)> {
        let called = |run: &Run| {
            run.logs.get(&of.0)?.iter().find_map(|event| match &event.kind {
                EventKind::ToolCall { call, name, .. } if *call == of.1 => Some(name.clone()),
                _ => None,
            })
        };
        let name = called(self.run).or_else(|| called(self.reference))?;
        let agents = [&self.run.deeds.agents, &self.reference.deeds.agents];
        let agent = agents.into_iter().find_map(|agents| agents.get(&of.0))?;
        Some((name.clone(), agent.tool(&name)?.tool.spec().effect.clone()))
    }

    /// Whether it had its effect as often as without a crash.
    fn count(&self, call: &Call) -> Option<String> {
        let (expected, seen) = (self.reference.deeds.effects_of(call), self.run.deeds.effects_of(call));
        if seen > expected {
            return Some(format!("had its effect {}, and not {}", times(seen), times(expected)));
        }
        // A call without a result, or one that the model never made this time, is told elsewhere.
        let lost = seen < expected && self.result(call).is_some() && !self.excuse(call);
        lost.then(|| format!("has a result, and had its effect {}, and not {}", times(seen), times(expected)))
    }

    /// Whether it ran in two lives, and its policy forbids that.
    fn again(&self, call: &Call, effect: &Effect) -> Option<String> {
        let lives: BTreeSet<_> = self.run.deeds.runs.get(call).into_iter().flatten().collect();
        if lives.len() < 2 {
            return None;
        }
        let world_said_no = || self.run.deeds.asked.get(call).into_iter().flatten().any(|(life, no)| *life > 1 && *no);
        let complaint = match effect {
            Effect::Never => "ran again after the crash",
            Effect::Ask if !self.answers(call).contains(&Resolved::Approved) => "ran again, and nobody was asked",
            Effect::Reconcile(_) if !world_said_no() => "ran again, and the world was not asked",
            _ => return None,
        };
        Some(complaint.to_owned())
    }

    fn result(&self, of: &Call) -> Option<(bool, String)> {
        self.run.logs.get(&of.0)?.iter().find_map(|event| match &event.kind {
            EventKind::ToolResult { call, ok, content } if *call == of.1 => Some((*ok, content.text())),
            _ => None,
        })
    }

    /// What a person said to whether a call may run again.
    fn answers(&self, of: &Call) -> Vec<Resolved> {
        let (mut again, mut answers) = (false, Vec::new());
        for event in self.run.logs.get(&of.0).into_iter().flatten() {
            match &event.kind {
                EventKind::Suspension { call, question, .. } if *call == of.1 => again = is_again(question),
                EventKind::Resolution { call, decision, .. } if *call == of.1 && again => answers.push(*decision),
                _ => {}
            }
        }
        answers
    }

    /// Whether its policy lets the crash show in the result of a call.
    pub(super) fn excuse(&self, call: &Call) -> bool {
        let Some((false, text)) = self.result(call) else { return false };
        match self.policy(call) {
            Some((_, Effect::Never)) => text.starts_with("[interrupted]"),
            Some((_, Effect::Ask)) => self.answers(call).contains(&Resolved::Denied),
            _ => false,
        }
    }

    /// Whether a hook of this name is told when a conversation is revived.
    pub(super) fn meets(&self, hook: &Text) -> bool {
        let met = |entry: &HookEntry| *entry.name() == **hook && entry.points().contains(Point::OnConversation);
        let agents = self.run.deeds.agents.values().chain(self.reference.deeds.agents.values());
        agents.into_iter().any(|agent| agent.hooks().iter().any(met))
    }
}

fn times(count: usize) -> String {
    match count {
        0 => "not at all".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}
