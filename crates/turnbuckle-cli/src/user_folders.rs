//! The user's own folders: configuration, and what Turnbuckle keeps about projects and databases. Nothing in a project decides
//! where they are.

use std::path::PathBuf;

use crate::project::FILE;

const NAME: &str = "turnbuckle";

/// The home directory.
pub(crate) fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// A variable that names a folder. A relative path does not count, as the XDG specification has it: it would lead somewhere
/// else in every folder.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// `$XDG_CONFIG_HOME/turnbuckle`, else `~/.config/turnbuckle`.
pub(crate) fn config() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config"))).map(|folder| folder.join(NAME))
}

/// The user's own configuration file.
pub(crate) fn config_file() -> Option<PathBuf> {
    config().map(|folder| folder.join(FILE))
}

/// `$XDG_STATE_HOME/turnbuckle`, else `~/.local/state/turnbuckle`: what was accepted. None without either variable, or if the
/// home directory is not there: it is not made.
pub(crate) fn state() -> Option<PathBuf> {
    let below_home = || home().filter(|home| home.is_dir()).map(|home| home.join(".local").join("state"));
    absolute("XDG_STATE_HOME").or_else(below_home).map(|folder| folder.join(NAME))
}

/// Those that tools are kept out of, if a project contains them.
pub(crate) fn all() -> Vec<PathBuf> {
    [config(), state()].into_iter().flatten().collect()
}
