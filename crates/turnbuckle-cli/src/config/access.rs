//! `[access]`: who besides the owner of a conversation may do what, and who may approve calls of which tool.

use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::message::Text;

use super::reader::Section;
use super::{Found, Over};
use crate::problem::{Place, Problem};

/// A list of names of roles.
type Roles = Option<Found<Vec<Found<String>>>>;

/// The section `[access]`.
#[derive(Debug, Default)]
pub(crate) struct AccessPart {
    read: Roles,
    say: Roles,
    answer: Roles,
    cancel: Roles,
    delete: Roles,
    /// A list is one key: the project's, or else the user's.
    pub(crate) approve: Option<Vec<ApprovePart>>,
}

/// One rule of `approve`.
#[derive(Debug)]
pub(crate) struct ApprovePart {
    pub(crate) place: Place,
    /// A tool's name, or a glob.
    pub(crate) tool: Found<String>,
    by: Roles,
    not_requester: bool,
    n: u32,
}

impl AccessPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let part = Self {
            read: section.roles("read"),
            say: section.roles("say"),
            answer: section.roles("answer"),
            cancel: section.roles("cancel"),
            delete: section.roles("delete"),
            approve: section.sections("approve").map(|rules| rules.into_iter().filter_map(ApprovePart::read).collect()),
        };
        section.finish();
        part
    }

    /// As the conversations go by it. What it says nothing about is the owner's alone.
    pub(crate) fn rules(&self) -> RoleAccess {
        RoleAccess {
            read: names(&self.read),
            say: names(&self.say),
            answer: names(&self.answer),
            cancel: names(&self.cancel),
            delete: names(&self.delete),
            approve: self.approve.iter().flatten().map(ApprovePart::rule).collect(),
        }
    }
}

impl ApprovePart {
    fn read(mut section: Section<'_>) -> Option<Self> {
        let tool = section.string("tool");
        let tool = section.required("tool", "\"refund\"", tool);
        let (by, not_requester, n) = (section.roles("by"), section.boolean("not_requester"), section.small("n"));
        let tell = |key: &str, why: &str, place: &Place, hint: &str| {
            section.source().tell(Problem::error(format!("{} {why}", section.named(key))).at(place).hint(hint));
        };
        if let Some(by) = by.as_ref().filter(|by| by.value.is_empty()) {
            tell("by", "names no role: nobody could approve", &by.place, "take it out for those who may answer");
        }
        if let Some(n) = n.as_ref().filter(|n| n.value == 0) {
            tell("n", "is 0", &n.place, "a rule asks for at least one approval; without the rule none is asked for");
        }
        let (place, not_requester) = (section.place().clone(), not_requester.is_some_and(|found| found.value));
        section.finish();
        Some(Self { place, tool: tool?, by, not_requester, n: n.map_or(1, |n| n.value) })
    }

    pub(crate) fn rule(&self) -> ApproveRule {
        let (by, not_requester) = (names(&self.by), self.not_requester);
        ApproveRule { tool: Text::from(self.tool.value.as_str()), by, not_requester, n: self.n }
    }
}

fn names(roles: &Roles) -> Vec<Text> {
    roles.iter().flat_map(|roles| &roles.value).map(|role| Text::from(role.value.as_str())).collect()
}

impl Over for AccessPart {
    fn over(self, base: Self) -> Self {
        Self {
            read: self.read.over(base.read),
            say: self.say.over(base.say),
            answer: self.answer.over(base.answer),
            cancel: self.cancel.over(base.cancel),
            delete: self.delete.over(base.delete),
            approve: self.approve.over(base.approve),
        }
    }
}
