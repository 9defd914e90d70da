//! The hooks of `[[hooks]]` as an agent holds them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::hook::{HookEntry, HookExt, OnFailure};
use turnbuckle::hooks::instructions::{Instructions, InstructionsOptions};
use turnbuckle::hooks::retry::RetryOptions;
use turnbuckle::hooks::{ConfigHook as _, Retry};
use turnbuckle::tool::Tool;
use turnbuckle_models::without_password;
use wildmatch::WildMatch;

use crate::config::{Config, HookPart, HookSettings};

/// In order, each with its settings.
pub(super) fn entries(parts: &mut [HookPart]) -> Vec<HookEntry> {
    let names = names(parts);
    let make = |(part, name): (&mut HookPart, String)| {
        let entry = part.maker.take()?.make(name).configured(part.used.name, &written(part));
        Some(with(entry, &part.settings))
    };
    parts.iter_mut().zip(names).filter_map(make).collect()
}

/// The options of a hook as they stand in the file. A password in an address is left out: what is recorded with a turn must
/// not depend on it.
fn written(part: &HookPart) -> Value {
    fn without_passwords(value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(without_password(text).into_owned()),
            Value::Array(items) => items.iter().map(without_passwords).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), without_passwords(value))).collect()
            }
            other => other.clone(),
        }
    }
    part.options.iter().map(|(name, found)| (name.clone(), without_passwords(&found.value))).collect()
}

/// The `retry` hook that is added behind those of `[[hooks]]`, unless one of them is a `retry` or `[agent]` says
/// `default_retry = false`. Registered last it is the innermost: a `fallback` asks the next model only after it gave up.
pub(super) fn default_retry(config: &Config) -> Option<HookEntry> {
    let wanted = config.agent.default_retry.as_ref().is_none_or(|found| found.value);
    if !wanted || config.hooks.iter().any(|part| part.used.name == Retry::NAME) {
        return None;
    }
    let name = free_name(Retry::NAME, config)?;
    Some(Retry::new(RetryOptions::default()).ok()?.entry(name).configured(Retry::NAME, &json!({})))
}

/// The files that are read into every turn by default.
const INSTRUCTION_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// The most tokens of them, estimated.
const INSTRUCTION_SHARE: u64 = 2000;

/// Those of them that are in a project's folder.
pub(crate) fn instruction_files(folder: &Path) -> Vec<&'static str> {
    INSTRUCTION_FILES.into_iter().filter(|name| folder.join(name).is_file()).collect()
}

/// The `instructions` hook that is added if the project has such a file, unless `[[hooks]]` has one or `[agent]` says
/// `default_instructions = false`. Its failure is ignored: nobody asked for it, and without its file a turn goes on as well.
pub(super) fn default_instructions(config: &Config, folder: &Path) -> Option<HookEntry> {
    let wanted = config.agent.default_instructions.as_ref().is_none_or(|found| found.value);
    let is_named = config.hooks.iter().any(|part| part.used.name == Instructions::NAME);
    let share = INSTRUCTION_SHARE.min(config.limits.limits().injection_reserve);
    if !wanted || is_named || share == 0 || instruction_files(folder).is_empty() {
        return None;
    }
    let options = InstructionsOptions { share, ..InstructionsOptions::default() };
    let hook = Instructions::new(options, folder).ok()?;
    let name = free_name(Instructions::NAME, config)?;
    Some(hook.entry(name).configured(Instructions::NAME, &json!({})).on_failure(OnFailure::Ignore))
}

/// The name of a hook that is added by default, past the names that were given.
fn free_name(base: &str, config: &Config) -> Option<String> {
    let taken = names(&config.hooks);
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    std::iter::once(base.to_owned()).chain(numbered).find(|name| !taken.contains(name))
}

/// A hook without a name is called after its `use`; of several the later ones are numbered, from 2 on, past the names that
/// were given.
pub(super) fn names(parts: &[HookPart]) -> Vec<String> {
    let given = |part: &HookPart| part.name.as_ref().map(|name| name.value.clone());
    let taken: BTreeSet<String> = parts.iter().filter_map(given).collect();
    // The last number of each `use`: counting goes on from there.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut name = |part: &HookPart| {
        if let Some(name) = given(part) {
            return name;
        }
        let base = part.used.name;
        let number = numbers.entry(base).or_default();
        loop {
            *number += 1;
            let name = if *number == 1 { base.to_owned() } else { format!("{base}-{number}") };
            if !taken.contains(&name) {
                return name;
            }
        }
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
    if settings.hides_changes {
        entry = entry.hides_changes();
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
