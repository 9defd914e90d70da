//! `[[agents]]`: sub-agents, each offered to the main agent as a tool, with tools, a model, hooks and limits of its own.

use super::Found;
use super::hooks::{self, HookPart};
use super::model_options::ModelOptionsPart;
use super::reader::Section;
use super::sections::{LimitsPart, ModelSetting, system};
use crate::problem::Problem;

/// One of the sections.
#[derive(Debug)]
pub(crate) struct SubAgentPart {
    pub(crate) name: Found<String>,
    /// What the main agent's model is told it is for; without it the first line of `system`.
    pub(crate) description: Option<Found<String>>,
    pub(crate) system: Option<Found<String>>,
    /// Without it the main agent's.
    pub(crate) model: Option<Found<ModelSetting>>,
    pub(crate) options: ModelOptionsPart,
    /// Without it those that change nothing.
    pub(crate) tools: Option<Found<Vec<Found<String>>>>,
    /// Without it those that need approval in the main agent, and those that change something.
    pub(crate) approve: Option<Found<Vec<Found<String>>>>,
    /// On top of the main agent's.
    pub(crate) limits: LimitsPart,
    /// Behind the main agent's, unless those are left out.
    pub(crate) hooks: Vec<HookPart>,
    pub(crate) inherit_hooks: bool,
}

/// The most `[[agents]]` of one file.
pub(crate) const MOST_AGENTS: usize = 64;

pub(super) fn read(sections: Vec<Section<'_>>) -> Vec<SubAgentPart> {
    few(sections).into_iter().enumerate().filter_map(sub_agent).collect()
}

/// What hooks of sub-agents keep of conversations beside the store. None of them is made.
pub(super) fn side_stores(sections: Vec<Section<'_>>) -> hooks::SideStores {
    let of_one = |(index, mut section): (usize, Section<'_>)| {
        let nested = section.sections("hooks").unwrap_or_default();
        hooks::side_stores_in(nested, ("agents", index)).0
    };
    hooks::SideStores(few(sections).into_iter().enumerate().flat_map(of_one).collect())
}

fn few(sections: Vec<Section<'_>>) -> Vec<Section<'_>> {
    if let Some(first) = sections.get(MOST_AGENTS) {
        let what = format!("there are {} [[agents]], and {MOST_AGENTS} are the most", sections.len());
        let problem = Problem::error(what).at(first.place());
        first.source().tell(problem.hint("each is offered to the model as a tool, and a model chooses well among few"));
        return Vec::new();
    }
    sections
}

fn sub_agent((index, mut section): (usize, Section<'_>)) -> Option<SubAgentPart> {
    let folder = section.source().folder().to_path_buf();
    let name = section.string("name");
    let name = section.required("name", "\"reviewer\"", name);
    let hooks = section.sections("hooks").map(|nested| hooks::read_in(nested, ("agents", index))).unwrap_or_default();
    // Everything is read before anything is given up: what is known of a section is what was asked for.
    let (description, system) = (section.string("description"), system(&mut section));
    let (model, options) = (ModelSetting::read(&mut section, &folder), ModelOptionsPart::read(&mut section));
    let (tools, approve) = (section.strings("tools"), section.strings("approve"));
    let limits = section.section("limits").map(LimitsPart::read).unwrap_or_default();
    let inherit_hooks = section.boolean("inherit_hooks").is_none_or(|found| found.value);
    section.finish();
    let name = name?;
    Some(SubAgentPart { name, description, system, model, options, tools, approve, limits, hooks, inherit_hooks })
}
