//! The section `[tools.shell]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use turnbuckle_tools::{Network, SandboxMode};

use super::reader::Section;
use super::{Found, Over};
use crate::problem::Problem;
use crate::user_folders;

/// How commands of the shell tool run.
#[derive(Debug, Default)]
pub(crate) struct ShellPart {
    pub(crate) sandbox: Option<Found<SandboxMode>>,
    pub(crate) timeout: Option<Found<Duration>>,
    /// Variables that are withheld from tools, and that commands get.
    pub(crate) pass_env: Option<Found<Vec<Found<String>>>>,
    /// What commands may read beyond the project, the system and the toolchains.
    pub(crate) readable: Option<Found<Vec<PathBuf>>>,
    /// What they may change beyond the project.
    pub(crate) writable: Option<Found<Vec<PathBuf>>>,
    /// Whether they may open sockets.
    pub(crate) network: Option<Found<Network>>,
}

/// What a command may take at most, whoever asks for it.
const MOST_TIME: Duration = Duration::from_secs(3600);

impl ShellPart {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let modes = [("on", SandboxMode::On), ("require", SandboxMode::Require), ("off", SandboxMode::Off)];
        let part = Self {
            sandbox: section.word("sandbox", &modes),
            timeout: section.duration("timeout"),
            pass_env: section.strings("pass_env"),
            readable: paths(&mut section, "readable"),
            writable: paths(&mut section, "writable"),
            network: section.word("network", &[("off", Network::Off), ("on", Network::On)]),
        };
        if let Some(timeout) = &part.timeout
            && (timeout.value < Duration::from_secs(1) || timeout.value > MOST_TIME)
        {
            let what = format!("{} is not between a second and an hour", section.named("timeout"));
            section
                .source()
                .tell(Problem::error(what).at(&timeout.place).hint("write `timeout = \"2m\"`, for example"));
        }
        for name in part.pass_env.iter().flat_map(|names| &names.value) {
            if name.value.is_empty() || name.value.contains(['=', '\0']) {
                let what = format!("{} must be names of environment variables", section.named("pass_env"));
                section.source().tell(Problem::error(what).at(&name.place).hint("write `pass_env = [\"GH_TOKEN\"]`"));
            }
        }
        section.finish();
        part
    }
}

/// A list of paths: relative to the folder of the file, or below the home directory with `~/`. One that is not there now may be made
/// later; it counts as soon as it exists.
fn paths(section: &mut Section<'_>, key: &'static str) -> Option<Found<Vec<PathBuf>>> {
    let Found { value: names, place } = section.strings(key)?;
    let folder = section.source().folder().to_path_buf();
    let mut found = Vec::new();
    for name in names {
        match absolute(&name.value, &folder) {
            Some(path) => found.push(path),
            None => {
                let what = format!("{} names {:?}, which is no path", section.named(key), name.value);
                let hint = "write a path, for example \"../shared\" or \"~/.cache/sccache\"";
                section.source().tell(Problem::error(what).at(&name.place).hint(hint));
            }
        }
    }
    Some(Found { value: found, place })
}

fn absolute(name: &str, folder: &Path) -> Option<PathBuf> {
    if name.is_empty() || name.contains('\0') {
        return None;
    }
    match name.strip_prefix("~/") {
        Some(below) => Some(user_folders::home()?.join(below)),
        None => std::path::absolute(folder.join(name)).ok(),
    }
}

impl Over for ShellPart {
    fn over(self, base: Self) -> Self {
        Self {
            sandbox: self.sandbox.over(base.sandbox),
            timeout: self.timeout.over(base.timeout),
            pass_env: self.pass_env.over(base.pass_env),
            readable: self.readable.over(base.readable),
            writable: self.writable.over(base.writable),
            network: self.network.over(base.network),
        }
    }
}
