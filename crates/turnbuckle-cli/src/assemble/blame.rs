//! What the core refuses, put back to the line of the file that says it.

use turnbuckle::BuildError;

use super::hooks;
use super::sub_agents::place_of_name;
use crate::config::{Config, Found, HookPart, LimitsPart, SubAgentPart, nearest};
use crate::problem::{Place, Problem};

/// The core's complaint about the agent, or about the sub-agent `inner`, with its place and what to do.
pub(super) fn problem(error: &BuildError, config: &Config, inner: Option<&SubAgentPart>) -> Problem {
    let (place, hint) = match error {
        BuildError::BadName { what: "agent", .. } => {
            let main = config.agent.name.as_ref().map(|found| &found.place);
            (inner.map_or(main, |part| Some(&part.name.place)), Some("choose another name".to_owned()))
        }
        BuildError::BadName { .. } => (None, None),
        BuildError::DuplicateHook { hook } => {
            let own = inner.and_then(|part| own_hook(part, hook));
            let place = own.or_else(|| last_hook(config, hook)).map(name_place);
            (place, Some("give one of them another `name`".to_owned()))
        }
        BuildError::NamelessHook { place } => {
            (config.hooks.get(place.saturating_sub(1)).map(name_place), Some("give it a `name`".to_owned()))
        }
        BuildError::DuplicateTool { tool } => (
            asked_or_sub_agent(config, tool),
            Some("give it another `name`: a sub-agent is offered as a tool, too".to_owned()),
        ),
        BuildError::UnknownTool { tool, known, .. } => {
            let near = nearest(tool, known.iter().map(|name| &**name)).map(|near| format!("did you mean `{near}`?"));
            let own = inner.and_then(|part| place_of_name(part, tool)).map(|name| &name.place);
            (own.or_else(|| unknown_tool(config, tool)), near.or(Some("is it in `builtin`?".to_owned())))
        }
        BuildError::IllegalGate { tool, .. } => (
            config.tools.approve.as_ref().map(|names| named_tool(names, tool)),
            Some("take it out of `approve`: a person answers it anyway".to_owned()),
        ),
        BuildError::ReserveTooLarge { .. } => {
            // A server may have said that the sub-agent's own model takes little.
            let own = inner
                .and_then(|part| reserve_place(&part.limits).or_else(|| part.model.as_ref().map(|model| &model.place)));
            let place = own.or_else(|| reserve_place(&config.limits));
            (place, Some("history needs room beside what hooks inject: lower `injection_reserve`".to_owned()))
        }
        BuildError::ZeroLimit { limit } => {
            (config.limits.place(limit), Some("take the line out for the default".to_owned()))
        }
        BuildError::IdleSetting { hook, setting } => {
            let part = last_hook(config, hook);
            let place = part.map(|part| match *setting {
                "tools" => part.settings.tools.as_ref().map_or(&part.place, |found| &found.place),
                "release = on_accept" => part.settings.release.as_ref().map_or(&part.place, |found| &found.place),
                "durable" => part.settings.durable.as_ref().map_or(&part.place, |found| &found.place),
                "max_tokens" => part.settings.max_tokens.as_ref().map_or(&part.place, |found| &found.place),
                _ => &part.place,
            });
            (place, Some("take the setting out, or choose another point with `on`".to_owned()))
        }
        BuildError::HookBeyondReserve { hook, .. } => {
            let part = last_hook(config, hook);
            let tokens = part.and_then(|part| part.settings.max_tokens.as_ref()).map(|found| &found.place);
            // Some have a share of their own instead.
            let place = tokens.or_else(|| part.map(|part| part.option_place("share").unwrap_or(&part.place)));
            (place, Some("lower it, or raise `injection_reserve` in [limits]".to_owned()))
        }
        _ => (None, None),
    };
    let problem = Problem::error(error.to_string()).at_if_known(place);
    match hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// Where these limits leave too little for the history.
fn reserve_place(limits: &LimitsPart) -> Option<&Place> {
    limits.place("injection_reserve").or_else(|| limits.place("context_tokens"))
}

fn last_hook<'c>(config: &'c Config, name: &str) -> Option<&'c HookPart> {
    let names = hooks::names(&config.hooks);
    let index = names.iter().rposition(|known| known == name)?;
    config.hooks.get(index)
}

/// A hook of the sub-agent's own.
fn own_hook<'c>(part: &'c SubAgentPart, name: &str) -> Option<&'c HookPart> {
    let index = hooks::names(&part.hooks).iter().rposition(|known| known == name)?;
    part.hooks.get(index)
}

fn name_place(part: &HookPart) -> &Place {
    part.name.as_ref().map_or(&part.place, |found| &found.place)
}

fn asked_or_sub_agent<'c>(config: &'c Config, name: &str) -> Option<&'c Place> {
    let mut asked = config.tools.client.iter().chain(config.tools.human.iter()).flatten();
    if let Some(tool) = asked.rfind(|tool| tool.name.value == name) {
        return Some(&tool.name.place);
    }
    let part = config.agents.iter().flatten().rfind(|part| part.name.value == name)?;
    Some(&part.name.place)
}

/// Where a tool that the agent lacks is named. The core judges `approve` first and then the hooks in their order, and stops at
/// the first unknown name: so the first place that names it is the one that the core means.
fn unknown_tool<'c>(config: &'c Config, tool: &str) -> Option<&'c Place> {
    let of_hooks = config.hooks.iter().filter_map(|part| part.settings.tools.as_ref());
    let mut lists = config.tools.approve.iter().chain(of_hooks);
    let names = lists.find(|names| names.value.iter().any(|name| name.value == tool))?;
    Some(named_tool(names, tool))
}

fn named_tool<'c>(names: &'c Found<Vec<Found<String>>>, tool: &str) -> &'c Place {
    let named = names.value.iter().find(|name| name.value == tool);
    named.map_or(&names.place, |name| &name.place)
}
