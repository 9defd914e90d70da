//! The hooks of `[[hooks]]` as an agent holds them.

use std::collections::BTreeSet;
use std::sync::Arc;

use turnbuckle::hook::{HookEntry, HookExt};
use turnbuckle::hooks::Retry;
use turnbuckle::hooks::retry::RetryOptions;
use turnbuckle::tool::Tool;
use wildmatch::WildMatch;

use crate::config::{HookPart, HookSettings};

/// In order, each with its settings.
pub(super) fn entries(parts: &mut [HookPart]) -> Vec<HookEntry> {
    let names = names(parts);
    let make = |(part, name): (&mut HookPart, String)| Some(with(part.maker.take()?.make(name), &part.settings));
    parts.iter_mut().zip(names).filter_map(make).collect()
}

/// The program retries model calls only through a hook; who configures none has this one.
pub(super) fn default_retry() -> Option<HookEntry> {
    Some(Retry::new(RetryOptions::default()).ok()?.into())
}

/// A hook without a name is called after its `use`; of several the later ones are numbered.
pub(super) fn names(parts: &[HookPart]) -> Vec<String> {
    let mut taken: BTreeSet<String> = parts.iter().filter_map(|part| Some(part.name.as_ref()?.value.clone())).collect();
    let mut name = |part: &HookPart| {
        if let Some(name) = &part.name {
            return name.value.clone();
        }
        let base = part.used.name;
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = std::iter::once(base.to_owned()).chain(numbered).find(|name| !taken.contains(name));
        let name = free.unwrap_or_default();
        taken.insert(name.clone());
        name
    };
    parts.iter().map(&mut name).collect()
}

fn with(mut entry: HookEntry, settings: &HookSettings) -> HookEntry {
    if let Some(found) = &settings.on_failure {
        entry = entry.on_failure(found.value);
    }
    if let Some(found) = &settings.timeout {
        entry = entry.timeout(found.value);
    }
    if let Some(found) = &settings.tools {
        entry = entry.for_tools(found.value.iter().map(|glob| glob.value.clone()));
    }
    if settings.main_agent_only {
        entry = entry.main_agent_only();
    }
    if settings.release.is_some() {
        entry = entry.release_on_accept();
    }
    if settings.durable.as_ref().is_some_and(|found| found.value) {
        entry = entry.durable();
    }
    if let Some(found) = &settings.max_tokens {
        entry = entry.sheddable(found.value, settings.priority.as_ref().map_or(0, |found| found.value));
    }
    entry
}

/// Those that can fire in an agent with these tools. A hook for tools that it lacks would be refused there, and rightly
/// stands in the main agent.
pub(super) fn for_tools(hooks: &[HookEntry], tools: &[Arc<dyn Tool>]) -> Vec<HookEntry> {
    let known = |glob: &&String| tools.iter().any(|tool| WildMatch::new(glob).matches(&tool.spec().definition.name));
    let fit = |entry: &HookEntry| {
        let globs = &entry.settings().tools;
        if globs.is_empty() {
            return Some(entry.clone());
        }
        let left: Vec<String> = globs.iter().filter(known).cloned().collect();
        (!left.is_empty()).then(|| entry.clone().for_tools(left))
    };
    hooks.iter().filter_map(fit).collect()
}
