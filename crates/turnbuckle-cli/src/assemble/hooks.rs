//! The hooks of `[[hooks]]` as an agent holds them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use turnbuckle::hook::{HookEntry, HookExt};
use turnbuckle::tool::Tool;
use turnbuckle_tools::CommandHook;
use wildmatch::WildMatch;

use crate::config::{Config, HookPart, HookUse};

/// In order, each with its settings.
pub(super) fn entries(config: &Config, folder: &Path) -> Vec<HookEntry> {
    let names = names(&config.hooks);
    config.hooks.iter().zip(names).map(|(part, name)| entry(part, name, folder)).collect()
}

/// A hook without a name is called after its `use`; of several the later ones are numbered.
pub(super) fn names(parts: &[HookPart]) -> Vec<String> {
    let mut taken: BTreeSet<String> = parts.iter().filter_map(|part| Some(part.name.as_ref()?.value.clone())).collect();
    let mut name = |part: &HookPart| {
        if let Some(name) = &part.name {
            return name.value.clone();
        }
        let base = part.hook.name();
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = std::iter::once(base.to_owned()).chain(numbered).find(|name| !taken.contains(name));
        let name = free.unwrap_or_default();
        taken.insert(name.clone());
        name
    };
    parts.iter().map(&mut name).collect()
}

fn entry(part: &HookPart, name: String, folder: &Path) -> HookEntry {
    let mut entry = match &part.hook {
        HookUse::Command { on, run } => CommandHook::new(name, *on, run.clone(), folder).into(),
        HookUse::Redact(redact) => redact.clone().named(name),
    };
    if let Some(found) = &part.on_failure {
        entry = entry.on_failure(found.value);
    }
    if let Some(found) = &part.timeout {
        entry = entry.timeout(found.value);
    }
    if let Some(found) = &part.tools {
        entry = entry.for_tools(found.value.iter().map(|glob| glob.value.clone()));
    }
    if part.main_agent_only {
        entry = entry.main_agent_only();
    }
    if part.release.is_some() {
        entry = entry.release_on_accept();
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
