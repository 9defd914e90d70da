//! The options by which a command is told what to make of the project's files.

use crate::args::Common;

pub(crate) const TRUST_HOOKS: &str = "--trust-hooks";
pub(crate) const IGNORE_PROJECT: &str = "--ignore-project";

/// What every command takes that runs what the project's files name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct TrustOptions {
    /// Accept everything that the project's files name, and its database, for this run
    #[arg(long)]
    pub(crate) trust_hooks: bool,
    /// Leave the project's files out: only the user's file counts
    #[arg(long, conflicts_with = "trust_hooks")]
    pub(crate) ignore_project: bool,
}

impl TrustOptions {
    /// The same options with what they say noted: a turn records how it was started.
    pub(crate) fn noted_in(self, common: &Common) -> Common {
        Common { trust: self, ..common.clone() }
    }

    /// The option that was given, if one was.
    pub(crate) fn given(self) -> Option<&'static str> {
        match self {
            Self { trust_hooks: true, .. } => Some(TRUST_HOOKS),
            Self { ignore_project: true, .. } => Some(IGNORE_PROJECT),
            Self { .. } => None,
        }
    }
}

/// What a command does with a project's file that was not accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gate {
    /// It asks, or refuses.
    Needed(TrustOptions),
    /// It judges the file as if it were accepted, and runs nothing of it.
    Judged,
    /// It leaves out what was not accepted.
    LeftOut,
}

impl Gate {
    pub(crate) fn options(self) -> TrustOptions {
        match self {
            Self::Needed(options) => options,
            Self::Judged | Self::LeftOut => TrustOptions::default(),
        }
    }
}
