//! Files that hold what people said: for their owner alone, and never behind a link.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

/// A file that holds text of conversations: an audit log, memories. Whoever writes such a file and whoever erases from it opens
/// it here, so that both mean the same file.
///
/// - The file is never reached through a link: a project's folder may come from a stranger, and git keeps links. Below a folder
///   that is given with [`below`](Self::below), no folder on the way may be a link either.
/// - Only a regular file that belongs to this user and has no other name (a hard link) is opened. On Unix it is made with mode 0600, and one that others may read or
///   write is closed to them.
///
/// ```
/// use turnbuckle::store::PrivateFile;
///
/// let folder = tempfile::tempdir()?;
/// let file = PrivateFile::below(folder.path(), folder.path().join("logs/audit.jsonl"));
/// assert!(file.existing()?.is_none());
/// drop(file.append()?);
/// assert!(file.existing()?.is_some());
/// # Ok::<(), turnbuckle::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFile {
    path: PathBuf,
    below: Option<PathBuf>,
}

/// Why a file that is to hold conversations was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateFileError {
    /// The file, or a folder on the way to it, is a link.
    #[error("{} is a link, and files with conversations are not reached through links", .path.display())]
    Link {
        /// What the link is called.
        path: PathBuf,
    },
    /// A folder, a pipe or a device.
    #[error("{} is not a file", .path.display())]
    NotAFile {
        /// Where it is.
        path: PathBuf,
    },
    /// It has another name, a hard link, under which something else may read or run it.
    #[error("{} has another name as well (a hard link), and files with conversations have one", .path.display())]
    HardLink {
        /// Where it is.
        path: PathBuf,
    },
    /// Its owner could read what is written, and wrote what is read.
    #[error("{} belongs to another user", .path.display())]
    AnotherUsers {
        /// Where it is.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{} cannot be opened: {source}", .path.display())]
    Io {
        /// What could not be opened or made.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl<P: Into<PathBuf>> From<P> for PrivateFile {
    fn from(path: P) -> Self {
        Self { path: path.into(), below: None }
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is made if it is not there, with the folders on the way.
    Append,
    /// To read and to write in place.
    Change,
    /// Nothing is changed, also not the mode.
    Look,
}

impl PrivateFile {
    /// The file at `path`. If that is in `folder`, no folder between the two may be a link.
    pub fn below(folder: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), below: Some(folder.into()) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another file in the same folder.
    #[must_use]
    pub fn beside(&self, name: impl AsRef<std::ffi::OsStr>) -> Self {
        Self { path: self.path.with_file_name(name.as_ref()), below: self.below.clone() }
    }

    /// Opens it to write at its end. It is made if it is not there, with the folders on the way.
    pub fn append(&self) -> Result<File, PrivateFileError> {
        match self.open(Purpose::Append)? {
            Some(file) => Ok(file),
            None => Err(self.failed(io::ErrorKind::NotFound.into())),
        }
    }

    /// Opens it to read and to write in place; `None` if it is not there.
    pub fn existing(&self) -> Result<Option<File>, PrivateFileError> {
        self.open(Purpose::Change)
    }

    /// Opens it to read, and changes nothing, also not its mode; `None` if it is not there.
    pub fn look(&self) -> Result<Option<File>, PrivateFileError> {
        self.open(Purpose::Look)
    }

    /// Makes it if it is not there, closes it to others, and returns a path to it with no link in it: for a library that opens
    /// files by their path. A file that is there is not opened: closing a database would release the locks that other
    /// connections of this process have on it.
    pub fn make(&self) -> Result<PathBuf, PrivateFileError> {
        if !self.close_to_others()? {
            drop(self.append()?);
        }
        self.real_path()
    }

    /// What the system knows about it, without opening it; `None` if it is not there. It is a regular file of this user.
    pub fn about(&self) -> Result<Option<Metadata>, PrivateFileError> {
        if !self.has_folder()? {
            return Ok(None);
        }
        let path = || self.path.clone();
        match self.path.symlink_metadata() {
            Ok(about) if about.is_symlink() => Err(PrivateFileError::Link { path: path() }),
            Ok(about) if !about.is_file() => Err(PrivateFileError::NotAFile { path: path() }),
            Ok(about) if !is_own(&about) => Err(PrivateFileError::AnotherUsers { path: path() }),
            Ok(about) if has_other_names(&about) => Err(PrivateFileError::HardLink { path: path() }),
            Ok(about) => Ok(Some(about)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Takes the rights of others away, without opening it; says whether it is there.
    pub fn close_to_others(&self) -> Result<bool, PrivateFileError> {
        let Some(about) = self.about()? else { return Ok(false) };
        if let Some(closed) = closed(&about) {
            std::fs::set_permissions(&self.path, closed).map_err(|source| self.failed(source))?;
        }
        Ok(true)
    }

    /// The path to it with no link in it. Its folder must be there.
    pub fn real_path(&self) -> Result<PathBuf, PrivateFileError> {
        self.has_folder()?;
        let folder = folder_of(&self.path);
        let real = folder.canonicalize().map_err(|source| failed(folder, source))?;
        Ok(real.join(self.path.file_name().unwrap_or_default()))
    }

    /// Whether its folder is there; an error if it is reached through a link.
    pub fn has_folder(&self) -> Result<bool, PrivateFileError> {
        self.check_folder()
    }

    fn failed(&self, source: io::Error) -> PrivateFileError {
        failed(&self.path, source)
    }

    /// The folder to start at, and the way from there to the folder of the file.
    fn way(&self) -> (&Path, &Path) {
        let folder = folder_of(&self.path);
        match self.below.as_deref().and_then(|below| Some((below, folder.strip_prefix(below).ok()?))) {
            Some(found) => found,
            None => (folder, Path::new("")),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> PrivateFileError {
    PrivateFileError::Io { path: path.to_owned(), source }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn is_own(about: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(about) == rustix::process::geteuid().as_raw()
}

#[cfg(unix)]
fn has_other_names(about: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(about) > 1
}

/// The permissions without those of others, if others have any.
#[cfg(unix)]
fn closed(about: &Metadata) -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = about.permissions().mode();
    (mode & 0o077 != 0).then(|| Permissions::from_mode(mode & 0o700))
}

#[cfg(not(unix))]
fn is_own(_: &Metadata) -> bool {
    true
}

#[cfg(not(unix))]
fn has_other_names(_: &Metadata) -> bool {
    false
}

#[cfg(not(unix))]
fn closed(_: &Metadata) -> Option<Permissions> {
    None
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::os::fd::OwnedFd;

    use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
    use rustix::io::Errno;

    use super::*;

    const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    /// Nothing is waited for: a pipe may never have another end.
    const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

    impl PrivateFile {
        pub(super) fn open(&self, purpose: Purpose) -> Result<Option<File>, PrivateFileError> {
            let Some(name) = self.path.file_name() else {
                return Err(PrivateFileError::NotAFile { path: self.path.clone() });
            };
            let Some(folder) = self.folder(purpose == Purpose::Append)? else { return Ok(None) };
            let flags = match purpose {
                Purpose::Append => OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
                Purpose::Change => OFlags::RDWR,
                Purpose::Look => OFlags::RDONLY,
            };
            let file = match openat(&folder, name, flags | FILE, Mode::RUSR | Mode::WUSR) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(self.refused(&folder, name, &self.path, error)),
            };
            let about = file.metadata().map_err(|source| self.failed(source))?;
            if !about.is_file() {
                return Err(PrivateFileError::NotAFile { path: self.path.clone() });
            }
            if !is_own(&about) {
                return Err(PrivateFileError::AnotherUsers { path: self.path.clone() });
            }
            if has_other_names(&about) {
                return Err(PrivateFileError::HardLink { path: self.path.clone() });
            }
            if let Some(closed) = closed(&about).filter(|_| purpose != Purpose::Look) {
                file.set_permissions(closed).map_err(|source| self.failed(source))?;
            }
            Ok(Some(file))
        }

        pub(super) fn check_folder(&self) -> Result<bool, PrivateFileError> {
            self.folder(false).map(|folder| folder.is_some())
        }

        /// Opens the folder of the file, step by step; `None` if it is not there and not to be made.
        fn folder(&self, make: bool) -> Result<Option<OwnedFd>, PrivateFileError> {
            let (start, way) = self.way();
            if make {
                std::fs::create_dir_all(start).map_err(|source| failed(start, source))?;
            }
            let mut folder = match openat(CWD, start, FOLDER, Mode::empty()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(failed(start, error.into())),
            };
            let mut path = start.to_owned();
            for step in way.components().map(|step| step.as_os_str()) {
                path.push(step);
                if make
                    && let Err(error) = mkdirat(&folder, step, Mode::RWXU | Mode::RWXG | Mode::RWXO)
                    && error != Errno::EXIST
                {
                    return Err(failed(&path, error.into()));
                }
                folder = match openat(&folder, step, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                    Ok(next) => next,
                    Err(Errno::NOENT) => return Ok(None),
                    Err(error) => return Err(self.refused(&folder, step, &path, error)),
                };
            }
            Ok(Some(folder))
        }

        /// What the system's error means: the number for a link is not the same everywhere.
        fn refused(&self, folder: &OwnedFd, name: &OsStr, path: &Path, error: Errno) -> PrivateFileError {
            let kind =
                statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|about| FileType::from_raw_mode(about.st_mode));
            match kind {
                Ok(FileType::Symlink) => PrivateFileError::Link { path: path.to_owned() },
                Ok(FileType::RegularFile) | Err(_) => failed(path, error.into()),
                Ok(FileType::Directory) if path != self.path => failed(path, error.into()),
                Ok(_) => PrivateFileError::NotAFile { path: path.to_owned() },
            }
        }
    }
}

#[cfg(not(unix))]
impl PrivateFile {
    fn open(&self, purpose: Purpose) -> Result<Option<File>, PrivateFileError> {
        if purpose == Purpose::Append {
            let folder = folder_of(&self.path);
            std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        }
        if !self.check_folder()? {
            return Ok(None);
        }
        check_link(&self.path)?;
        let mut options = File::options();
        match purpose {
            Purpose::Append => options.append(true).create(true),
            Purpose::Change => options.read(true).write(true),
            Purpose::Look => options.read(true),
        };
        match options.open(&self.path) {
            Ok(file) => match file.metadata() {
                Ok(about) if about.is_file() => Ok(Some(file)),
                Ok(_) => Err(PrivateFileError::NotAFile { path: self.path.clone() }),
                Err(source) => Err(self.failed(source)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn check_folder(&self) -> Result<bool, PrivateFileError> {
        let (start, way) = self.way();
        let mut path = start.to_owned();
        for step in way.components() {
            path.push(step);
            check_link(&path)?;
        }
        Ok(path.is_dir())
    }
}

#[cfg(not(unix))]
fn check_link(path: &Path) -> Result<(), PrivateFileError> {
    match path.symlink_metadata() {
        Ok(about) if about.is_symlink() => Err(PrivateFileError::Link { path: path.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().map_or(0, |about| about.permissions().mode() & 0o777)
    }

    #[test]
    fn a_file_is_made_for_its_owner_alone_and_one_that_is_open_to_others_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let file = PrivateFile::below(folder.path(), folder.path().join("a/b/c.jsonl"));
        assert!(file.existing().unwrap().is_none() && file.look().unwrap().is_none());
        assert!(!file.has_folder().unwrap());
        file.append().unwrap().write_all(b"x").unwrap();
        assert_eq!(mode(file.path()), 0o600);
        let opens: [fn(&PrivateFile); 2] = [|file| drop(file.append().unwrap()), |file| drop(file.existing().unwrap())];
        for open in opens {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
            drop(file.look().unwrap());
            assert_eq!(mode(file.path()), 0o666, "looking changes nothing");
            open(&file);
            assert_eq!(mode(file.path()), 0o600);
        }
    }

    #[test]
    fn a_file_with_another_name_is_neither_written_nor_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (other, file) = (folder.path().join("bashrc"), PrivateFile::from(folder.path().join("audit.jsonl")));
        std::fs::write(&other, "own").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::hard_link(&other, file.path()).unwrap();
        let refused = [file.append().err(), file.existing().err(), file.close_to_others().err()];
        assert!(refused.iter().all(|error| matches!(error, Some(PrivateFileError::HardLink { .. }))), "{refused:?}");
        assert_eq!((std::fs::read_to_string(&other).unwrap().as_str(), mode(&other)), ("own", 0o644));
    }

    #[test]
    fn no_link_is_followed() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = elsewhere.path().join("bashrc");
        symlink(&target, folder.path().join("link")).unwrap();
        symlink(elsewhere.path(), folder.path().join("folder")).unwrap();
        for (path, link) in [("link", "link"), ("folder/bashrc", "folder"), ("folder/new/file", "folder")] {
            let file = PrivateFile::below(folder.path(), folder.path().join(path));
            let is_link = |error: PrivateFileError| match error {
                PrivateFileError::Link { path } => assert_eq!(path, folder.path().join(link)),
                other => panic!("{other}"),
            };
            is_link(file.append().unwrap_err());
            is_link(file.existing().unwrap_err());
            is_link(file.look().unwrap_err());
            is_link(file.make().unwrap_err());
        }
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        // A folder that was given may be reached through a link: only what is below it is in question.
        let through = PrivateFile::below(folder.path().join("folder"), folder.path().join("folder/a"));
        let made = through.make().unwrap();
        assert_eq!(made, elsewhere.path().canonicalize().unwrap().join("a"));
    }

    #[test]
    fn only_regular_files_are_opened_and_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("dir")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
        assert!(made.success());
        for name in ["dir", "pipe"] {
            let file = PrivateFile::from(folder.path().join(name));
            for refused in [file.append().map(drop), file.existing().map(drop), file.look().map(drop)] {
                assert!(matches!(refused, Err(PrivateFileError::NotAFile { .. })), "{name}: {refused:?}");
            }
        }
    }
}
