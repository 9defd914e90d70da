//! `shell`: runs a command in the project's folder.
//!
//! The command has the result of `sh -c`, in a session of its own: it has no terminal, and stdin is empty. Both outputs come in one
//! stream, as they were written. When the time is up or the turn is cancelled, the whole process group is killed. What it left in the background when it ended by itself
//! goes on. With [`watch_programs`](crate::watch_programs) the group ends with this process, however that ends. Without it, commands
//! are in a process group of their own but not in a session.
//!
//! Commands are confined to the project, what a build needs, and a temporary folder of their own, without network: see [`Policy`]. What this
//! machine cannot enforce stands in every question about a command. A call with `outside_sandbox` runs without all that, and is asked about
//! whatever rules and standing approvals there are.
//!
//! Nothing tells a repetition of a command from the first run. So after a crash in the middle of one the model is told
//! that nobody knows whether it happened, and the command does not run again.

mod launched;
pub(crate) mod launcher;
mod output;
mod outputs;
pub mod rules;
mod run;
mod sandbox;
mod script;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::message::{Text, ToolCall};
use turnbuckle::tool::{Approval, Effect, Output, Spec, Tool};
use turnbuckle::{BoxError, BoxFuture, Turn};

use crate::command::env::is_withheld_from_tools;
use sandbox::Reach;

pub use outputs::ShellOutputs;
pub(crate) use run::exit_code_in;
pub use sandbox::{GuardedNames, Network, Policy, Support};

/// The longest time that a call may ask for.
const MOST_TIME: Duration = Duration::from_secs(3600);

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
    /// What they may reach if they are.
    pub policy: Policy,
    /// Variables that they do not get, beside those that look like secrets: by their names (`_KEY`, `_TOKEN`, `_PASSWORD` and the like at the end),
    /// or because their value is a URL with a password.
    pub withheld_env: Vec<String>,
    /// Variables that they get all the same.
    pub pass_env: Vec<String>,
    /// Where outputs are kept that are too long for a result; without it they are cut.
    pub outputs: Option<ShellOutputs>,
    /// Where it is noted which guarded files did not exist when a command ended: what appears later is reported.
    pub guarded: GuardedNames,
}

impl ShellOptions {
    /// Two minutes for each command, no variables but the secret ones withheld, and long outputs cut.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self {
            guarded: GuardedNames::below(folder.clone(), ".turnbuckle"),
            folder,
            timeout: Duration::from_secs(120),
            sandbox: SandboxMode::default(),
            policy: Policy::default(),
            withheld_env: Vec::new(),
            pass_env: Vec::new(),
            outputs: None,
        }
    }

    /// What is not enforced here although the mode asks for it, for those who are asked about a command. Empty: everything is.
    pub fn not_enforced(&self) -> Vec<String> {
        match self.sandbox {
            SandboxMode::Off => Vec::new(),
            SandboxMode::On | SandboxMode::Require => self.reach().not_enforced(),
        }
    }

    /// What commands may reach at this moment.
    fn reach(&self) -> Reach<'_> {
        Reach::now(&self.policy, &self.folder, Support::here())
    }

    /// The environment of a command, at the time it starts.
    fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let is_given = |(name, value): &(OsString, OsString)| {
            name.to_str().is_some_and(|name| !is_withheld_from_tools(name, value, &self.withheld_env, &self.pass_env))
        };
        let given: Vec<_> = std::env::vars_os().filter(is_given).collect();
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
pub struct Shell {
    options: Arc<ShellOptions>,
    spec: Spec,
    /// What runs the next command. It ends with the tool.
    spare: launched::Spare,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, spec, spare: _ } = self;
        f.debug_struct("Shell").field("options", options).field("spec", spec).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<u64>,
    #[serde(default)]
    outside_sandbox: bool,
}

/// Where a command runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Confined, as far as this machine can.
    Sandbox,
    /// With all rights of this process.
    Outside,
}

impl Place {
    /// Where commands run that ask for nothing else.
    fn usual(options: &ShellOptions) -> Self {
        if options.sandbox == SandboxMode::Off { Self::Outside } else { Self::Sandbox }
    }
}

impl Shell {
    /// The tool's name.
    pub const NAME: &'static str = "shell";

    /// A tool that runs commands so.
    pub fn new(options: ShellOptions) -> Self {
        let mut parameters = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "maxLength": 65536, "description": "What `sh -c` gets." },
                "timeout": { "type": "integer", "minimum": 1, "maximum": MOST_TIME.as_secs(),
                             "description": format!("Seconds; {} if not given.", options.timeout.as_secs()) },
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        let mut description =
            "Runs a command with `sh -c` in the project's folder and returns its output. There is no terminal and no input. The command \
             is killed when its time is up. To read, search and change files use their own tools."
                .to_owned();
        if options.sandbox != SandboxMode::Off {
            let network = if options.policy.network == Network::Off { ", and has no network" } else { "" };
            description += &format!(
                " It can change files in the project and in $TMPDIR only, reads no other files of the user{network}. Set `outside_sandbox` \
                 only if a command failed because of that: a person is asked then."
            );
            parameters["properties"]["outside_sandbox"] =
                json!({ "type": "boolean", "description": "Run this one command without the sandbox." });
        }
        let mut spec = Spec::server(Self::NAME, description, parameters, Effect::Never);
        spec.approval = Approval::Required;
        // The command's own limit is shorter; this one is for a process that cannot be killed.
        spec.timeout = MOST_TIME.max(options.timeout) + Duration::from_secs(10);
        spec.standing_exact = true;
        let not_enforced = options.not_enforced();
        spec.approval_note = (!not_enforced.is_empty()).then(|| not_enforced.join("; ").into());
        Self { options: Arc::new(options), spec, spare: launched::Spare::default() }
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

    fn allowed_by(&self, rules: &[String], arguments: &Value) -> bool {
        rules::allow(rules, Self::NAME, arguments)
    }

    fn always_ask(&self, arguments: &Value) -> Option<Text> {
        let outside = arguments.get("outside_sandbox").and_then(Value::as_bool).unwrap_or_default();
        let why = "outside the sandbox: the command can read and change all that you can, and reach the network";
        (outside && self.options.sandbox != SandboxMode::Off).then(|| why.into())
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let arguments: Arguments = serde_json::from_value((*call.arguments).clone())?;
            let place = if arguments.outside_sandbox { Place::Outside } else { Place::usual(&self.options) };
            let limit = arguments.timeout.map_or(self.options.timeout, Duration::from_secs);
            Ok(run::run(&self.options, &self.spare, turn, call, &arguments.command, place, limit).await?)
        })
    }
}
