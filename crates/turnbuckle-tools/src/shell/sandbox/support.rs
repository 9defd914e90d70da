//! What this machine can enforce. Found out once in a process, by trying.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::shell::launcher;
use crate::watcher;

/// How mounts of a command's own can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mounts {
    /// The launcher makes its namespaces itself.
    Own,
    /// By this program, `bwrap`: it may where others may not.
    Bubblewrap(PathBuf),
    /// Not at all.
    None,
}

impl Mounts {
    pub(super) fn are_possible(&self) -> bool {
        *self != Self::None
    }

    pub(super) fn bubblewrap(&self) -> Option<PathBuf> {
        match self {
            Self::Bubblewrap(program) => Some(program.clone()),
            Self::Own | Self::None => None,
        }
    }
}

/// What of a sandbox can be enforced here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// Mounts in a namespace: files inside the project that stay as they are, and folders that cannot be reached.
    pub(super) mounts: Mounts,
    /// Everything that commands may not write to can be mounted read-only.
    pub(super) rest_read_only: bool,
    /// Landlock: which files can be read and changed.
    pub(super) files: bool,
    /// seccomp: no sockets.
    pub(super) network: bool,
}

impl Support {
    /// Of a program that cannot start itself again, and of systems other than Linux.
    pub(super) const NONE: Self = Self { mounts: Mounts::None, rest_read_only: false, files: false, network: false };

    /// What can be enforced on this machine, by this program. A program that does not call
    /// [`watch_programs`](crate::watch_programs) cannot confine commands: it has no launcher.
    pub fn here() -> &'static Self {
        static FOUND: OnceLock<Support> = OnceLock::new();
        if !watcher::is_enabled() {
            return &Self::NONE;
        }
        FOUND.get_or_init(|| {
            let (mounts, rest_read_only) = mounts();
            let found = Self {
                mounts,
                rest_read_only,
                files: super::confine::has_landlock(),
                network: super::confine::has_seccomp(),
            };
            tracing::debug!(?found, "what a sandbox can enforce here");
            found
        })
    }

    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::NONE
    }

    /// Each part by its name, and whether it is enforced, for a report to people.
    pub fn parts(&self) -> [(&'static str, bool); 4] {
        let (guarded, owners) = match self.mounts {
            Mounts::Bubblewrap(_) => {
                ("guarded files in the project (bwrap)", "modes and owners of files outside the project (bwrap)")
            }
            Mounts::Own | Mounts::None => (
                "guarded files in the project (namespaces)",
                "modes and owners of files outside the project (namespaces)",
            ),
        };
        [
            ("files outside the project (Landlock)", self.files),
            (guarded, self.mounts.are_possible()),
            (owners, self.rest_read_only),
            ("network (seccomp)", self.network),
        ]
    }
}

/// How mounts can be made, and whether all that are not writable can be read-only.
fn mounts() -> (Mounts, bool) {
    match launcher::probe().and_then(ended) {
        Ok(Some(0)) => return (Mounts::Own, true),
        Ok(Some(code)) if code == i32::from(launcher::NOT_READ_ONLY) => return (Mounts::Own, false),
        _ => {}
    }
    let program = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"].map(PathBuf::from).into_iter().find(|path| path.is_file());
    let works = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.args(["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "true"]).process_group(0);
        ended(command).is_ok_and(|code| code == Some(0))
    };
    program.filter(works).map_or((Mounts::None, false), |program| (Mounts::Bubblewrap(program), true))
}

/// The exit code of a command without input and output.
fn ended(mut command: Command) -> io::Result<Option<i32>> {
    command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.code())
}
