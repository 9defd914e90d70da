//! How much is read of files that other people may have written.

pub(crate) use turnbuckle_tools::read_file::{ReadError, read_file, text};

/// The most bytes of a configuration file, a system prompt, a schema or a list of prices: they are written by hand.
pub(crate) const CONFIGURATION: u64 = 1 << 20;
/// The most bytes of a script: it may have been recorded.
pub(crate) const SCRIPT: u64 = 16 << 20;
/// The most bytes of a message or an event that is piped in.
pub(crate) const PIPED: u64 = 64 << 20;
