//! What a hook with `use = "claude"` runs of the project: the settings files, what their handlers do, and the files that those
//! name.

use std::path::Path;

use serde::Deserialize as _;
use serde_json::{Value, json};
use turnbuckle_models::without_password;
use turnbuckle_tools::claude::{ClaudeAction, ClaudeHandler, ClaudePlaces, ClaudePlugin, ClaudeSettings};
use turnbuckle_tools::{CommandLine, resolved_path};

use super::files::{Command, FileError, FileReader, Files};

/// What the settings of the project say.
pub(super) struct ProjectHandlers {
    /// A line for each handler.
    pub(super) shown: Vec<String>,
    pub(super) commands: Vec<Command>,
    /// What there is to say about them.
    pub(super) notes: Vec<String>,
    /// The settings files.
    pub(super) files: Files,
}

/// Whose the section is that uses the settings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The project's file: what it names is asked about, wherever it is.
    ByProject,
    /// The user's own: plugins that lie elsewhere are accepted with it.
    ByUser,
}

/// Reads the settings that the section `value` uses. Those of the user and of the machine are not the project's.
pub(super) fn read(
    value: &Value,
    named: Named,
    folder: &Path,
    reader: &FileReader<'_>,
) -> Result<ProjectHandlers, FileError> {
    // What is not a plugin is refused when the options are read.
    let plugins = value.get("plugins").and_then(Value::as_array).into_iter().flatten();
    let plugins = plugins.filter_map(|plugin| ClaudePlugin::deserialize(plugin).ok());
    let plugins = plugins.filter(|plugin| named == Named::ByProject || plugin.is_in(folder)).collect();
    let reads_project = value.get("project").and_then(Value::as_bool).unwrap_or(true);
    let project = folder.to_owned();
    let settings = ClaudeSettings::load(&ClaudePlaces { project, reads_project, home: None, managed: None, plugins });
    let mut files = Files::new();
    for path in &settings.files {
        if let Some(state) = reader.state(path)? {
            files.insert(path.strip_prefix(folder).unwrap_or(path).to_owned(), state);
        }
    }
    let shown = settings.handlers.iter().map(|handler| {
        let matcher = if handler.matcher.is_empty() { "*" } else { &handler.matcher };
        let does = match &handler.action {
            ClaudeAction::Http(http) => json!(format!("POST {}", without_password(&http.url))),
            ClaudeAction::Prompt(prompt) => json!(format!("asks a model: {}", prompt.prompt)),
            ClaudeAction::McpTool(call) => {
                json!(format!("calls {} of the MCP server {} with {}", call.tool, call.server, json!(call.input)))
            }
            _ => shown_command(handler, folder).unwrap_or_default(),
        };
        format!("{} {}: {does}", handler.event.name(), json!(matcher))
    });
    let shown = shown.collect();
    let commands = settings.handlers.iter().filter_map(command).collect();
    let mut notes: Vec<String> = settings.notices;
    if let Some(file) = &settings.disabled_by {
        let file = file.strip_prefix(folder).unwrap_or(file).display();
        notes.push(format!(
            "`disableAllHooks` in {file} switches off the handlers of your own ~/.claude/settings.json, too"
        ));
    }
    Ok(ProjectHandlers { shown, commands, notes, files })
}

/// As a hook runs it. None if nothing is run.
fn command(handler: &ClaudeHandler) -> Option<Command> {
    let plugin = handler.plugin.as_ref().map(|plugin| resolved_path(&plugin.root));
    let line = match &handler.action {
        ClaudeAction::Command(CommandLine::Shell(line)) => json!(line),
        ClaudeAction::Command(CommandLine::Argv(words)) => json!(words),
        _ => return None,
    };
    Some(Command { line, plugin })
}

/// The same as `run` of a command hook would have it, for people, with the plugin's folder in the place of its variable. None if nothing is run.
fn shown_command(handler: &ClaudeHandler, folder: &Path) -> Option<Value> {
    let below = |root: &Path| root.strip_prefix(folder).unwrap_or(root).display().to_string();
    let root = handler.plugin.as_ref().map(|plugin| below(&plugin.root));
    let expanded = |word: &String| match &root {
        Some(root) => word.replace("${CLAUDE_PLUGIN_ROOT}", root).replace("$CLAUDE_PLUGIN_ROOT", root),
        None => word.clone(),
    };
    match &handler.action {
        ClaudeAction::Command(CommandLine::Shell(line)) => Some(json!(expanded(line))),
        ClaudeAction::Command(CommandLine::Argv(words)) => Some(words.iter().map(expanded).collect()),
        _ => None,
    }
}
