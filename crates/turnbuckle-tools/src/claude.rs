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
//! - A stop is refused as often as the handlers say so, up to `max_stop_refusals`.
//! - Each run of a handler leaves a record with its outcome: `ok`, `blocked`, `blocked_suspect`, `nonblocking_error`, `timeout`,
//!   `spawn_failed`, `invalid_json` or `signalled`.
//! - `transcript_path` is a file of this user alone with what the model's context holds; deleting the conversation erases it.
//! - Text beyond 10,000 characters goes to a file beside it, and the model reads its path and a preview.
//!
//! # Points
//!
//! Those of the events that have a handler: `UserPromptSubmit` and `SubagentStart` at `before_agent`, `PreToolUse` and
//! `PermissionRequest` at `before_tool`, `PostToolUse` and `PostToolUseFailure` at `after_tool`, `Stop` and `SubagentStop` at
//! `on_stop`, `StopFailure` and `TurnInterrupted` (ours) at `on_ended`. Other events are read and never fired; `turnbuckle
//! check` says so.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `user` | `true` | whether the handlers of `~/.claude/settings.json` run as well |
//! | `plugins` | `[]` | folders of plugins, each with a `hooks/hooks.json` |
//! | `leave_out` | `[]` | kinds of handlers that are not run here (`http`, `prompt`, `mcp_tool`, `agent`, `async`) and may be missing; without this such a handler is refused where it could block |
//! | `pass_env` | `[]` | variables that are withheld from programs, and that handlers get |
//!
//! # Example
//!
//! ```toml
//! [[hooks]]
//! use = "claude"
//! ```

mod answer;
mod bridge;
mod dialect;
mod event;
mod fire;
mod matcher;
mod merge;
mod points;
mod rule;
mod settings;
mod text;
mod transcript;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use turnbuckle::hook::HookEntry;
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use turnbuckle::store::SideStore;

pub use bridge::tool_named;
pub use dialect::Dialect;
pub use event::ClaudeEvent;
use fire::Adapter;
pub use settings::{ClaudeHandler, ClaudePlaces, ClaudeSettings, Unsupported};
use transcript::Transcripts;

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
/// let places = ClaudePlaces { project: project.clone(), home: None, managed: None, plugins: Vec::new() };
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
        let (env, dialect) = (ProgramEnv::default(), Dialect::default());
        let (name, handlers) = (Self::NAME.into(), settings.handlers.into());
        Self { adapter: Adapter { name, handlers, project, transcripts, env, dialect } }
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
    /// Folders of plugins.
    #[serde(default)]
    pub plugins: Vec<PathBuf>,
    /// Kinds of handlers that may be missing.
    #[serde(default)]
    pub leave_out: Vec<String>,
    /// Variables that are withheld from programs, and that handlers get.
    #[serde(default)]
    pub pass_env: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Where a machine's administrator writes settings.
const MANAGED: &str =
    if cfg!(target_os = "macos") { "/Library/Application Support/ClaudeCode" } else { "/etc/claude-code" };

impl ClaudeOptions {
    /// Where the settings of a project are looked for with these options.
    pub fn places(&self, project: &Path) -> ClaudePlaces {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && self.user);
        let (project, plugins) = (project.to_owned(), self.plugins.clone());
        ClaudePlaces { project, home, managed: Some(MANAGED.into()), plugins }
    }
}

impl ConfigHook for ClaudeHooks {
    const NAME: &'static str = "claude";
    const SUMMARY: &'static str = "runs the hooks of .claude/settings.json, unchanged";
    type Options = ClaudeOptions;

    fn from_options(options: ClaudeOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        const KINDS: [&str; 5] = ["http", "prompt", "mcp_tool", "agent", "async"];
        if let Some(item) = options.leave_out.iter().position(|kind| !KINDS.contains(&&**kind)) {
            return Err(OptionError::new("leave_out", format!("can name {}", KINDS.join(", "))).item(item));
        }
        let settings = ClaudeSettings::load(&options.places(context.folder));
        if let Some(first) = settings.unsupported.iter().find(|one| !options.leave_out.contains(&one.kind)) {
            let why = match KINDS.contains(&&*first.kind) {
                true => format!("does not name {:?}, and {}", first.kind, first.place),
                false => format!("cannot help: {}; a gate could be missing", first.place),
            };
            return Err(OptionError::new("leave_out", why));
        }
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let mut hook = Self::new(settings, context.folder, context.data);
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
