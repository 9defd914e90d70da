//! Persist: the result of a turn, kept in a file or handed to a program.
//!
//! # What it does
//!
//! When a turn is about to complete, its result is written to a file of the project, or given to a program on stdin.
//!
//! - A file is replaced in one step: a reader sees the old content or the new, and a crash leaves one of the two.
//!   Folders on the way are made. No path leads out of the project's folder, also not through a link. Only the owner may read
//!   the file, also one that was there before and open to others.
//! - `{conversation}`, `{turn}`, `{agent}` and `{date}` in `file` are filled in; a `/` in them becomes `_`.
//! - A program that ends with another exit code than 0 is the hook's failure, as is a file that cannot be written. By
//!   default that is ignored, and the record has it; with `on_failure = "block"` the turn fails.
//! - After a crash a turn may settle twice: writing the same file again does no harm, and a program is told the turn.
//!
//! # Points
//!
//! `after_agent`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `file` | | a path in the project's folder; or `run` |
//! | `run` | | a string for `sh -c`, or a list; the result is its stdin |
//! | `pass_env` | `[]` | with `run`: variables that are withheld from programs, and that this one gets |
//! | `as` | `"text"` | or `"json"`: `{"conversation", "turn", "agent", "at", "message", "result"}` |
//!
//! # Example
//!
//! ```
//! use turnbuckle_tools::{Persist, Persisted};
//!
//! let persist = Persist::to_file("answers/{date}-{turn}.md", ".")?.kept_as(Persisted::Text);
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::BoxError;
use turnbuckle::hook::{AfterAgent, AfterAgentContext, Hook};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError, Template};

use crate::command::env::ProgramEnv;
use crate::command::process;
use crate::command::{CommandError, CommandLine};
use crate::files::{self, Folder};

const PLACES: &[&str] = &["conversation", "turn", "agent", "date"];

/// Keeps the result of a turn.
#[derive(Clone)]
pub struct Persist {
    to: To,
    kept_as: Persisted,
}

#[derive(Clone)]
enum To {
    File { path: Template, folder: Arc<Folder> },
    Program { run: CommandLine, folder: PathBuf, env: ProgramEnv },
}

/// Options of [`Persist`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PersistOptions {
    /// A path in the project's folder.
    pub file: Option<String>,
    /// A program.
    pub run: Option<CommandLine>,
    /// How it is written.
    #[serde(rename = "as")]
    pub kept_as: Persisted,
    /// Variables that are withheld from programs, and that this one gets.
    pub pass_env: Vec<String>,
}

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persisted {
    /// What a person sees.
    #[default]
    Text,
    /// With whose it is and when, as one JSON object.
    Json,
}

impl Persist {
    /// To a file below `folder`.
    pub fn to_file(file: &str, folder: impl AsRef<Path>) -> Result<Self, OptionError> {
        let out = Path::new(file).is_absolute() || file.split('/').any(|step| step == "..");
        if out || file.is_empty() || file.ends_with('/') {
            return Err(OptionError::new("file", "must be the path of a file in the project's folder"));
        }
        let folder = Folder::open(folder.as_ref(), Vec::new())
            .map_err(|error| OptionError::new("file", "cannot be in a folder that cannot be opened").because(error))?;
        let to = To::File { path: Template::parse("file", file, PLACES)?, folder: Arc::new(folder) };
        Ok(Self { to, kept_as: Persisted::Text })
    }

    /// To a program's stdin, which runs in `folder`.
    pub fn to_program(run: CommandLine, folder: impl Into<PathBuf>) -> Result<Self, OptionError> {
        if run.is_empty() {
            return Err(OptionError::new("run", "names no program"));
        }
        let to = To::Program { run, folder: folder.into(), env: ProgramEnv::default() };
        Ok(Self { to, kept_as: Persisted::Text })
    }

    /// Withholds these variables from the program, if there is one. Otherwise it has the whole environment of this process.
    #[must_use]
    pub fn without_env(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with_env(ProgramEnv::without(names))
    }

    fn with_env(mut self, given: ProgramEnv) -> Self {
        if let To::Program { env, .. } = &mut self.to {
            *env = given;
        }
        self
    }

    /// How it is written.
    #[must_use]
    pub fn kept_as(mut self, kept_as: Persisted) -> Self {
        self.kept_as = kept_as;
        self
    }

    fn content(&self, turn: &AfterAgentContext) -> Vec<u8> {
        let said = || turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default();
        let result = turn.result().cloned().unwrap_or_else(|| Value::String(said()));
        let text = match (self.kept_as, result) {
            (Persisted::Text, Value::String(text)) => text,
            (Persisted::Text, other) => other.to_string(),
            (Persisted::Json, result) => json!({
                "conversation": turn.conversation(), "turn": turn.id(), "agent": turn.agent().name(),
                "at": turn.clock().now(), "message": turn.user_message().text(), "result": result,
            })
            .to_string(),
        };
        let end = if text.ends_with('\n') { "" } else { "\n" };
        (text + end).into_bytes()
    }
}

fn filled(path: &Template, turn: &AfterAgentContext) -> String {
    let now = turn.clock().now().to_string();
    path.fill(|place| {
        let value: Cow<'_, str> = match place {
            "conversation" => turn.conversation().as_str().into(),
            "turn" => turn.id().as_str().into(),
            "agent" => turn.agent().name().into(),
            _ => now.get(..10).unwrap_or(&now).to_owned().into(),
        };
        // A sub-agent's conversation has slashes.
        Cow::Owned(value.replace('/', "_"))
    })
}

impl Hook for Persist {
    async fn after_agent(&self, turn: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        let content = self.content(turn);
        match &self.to {
            To::File { path, folder } => files::replace(folder, filled(path, turn), content).await?,
            To::Program { run, folder, env } => {
                let ran = process::run(run, folder, env, &content).await?;
                if !ran.status.success() {
                    let stderr = String::from_utf8_lossy(&ran.stderr.bytes).chars().take(500).collect();
                    return Err(CommandError::Status { command: run.to_string(), status: ran.status, stderr }.into());
                }
            }
        }
        Ok(AfterAgent::Continue)
    }
}

impl fmt::Debug for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to: &dyn fmt::Debug = match &self.to {
            To::File { path, .. } => path,
            To::Program { run, .. } => run,
        };
        f.debug_struct("Persist").field("to", to).field("kept_as", &self.kept_as).finish()
    }
}

impl ConfigHook for Persist {
    const NAME: &'static str = "persist";
    const SUMMARY: &'static str = "keeps the result of a turn in a file, or hands it to a program";
    type Options = PersistOptions;

    fn from_options(options: PersistOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let env = ProgramEnv::of(context, &options.pass_env)?;
        let persist = match (&options.file, options.run) {
            (Some(_), None) if !options.pass_env.is_empty() => {
                return Err(OptionError::new("pass_env", "is for a program, and `file` starts none"));
            }
            (Some(file), None) => Self::to_file(file, context.folder)?,
            (None, Some(run)) => Self::to_program(run, context.folder)?,
            (Some(_), Some(_)) => return Err(OptionError::new("file", "and `run` exclude each other")),
            (None, None) => return Err(OptionError::new("file", "is missing, and so is `run`")),
        };
        Ok(persist.kept_as(options.kept_as).with_env(env))
    }
}
