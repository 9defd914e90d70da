//! Plugins: a folder with `hooks/hooks.json`, perhaps a manifest, and options that the user gives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::settings::{is_there, read_object};

/// A plugin as the configuration names it: its folder, or its folder with options.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be the folder of a plugin, or a table with `folder` and `options`")]
pub enum ClaudePlugin {
    /// The folder, relative to the project's.
    Folder(PathBuf),
    /// With options.
    WithOptions(PluginOptions),
}

/// A plugin with options.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginOptions {
    /// The folder, relative to the project's.
    pub folder: PathBuf,
    /// What the plugin asks its user for: `CLAUDE_PLUGIN_OPTION_KEY` for its programs, `${user_config.KEY}` in `args`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// A plugin that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedPlugin {
    /// By its manifest, or its folder's name.
    pub name: String,
    /// Its folder.
    pub root: PathBuf,
    /// What the user gave it.
    pub options: BTreeMap<String, String>,
}

/// Hooks of a plugin: the file, and what it says if that is not the file's own object.
pub(super) struct PluginHooks {
    pub(super) path: PathBuf,
    pub(super) inline: Option<Map<String, Value>>,
}

impl ClaudePlugin {
    fn parts(&self) -> (&Path, BTreeMap<String, String>) {
        match self {
            Self::Folder(folder) => (folder, BTreeMap::new()),
            Self::WithOptions(with) => (&with.folder, with.options.clone()),
        }
    }

    /// Whether it lies in this folder, by its path or by where links lead.
    pub fn is_in(&self, folder: &Path) -> bool {
        let root = folder.join(self.parts().0);
        root.starts_with(folder) || root.canonicalize().is_ok_and(|real| real.starts_with(folder))
    }

    /// The plugin, and where its hooks stand. The error names a manifest that cannot be read.
    pub(super) fn load(&self, project: &Path) -> Result<(LoadedPlugin, Vec<PluginHooks>), String> {
        let (folder, options) = self.parts();
        let root = project.join(folder);
        std::fs::read_dir(&root).map_err(|why| format!("the plugin {} cannot be read: {why}", root.display()))?;
        let manifest_path = root.join(".claude-plugin/plugin.json");
        let manifest = match is_there(&manifest_path) {
            true => read_object(&manifest_path)
                .map_err(|why| format!("{} cannot be read: {why}", manifest_path.display()))?,
            false => Map::new(),
        };
        let folder_name = || root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = manifest.get("name").and_then(Value::as_str).map_or_else(folder_name, str::to_owned);
        let own = root.join("hooks/hooks.json");
        let mut hooks: Vec<PluginHooks> =
            is_there(&own).then_some(PluginHooks { path: own, inline: None }).into_iter().collect();
        let more: Vec<&Value> = match manifest.get("hooks") {
            None => Vec::new(),
            Some(Value::Array(several)) => several.iter().collect(),
            Some(one) => vec![one],
        };
        for one in more {
            match one {
                Value::String(path) => hooks.push(PluginHooks { path: root.join(path), inline: None }),
                Value::Object(events) => {
                    let inline = match events.get("hooks") {
                        Some(Value::Object(_)) => events.clone(),
                        _ => Map::from_iter([("hooks".to_owned(), one.clone())]),
                    };
                    hooks.push(PluginHooks { path: manifest_path.clone(), inline: Some(inline) });
                }
                _ => {
                    return Err(format!(
                        "{} has `hooks` that are neither a path nor an object",
                        manifest_path.display()
                    ));
                }
            }
        }
        Ok((LoadedPlugin { name, root, options }, hooks))
    }
}

impl LoadedPlugin {
    /// The name as a folder's name.
    fn folder_name(&self) -> String {
        let is_plain = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '-');
        self.name.chars().map(|ch| if is_plain(ch) { ch } else { '_' }).collect()
    }

    /// Where it may keep files between runs.
    pub(super) fn data(&self, data: &Path) -> PathBuf {
        data.join("plugins").join(self.folder_name())
    }

    /// The variables of its programs.
    pub(super) fn variables(&self, data: &Path) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let option = |(key, value): (&String, &String)| {
            let key: String =
                key.chars().map(|ch| if ch.is_ascii_alphanumeric() { ch.to_ascii_uppercase() } else { '_' }).collect();
            (format!("CLAUDE_PLUGIN_OPTION_{key}"), value.clone())
        };
        let own = [
            ("CLAUDE_PLUGIN_ROOT".to_owned(), text(&self.root)),
            ("CLAUDE_PLUGIN_DATA".to_owned(), text(&self.data(data))),
        ];
        own.into_iter().chain(self.options.iter().map(option)).collect()
    }
}
