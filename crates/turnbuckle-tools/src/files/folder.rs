//! The folder, held open: every path is resolved beneath it, and opened without following links.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, FileType, Metadata};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::closed::Closed;
use super::refusal::{Refusal, shown};
use super::undo::UndoLog;

/// A folder that no path leads out of.
pub(crate) struct Folder {
    pub(super) dir: Dir,
    /// Where it is, links resolved.
    pub(super) root: PathBuf,
    /// Files that no tool touches, by whatever name it finds them: absolute.
    closed: Vec<PathBuf>,
    /// Held while a file is changed: calls of one reply run side by side, and an edit reads before it writes.
    changing: Mutex<()>,
    /// What was changed in the last turns, for those who want it undone.
    undo_log: Mutex<UndoLog>,
    /// Folders in which temporary files of processes that were killed have been looked for.
    pub(super) swept: Mutex<HashSet<PathBuf>>,
}

/// How a folder on the way is opened: only to go on from there, where the system can do that. Its list is not read, and may
/// be forbidden.
#[cfg(target_os = "linux")]
const PASSING: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASSING: OFlags = OFlags::RDONLY;

impl Folder {
    pub(crate) fn open(root: &Path, closed: Vec<PathBuf>) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(root, ambient_authority())?;
        let root = root.canonicalize()?;
        let (changing, undo_log, swept) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { dir, root, closed, changing, undo_log, swept })
    }

    /// The files that are closed to tools, wherever links have them now.
    pub(super) fn closed_now(&self) -> Closed {
        Closed::now(&self.root, OWN, &self.closed)
    }

    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn undo_log(&self) -> MutexGuard<'_, UndoLog> {
        self.undo_log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A regular file to read, by its normal form.
    pub(super) fn read(&self, path: &Path) -> Result<(File, Metadata), Refusal> {
        self.read_unless(&self.closed_now(), path)
    }

    /// [`read`](Self::read), for those who read many files and look up once which are closed.
    pub(super) fn read_unless(&self, closed: &Closed, path: &Path) -> Result<(File, Metadata), Refusal> {
        let dir = self.walk(path.parent().unwrap_or(Path::new("")), PASSING, false)?;
        regular(&dir, path, OFlags::RDONLY, closed)
    }

    /// A folder by its normal form.
    pub(super) fn subfolder(&self, path: &Path) -> Result<Dir, Refusal> {
        self.walk(path, OFlags::RDONLY, false)
    }

    /// A folder by its normal form; those that are not there are made.
    pub(super) fn make_subfolder(&self, path: &Path) -> Result<Dir, Refusal> {
        self.walk(path, OFlags::RDONLY, true)
    }

    /// One name after the other. No link is followed: a path in normal form has none, so one that is met was put there since.
    fn walk(&self, path: &Path, last: OFlags, make: bool) -> Result<Dir, Refusal> {
        let failed = |errno: Errno| unopened(path, errno);
        let mut dir: OwnedFd =
            self.dir.try_clone().map_err(|source| Refusal::of("open", path, source))?.into_std_file().into();
        let mut names = path.components().peekable();
        while let Some(component) = names.next() {
            let Component::Normal(name) = component else { return Err(Refusal::NotBelow { path: shown(path) }) };
            let access = if names.peek().is_some() { PASSING } else { last };
            dir = match step(&dir, name, access) {
                Err(Errno::NOENT) if make => {
                    match mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                        // Another call may have made it in this moment.
                        Ok(()) | Err(Errno::EXIST) => step(&dir, name, access).map_err(failed)?,
                        Err(errno) => return Err(failed(errno)),
                    }
                }
                stepped => stepped.map_err(failed)?,
            };
        }
        Ok(Dir::from_std_file(fs::File::from(dir)))
    }
}

/// A folder in `dir`, never through a link.
fn step(dir: impl AsFd, name: &OsStr, access: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(dir, name, access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A regular file in `dir`, which is the folder of `path`. Looks before it opens, since opening a device can do something;
/// looks again at what it opened, since that is what counts. Opening never waits: a pipe without a writer would hold the
/// thread for good. A link is not followed.
pub(super) fn regular(dir: &Dir, path: &Path, access: OFlags, closed: &Closed) -> Result<(File, Metadata), Refusal> {
    let name = path.file_name().ok_or_else(|| Refusal::IsFolder { path: shown(path) })?;
    let failed = |source| Refusal::of("open", path, source);
    must_be_regular(path, dir.symlink_metadata(name).map_err(failed)?.file_type())?;
    let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).map_err(|errno| unopened(path, errno))?;
    let file = File::from_std(fs::File::from(file));
    let metadata = file.metadata().map_err(failed)?;
    must_be_regular(path, metadata.file_type())?;
    if closed.has(path) || closed.is(&metadata) {
        return Err(Refusal::Own { path: shown(path) });
    }
    Ok((file, metadata))
}

/// Why a path in normal form could not be opened.
fn unopened(path: &Path, errno: Errno) -> Refusal {
    match errno {
        Errno::LOOP => Refusal::Changed { path: shown(path), now: "a link".to_owned() },
        errno => Refusal::of("open", path, errno.into()),
    }
}

fn must_be_regular(path: &Path, kind: FileType) -> Result<(), Refusal> {
    match kind {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(Refusal::IsFolder { path: shown(path) }),
        kind if kind.is_symlink() => Err(unopened(path, Errno::LOOP)),
        _ => Err(Refusal::Special { path: shown(path) }),
    }
}

/// Where Turnbuckle keeps conversations, approvals among them: no tool of a model reaches it.
const OWN: &str = ".turnbuckle";

/// Whether this is the name of Turnbuckle's own folder, also on a file system that does not tell capitals apart.
pub(super) fn is_own(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(OWN)
}
