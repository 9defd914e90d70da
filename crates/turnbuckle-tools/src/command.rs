//! Any program as a hook: `use = "command"`.
//!
//! # What it does
//!
//! The program is given one JSON object and a newline on stdin. Exit 0 is no objection; exit 2 blocks, and stderr is the
//! reason; a JSON object on stdout with exit 0 is the finer answer. Everything else (another exit code, a signal, no such
//! program, an answer that makes no sense at the point) is the hook's failure and follows its `on_failure`.
//!
//! # Points
//!
//! The one that `on` names.
//!
//! | on | stdin beyond `conversation, turn, cwd, hook_event_name, agent, permission_mode, budget` | exit 2 | JSON on stdout |
//! |---|---|---|---|
//! | `before_agent` | `prompt` | halt | `{"context"}` injects, `{"prompt"}` rewrites |
//! | `before_tool` | `tool_name, tool_input, tool_use_id` | deny | `{"decision": "allow\|deny\|ask", "reason", "input"}` |
//! | `after_tool` | the same, `tool_response, ok` | the reason is put beside the result | `{"context"}` |
//! | `after_model` | `message` | regenerate | `{"decision": "reject\|regenerate\|modify", "reason", "text"}` |
//! | `stop` | `stop_active, last_assistant_message, tools_used, touched` | refuse | `{"decision": "refuse\|advise\|pause\|prevent", "reason"}` |
//! | `ended` | `outcome, usage` | – | – |
//!
//! - `"allow"` is no objection: a tool that needs approval still asks. With `input` the call runs with that instead.
//! - With exit 2 stdout is not looked at. Many programs exit 2 for reasons of their own (a shell for a syntax error), so a
//!   hook that is broken in that way blocks rather than passes.
//! - Text on stdout that does not begin with `{` is not an answer and is left alone, also if JSON follows later.
//! - At `ended` there is nothing to decide: exit 2 and JSON are failures there.
//! - The program runs in a process group of its own. When the time is up or the turn is cancelled the whole group is
//!   killed. When it ends by itself, what it left running in the background goes on, and is not waited for even if it
//!   holds stdout. A process that leaves the group (`setsid`) is out of reach. With
//!   [`watch_programs`](crate::watch_programs) the group ends with the process that started it, however that ends; without, a
//!   program that is about to exit calls [`kill_all_groups`], since nothing is dropped then.
//! - It has the environment of the process that started it, without the variables that name a provider's key or address:
//!   `turnbuckle` withholds those that it reads itself, and in Rust [`without_env`](CommandHook::without_env) names them.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `on` | required | a point of the table above |
//! | `run` | required | a string is given to `sh -c`, a list is the program and its arguments; it runs in the project's folder |
//! | `pass_env` | `[]` | variables that are withheld from programs, and that this one gets |
//!
//! # Example
//!
//! ```toml
//! [[hooks]]
//! use = "command"
//! name = "build"
//! on = "stop"
//! run = "cargo check --quiet || exit 2"
//! on_failure = "block"
//! ```

mod answer;
pub(crate) mod env;
mod line;
mod points;
pub(crate) mod process;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::str::FromStr;

use serde::Deserialize;
use turnbuckle::hook::{HookEntry, MustBlock, Point};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};

pub(crate) use answer::with_text;
use env::ProgramEnv;
pub use line::CommandLine;
use points::Command;
pub use process::kill_all_groups;

use crate::watcher::WatchError;

/// A hook that is a program; becomes a [`HookEntry`] at the one point it is for.
///
/// ```
/// use turnbuckle::hook::{HookEntry, HookExt, Point};
/// use turnbuckle_tools::{CommandHook, CommandLine, CommandPoint};
///
/// let hook = CommandHook::new("lint", CommandPoint::Stop, CommandLine::Shell("cargo check || exit 2".into()), ".");
/// let entry: HookEntry = hook.timeout(std::time::Duration::from_secs(300));
/// assert!(entry.points().iter().eq([Point::OnStop]));
/// ```
#[derive(Clone, Debug)]
pub struct CommandHook {
    on: CommandPoint,
    command: Command,
}

impl CommandHook {
    /// Runs `run` in the folder `cwd`.
    pub fn new(name: impl Into<String>, on: CommandPoint, run: CommandLine, cwd: impl Into<PathBuf>) -> Self {
        Self { on, command: Command { name: name.into(), line: run, cwd: cwd.into(), env: ProgramEnv::default() } }
    }

    /// Withholds these variables from the program. Otherwise it has the whole environment of this process.
    #[must_use]
    pub fn without_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.command.env = ProgramEnv::without(names);
        self
    }
}

impl ConfigHook for CommandHook {
    const NAME: &'static str = "command";
    const SUMMARY: &'static str = "runs a program at a point; its exit code decides";
    type Options = CommandOptions;

    fn from_options(options: CommandOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        if options.run.is_empty() {
            let why = "names no program: a string is given to `sh -c`, a list is the program and its arguments";
            return Err(OptionError::new("run", why));
        }
        let mut hook = Self::new(Self::NAME, options.on, options.run, context.folder);
        hook.command.env = ProgramEnv::of(context, &options.pass_env)?;
        Ok(hook)
    }

    fn entry(mut self, name: String) -> HookEntry {
        self.command.name = name;
        self.into()
    }
}

/// Options of [`CommandHook`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandOptions {
    /// Where it runs.
    pub on: CommandPoint,
    /// What runs.
    pub run: CommandLine,
    /// Variables that are withheld from programs, and that this one gets.
    #[serde(default)]
    pub pass_env: Vec<String>,
}

/// A hook is asked only at points that its type implements, so each point has a type.
impl From<CommandHook> for HookEntry {
    fn from(CommandHook { on, command }: CommandHook) -> Self {
        match on {
            CommandPoint::BeforeAgent => points::BeforeAgentCommand(command).into(),
            CommandPoint::BeforeTool => points::BeforeToolCommand(command).into(),
            CommandPoint::AfterTool => points::AfterToolCommand(command).into(),
            CommandPoint::AfterModel => points::AfterModelCommand(command).into(),
            CommandPoint::Stop => points::StopCommand(command).into(),
            CommandPoint::Ended => points::EndedCommand(command).into(),
        }
    }
}

/// Where a command hook runs: `on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandPoint {
    /// On the incoming message.
    BeforeAgent,
    /// Before each call of a tool.
    BeforeTool,
    /// On each result of a tool.
    AfterTool,
    /// On each reply of the model.
    AfterModel,
    /// When the model says it is done. `on_stop`, the name of the point, is read as well.
    #[serde(alias = "on_stop")]
    Stop,
    /// When the turn is over, whatever the outcome. `on_ended`, the name of the point, is read as well.
    #[serde(alias = "on_ended")]
    Ended,
}

impl CommandPoint {
    /// All, in the order of a turn.
    pub const ALL: [Self; 6] =
        [Self::BeforeAgent, Self::BeforeTool, Self::AfterTool, Self::AfterModel, Self::Stop, Self::Ended];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; 6] = ["before_agent", "before_tool", "after_tool", "after_model", "stop", "ended"];

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeAgent => "before_agent",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::AfterModel => "after_model",
            Self::Stop => "stop",
            Self::Ended => "ended",
        }
    }

    /// The point of a turn.
    pub fn point(self) -> Point {
        match self {
            Self::BeforeAgent => Point::BeforeAgent,
            Self::BeforeTool => Point::BeforeTool,
            Self::AfterTool => Point::AfterTool,
            Self::AfterModel => Point::AfterModel,
            Self::Stop => Point::OnStop,
            Self::Ended => Point::OnEnded,
        }
    }

    /// `hook_event_name` on the program's stdin.
    pub fn event_name(self) -> &'static str {
        match self {
            Self::BeforeAgent => "UserPromptSubmit",
            Self::BeforeTool => "PreToolUse",
            Self::AfterTool => "PostToolUse",
            Self::AfterModel => "AfterModel",
            Self::Stop => "Stop",
            Self::Ended => "TurnEnded",
        }
    }
}

impl fmt::Display for CommandPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CommandPoint {
    type Err = UnknownPoint;
    fn from_str(name: &str) -> Result<Self, UnknownPoint> {
        // `turnbuckle hooks` prints the names of points; those of two differ from the names in the configuration.
        match name {
            "on_stop" => Ok(Self::Stop),
            "on_ended" => Ok(Self::Ended),
            _ => Self::ALL.into_iter().find(|point| point.name() == name).ok_or_else(|| UnknownPoint(name.to_owned())),
        }
    }
}

/// A name that is none of [`CommandPoint::NAMES`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a command hook cannot run on {0:?}; it can on {known}", known = CommandPoint::NAMES.join(", "))]
pub struct UnknownPoint(
    /// The name that was given.
    pub String,
);

/// The failure of a command hook.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is nothing to run.
    #[error("the command is empty")]
    Empty,
    /// No such program, or it may not be run.
    #[error("could not start `{command}`: {source}")]
    Start {
        /// The command that was to run.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// Nothing would end it with this process, or the programs of an earlier one have not ended yet.
    #[error("could not start `{command}`: {source}")]
    Unwatched {
        /// The command that was to run.
        command: String,
        /// What is wrong with the watcher, or whose programs have not ended.
        source: WatchError,
    },
    /// The program that built the hook does not let it start: what would run is not what was accepted. Blocks whatever
    /// `on_failure` says.
    #[error("`{command}` was not started: {source}")]
    NotAllowed {
        /// The command that was to run.
        command: String,
        /// Why not.
        source: MustBlock,
    },
    /// The folder to run in is not there.
    #[error("could not start `{command}`: there is no folder {}", cwd.display())]
    Folder {
        /// The command that was to run.
        command: String,
        /// The folder.
        cwd: PathBuf,
    },
    /// How it ended cannot be found out.
    #[error("could not wait for `{command}`: {source}")]
    Wait {
        /// The command that ran.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// It took longer than it may, and was ended.
    #[error("`{command}` took longer than {limit:?}, and was ended")]
    TimedOut {
        /// The command that ran.
        command: String,
        /// What it had.
        limit: std::time::Duration,
    },
    /// Another exit code than 0 and 2, or a signal.
    #[error("`{command}` ended with {status}{}", after_colon(stderr))]
    Status {
        /// The command that ran.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The first lines of stderr.
        stderr: String,
    },
    /// A JSON object on stdout that makes no sense at the point, or something that only begins like one.
    #[error("`{command}` gave an answer that `{on}` does not take: {why}")]
    Answer {
        /// The command that ran.
        command: String,
        /// The point at which it ran.
        on: CommandPoint,
        /// What is wrong with the answer.
        why: String,
    },
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_its_name() {
        for (point, name) in CommandPoint::ALL.into_iter().zip(CommandPoint::NAMES) {
            assert_eq!((point.name(), name.parse()), (name, Ok(point)));
            assert_eq!(serde_json::from_value::<CommandPoint>(name.into()).ok(), Some(point));
        }
    }

    #[test]
    fn the_name_of_the_point_is_read_as_well() {
        for (name, point) in [("on_stop", CommandPoint::Stop), ("on_ended", CommandPoint::Ended)] {
            assert_eq!(name.parse(), Ok(point));
            assert_eq!(serde_json::from_value::<CommandPoint>(name.into()).ok(), Some(point));
        }
    }

    #[test]
    fn an_unknown_point_is_answered_with_the_known_ones() {
        let error = "on_tool".parse::<CommandPoint>().unwrap_err().to_string();
        assert!(error.contains("\"on_tool\"") && error.contains("after_model, stop, ended"), "{error}");
    }
}
