//! Arguments of `delete`, `hold` and `export`.

/// Options of `delete`.
#[derive(Debug, clap::Args)]
#[command(after_help = DELETE_HELP, group = one_or_all())]
pub(crate) struct Delete {
    /// The conversation
    pub(crate) id: Option<String>,
    /// Instead: all conversations that this user owns, and what is remembered about the user
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print what became of each conversation, one JSON object a line. Nothing is asked: it needs --yes
    #[arg(long, requires = "yes")]
    pub(crate) json: bool,
}

/// Options of `hold`.
#[derive(Debug, clap::Args)]
#[command(after_help = HOLD_HELP)]
pub(crate) struct Hold {
    /// The conversation
    pub(crate) id: String,
    /// End the hold
    #[arg(long)]
    pub(crate) release: bool,
    /// Print how it stands now as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT_HELP, group = one_or_all())]
pub(crate) struct Export {
    /// The conversation
    pub(crate) id: Option<String>,
    /// Instead: all conversations that this user owns
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Changes nothing: the lines are JSON anyway
    #[arg(long)]
    pub(crate) json: bool,
}

/// One conversation, or all of a person.
fn one_or_all() -> clap::ArgGroup {
    clap::ArgGroup::new("which").args(["id", "user"]).required(true)
}

const DELETE_HELP: &str = "\
Shows what goes and asks; without a terminal it needs --yes. Gone are the conversation with those of its sub-agents, its
background work, standing approvals and memories made from it, and its lines in the audit log, and no byte of its text is
left in these files. Its id, who deleted it and when stay (`turnbuckle list --acts`), and the id cannot be used again.

A conversation with an open turn is busy, one on hold is held: exit code 1. So it is if something could not be erased, because
a process reads the database for more than 10 s, for instance; the next `delete`, or a chat, does it then.

Not reached: backups, exports, files that tools or hooks wrote for you, messages that hooks sent elsewhere, and what the
provider of the model keeps. Files that hooks of another configuration keep elsewhere are reached by `delete ID` with that
--config, also afterwards. `retain = \"90d\"` in [store] deletes conversations that were not used for that long.";

const HOLD_HELP: &str = "\
A conversation on hold can be read and talked to, and is deleted neither by `turnbuckle delete` nor by `retain` in [store].
`turnbuckle list` marks it, and `turnbuckle list --acts` says who put it on hold.";

const EXPORT_HELP: &str = "\
The lines are those of `turnbuckle show ID --json`; behind them stand those of the conversations of its sub-agents.
  turnbuckle export fix > fix.jsonl
  turnbuckle export --user ann > ann.jsonl";
