//! The sub-agents of `[[agents]]`: each with tools, a model, hooks and limits of its own, or the main agent's.

use std::sync::Arc;

use turnbuckle::Agent;
use turnbuckle::hook::HookEntry;
use turnbuckle::hooks::{ConfigHook as _, Retry};
use turnbuckle::tool::Tool;
use turnbuckle::tools::SubAgent;

use super::tools::{self, Offer, is_changing};
use super::{ModelChoice, blame, hooks, with_all};
use crate::config::{Config, Found, Over as _, SubAgentPart, nearest};
use crate::mcp::Unlisted;
use crate::model_name::{ModelName, SharedModel};
use crate::problem::Problem;
use crate::trust::Gate;

/// What sub-agents take from the main agent.
pub(super) struct Main<'a> {
    pub(super) config: &'a Config,
    pub(super) offer: &'a Offer,
    pub(super) unlisted: &'a Unlisted,
    pub(super) model: &'a SharedModel,
    pub(super) gate: Gate,
    pub(super) choice: &'a ModelChoice,
    /// Those of `[[hooks]]`, and behind them those that are added by default.
    pub(super) hooks: &'a [HookEntry],
}

impl Main<'_> {
    /// The tool that runs a sub-agent. `own` are the hooks of its section.
    pub(super) fn sub_agent(
        &self,
        part: &SubAgentPart,
        own: Vec<HookEntry>,
        problems: &mut Vec<Problem>,
    ) -> Result<SubAgent, Problem> {
        let (config, described) = (self.config, part.system.as_ref().map_or("", |system| &system.value));
        let tools = self.tools(part, problems);
        let model = self.model_of(part, problems);
        let limits = part.limits.limits_over(config.limits.limits());
        let mut inner = Agent::builder(part.name.value.as_str(), model).limits(limits);
        if let Some(reducers) = config.context.reducers() {
            inner = inner.reducers(reducers);
        }
        inner = config.context.with_retention(inner);
        inner = inner.system(described).approve(self.approve(part, &tools, problems));
        if !config.tools.allow.is_empty() {
            inner = inner.allow(tools::allowed(config));
        }
        for tool in &tools {
            inner = inner.shared_tool(tool.clone());
        }
        inner = with_all(inner, self.hooks(part, own, &tools));
        let agent = inner.build().map_err(|error| blame::problem(&error, config, Some(part)))?;
        let description = match &part.description {
            Some(found) => found.value.clone(),
            None => description(described, part.tools.is_none()),
        };
        Ok(SubAgent::new(agent, description))
    }

    /// Its own model, or the main agent's. Options without a model are for the main agent's model, on top of its own.
    fn model_of(&self, part: &SubAgentPart, problems: &mut Vec<Problem>) -> SharedModel {
        let shared = || self.model.for_sub_agent(&part.name.value);
        if part.model.is_none() && !part.options.is_given() {
            return shared();
        }
        let provider_tools = self.config.tools.of_provider();
        let (name, folder, place, options) = match &part.model {
            Some(found) => (&found.value.name, &found.value.folder, Some(&found.place), part.options.clone()),
            None => {
                let options = part.options.clone().over(self.config.agent.options.clone());
                (&self.choice.name, &self.choice.folder, self.choice.place.as_ref(), options)
            }
        };
        problems.extend(options.problems("[[agents]]", name, provider_tools));
        let parsed = ModelName::parse(name);
        // A script has replies for each sub-agent, and knows no options.
        if part.model.is_none() && !matches!(parsed, Ok(ModelName::Provider(_))) {
            return shared();
        }
        let opened = parsed.and_then(|name| name.open_for(self.gate, folder, &options.options(provider_tools)));
        opened.map_err(|problem| problems.push(problem.or_at(place))).unwrap_or_else(|()| shared())
    }

    /// Those that it names, or all of the main agent's that change nothing and ask nobody.
    fn tools(&self, part: &SubAgentPart, problems: &mut Vec<Problem>) -> Vec<Arc<dyn Tool>> {
        let Some(named) = &part.tools else { return self.offer.read_only.clone() };
        let mut found: Vec<Arc<dyn Tool>> = Vec::new();
        for name in &named.value {
            let known = |tool: &&Arc<dyn Tool>| *tool.spec().definition.name == *name.value;
            let problem = if found.iter().any(|tool| known(&tool)) {
                Problem::error(format!("tool {:?} is named twice", name.value)).hint("take one of them out")
            } else if let Some(tool) = self.offer.tools.iter().find(known) {
                found.push(tool.clone());
                continue;
            } else if let Some(tool) = tools::builtin(&name.value, self.config, &self.offer.workspace, true) {
                found.push(tool);
                continue;
            } else if let Some(problem) = self.unlisted.problem(&name.value) {
                problem
            } else {
                let offered = self.offer.tools.iter().map(|tool| tool.spec().definition.name.to_string());
                let others = tools::all_builtin().filter(|name| !self.offers(name)).map(str::to_owned);
                let all: Vec<String> = offered.chain(others).collect();
                let near =
                    nearest(&name.value, all.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
                let hint = near.unwrap_or_else(|| format!("tools: {}", all.join(", ")));
                Problem::error(format!("there is no tool {:?}", name.value)).hint(hint)
            };
            problems.push(problem.at(&name.place));
        }
        found
    }

    fn offers(&self, name: &str) -> bool {
        self.offer.tools.iter().any(|tool| *tool.spec().definition.name == *name)
    }

    /// The tools whose calls need approval. Whoever calls a tool, it is asked about, unless the section says otherwise.
    fn approve(&self, part: &SubAgentPart, tools: &[Arc<dyn Tool>], problems: &mut Vec<Problem>) -> Vec<String> {
        if let Some(named) = &part.approve {
            let names = named.value.iter().map(|name| name.value.clone()).collect();
            return tools::without_unlisted(names, Some(named), self.unlisted, problems);
        }
        let names = tools.iter().map(|tool| tool.spec().definition.name.to_string());
        let is_gated = |name: &String| self.offer.approve.contains(name) || (is_changing(name) && !self.offers(name));
        names.filter(is_gated).collect()
    }

    /// The main agent's, and behind them its own; those that are added by default come last.
    fn hooks(&self, part: &SubAgentPart, own: Vec<HookEntry>, tools: &[Arc<dyn Tool>]) -> Vec<HookEntry> {
        let configured = self.config.hooks.len().min(self.hooks.len());
        let (configured, added) = self.hooks.split_at(configured);
        let inherited = if part.inherit_hooks { hooks::for_tools(configured, tools) } else { Vec::new() };
        let retries = part.hooks.iter().any(|hook| hook.used.name == Retry::NAME);
        let added = added.iter().filter(|entry| !(retries && entry.name() == Retry::NAME)).cloned();
        inherited.into_iter().chain(own).chain(added).collect()
    }
}

/// What the parent's model is told a sub-agent is for: its own first line.
fn description(system: &str, reads_only: bool) -> String {
    let what = if reads_only { "Another agent that can read and search files." } else { "Another agent." };
    match system.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => format!("{what} It was told: {line}"),
        None => what.to_owned(),
    }
}

/// A tool that is named where it means nothing.
pub(super) fn place_of_name<'c>(part: &'c SubAgentPart, tool: &str) -> Option<&'c Found<String>> {
    let lists = part.approve.iter().chain(part.tools.iter());
    lists.flat_map(|list| &list.value).find(|name| name.value == tool)
}
