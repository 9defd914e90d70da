//! What stands beside the hooks of settings files and may have hooks as well: plugins that are switched on, and the files of agents and
//! skills. They are not run, and people are told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::read_file::read_file;

/// The most files of agents, and of skills, that are looked at in a folder.
const MOST_FILES: usize = 200;
/// The largest of them.
const LARGEST: u64 = 256 << 10;

/// A plugin that a settings file switches on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledPlugin {
    /// As the file has it: `NAME@MARKETPLACE`.
    pub name: String,
    /// The file that switches it on.
    pub file: PathBuf,
}

impl EnabledPlugin {
    /// Whether it is the plugin of this name.
    pub fn is(&self, name: &str) -> bool {
        self.name.split('@').next() == Some(name)
    }
}

/// Takes up what `enabledPlugins` of a file says; a later file decides about a plugin that an earlier one names.
pub(super) fn enable(enabled: &mut BTreeMap<String, Option<PathBuf>>, object: &Map<String, Value>, file: &Path) {
    for (name, value) in object.get("enabledPlugins").and_then(Value::as_object).into_iter().flatten() {
        let is_on = !matches!(value, Value::Bool(false) | Value::Null);
        enabled.insert(name.clone(), is_on.then(|| file.to_owned()));
    }
}

/// What is told of plugins that no `plugins` names, a sentence for each file.
pub(super) fn told(plugins: &[EnabledPlugin]) -> Vec<String> {
    let mut by_file: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for plugin in plugins {
        by_file.entry(&plugin.file).or_default().push(&plugin.name);
    }
    let told = |(file, names): (&Path, Vec<&str>)| {
        format!(
            "`enabledPlugins` in {} has {}: hooks of a plugin run only if `plugins = [\"FOLDER\"]` of `use = \"claude\"` names its folder",
            file.display(),
            names.join(", ")
        )
    };
    by_file.into_iter().map(told).collect()
}

/// The files of agents and skills in a `.claude` folder that have hooks of their own.
pub(super) fn files_with_hooks(claude: &Path) -> Vec<PathBuf> {
    let agents =
        listed(&claude.join("agents")).into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    let skills = listed(&claude.join("skills")).into_iter().map(|folder| folder.join("SKILL.md"));
    agents.take(MOST_FILES).chain(skills.take(MOST_FILES)).filter(|path| has_hooks(path)).collect()
}

/// What is in a folder, by name. Nothing of a folder that is not there or cannot be read: nobody else reads it here, either.
fn listed(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Whether the head of a file, between lines of three hyphens, has the key `hooks`.
fn has_hooks(path: &Path) -> bool {
    let Ok(text) = read_file(path, LARGEST) else { return false };
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    lines.next().is_some_and(|line| line.trim_end() == "---")
        && lines.take_while(|line| line.trim_end() != "---").any(|line| line.starts_with("hooks:"))
}
