//! What can be asked for. The help is the first documentation people read, so it teaches.

mod erasure;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use turnbuckle_models::without_password;

pub(crate) use erasure::{Delete, Export, Hold};

use crate::show::quoted;

const EXAMPLES: &str = "\
Examples:
  turnbuckle                             chat in this folder; without a model it
                                         first plays the demo: a hook that does
                                         not take a model's word for it
  turnbuckle run --model script:talk.json \"hello\"
                                         one turn, the answer on stdout
  git diff | turnbuckle run > review     the message from stdin, only the
                                         answer in the file
  turnbuckle run --json \"hello\" | jq    every event, one JSON object a line
  turnbuckle run -c fix \"write a.txt\"    go on with a conversation; exit code 4:
                                         call c1 waits for approval
  turnbuckle resolve fix c1 --approve    tomorrow, from another terminal
  turnbuckle show fix                    what happened; also list and trace
  turnbuckle delete fix                  for good, with all that was made of it
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
  130  cancelled by SIGINT, SIGTERM or SIGHUP; the turn's end is written to the
       log first. A second signal ends the program at once";

/// An agent that runs with your hooks.
///
/// A message goes in; hooks add, check and rewrite; the model streams; tools run; hooks judge the result and may refuse
/// to let the turn end. Everything stands in .turnbuckle/turnbuckle.db, so a conversation outlives its process. Without a
/// command: chat.
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
    // The forms of names come from the table of providers.
    #[arg(long, value_name = "M", global = true, help = crate::model_name::help())]
    pub(crate) model: Option<String>,
    /// Where conversations are kept: sqlite:PATH, or memory: (forgotten with the process) [default: `url` in [store],
    /// else sqlite:.turnbuckle/turnbuckle.db]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) store: Option<String>,
    /// Say on stderr what the runtime does; -vv and -vvv say more. TURNBUCKLE_LOG=LEVEL, or TARGET=LEVEL,…, does the same;
    /// TURNBUCKLE_LOG_FILE names a file to write to instead
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
}

impl Common {
    /// Whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.config.is_some() || self.model.is_some() || self.store.is_some()
    }

    /// As they were given, each with a space before it: behind a command they lead to the same conversations. A password in an
    /// address is not repeated.
    pub(crate) fn same_store(&self) -> String {
        let config = self.config.as_ref().map(|path| path.display().to_string());
        let given = [("--config", config), ("--store", self.store.clone()), ("--model", self.model.clone())];
        let shown = given
            .iter()
            .filter_map(|(name, value)| Some(format!(" {name} {}", quoted(&without_password(value.as_deref()?)))));
        shown.collect()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk: type a line, watch the turn, answer what it asks
    Chat(Chat),
    /// One turn: the answer goes to stdout, everything else to stderr
    Run(Run),
    /// Answer a call that waits, and carry its turn on
    Resolve(Resolve),
    /// End the turn that is open, here or in the process that has it
    Cancel(Cancel),
    /// The conversations that are kept, the newest first
    List(List),
    /// One conversation as a person reads it
    Show(Show),
    /// What each stage and hook did, turn by turn, with times
    Trace(Trace),
    /// Delete a conversation, or all of a person, for good
    Delete(Delete),
    /// Keep a conversation from being deleted
    Hold(Hold),
    /// Everything that a conversation, or all of a person, holds: one JSON object a line
    Export(Export),
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

/// Options of `chat`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = CHAT_HELP)]
pub(crate) struct Chat {
    /// Go on with this conversation; made if there is none [default: a new one]
    #[arg(short = 'c', value_name = "ID")]
    pub(crate) conversation: Option<String>,
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
    /// A JSON schema: the answer is an object that fits it, on stdout. No tools are offered then
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
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
#[command(group = clap::ArgGroup::new("answers").required(true), after_help = RESOLVE_HELP)]
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
    /// The answer to a question, or the result of a client's call; a text needs its quotes: '"blue"'. A single - reads it
    /// from stdin; 1 MiB at most
    #[arg(long, value_name = "JSON", group = "answers")]
    pub(crate) answer: Option<String>,
    /// Print every event from here on, one JSON object a line, and nothing else on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_HELP)]
pub(crate) struct Cancel {
    /// The conversation
    pub(crate) id: String,
}

/// Options of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// One JSON object a line: id, opened, written, state, seq, message
    #[arg(long)]
    pub(crate) json: bool,
    /// Instead: who deleted, held, released or insisted on what, or read a conversation of another, the newest first
    #[arg(long)]
    pub(crate) acts: bool,
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
    /// tools are stand-ins, and nothing is kept. The exit code is 1 if a hook fails, 2 for an event that no run could have, and
    /// else 0, whatever the hooks decide.
    Test(HooksTest),
}

/// Options of `hooks test`.
#[derive(Debug, clap::Args)]
pub(crate) struct HooksTest {
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

A call that needs approval ends `run` with exit code 4: the turn waits in the store, and `turnbuckle resolve` answers it
later, from any process. `approve = []` in [tools] asks for none.

With -c, a turn that a crash left open is finished first. A conversation whose turn waits, or that another process carries
on, is busy: exit code 1, and the hint says what to do.";

const CHAT_HELP: &str = "\
A line is a message. While a turn runs you can type the next one: it is queued. What the turn asks is answered in place:
y approves, n refuses, and any other text refuses with that reason, which the model reads.

  Ctrl-C    cancels the turn; again leaves        /help     what can be typed
  Ctrl-D    leaves                                /quit     leaves; a turn that waits goes on waiting

As long as it runs it also takes up what nobody else does in the same store: turns that a crash left, answers that
expired, background hooks. From a pipe it reads line by line and ends with the input, with the exit code of the last turn.";

const RESOLVE_HELP: &str = "\
`turnbuckle show ID` says which calls wait, and the command for each.
  turnbuckle resolve fix c1 --approve
  turnbuckle resolve fix c1 --deny \"not on a Friday\"
  turnbuckle resolve fix c2 --answer '\"blue\"'

The answer is written first; then the turn goes on here, and the exit code is that of `run`. If another process has the
conversation, the answer is handed over to it: exit code 0 once the log has it, 1 if a cancellation or another answer
came first. A call that was answered before, or that nobody answered in time, is stale: exit code 1.";

const CANCEL_HELP: &str = "\
Open calls get a `[cancelled]` result, and the turn ends. A turn that runs in another process is cancelled there: it is
asked to, and looks every second. Nothing to cancel is no error.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_command_that_is_shown_can_be_copied() {
        let common =
            Common { config: Some("my 'own'.toml".into()), store: Some("sqlite:a.db".into()), ..Common::default() };
        assert_eq!(common.same_store(), r" --config 'my '\''own'\''.toml' --store sqlite:a.db");
    }
}
