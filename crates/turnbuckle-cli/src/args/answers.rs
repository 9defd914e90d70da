//! Options of the commands about calls that wait: `resolve`, `answer`, `pending`, `approvals`.

use std::time::Duration;

use clap::Subcommand;

use crate::trust::TrustOptions;

/// Which call is answered, and how: the same for `resolve` and `answer`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("answers").required(true))]
pub(crate) struct AnswerOptions {
    /// The conversation
    pub(crate) id: String,
    /// The call that waits, as `run`, `show` and `pending` name it
    pub(crate) call: String,
    /// It may run; of a paused turn: it may end
    #[arg(long, group = "answers")]
    pub(crate) approve: bool,
    /// It may run with these arguments instead of those shown. `resolve` checks them like the model's own. With `answer`, which
    /// knows no tools, they are checked when the turn goes on: if they do not fit, the call is asked about again. They stand
    /// in the log as yours. A single - reads them from stdin
    #[arg(long, value_name = "JSON", requires = "approve", conflicts_with_all = ["always", "deny", "answer"])]
    pub(crate) arguments: Option<String>,
    /// And calls like this one may run from now on without being asked about. What that means is shown before it is
    /// stored; `turnbuckle approvals` lists and revokes it
    #[arg(long, requires = "approve", conflicts_with_all = ["deny", "answer"])]
    pub(crate) always: bool,
    /// How long `--always` holds: 1h, 7d [default: 7d]
    #[arg(long, value_name = "TIME", requires = "always", value_parser = some_time)]
    pub(crate) until: Option<Duration>,
    /// How often `--always` may be used [default: as often as needed]
    #[arg(long, value_name = "N", requires = "always", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) times: Option<u32>,
    /// What `--always` covers beside the same arguments, as an object: '{"path": "docs/*", "content": "*"}'. In a text, * stands
    /// for any characters, / and line breaks among them, and ? for one; "*" alone is any value. Arguments that are not named must be
    /// as they are shown, and others must not be there. Or a rule as `run --allow` takes it: 'shell(cargo test *)', 'write_file(src/**)'
    #[arg(long, value_name = "JSON|RULE", requires = "always")]
    pub(crate) like: Option<String>,
    /// It may not, and why: the model reads the reason
    #[arg(long, value_name = "REASON", num_args = 0..=1, group = "answers")]
    #[allow(clippy::option_option, reason = "given, and given with a reason")]
    pub(crate) deny: Option<Option<String>>,
    /// The answer to a question, or the result of a client's call; a text needs its quotes: '"blue"'. A single - reads it
    /// from stdin; 1 MiB at most
    #[arg(long, value_name = "JSON", group = "answers")]
    pub(crate) answer: Option<String>,
    /// The digest of what you were shown, or its first 12 digits or more: if the call asks about something else by now, the
    /// answer is stale and nothing is written. The commands that `run`, `show` and `pending` print have it
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    pub(crate) digest: Option<String>,
}

/// Options of `resolve`.
#[derive(Debug, clap::Args)]
#[command(after_help = RESOLVE_HELP)]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) given: AnswerOptions,
    #[command(flatten)]
    pub(crate) carry_on: CarryOn,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
    /// Print every event from here on, one JSON object a line, and nothing else on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `answer`.
#[derive(Debug, clap::Args)]
#[command(after_help = ANSWER_HELP)]
pub(crate) struct Answer {
    #[command(flatten)]
    pub(crate) given: AnswerOptions,
    /// Print what was recorded as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `pending`.
#[derive(Debug, clap::Args)]
#[command(after_help = PENDING_HELP)]
pub(crate) struct Pending {
    /// Only calls of this tool; * and ? stand for any characters and for one
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Option<String>,
    /// Only calls of this agent
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Only calls that have waited for so long: 10m, 1h, 2d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) older: Option<Duration>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `approvals`.
#[derive(Debug, clap::Args)]
#[command(after_help = APPROVALS_HELP)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
    /// One JSON object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Those that you gave, and those that calls for you use; this is the default
    List,
    /// Ends one: the next such call is asked about again
    Revoke {
        /// Its id, as the list has it
        id: String,
    },
}

/// What commands take that carry an open turn on.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct CarryOn {
    /// Carry an open turn on although its agent has changed since it began, without the tools and hooks that it has lost.
    /// The log says that you insisted
    #[arg(long)]
    pub(crate) accept_changes: bool,
}

/// `1h`, `7d`: how long.
fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "it is no time; write 30m, 1h or 7d".to_owned())
}

/// The same, and not zero.
fn some_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("it must hold for some time; write 30m, 1h or 7d".to_owned()),
        time => Ok(time),
    }
}

/// A digest as it is written in hexadecimal digits, or the beginning of one.
fn digest(text: &str) -> Result<String, String> {
    match (12..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("a digest has 64 hexadecimal digits; write at least the first 12".to_owned()),
    }
}

const RESOLVE_HELP: &str = "\
`turnbuckle show ID` says which calls wait, and the command for each. With the --digest that it prints, the answer counts \
only for what was shown.
  turnbuckle resolve fix c1 --approve
  turnbuckle resolve fix c1 --approve --arguments '{\"path\": \"b.txt\", \"content\": \"x\"}'
  turnbuckle resolve fix c1 --approve --always --until 1d
  turnbuckle resolve fix c1 --approve --always --like '{\"path\": \"docs/*\", \"content\": \"*\"}'
  turnbuckle resolve fix c1 --deny \"not on a Friday\"
  turnbuckle resolve fix c2 --answer '\"blue\"'

The answer is written first; then the turn goes on here, and the exit code is that of `run`. If another process has the \
conversation, the answer is handed over to it: exit code 0 once the log has it, 1 if a cancellation or another answer \
came first. A call that was answered before, or that nobody answered in time, is stale: exit code 1, and nothing runs.

A turn is carried on by its own agent. If this one has another name, the answer is only recorded: exit code 0, and it \
says which agent must carry the turn on. If it has the same name and has lost a tool or a blocking hook since, nothing \
is written: exit code 1. `turnbuckle answer` records the answer then, and --accept-changes carries the turn on without.";

const ANSWER_HELP: &str = "\
Only records the answer: no model, tool, hook or key is needed, and nothing runs. The turn goes on when its agent takes \
it up: `turnbuckle run -c ID` does, and so does a chat or another program that runs on the store.
  turnbuckle pending
  turnbuckle answer till c1 --approve
  turnbuckle answer till c1 --deny \"ask me first\" --store sqlite:till.db

The first answer that is stored counts. Every later one is stale: exit code 1. So is an answer to a call that nobody \
answered in time. If you may not answer this call, it says who may: exit code 1.";

const PENDING_HELP: &str = "\
Calls of any agent in the store that you may answer, the oldest first. What you approved already is left out, although \
others must approve it as well. Who you are stands in [scope] of your own turnbuckle.toml.";

const APPROVALS_HELP: &str = "\
`--always` of `resolve` and `answer` makes a standing approval: for one agent, one tool as it is defined now, the same \
arguments or those that `--like` describes, one project and one user. It never answers what a hook asks, nor a rule that wants several people or someone \
else than the one who asked.";
