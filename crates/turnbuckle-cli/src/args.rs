//! What can be asked for. The help is the first documentation people read, so it teaches.

mod answers;
mod chat_help;
mod erasure;
mod examples;
mod hints;
mod hooks;
mod rule;
mod setup;

use std::path::PathBuf;

use clap::{FromArgMatches as _, Parser, Subcommand};
use turnbuckle_models::without_password;
use turnbuckle_tools::rules::Rule;

pub(crate) use answers::{Answer, AnswerOptions, Approvals, ApprovalsCommand, CarryOn, Pending, Resolve};
pub(crate) use erasure::{Delete, Export, Hold};
pub(crate) use examples::command;
pub(crate) use hints::after;
pub(crate) use hooks::{Hooks, HooksCommand, HooksConform, HooksTest, TestedEvent};
pub(crate) use setup::{Check, Completions, Init, InitTools, Man};

use crate::show::quoted;
use crate::trust::TrustOptions;

const EXAMPLES: &str = "\
Examples:
  turnbuckle                             chat in this folder; without a model it
                                         first plays the demo: a hook that does
                                         not take a model's word for it
  turnbuckle init                        three questions, and a commented
                                         turnbuckle.toml
  turnbuckle run --model script:talk.json \"hello\"
                                         one turn, the answer on stdout
  git diff | turnbuckle run > review     the message from stdin, only the
                                         answer in the file
  turnbuckle run --json \"hello\" | jq    every event, one JSON object a line
  turnbuckle run -c fix \"write a.txt\"    go on with a conversation; exit code 4:
                                         call c1 waits for approval
  turnbuckle resolve fix c1 --approve    tomorrow, from another terminal
  turnbuckle pending                     what waits for you, in all conversations
  turnbuckle show fix                    what happened; also list and trace
  turnbuckle delete fix                  for good, with all that was made of it
  turnbuckle check                       what is wrong with turnbuckle.toml,
                                         before anything runs
  turnbuckle trust                       what this project's files would run;
                                         accept it, and it runs
  turnbuckle doctor                      which keys and model servers are
                                         there, and whether they work

A hook in turnbuckle.toml that sends the model back while the build fails:
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
    1  failed, busy, stale, forbidden, not found, or the store could not be used
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
    /// Of the chat without a command. The commands that take them have them behind their name.
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Args {
    /// From the command line; the help of each command has examples.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let mut matches = command().try_get_matches()?;
        Self::from_arg_matches_mut(&mut matches)
    }
}

/// What every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// Read this file only [default: the user's turnbuckle.toml with the project's on top, key by key]
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
    /// Which of `--trust-hooks` and `--ignore-project` was given, of the commands that take them.
    #[arg(skip)]
    pub(crate) trust: TrustOptions,
}

impl Common {
    /// Whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.config.is_some() || self.model.is_some() || self.store.is_some()
    }

    /// As they were given, each with a space before it: behind a command that looks they lead to the same conversations. A
    /// password in an address is not repeated.
    pub(crate) fn same_store(&self) -> String {
        let config = self.config.as_ref().map(|path| path.display().to_string());
        shown_options(&[("--config", config.as_deref()), ("--store", self.store.as_deref())])
    }

    /// The same for a command that runs the agent: with its model.
    pub(crate) fn same_agent(&self) -> String {
        self.same_store() + &shown_options(&[("--model", self.model.as_deref())])
    }
}

/// Those that were given, as a person would type them.
fn shown_options(given: &[(&str, Option<&str>)]) -> String {
    let shown =
        given.iter().filter_map(|(name, value)| Some(format!(" {name} {}", quoted(&without_password((*value)?)))));
    shown.collect()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk: type a line, watch the turn, answer what it asks
    Chat(Chat),
    /// One turn: the answer goes to stdout, everything else to stderr
    Run(Run),
    /// Answer a call that waits, and carry its turn on
    Resolve(Resolve),
    /// Only record the answer to a call that waits; its agent carries the turn on
    Answer(Answer),
    /// The calls that wait for you, in all conversations
    Pending(Pending),
    /// Standing approvals: what runs without being asked about
    Approvals(Approvals),
    /// End the turn that is open, here or in the process that has it
    Cancel(Cancel),
    /// The conversations that are kept, the newest first
    List(List),
    /// One conversation as a person reads it
    Show(Show),
    /// What each stage and hook did, turn by turn, with times
    Trace(Trace),
    /// Say what the model was sent, what was left out, and by whom
    Why(Why),
    /// Delete a conversation, or all of a person, for good
    Delete(Delete),
    /// Keep a conversation from being deleted
    Hold(Hold),
    /// Everything that a conversation, or all of a person, holds: one JSON object a line
    Export(Export),
    /// What runs at each point, in order, with options and what its failure would mean
    Hooks(Hooks),
    /// Show what this project's files would run, and accept it
    #[command(after_help = TRUST_HELP)]
    Trust(Trust),
    /// Conversations over HTTP: an API with live events, until a signal ends it
    Serve(Serve),
    /// Be an MCP server on stdin and stdout: other agents start, continue and watch conversations
    #[command(after_help = MCP_HELP)]
    Mcp(Mcp),
    /// Judge the configuration; nothing is run
    ///
    /// Exit code 2 if anything would fail, 0 otherwise, also with warnings.
    Check(Check),
    /// Which keys and local model servers are there, and whether the model answers
    ///
    /// Asks the model for one token, unless it is a script or the demo. Exit code 1 if it does not answer.
    Doctor(Doctor),
    /// Ask three questions and write a commented turnbuckle.toml for this folder
    Init(Init),
    /// Print a script that completes commands and options in your shell
    Completions(Completions),
    /// Print the man page
    Man(Man),
    /// Print the JSON schema of turnbuckle.toml, for editors
    Schema,
}

/// Options of `chat`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = chat_help::TEXT)]
pub(crate) struct Chat {
    /// Go on with this conversation; made if there is none. Without ID: choose among the last ones [default: a new one]
    #[arg(short = 'c', value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub(crate) conversation: Option<String>,
    #[command(flatten)]
    pub(crate) carry_on: CarryOn,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
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
    /// Read stdin to its end, whatever it is: beside a message it is given to the model with it
    #[arg(long)]
    pub(crate) stdin: bool,
    /// No progress on stderr, and the answer in one piece
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Start no background hooks
    #[arg(long)]
    pub(crate) bare: bool,
    /// Allow calls without asking, for this run: `shell(cargo test *)`, `write_file(src/**)`. Repeatable
    #[arg(long, value_name = "RULE", value_parser = rule::parse)]
    pub(crate) allow: Vec<Rule>,
    #[command(flatten)]
    pub(crate) carry_on: CarryOn,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
}

/// Options of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where to listen: ADDRESS:PORT, or localhost:PORT; port 0 takes a free one. Other than loopback only with `[[serve.tokens]]` [default: `listen` in
    /// [serve], else 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR", value_parser = hints::listen_address)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Let MCP clients approve calls over `/mcp`. A client is usually a model: it could approve what it asked for itself
    #[arg(long)]
    pub(crate) allow_approvals: bool,
    #[command(flatten)]
    pub(crate) carry_on: CarryOn,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
}

/// Options of `mcp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Mcp {
    /// Let clients approve calls. A client is usually a model: it could approve what it asked for itself
    #[arg(long)]
    pub(crate) allow_approvals: bool,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
}

/// What `mcp` does besides being a server.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum McpCommand {
    /// Log in at an MCP server of the configuration that has a `url`
    Login(McpLogin),
}

/// Options of `mcp login`.
#[derive(Debug, clap::Args)]
pub(crate) struct McpLogin {
    /// The server's name
    pub(crate) name: String,
    /// Print where the tokens are as one JSON object. The address to open stands on stderr
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_HELP)]
pub(crate) struct Cancel {
    /// The conversation
    pub(crate) id: String,
    /// Print what became of it as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// One JSON object a line: id, opened, written, state, seq, title, message; agent, left, left_reason and jobs where there are any
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
    /// Instead: what the N-th model call of a turn was sent, as JSON; with an audit also TURN.N.ATTEMPT (one that failed or was
    /// discarded) and summary.N
    #[arg(long, value_name = "TURN[.N]", conflicts_with = "json")]
    pub(crate) context: Option<String>,
}

/// Options of `trust`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Trust {
    #[command(subcommand)]
    pub(crate) command: Option<TrustCommand>,
    /// Accept without asking what is shown
    #[arg(long)]
    pub(crate) yes: bool,
    /// Accept whatever this folder's files say, now and later: for your own projects
    #[arg(long)]
    pub(crate) folder: bool,
    /// Print what it is about, and whether it is accepted now, as one JSON object. Nothing is asked: --yes accepts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// What was accepted, and which databases are known
    List {
        /// One JSON object a line: a project, or a database
        #[arg(long)]
        json: bool,
    },
    /// Take an acceptance back
    Revoke {
        /// The project's folder [default: this project]
        path: Option<PathBuf>,
        /// Print what was revoked as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Options of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Trace {
    /// The conversation
    pub(crate) id: String,
    /// Only this turn
    pub(crate) turn: Option<String>,
    /// One JSON object a turn: what took time, and what hooks did
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `why`.
#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// The conversation
    pub(crate) id: String,
    /// Only this turn
    pub(crate) turn: Option<String>,
    /// Instead: in which calls this text was sent, and what took it out
    #[arg(long, value_name = "TEXT", conflicts_with = "turn")]
    pub(crate) find: Option<String>,
    /// Instead: a page that shows the window over the conversation. It loads nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["turn", "find"])]
    pub(crate) html: Option<PathBuf>,
    /// One JSON object for each call; with --find for each event and call
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
}

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const RUN_HELP: &str = "\
Hooks run programs. Those of your own file and of --config start unasked. Those
of the project's turnbuckle.toml start once you accepted them: in a terminal you
are asked, else `run` ends with exit code 2. `turnbuckle trust` accepts them.

Without a message stdin is the message. Beside a message, what comes through a
pipe is given to the model with it:

  cat build.log | turnbuckle run \"what broke?\"

If nothing comes within 3 seconds `run` goes on without it and says so.
`--stdin` waits, and reads a file, too:

  turnbuckle run --stdin \"what broke?\" < build.log

A call that needs approval ends `run` with exit code 4: the turn waits in the
store, and `turnbuckle resolve` answers it later, from any process. `--allow
RULE` allows calls for this run:

  turnbuckle run --allow 'shell(cargo test *)' --allow 'write_file(src/**)' \"…\"

A command is parsed: each part of `a && b | c` must be allowed by a rule, and a
command with variables, substitutions or redirections to files is asked about
whatever the rules say. `*` at the end stands for any further arguments.

With -c, a turn that a crash left open, or whose question was answered
meanwhile, is finished first. A conversation whose turn waits, or that another
process carries on, is busy: exit code 1, and the hint says what to do. A turn
is finished by its own agent only: with another name it stays as it is, and with
tools or blocking hooks missing since it began it needs --accept-changes.";

const MCP_HELP: &str = "\
Clients find the tools send, list, watch, pending, answer and cancel. They act
as you, and the log says that an answer came over MCP. Questions can be answered
and calls denied; approving a call needs --allow-approvals.

  { \"mcpServers\": { \"turnbuckle\": {
      \"command\": \"turnbuckle\", \"args\": [\"mcp\"] } } }";

const TRUST_HELP: &str = "\
A project's turnbuckle.toml takes effect unasked as long as it only sets limits,
chooses a model without an address, and tools that are asked about. What can run
programs, steer the model, reach another machine or keep conversations elsewhere
is accepted once: hooks, system prompts, sub-agents, addresses and the like. It
is accepted as it is, for this folder, with the files of the project that a
hook's command names. If one of them changes, you are asked again.

It is noted in $XDG_STATE_HOME/turnbuckle, else ~/.local/state/turnbuckle, never
in the project. Your own file and a file named with --config need none of this.

  turnbuckle trust            show it and ask; --yes does not ask
  turnbuckle trust --folder   for a project of your own: whatever its files say,
                              also after you edited them
  turnbuckle trust list       what was accepted
  turnbuckle trust revoke     take it back";

const CANCEL_HELP: &str = "\
Open calls get a `[cancelled]` result, and the turn ends. A turn that runs in
another process is cancelled there: it is asked to, and looks every second.
Nothing to cancel is no error.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn no_line_of_these_texts_is_broken_again_by_a_terminal_of_80_columns() {
        for line in [RUN_HELP, MCP_HELP, TRUST_HELP, CANCEL_HELP].into_iter().flat_map(str::lines) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn a_command_that_is_shown_can_be_copied() {
        let (store, model) = (Some("sqlite:a.db".into()), Some("demo".into()));
        let common = Common { config: Some("my 'own'.toml".into()), store, model, ..Common::default() };
        assert_eq!(common.same_store(), r" --config 'my '\''own'\''.toml' --store sqlite:a.db");
        assert_eq!(common.same_agent(), r" --config 'my '\''own'\''.toml' --store sqlite:a.db --model demo");
    }
}
