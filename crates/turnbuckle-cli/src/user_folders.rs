//! The user's own folders: configuration, and what Turnbuckle keeps about projects and databases. Nothing in a project decides
//! where they are.

use std::path::PathBuf;

use crate::problem::Problem;
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

/// A variable that is set and not used, because its path is relative.
pub(crate) fn remarks() -> Vec<Problem> {
    let relative = |variable: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from)?;
        (!path.as_os_str().is_empty() && path.is_relative()).then_some(path)
    };
    let warn = |(variable, instead): (&str, &str)| {
        let what = format!("{variable} is {:?}, which is not an absolute path: it is not used", relative(variable)?);
        Some(Problem::warning(what).hint(format!("{instead}/{NAME} is used instead; write the path from `/` on")))
    };
    [("XDG_CONFIG_HOME", "~/.config"), ("XDG_STATE_HOME", "~/.local/state")].into_iter().filter_map(warn).collect()
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
