//! What can be asked for. The help is the first documentation people read, so it teaches.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  turnbuckle                             play the demo: a hook that does not
                                         take a model's word for it
  turnbuckle run --model script:talk.json \"hello\"
                                         one turn, the answer on stdout
  git diff | turnbuckle run > review     the message from stdin, only the
                                         answer in the file
  turnbuckle run --json \"hello\" | jq    every event, one JSON object a line
  turnbuckle run -c fix --store sqlite:t.db \"hello\"
                                         a conversation that is kept; then
                                         list, show, trace and resolve work
  turnbuckle check                       what is wrong with turnbuckle.toml,
                                         before anything runs
  turnbuckle doctor                      which keys and model servers are
                                         there, and whether they work

A hook in ./turnbuckle.toml that lets no turn end while the build fails:
  [[hooks]]
  use = \"command\"
  name = \"build\"
  on = \"stop\"
  run = \"cargo check --quiet || exit 2\"
  on_failure = \"block\"
Exit 2 refuses and stderr is the reason; any other exit code but 0 is the
hook's own failure, which `on_failure` decides about (at stop: ignored, unless
it says block).

Exit codes:
    0  completed
    1  failed, busy, not found, or the store could not be used
    2  bad usage, configuration, or an empty message; check: it would fail
    3  a hook halted the turn or rejected every reply
    4  waiting: someone must approve or answer first
    5  exhausted: a limit of the turn was reached
  130  cancelled by SIGINT, SIGTERM or SIGHUP; the turn's books are closed
       first. A second signal ends the program at once";

/// An agent that runs with your hooks.
///
/// A message goes in; hooks add, check and rewrite; the model streams; tools run; hooks judge the result and may refuse
/// to let the turn end. Without a command: the demo.
#[derive(Debug, Parser)]
#[command(name = "turnbuckle", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// Read this file only [default: the user's turnbuckle.toml with ./turnbuckle.toml on top, key by key]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Which model answers: anthropic:MODEL, openai:MODEL, ollama:MODEL, openai@URL:MODEL, script:FILE or demo [default:
    /// `model` in [agent], else one by the first key found, else demo]
    #[arg(long, value_name = "M", global = true)]
    pub(crate) model: Option<String>,
    /// Where conversations are kept: sqlite:PATH, or memory: (forgotten with the process) [default: `url` in [store],
    /// else memory:]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) store: Option<String>,
}

impl Common {
    /// Whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.config.is_some() || self.model.is_some() || self.store.is_some()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One turn: the answer goes to stdout, everything else to stderr
    Run(Run),
    /// Answer a call that waits, and carry its turn on
    Resolve(Resolve),
    /// The conversations of the store, the newest first
    List,
    /// One conversation as a person reads it
    Show(Show),
    /// What each stage and hook did, turn by turn, with times
    Trace(Trace),
    /// What runs at each point, in order, with options and what its failure would mean
    Hooks(Hooks),
    /// Judge the configuration; nothing is run
    ///
    /// Exit code 2 if anything would fail, 0 otherwise, also with warnings.
    Check,
    /// Which keys and local model servers are there, and whether the model answers
    ///
    /// Asks the model for one token, unless it is a script or the demo. Exit code 1 if it does not answer.
    Doctor(Doctor),
}

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// What to say; read from stdin if it is not given and stdin is not a terminal. With -c and no message at all: finish
    /// the turn that a crash left open
    pub(crate) message: Option<String>,
    /// Print every event of the conversation, one JSON object a line, and nothing else on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// The conversation; made if there is none. 1 to 64 of A-Z a-z 0-9 _ -
    #[arg(short = 'c', value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// No progress on stderr, and the answer in one piece
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Start no background hooks
    #[arg(long)]
    pub(crate) bare: bool,
    /// Run command hooks of a project file without asking; this version never asks, so it changes nothing yet
    #[arg(long)]
    pub(crate) trust_hooks: bool,
}

/// Options of `resolve`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("answers").required(true))]
pub(crate) struct Resolve {
    /// The conversation
    pub(crate) id: String,
    /// The call that waits, as `run` and `show` name it
    pub(crate) call: String,
    /// It may run; of a paused turn: it may end
    #[arg(long, group = "answers")]
    pub(crate) approve: bool,
    /// It may not, and why: the model reads the reason
    #[arg(long, value_name = "REASON", num_args = 0..=1, group = "answers")]
    #[allow(clippy::option_option, reason = "given, and given with a reason")]
    pub(crate) deny: Option<Option<String>>,
    /// The answer to a question, or the result of a client's call; a text needs its quotes: '"blue"'
    #[arg(long, value_name = "JSON", group = "answers")]
    pub(crate) answer: Option<String>,
    /// Print every event from here on, one JSON object a line, and nothing else on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The conversation
    pub(crate) id: String,
    /// Its events, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `hooks`.
#[derive(Debug, clap::Args)]
pub(crate) struct Hooks {
    #[command(subcommand)]
    pub(crate) command: Option<HooksCommand>,
    /// One JSON object a line: a hook at a point
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Instead: the ready-made hooks that `use` can name
    #[arg(long)]
    pub(crate) available: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Run the hooks of one point on an event from stdin, and print what they decide
    ///
    /// The event is the JSON object that a command hook reads there. Hooks and their programs are real; the model and the
    /// tools are stand-ins, and nothing is kept.
    Test(Rehearsal),
}

/// Options of `hooks test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Rehearsal {
    /// before_agent, before_tool, after_tool, after_model, stop or ended
    pub(crate) event: turnbuckle_tools::CommandPoint,
}

/// Options of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Trace {
    /// The conversation
    pub(crate) id: String,
    /// Only this turn
    pub(crate) turn: Option<String>,
}

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const RUN_HELP: &str = "\
Command hooks run programs: the user's file and ./turnbuckle.toml both may name some, and `run` starts them.
Look at the turnbuckle.toml of a folder that is not yours (`turnbuckle check` lists its hooks) before you run in it.

A call that needs approval ends `run` with exit code 4. With a store that keeps it, `turnbuckle resolve` answers it later,
from any process. `approve = []` in [tools] asks for none.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Args::command().debug_assert();
    }
}
