//! Which section with `use = "claude"` reads which settings file, where several would: its handlers must not run twice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;
use turnbuckle::hooks::ConfigHook as _;
use turnbuckle_tools::claude::{ClaudePlugin, SettingsFile};
use turnbuckle_tools::{ClaudeHooks, ClaudeOptions};

use super::settings::Setting;

/// By the place of a section in `[[hooks]]`: the files that it leaves to others.
pub(super) type ReadByOthers = HashMap<usize, Vec<PathBuf>>;

/// The sections of a file with `use = "claude"`.
pub(super) fn sections(settings: &[Setting]) -> Vec<Setting> {
    let is_claude = |one: &&Setting| {
        one.section == "hooks" && one.value.get("use").and_then(Value::as_str) == Some(ClaudeHooks::NAME)
    };
    settings.iter().filter(is_claude).cloned().collect()
}

/// What each section of the user's file, and each of the project's, leaves to others.
///
/// The project's own settings are read by the last section that would: the one of the project's file, whose options (`replaced`,
/// `leave_out`) were written for them. All other files are read by the first, which is the user's.
pub(super) fn read_by_others(users: &[Setting], projects: &[Setting], folder: &Path) -> (ReadByOthers, ReadByOthers) {
    let all: Vec<&Setting> = users.iter().chain(projects).collect();
    if all.len() < 2 {
        return Default::default();
    }
    let files: Vec<Vec<SettingsFile>> = all.iter().map(|one| files(&one.value, folder)).collect();
    let of_project = folder.join(".claude").canonicalize().ok();
    let reader = |file: &SettingsFile| {
        let mut readers = files.iter().enumerate().filter(|(_, files)| files.contains(file)).map(|(at, _)| at);
        match of_project.as_ref().is_some_and(|folder| file.path.starts_with(folder)) {
            true => readers.next_back(),
            false => readers.next(),
        }
    };
    let mut left = files.iter().enumerate().map(|(at, own)| {
        // Files are left by their path. One that this section alone reads for a plugin, or with other options, is not left.
        let is_own = |path: &Path| own.iter().any(|file| file.path == path && reader(file) == Some(at));
        let others = own.iter().filter(|file| !is_own(&file.path));
        others.map(|file| file.path.clone()).collect::<Vec<_>>()
    });
    let mut of = |sections: &[Setting]| -> ReadByOthers {
        let taken = left.by_ref().take(sections.len());
        sections.iter().zip(taken).filter_map(|(one, files)| Some((one.index?, files))).collect()
    };
    (of(users), of(projects))
}

/// The settings files that a section would read.
fn files(section: &Value, folder: &Path) -> Vec<SettingsFile> {
    let flag = |key: &str| section.get(key).and_then(Value::as_bool).unwrap_or(true);
    // What is not a plugin is refused when the options are read.
    let plugins = section.get("plugins").and_then(Value::as_array).into_iter().flatten();
    let plugins = plugins.filter_map(|plugin| ClaudePlugin::deserialize(plugin).ok()).collect();
    let options = ClaudeOptions { user: flag("user"), project: flag("project"), plugins, ..ClaudeOptions::default() };
    options.places(folder).files()
}
