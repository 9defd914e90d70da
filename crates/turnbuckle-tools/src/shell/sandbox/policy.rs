//! What commands may reach.

use std::path::PathBuf;

/// Whether commands may open sockets, of any family: those of the machine itself count as network, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None can be opened.
    #[default]
    Off,
    /// As on the machine.
    On,
}

/// What commands may reach beyond the project, the system, the toolchains and a temporary folder of their own.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Policy {
    /// Further files and folders that they may read.
    pub readable: Vec<PathBuf>,
    /// Further files and folders that they may read and change.
    pub writable: Vec<PathBuf>,
    /// Whether they may open sockets.
    pub network: Network,
    /// Folders that no command reaches, also if they lie inside one that it may read: what Turnbuckle itself keeps for the user.
    pub hidden: Vec<PathBuf>,
}
