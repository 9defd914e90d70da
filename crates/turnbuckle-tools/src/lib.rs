//! What touches the machine: files confined to a folder, commands, and hooks that are programs.
//!
//! [`Workspace`] gives an agent the file tools of one folder, and no path leads out of it. [`Shell`] runs commands there, and
//! [`rules`] say which of them run without being asked about. [`Fetch`] reads pages of the web. [`CommandHook`] makes any program a hook: JSON on its stdin, its
//! decision in the exit code or as JSON on stdout. [`WorkerHook`] is for programs that stay and answer many calls, and
//! [`ClaudeHooks`] for the hooks of `.claude/settings.json`. [`HttpHook`] asks a service.
//!
//! ```
//! # fn main() -> Result<(), turnbuckle::BoxError> {
//! use turnbuckle::hook::HookExt;
//! use turnbuckle::{Agent, models::Script};
//! use turnbuckle_tools::{CommandHook, CommandLine, CommandPoint, Workspace};
//!
//! let folder = Workspace::open(".")?;
//! // Exit 2 refuses; every other exit code but 0 is the hook's own failure.
//! let check = CommandLine::Shell("cargo check --quiet || exit 2".into());
//! let lint = CommandHook::new("lint", CommandPoint::Stop, check, folder.root());
//! let mut agent = Agent::builder("coder", Script::says(["Done."]))
//!     .hook(lint.timeout(std::time::Duration::from_secs(300)))
//!     .approve(Workspace::CHANGING);
//! for tool in Workspace::NAMES.iter().filter_map(|name| folder.tool(name)) {
//!     agent = agent.shared_tool(tool);
//! }
//! let agent = agent.build()?;
//! # assert_eq!(agent.tools().len(), 6);
//! # Ok(())
//! # }
//! ```
//!
//! For Unix: process groups and file modes are taken for granted. Both need a tokio runtime; command hooks need its I/O
//! and time drivers.

pub mod claude;
pub mod command;
mod conversation_files;
pub mod fetch;
mod files;
pub mod http;
mod json_text;
pub mod lint;
pub mod persist;
mod plan;
mod program;
pub mod read_file;
mod session_env;
mod shell;
mod watcher;
pub mod worker;
mod workspace;

pub use claude::{ClaudeHooks, ClaudeOptions};
pub use command::{
    CommandError, CommandHook, CommandLine, CommandOptions, CommandPoint, UnknownPoint, kill_all_groups,
};
pub use fetch::{Fetch, FetchOptions, PrivateHost};
pub use files::{UndoFiles, Undone, resolved_path};
pub use http::{HttpHook, HttpOptions};
pub use lint::{Lint, LintOptions};
pub use persist::{Persist, PersistOptions, Persisted};
pub use plan::{PLAN_TOOL, plan_tool};
pub use program::{Pipes, Program, ProgramOptions};
pub use shell::{GuardedNames, Network, Policy, SandboxMode, Shell, ShellOptions, ShellOutputs, Support, rules};
pub use watcher::{WatchError, foreign_watch_folder, watch_programs};
pub use worker::{WorkerError, WorkerHook, WorkerOptions};
pub use workspace::{Workspace, WorkspaceError};
