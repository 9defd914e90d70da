//! Hooks that people already have: `use = "claude"` runs those of `.claude/settings.json`, unchanged.
//!
//! # What it does
//!
//! The handlers of all settings files are read, and run at their events as their protocol says: one JSON object and a
//! newline on stdin, an exit code and perhaps one JSON object on stdout for an answer. All handlers of an event that match
//! run side by side, each to its end; their answers are merged in the order of the files: user, project, local, plugins,
//! managed.
//!
//! - `deny` beats `defer` and `ask`, which beat `allow`. `ask` and `defer` ask a person.
//! - `allow` opens the tool's own gate, and the log says that this hook approved the call. It never satisfies a rule of
//!   `[access] approve`.
//! - Exit 2 blocks, and stderr is the reason. A handler that fails in another way (exit code, signal, time, no such program,
//!   an answer of the wrong shape) is told as a notice, and the turn goes on without it: that is what the protocol
//!   says. `"onFailure": "block"` on a handler makes its failure a block, and so does `on_failure = "block"` here for all of them.
//! - A matcher that cannot be read blocks what it could have been for.
//! - Tools have the names and arguments that scripts expect: `shell` is `Bash`, `read_file` is `Read`, and so on.
//!   `apply_patch` is a `Write` or an `Edit` of each file of the patch for handlers of those; the call is denied if one of them is, and
//!   allowed only if each of them is.
//! - A stop is refused as often as the handlers say so, up to `max_stop_refusals`.
//! - Each run of a handler leaves a record with its outcome: `ok`, `blocked`, `blocked_suspect`, `nonblocking_error`, `timeout`,
//!   `spawn_failed`, `invalid_json` or `signalled`.
//! - `transcript_path` is a file of this user alone with what the model's context holds; deleting the conversation erases it.
//! - Text beyond 10,000 characters goes to a file beside it, and the model reads its path and a preview.
//!
//! - Handlers of the type `http` post the event to an address, those of the type `prompt` ask a model, and those of the type
//!   `mcp_tool` call a tool of an MCP server of the configuration. A handler with `async`
//!   runs beside the turn: it decides nothing, and the next turn's model reads what it says; with `asyncRewake` and exit 2 the next
//!   call of the model does. At most 32 of them run at once, and what they said is lost with the process.
//! - What an answer may have and is not used here (`terminalSequence`, `sessionTitle`, `updatedPermissions` and the like) is told as
//!   a notice by its name.
//!
//! Several sections with `use = "claude"`, such as one of the user's file and one of the project's, share the files: each is read by
//! one of them, so that no handler runs twice.
//!
//! # Points
//!
//! Those of the events that have a handler: `SessionStart` and `SessionEnd` at `on_conversation`, `UserPromptSubmit` and
//! `SubagentStart` at `before_agent`, `PostToolBatch` at `before_model`, `PreToolUse` and `PermissionRequest` at `before_tool`,
//! `PostToolUse` and `PostToolUseFailure` at `after_tool`, `Stop` and `SubagentStop` at `on_stop`, `StopFailure` and
//! `TurnInterrupted` (ours) at `on_ended`, `PreCompact` and `PostCompact` at `before_compaction`, `Notification` at `on_logged`.
//! Other events are read and never fired; `turnbuckle check` says so.
//!
//! `SessionStart` fires when a process takes a conversation up for the first time, not again after the conversation was evicted from
//! its memory. A program that exits calls [`end_sessions`] for `SessionEnd`; closing a conversation fires it as well.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `user` | `true` | whether the handlers of `~/.claude/settings.json` run as well |
//! | `project` | `true` | whether the handlers of the project's `.claude/settings.json` and `.claude/settings.local.json` run |
//! | `plugins` | `[]` | folders of plugins, each with a `hooks/hooks.json` or hooks in its manifest; `{ folder = "…", options = { key = "value" } }` gives it options |
//! | `prompt_model` | the agent's | the model that `prompt` handlers ask which name none, or one that cannot be opened |
//! | `replaced` | `[]` | handlers that do not run because other hooks do their work, each `{ event = "Stop", command = "…" }`; `turnbuckle hooks import` writes it. Managed handlers run all the same |
//! | `leave_out` | `[]` | kinds of handlers that do not run: `http`, `prompt`, `mcp_tool`, `async`, and `agent`, which cannot be run here and is refused without this where it could block. Managed handlers run all the same |
//! | `pass_env` | `[]` | variables that are withheld from programs, and that handlers get |
//!
//! # Example
//!
//! ```toml
//! [[hooks]]
//! use = "claude"
//! ```

mod answer;
mod arguments;
mod beside;
mod bridge;
mod commands;
mod dialect;
mod event;
mod fire;
mod handler;
mod judgement;
mod later;
mod matcher;
mod merge;
mod notes;
mod patched;
mod plugin;
mod points;
mod programs;
mod rule;
mod run;
mod session;
mod settings;
mod stderr;
mod text;
mod transcript;
mod trial;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use turnbuckle::hook::HookEntry;
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError, ToolServers};
use turnbuckle::model::Model;
use turnbuckle::store::SideStore;

pub use beside::EnabledPlugin;
pub use bridge::{names_in_scripts, tool_named};
pub use dialect::Dialect;
pub use event::ClaudeEvent;
use fire::Adapter;
pub use handler::{ClaudeAction, ClaudeHandler, HttpAction, McpToolAction, PromptAction, Waiting};
pub use later::untold_failures;
pub use plugin::{ClaudePlugin, LoadedPlugin, PluginOptions};
use run::PromptModels;
pub use session::end_sessions;
pub use settings::{ClaudePlaces, ClaudeSettings, SettingsFile, Unsupported};
use transcript::Transcripts;
pub use trial::{Trial, TrialRun};

use crate::command::env::ProgramEnv;

/// The handlers of Claude-style settings as one hook.
///
/// ```
/// use turnbuckle::hook::{HookEntry, Point};
/// use turnbuckle_tools::claude::{ClaudeHooks, ClaudePlaces, ClaudeSettings};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let project = folder.path().to_owned();
/// std::fs::create_dir(project.join(".claude"))?;
/// let text = r#"{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "cargo check || exit 2"}]}]}}"#;
/// std::fs::write(project.join(".claude/settings.json"), text)?;
/// let places = ClaudePlaces { project: project.clone(), reads_project: true, home: None, managed: None, plugins: Vec::new() };
/// let hook = ClaudeHooks::new(ClaudeSettings::load(&places), &project, project.join(".turnbuckle"));
/// assert!(HookEntry::from(hook).points().iter().eq([Point::OnStop]));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClaudeHooks {
    adapter: Adapter,
}

impl ClaudeHooks {
    /// Runs the handlers of `settings` in the folder `project`. Transcripts and long texts are kept below `data`.
    ///
    /// What `settings` calls unsupported does not run: whoever builds the hook decides whether that may be.
    pub fn new(settings: ClaudeSettings, project: impl Into<PathBuf>, data: impl AsRef<Path>) -> Self {
        let project = project.into();
        let transcripts = Transcripts { project: project.clone(), folder: data.as_ref().join("claude") };
        let adapter = Adapter {
            name: Self::NAME.into(),
            handlers: settings.handlers.into(),
            project,
            transcripts,
            env: ProgramEnv::default(),
            dialect: Dialect::default(),
            models: PromptModels::default(),
            servers: None,
            fails_closed: false,
            aside: Arc::default(),
            sessions: Arc::default(),
        };
        Self { adapter }
    }

    /// Asks this model what `prompt` handlers ask, if they name none or one that is not known. Otherwise those without a name
    /// ask the agent's.
    #[must_use]
    pub fn prompt_model(mut self, model: Arc<dyn Model>) -> Self {
        self.adapter.models.default = Some(model);
        self
    }

    /// The model that `prompt` handlers mean by a name.
    #[must_use]
    pub fn named_model(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        Arc::make_mut(&mut self.adapter.models.named).insert(name.into(), model);
        self
    }

    /// Calls tools of these servers for handlers of the type `mcp_tool`. Without them such handlers fail.
    #[must_use]
    pub fn tool_servers(mut self, servers: Arc<dyn ToolServers>) -> Self {
        self.adapter.servers = Some(servers);
        self
    }

    /// Makes the failure of every handler a block, as [`OnFailure::Block`](turnbuckle::hook::OnFailure::Block) of the agent's hook does. For
    /// [`try_event`](Self::try_event), which has no agent.
    #[must_use]
    pub fn fail_closed(mut self) -> Self {
        self.adapter.fails_closed = true;
        self
    }

    /// Reads answers in another dialect than today's.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.adapter.dialect = dialect;
        self
    }

    /// Withholds these variables from handlers. Otherwise they have the whole environment of this process.
    #[must_use]
    pub fn without_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.adapter.env = ProgramEnv::without(names);
        self
    }
}

/// Options of [`ClaudeHooks`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaudeOptions {
    /// Whether the handlers of the user's own settings run as well.
    #[serde(default = "yes")]
    pub user: bool,
    /// Whether the handlers of the project's settings run.
    #[serde(default = "yes")]
    pub project: bool,
    /// Plugins: folders, or tables with a folder and options.
    #[serde(default)]
    pub plugins: Vec<ClaudePlugin>,
    /// The model that `prompt` handlers ask which name none, or one that is not known here.
    pub prompt_model: Option<String>,
    /// Handlers that hooks here do the work of: they do not run.
    #[serde(default)]
    pub replaced: Vec<ReplacedHandler>,
    /// Kinds of handlers that may be missing.
    #[serde(default)]
    pub leave_out: Vec<String>,
    /// Variables that are withheld from programs, and that handlers get.
    #[serde(default)]
    pub pass_env: Vec<String>,
}

/// A handler that another hook does the work of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedHandler {
    /// At which event: the same command may stand at others, where it runs.
    pub event: String,
    /// Its command, as the settings have it.
    pub command: String,
}

impl ReplacedHandler {
    fn is(&self, handler: &ClaudeHandler) -> bool {
        handler.event.name() == self.event && handler.action.is_command(&self.command)
    }
}

fn yes() -> bool {
    true
}

impl Default for ClaudeOptions {
    /// The handlers of the user and of the project, without plugins.
    fn default() -> Self {
        let (plugins, replaced, leave_out, pass_env) = Default::default();
        Self { user: true, project: true, plugins, prompt_model: None, replaced, leave_out, pass_env }
    }
}

/// Where a machine's administrator writes settings.
const MANAGED: &str =
    if cfg!(target_os = "macos") { "/Library/Application Support/ClaudeCode" } else { "/etc/claude-code" };

impl ClaudeOptions {
    /// The settings of a project with these options, without handlers that are replaced or left out.
    pub fn settings(&self, project: &Path) -> ClaudeSettings {
        self.narrow(ClaudeSettings::load(&self.places(project)))
    }

    /// Takes out the handlers that `replaced` and `leave_out` name. A managed handler stays: these options may be those of a project,
    /// and nothing but the machine's settings can switch it off. It is told as a notice.
    pub fn narrow(&self, mut settings: ClaudeSettings) -> ClaudeSettings {
        let mut kept = Vec::new();
        for replaced in &self.replaced {
            let ReplacedHandler { event, command } = replaced;
            if !settings.handlers.iter().any(|handler| replaced.is(handler)) {
                settings.warnings.push(format!("`replaced` has {command:?}, which no handler of {event} runs"));
            }
            let managed = settings.handlers.iter().find(|handler| handler.is_managed && replaced.is(handler));
            kept.extend(managed.map(|handler| format!("`replaced` has {command:?}, and {}", stays(handler))));
            settings.handlers.retain(|handler| handler.is_managed || !replaced.is(handler));
        }
        for kind in &self.leave_out {
            let is_left_out = |handler: &ClaudeHandler| handler.leave_out_name() == kind;
            let managed = settings.handlers.iter().find(|handler| handler.is_managed && is_left_out(handler));
            kept.extend(managed.map(|handler| format!("`leave_out` has {kind:?}, and {}", stays(handler))));
            settings.handlers.retain(|handler| handler.is_managed || !is_left_out(handler));
        }
        settings.notices.append(&mut kept);
        settings
    }

    /// Without what lies in the project's folder: its settings, and plugins in it.
    #[must_use]
    pub fn without_project(mut self, project: &Path) -> Self {
        self.project = false;
        self.plugins.retain(|plugin| !plugin.is_in(project));
        self
    }

    /// Where the settings of a project are looked for with these options.
    pub fn places(&self, project: &Path) -> ClaudePlaces {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && self.user);
        let (project, plugins) = (project.to_owned(), self.plugins.clone());
        ClaudePlaces { project, reads_project: self.project, home, managed: Some(MANAGED.into()), plugins }
    }
}

/// Why an option does not take a managed handler out, for people.
fn stays(handler: &ClaudeHandler) -> String {
    format!(
        "{} has such a handler of {}: managed handlers run all the same",
        handler.file.display(),
        handler.event.name()
    )
}

impl ConfigHook for ClaudeHooks {
    const NAME: &'static str = "claude";
    const SUMMARY: &'static str = "runs the hooks of .claude/settings.json, unchanged";
    type Options = ClaudeOptions;

    fn from_options(mut options: ClaudeOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        const KINDS: [&str; 5] = ["http", "prompt", "mcp_tool", "agent", "async"];
        if let Some(item) = options.leave_out.iter().position(|kind| !KINDS.contains(&&**kind)) {
            return Err(OptionError::new("leave_out", format!("can name {}", KINDS.join(", "))).item(item));
        }
        if context.ignores_project {
            options = options.without_project(context.folder);
        }
        let mut settings = options.settings(context.folder);
        settings.leave_to_others(context.read_by_others);
        let may_be_missing = |one: &&Unsupported| !one.is_managed && options.leave_out.contains(&one.kind);
        if let Some(first) = settings.unsupported.iter().find(|one| !may_be_missing(one)) {
            let Unsupported { kind, place, .. } = first;
            return Err(match KINDS.contains(&&**kind) && !first.is_managed {
                true => OptionError::elsewhere(format!(
                    "{place}, so a gate would be missing; `leave_out = [{kind:?}]` lets it be"
                )),
                false => {
                    OptionError::elsewhere(format!("{place}; it could be a gate, so it must be mended or taken out"))
                }
            });
        }
        for warning in settings.warnings.iter().chain(&settings.notices).chain(&settings.plugins_not_run(&[])) {
            tracing::warn!("{warning}");
        }
        let default = options.prompt_model.as_deref().map(|name| context.model("prompt_model", name)).transpose()?;
        let mut named = Vec::new();
        for handler in &settings.handlers {
            let ClaudeAction::Prompt(PromptAction { model: Some(name), .. }) = &handler.action else { continue };
            match (context.open_model)(name).or_else(|_| (context.open_model)(&format!("anthropic:{name}"))) {
                Ok(model) => named.push((name.clone(), model)),
                Err(_) if default.is_some() => {}
                Err(error) => {
                    let why = format!("is not set, and {} names the model {name:?}", handler.file.display());
                    return Err(OptionError::new("prompt_model", why).because(error));
                }
            }
        }
        let mut hook = Self::new(settings, context.folder, context.data);
        hook.adapter.models.default = default;
        hook.adapter.servers = context.tool_servers.clone();
        let mut hook = named.into_iter().fold(hook, |hook, (name, model)| hook.named_model(name, model));
        hook.adapter.env = ProgramEnv::of(context, &options.pass_env)?;
        Ok(hook)
    }

    fn side_store_of(_: &ClaudeOptions, context: &HookBuildContext<'_>) -> Option<Arc<dyn SideStore>> {
        let (project, folder) = (context.folder.to_owned(), context.data.join("claude"));
        Some(Arc::new(Transcripts { project, folder }))
    }

    fn entry(mut self, name: String) -> HookEntry {
        self.adapter.name = name.into();
        self.into()
    }
}
