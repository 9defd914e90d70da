//! The folder, held open: every path is resolved beneath it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, FileType, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::refusal::{Refusal, shown};

/// A folder that no path leads out of.
pub(crate) struct Folder {
    pub(super) dir: Dir,
    /// Files that no tool touches, by whatever name it finds them: absolute.
    closed: Vec<PathBuf>,
    /// Held while a file is changed: calls of one reply run side by side, and an edit reads before it writes.
    changing: Mutex<()>,
    /// Folders in which temporary files of processes that were killed have been looked for.
    pub(super) swept: Mutex<HashSet<PathBuf>>,
}

impl Folder {
    pub(crate) fn open(root: &Path, closed: Vec<PathBuf>) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(root, ambient_authority())?;
        Ok(Self { dir, closed, changing: Mutex::default(), swept: Mutex::default() })
    }

    /// The same file, whatever the link to it is called.
    fn is_closed(&self, metadata: &Metadata) -> bool {
        let same = |closed: &PathBuf| {
            std::fs::metadata(closed).is_ok_and(|file| (file.dev(), file.ino()) == (metadata.dev(), metadata.ino()))
        };
        self.closed.iter().any(same)
    }

    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A regular file to read, however the path gets there inside the folder.
    pub(super) fn read(&self, path: &Path) -> Result<(File, Metadata), Refusal> {
        let mut options = OpenOptions::new();
        self.regular(path, options.read(true))
    }

    /// Looks before it opens, since opening a device can do something; looks again at what it opened, since that is what
    /// counts. Opening never waits: a pipe without a writer would hold the thread for good.
    pub(super) fn regular(&self, path: &Path, options: &mut OpenOptions) -> Result<(File, Metadata), Refusal> {
        let failed = |source| Refusal::of("open", path, source);
        must_be_regular(path, self.dir.metadata(path).map_err(failed)?.file_type())?;
        let options = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = self.dir.open_with(path, options).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        must_be_regular(path, metadata.file_type())?;
        if self.is_closed(&metadata) {
            return Err(Refusal::Own { path: shown(path) });
        }
        Ok((file, metadata))
    }

    pub(super) fn subfolder(&self, path: &Path) -> Result<Dir, Refusal> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.dir.open_dir(path).map_err(|source| Refusal::of("open", path, source))
    }
}

fn must_be_regular(path: &Path, kind: FileType) -> Result<(), Refusal> {
    match kind {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(Refusal::IsFolder { path: shown(path) }),
        _ => Err(Refusal::Special { path: shown(path) }),
    }
}

/// Where Turnbuckle keeps conversations, approvals among them: no tool of a model reaches it.
const OWN: &str = ".turnbuckle";

/// Whether this is the name of Turnbuckle's own folder, also on a file system that does not tell capitals apart.
pub(super) fn is_own(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(OWN)
}

/// A path as the model gave it: relative, never upwards, and not into Turnbuckle's own folder. `.` and doubled slashes are
/// taken out; the folder itself is the empty path.
pub(super) fn below(given: &str) -> Result<PathBuf, Refusal> {
    let refused = || Refusal::NotBelow { path: given.to_owned() };
    if given.contains('\0') {
        return Err(refused());
    }
    let mut path = PathBuf::new();
    for component in Path::new(given).components() {
        match component {
            Component::Normal(name) if is_own(name) => {
                return Err(Refusal::Own { path: given.to_owned() });
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(refused()),
        }
    }
    Ok(path)
}

/// [`below`], and not the folder itself.
pub(super) fn file_below(given: &str) -> Result<PathBuf, Refusal> {
    let path = below(given)?;
    if path.as_os_str().is_empty() {
        return Err(Refusal::IsFolder { path: shown(&path) });
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_and_never_upwards() {
        assert_eq!(below("./a//b/.").ok(), Some(PathBuf::from("a/b")));
        assert_eq!(below("").ok(), Some(PathBuf::new()));
        for bad in ["/etc/passwd", "..", "a/../b", "a/..", "a\0b"] {
            assert!(matches!(below(bad), Err(Refusal::NotBelow { .. })), "{bad:?}");
        }
        for own in [".turnbuckle", ".turnbuckle/turnbuckle.db", "./.Turnbuckle/x", "a/.turnbuckle/x"] {
            assert!(matches!(below(own), Err(Refusal::Own { .. })), "{own:?}");
        }
    }
}
