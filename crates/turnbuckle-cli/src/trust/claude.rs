//! What a hook with `use = "claude"` runs of the project: the settings files, their commands, and the files that those name.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnbuckle_tools::CommandLine;
use turnbuckle_tools::claude::{ClaudeHandler, ClaudePlaces, ClaudeSettings};

use super::files::{FileError, FileReader, Files};

/// What the settings of the project say.
pub(super) struct ProjectHandlers {
    /// A line for each handler.
    pub(super) shown: Vec<String>,
    pub(super) commands: Vec<Value>,
    /// The settings files.
    pub(super) files: Files,
}

/// Reads the settings that the section `value` uses. Those of the user and of the machine are not the project's.
pub(super) fn read(value: &Value, folder: &Path, reader: &FileReader<'_>) -> Result<ProjectHandlers, FileError> {
    let plugins = value.get("plugins").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let (project, plugins) = (folder.to_owned(), plugins.map(PathBuf::from).collect());
    let settings = ClaudeSettings::load(&ClaudePlaces { project, home: None, managed: None, plugins });
    let mut files = Files::new();
    for path in &settings.files {
        if let Some(state) = reader.state(path)? {
            files.insert(path.strip_prefix(folder).unwrap_or(path).to_owned(), state);
        }
    }
    let shown = settings.handlers.iter().map(|handler| {
        let matcher = if handler.matcher.is_empty() { "*" } else { &handler.matcher };
        format!("{} {}: {}", handler.event.name(), json!(matcher), command(handler, folder))
    });
    let commands = settings.handlers.iter().map(|handler| command(handler, folder));
    Ok(ProjectHandlers { shown: shown.collect(), commands: commands.collect(), files })
}

/// As `run` of a command hook would have it, with the plugin's folder in the place of its variable.
fn command(handler: &ClaudeHandler, folder: &Path) -> Value {
    let root = handler.plugin.as_ref().map(|root| root.strip_prefix(folder).unwrap_or(root).display().to_string());
    let expanded = |word: &String| match &root {
        Some(root) => word.replace("${CLAUDE_PLUGIN_ROOT}", root).replace("$CLAUDE_PLUGIN_ROOT", root),
        None => word.clone(),
    };
    match &handler.command {
        CommandLine::Shell(line) => json!(expanded(line)),
        CommandLine::Argv(words) => words.iter().map(expanded).collect(),
    }
}
