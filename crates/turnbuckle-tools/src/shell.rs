//! `shell`: runs a command in the project's folder.
//!
//! The command is given to `sh -c`, in a session of its own: it has no terminal, and stdin is empty. Both outputs come in one
//! stream, as they were written. When the time is up or the turn is cancelled, the whole process group is killed. What it left in the background when it ended by itself
//! goes on. With [`watch_programs`](crate::watch_programs) the group ends with this process, however that ends. Without it, commands
//! are in a process group of their own but not in a session.
//!
//! Nothing tells a repetition of a command from the first run. So after a crash in the middle of one the model is told
//! that nobody knows whether it happened, and the command does not run again.

pub(crate) mod launcher;
mod output;
mod outputs;
pub mod rules;
mod run;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use turnbuckle::message::ToolCall;
use turnbuckle::tool::{Approval, Effect, Output, Spec, Tool};
use turnbuckle::{BoxError, BoxFuture, Turn};

pub use outputs::ShellOutputs;

/// The longest time that a call may ask for.
const MOST_TIME: Duration = Duration::from_secs(3600);

/// Endings of the names of variables that commands do not get.
const SECRET: [&str; 4] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];

/// Whether commands are confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// As far as this machine can; each question about a command says what is not enforced.
    #[default]
    On,
    /// Entirely, or no command runs.
    Require,
    /// Not at all.
    Off,
}

/// How commands run. Made with [`ShellOptions::in_folder`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShellOptions {
    /// Where they run.
    pub folder: PathBuf,
    /// How long one may take that asks for no other time.
    pub timeout: Duration,
    /// Whether they are confined.
    pub sandbox: SandboxMode,
    /// Variables that they do not get, beside those whose names end in `_KEY`, `_TOKEN`, `_SECRET` or `_PASSWORD`.
    pub withheld_env: Vec<String>,
    /// Variables that they get all the same.
    pub pass_env: Vec<String>,
    /// Where outputs are kept that are too long for a result; without it they are cut.
    pub outputs: Option<ShellOutputs>,
}

impl ShellOptions {
    /// Two minutes for each command, no variables but the secret ones withheld, and long outputs cut.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            timeout: Duration::from_secs(120),
            sandbox: SandboxMode::default(),
            withheld_env: Vec::new(),
            pass_env: Vec::new(),
            outputs: None,
        }
    }

    /// What is not enforced here although the mode asks for it, for those who are asked about a command. Empty: everything is.
    pub fn not_enforced(&self) -> Vec<String> {
        match self.sandbox {
            SandboxMode::Off => Vec::new(),
            // Nothing can be: the approval is the only guard.
            SandboxMode::On | SandboxMode::Require => vec![
                "no sandbox: the command can read and change all that you can, also outside the project, and reach the network"
                    .to_owned(),
            ],
        }
    }

    /// The environment of a command, at the time it starts.
    fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let withheld: BTreeSet<&str> = self.withheld_env.iter().map(String::as_str).collect();
        let is_given = |name: &OsString| {
            let Some(name) = name.to_str() else { return false };
            let upper = name.to_ascii_uppercase();
            let is_secret = withheld.contains(name) || SECRET.iter().any(|end| upper.ends_with(end));
            !is_secret || self.pass_env.iter().any(|passed| passed == name)
        };
        let given: Vec<_> = std::env::vars_os().filter(|(name, _)| is_given(name)).collect();
        given.into_iter()
    }
}

/// The tool `shell {command, timeout?}`. It needs approval unless the agent's rules allow the command.
///
/// ```
/// use turnbuckle::{Agent, models::Script};
/// use turnbuckle_tools::{Shell, ShellOptions};
///
/// let agent = Agent::builder("coder", Script::says(["Done."])).tool(Shell::new(ShellOptions::in_folder("."))).build()?;
/// # Ok::<(), turnbuckle::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Shell {
    options: ShellOptions,
    spec: Spec,
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<u64>,
}

impl Shell {
    /// The tool's name.
    pub const NAME: &'static str = "shell";

    /// A tool that runs commands so.
    pub fn new(options: ShellOptions) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "maxLength": 65536, "description": "What `sh -c` gets." },
                "timeout": { "type": "integer", "minimum": 1, "maximum": MOST_TIME.as_secs(),
                             "description": format!("Seconds; {} if not given.", options.timeout.as_secs()) },
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        let description = "Runs a command with `sh -c` in the project's folder and returns its output. There is no terminal and no \
                           input. The command is killed when its time is up. To read, search and change files use their own tools.";
        let mut spec = Spec::server(Self::NAME, description, parameters, Effect::Never);
        spec.approval = Approval::Required;
        // The command's own limit is shorter; this one is for a process that cannot be killed.
        spec.timeout = MOST_TIME.max(options.timeout) + Duration::from_secs(10);
        spec.standing_exact = true;
        let not_enforced = options.not_enforced();
        spec.approval_note = (!not_enforced.is_empty()).then(|| not_enforced.join("; ").into());
        Self { options, spec }
    }

    /// Every command runs unasked, unless the agent's builder or a hook asks.
    #[must_use]
    pub fn without_approval(mut self) -> Self {
        self.spec.approval = Approval::NotRequired;
        self
    }
}

impl Tool for Shell {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let arguments: Arguments = serde_json::from_value((*call.arguments).clone())?;
            let not_enforced = self.options.not_enforced();
            if self.options.sandbox == SandboxMode::Require && !not_enforced.is_empty() {
                let why = not_enforced.join("; ");
                let text = format!("[not run] `sandbox = \"require\"`, and this cannot be enforced here: {why}");
                return Ok(Output::error(text));
            }
            let limit = arguments.timeout.map_or(self.options.timeout, Duration::from_secs);
            Ok(run::run(&self.options, turn, call, &arguments.command, limit).await?)
        })
    }
}
