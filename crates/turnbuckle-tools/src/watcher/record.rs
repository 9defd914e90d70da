//! Which watchers there are: a file for each, which it keeps locked for as long as it lives. The process that is watched notes its
//! programs in the same file, for the case that both are killed: then the next process that starts programs ends them.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::identity::Identity;
use super::{WatchError, noted};

/// A watcher ends programs within a second.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Where the files are: the same place for all processes of a user on this host, whatever their environment says. Anybody can take
/// the name in `/tmp` first. Then it is the user's runtime folder, which is not there for everybody, and not always.
fn places() -> [PathBuf; 2] {
    let user = rustix::process::getuid().as_raw();
    [PathBuf::from(format!("/tmp/turnbuckle-{user}")), PathBuf::from(format!("/run/user/{user}/turnbuckle"))]
}

/// The file of this process's watcher; `None` where processes cannot be told apart, or where no folder is this user's alone.
pub(super) fn file_of(owner: &Identity) -> Option<PathBuf> {
    first_own(&places()).map(|folder| folder.join(owner.to_string()))
}

fn first_own(places: &[PathBuf]) -> Option<&Path> {
    places.iter().find_map(|place| own_folder(place).ok())
}

/// The folder that somebody else has made, or may write to, if that is so.
pub(super) fn foreign_folder() -> Option<PathBuf> {
    let [usual, _] = places();
    is_foreign(&usual).then_some(usual)
}

fn is_foreign(folder: &Path) -> bool {
    is_ours(folder).is_ok_and(|ours| !ours)
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
    Ok(is_private(&fs::symlink_metadata(folder)?))
}

fn is_private(about: &fs::Metadata) -> bool {
    about.is_dir() && about.uid() == rustix::process::getuid().as_raw() && about.mode() & 0o077 == 0
}

/// The file, locked until it is dropped.
pub(super) fn hold(file: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(file)?;
    // Another process may hold it for a moment, to find out whether it is locked.
    file.lock()?;
    Ok(file)
}

/// What this process notes about its programs.
pub(super) struct Notes {
    file: File,
    length: u64,
}

/// How long the notes may become before those of programs that are over are taken out, and how long while none runs.
const MOST_NOTED: u64 = 64 << 10;
const MOST_OVER: u64 = 4 << 10;
/// The most that is read of the notes of another process.
const MOST_READ: u64 = 1 << 20;

impl Notes {
    /// In the file that the watcher of `owner` has made.
    pub(super) fn open(owner: &Identity) -> Option<Self> {
        let file = OpenOptions::new().write(true).open(file_of(owner)?).ok()?;
        let length = file.metadata().ok()?.len();
        Some(Self { file, length })
    }

    /// One line, in one write.
    pub(super) fn add(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all_at(line.as_bytes(), self.length)?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Whether it is time to [`replace`](Self::replace) them. That takes longer than a line, so it is not done for each program.
    pub(super) fn are_long(&self, none_runs: bool) -> bool {
        self.length > if none_runs { MOST_OVER } else { MOST_NOTED }
    }

    /// These lines instead of all that were noted. A kill in between leaves the last of the old lines behind the new ones, and they say
    /// nothing new: the first may be cut off, and is not understood.
    pub(super) fn replace(&mut self, lines: &str) -> io::Result<()> {
        self.file.write_all_at(lines.as_bytes(), 0)?;
        self.length = lines.len() as u64;
        self.file.set_len(self.length)
    }
}

/// What the process that was watched has noted, in the file that its watcher holds.
pub(super) fn notes_in(file: &File) -> String {
    let mut notes = String::new();
    let mut from_start = file;
    // What cannot be read was not written by a process of this user.
    let read = from_start.rewind().and_then(|()| file.take(MOST_READ).read_to_string(&mut notes));
    if read.is_ok() { notes } else { String::new() }
}

/// Waits until no watcher is left whose process has died: then the programs of that process are gone. Of a watcher that was killed
/// itself the file is left, and the programs that are noted in it are ended here. Other processes wait for that.
pub(super) fn wait_for_the_dead(me: &Identity) -> Result<(), WatchError> {
    // Others may have used the second one while the first was not theirs alone.
    places().iter().try_for_each(|place| wait_for_the_dead_in(place, me))
}

/// Whether there is a file of a process that has died, so that [`wait_for_the_dead`] has something to do.
pub(super) fn is_one_dead(me: &Identity) -> bool {
    let mut listed = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    PLACES.iter().zip(&mut *listed).any(|(place, listed)| {
        let about = fs::symlink_metadata(place).ok().filter(is_private);
        let Some(changed) = about.and_then(|about| about.modified().ok()) else { return false };
        if let Some(listed) = listed.as_ref().filter(|listed| listed.changed == changed) {
            return listed.owners.iter().any(Identity::has_ended);
        }
        let Ok(entries) = fs::read_dir(place) else { return false };
        let owners: Vec<Identity> = owners(entries, me).map(|(_, owner)| owner).collect();
        let is_one_dead = owners.iter().any(Identity::has_ended);
        let is_settled = changed.elapsed().is_ok_and(|ago| ago > SETTLED);
        *listed = is_settled.then_some(Listed { changed, owners });
        is_one_dead
    })
}

/// The places, which stay the same.
static PLACES: LazyLock<[PathBuf; 2]> = LazyLock::new(places);

/// Whose files were in each of them. Reading a folder takes longer than all else that is done for a program, so it is read again only
/// if it has changed. Held only to look.
static LISTED: Mutex<[Option<Listed>; 2]> = Mutex::new([None, None]);

struct Listed {
    /// The folder's time of change when it was listed.
    changed: SystemTime,
    owners: Vec<Identity>,
}

/// Changes within this time may leave a folder with the same time of change.
const SETTLED: Duration = Duration::from_millis(100);

/// The files of other processes.
fn owners(entries: fs::ReadDir, me: &Identity) -> impl Iterator<Item = (PathBuf, Identity)> {
    entries.flatten().filter_map(move |entry| {
        let owner = entry.file_name().to_str()?.parse::<Identity>().ok().filter(|owner| owner != me)?;
        Some((entry.path(), owner))
    })
}

fn wait_for_the_dead_in(place: &Path, me: &Identity) -> Result<(), WatchError> {
    // In a folder that is not this user's alone no watcher of theirs has left anything, and anybody could keep a file locked.
    if !is_ours(place).is_ok_and(|ours| ours) {
        return Ok(());
    }
    let Ok(entries) = fs::read_dir(place) else { return Ok(()) };
    let until = Instant::now() + LONGEST_WAIT;
    for (path, owner) in owners(entries, me).filter(|(_, owner)| owner.has_ended()) {
        loop {
            match lock(&path) {
                Locked::Gone => break,
                Locked::ByAnother if Instant::now() > until => return Err(WatchError::Earlier { owner: owner.pid }),
                Locked::ByAnother => std::thread::sleep(PAUSE),
                Locked::Here(file) => {
                    let mut notes = String::new();
                    // What cannot be read was not written by a process of this user.
                    if file.take(MOST_READ).read_to_string(&mut notes).is_ok() && !noted::end(&notes) {
                        return Err(WatchError::Earlier { owner: owner.pid });
                    }
                    // Another process may have removed it in this moment.
                    let _ = fs::remove_file(&path);
                    break;
                }
            }
        }
    }
    Ok(())
}

/// How the file of a watcher stands.
enum Locked {
    Gone,
    /// Its watcher lives, or another process is ending what is noted in it.
    ByAnother,
    /// Nobody had it locked. This process has, until the file is dropped.
    Here(File),
}

fn lock(path: &Path) -> Locked {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return Locked::Gone };
    match file.try_lock() {
        Ok(()) => Locked::Here(file),
        Err(TryLockError::WouldBlock) => Locked::ByAnother,
        // Where files cannot be locked no watcher has one locked.
        Err(TryLockError::Error(_)) => Locked::Gone,
    }
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
    fn another_folder_takes_the_place_of_one_that_somebody_else_made() {
        let base = tempfile::TempDir::new().unwrap();
        let [usual, other] = ["usual", "other"].map(|name| base.path().join(name));
        assert!(!is_foreign(&usual), "it is not there");
        DirBuilder::new().mode(0o777).create(&usual).unwrap();
        fs::set_permissions(&usual, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(is_foreign(&usual));
        assert_eq!(first_own(&[usual.clone(), other.clone()]), Some(&*other));
        fs::set_permissions(&usual, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert!(!is_foreign(&usual));
        assert_eq!(first_own(&[usual.clone(), other]), Some(&*usual));
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
        assert!(matches!(lock(&path), Locked::Gone));
        let held = hold(&path).unwrap();
        assert!(matches!(lock(&path), Locked::ByAnother));
        drop(held);
        assert!(matches!(lock(&path), Locked::Here(_)));
    }
}
