//! Arguments of `check`, `init`, `completions`, `man` and `schema`.

use std::path::PathBuf;

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// One JSON object: what was found, and what would run
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// What the agent may do: `ask` lets it edit files and run commands after asking each time, `read` only lets it look
    #[arg(long, value_name = "WHAT")]
    pub(crate) tools: Option<InitTools>,
    /// A command that must succeed before a turn may end; an empty one for none
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Option<String>,
    /// Ask nothing: what no option says is as a person would have it who presses Enter
    #[arg(long)]
    pub(crate) yes: bool,
    /// Replace a turnbuckle.toml that is there; the old one is kept as turnbuckle.toml.old
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what was written as one JSON object. Questions are asked all the same; --yes asks none
    #[arg(long)]
    pub(crate) json: bool,
}

/// What an agent may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InitTools {
    /// All tools; what changes something is asked about.
    Ask,
    /// Only to read and search.
    Read,
}

/// Options of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write a page for the program and one for each command into this folder, instead of one to stdout
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}
