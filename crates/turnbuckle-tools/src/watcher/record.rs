//! Which watchers there are: a file for each, which it keeps locked for as long as it lives.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::WatchError;
use super::identity::Identity;

/// A watcher ends programs within a second.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Where the files are: the same place for all processes of a user on this host, whatever their environment says.
fn place() -> PathBuf {
    PathBuf::from(format!("/tmp/turnbuckle-{}", rustix::process::getuid().as_raw()))
}

/// The file of this process's watcher; `None` where processes cannot be told apart, or where the folder is not this user's alone.
pub(super) fn file_of(owner: &Identity) -> Option<PathBuf> {
    own_folder(&place()).ok().map(|folder| folder.join(owner.to_string()))
}

/// Makes the folder, or makes sure that nobody else can write to the one that is there.
fn own_folder(folder: &Path) -> io::Result<&Path> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_ours(folder)? { Ok(folder) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether the folder belongs to this user, and nobody else can write to it.
fn is_ours(folder: &Path) -> io::Result<bool> {
    let about = fs::symlink_metadata(folder)?;
    Ok(about.is_dir() && about.uid() == rustix::process::getuid().as_raw() && about.mode() & 0o077 == 0)
}

/// The file, locked until it is dropped.
pub(super) fn hold(file: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)?;
    // Another process may hold it for a moment, to find out whether it is locked.
    file.lock()?;
    Ok(file)
}

/// Waits until no watcher is left whose process has died: then the programs of that process are gone. The files of watchers that
/// were killed themselves are removed.
pub(super) fn wait_for_the_dead(me: &Identity) -> Result<(), WatchError> {
    wait_for_the_dead_in(&place(), me)
}

fn wait_for_the_dead_in(place: &Path, me: &Identity) -> Result<(), WatchError> {
    // In a folder that is not this user's alone no watcher of theirs has left anything, and anybody could keep a file locked.
    if !is_ours(place).is_ok_and(|ours| ours) {
        return Ok(());
    }
    let Ok(entries) = fs::read_dir(place) else { return Ok(()) };
    let until = Instant::now() + LONGEST_WAIT;
    for entry in entries.flatten() {
        let Some(owner) = entry.file_name().to_str().and_then(|name| name.parse::<Identity>().ok()) else { continue };
        if owner == *me || !owner.has_ended() {
            continue;
        }
        while is_held(&entry.path()) {
            if Instant::now() > until {
                return Err(WatchError::Earlier { owner: owner.pid });
            }
            std::thread::sleep(PAUSE);
        }
        // Another process may have removed it in this moment.
        let _ = fs::remove_file(entry.path());
    }
    Ok(())
}

/// Whether a watcher lives. A file that cannot be opened is gone.
fn is_held(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().write(true).open(path) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let base = tempfile::TempDir::new().unwrap();
        let ours = base.path().join("ours");
        assert!(own_folder(&ours).is_ok() && own_folder(&ours).is_ok());
        let open = base.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert!(own_folder(&open).is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        assert!(own_folder(&link).is_err());
    }

    #[test]
    fn files_in_a_folder_that_others_can_write_to_keep_nobody_waiting() {
        let base = tempfile::TempDir::new().unwrap();
        let open = base.path().join("open");
        DirBuilder::new().mode(0o777).create(&open).unwrap();
        // The same process id at another time: that process has ended.
        let me = Identity::this().unwrap();
        let held = hold(&open.join(format!("{me}1"))).unwrap();
        wait_for_the_dead_in(&open, &me).unwrap();
        drop(held);
    }

    #[test]
    fn a_file_is_held_until_it_is_dropped() {
        let base = tempfile::TempDir::new().unwrap();
        let path = base.path().join("file");
        assert!(!is_held(&path));
        let held = hold(&path).unwrap();
        assert!(is_held(&path));
        drop(held);
        assert!(!is_held(&path));
    }
}
