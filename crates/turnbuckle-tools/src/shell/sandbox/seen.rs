//! Whether a launcher that confined itself earlier is confined as it would be now.
//!
//! Mounts and Landlock hold for the files that had the names then. An editor that saves a guarded file by renaming takes the mount away with the
//! old file, and a folder that was replaced is another one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::confine::Confinement;

/// A folder that was changed less than this before it was looked at may change again without another time of its last change: some file
/// systems count in seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// The files that a confinement was made for, and the mounts of this process at that time.
pub(in crate::shell) struct Seen {
    /// What is mounted, and the project.
    mounted: Vec<Option<FileId>>,
    allowed: Allowed,
    /// The kernel says on it when mounts have changed since it was opened.
    mounts: Option<File>,
}

/// One file, and no other that has its number later.
#[derive(PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl Seen {
    /// As they are now: to be called before the launcher starts.
    pub(in crate::shell) fn now(project: &Path, orders: Option<&Confinement>) -> Self {
        let mounts = orders.and_then(|_| File::open("/proc/self/mountinfo").ok());
        Self { mounted: mounted(project, orders), allowed: Allowed::now(orders, SystemTime::now()), mounts }
    }

    /// Whether everything is still as it was.
    pub(in crate::shell) fn holds(&self, project: &Path, orders: Option<&Confinement>) -> bool {
        let is_remounted = self.mounts.as_ref().is_some_and(|mounts| {
            let mut asked = [PollFd::new(mounts, PollFlags::PRI)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            // Where this cannot be found out, it is not taken for granted.
            poll(&mut asked, Some(&at_once)).is_err() || asked[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
        });
        !is_remounted && self.mounted == mounted(project, orders) && self.allowed.holds(orders)
    }
}

fn mounted(project: &Path, orders: Option<&Confinement>) -> Vec<Option<FileId>> {
    orders.into_iter().flat_map(Confinement::mounted).chain([project]).map(identity).collect()
}

fn allowed(orders: Option<&Confinement>) -> Vec<Option<FileId>> {
    orders.into_iter().flat_map(Confinement::allowed).map(identity).collect()
}

fn identity(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|about| FileId::of(&about))
}

impl FileId {
    fn of(about: &fs::Metadata) -> Self {
        Self { device: about.dev(), inode: about.ino(), created: about.created().ok() }
    }
}

/// What the command may read and change. There are some sixty names, most of them in a few folders and many of files that do not exist: as long
/// as a folder has not changed, its names stand for the same files. One that stands for another without being noticed is merely
/// not allowed, unlike a guarded file, which is always looked at itself.
struct Allowed {
    files: Vec<Option<FileId>>,
    /// The folders that names are in, as they were.
    folders: BTreeMap<PathBuf, Option<FolderState>>,
    /// Links, which may lead to other files while their folder stays as it is, and what is in folders that had just changed.
    others: Vec<(PathBuf, Option<FileId>)>,
}

#[derive(PartialEq, Eq)]
struct FolderState {
    id: FileId,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FolderState {
    fn now(folder: &Path) -> Option<Self> {
        let about = fs::metadata(folder).ok()?;
        let (modified, changed) = ((about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec()));
        Some(Self { id: FileId::of(&about), modified, changed })
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |past| past.as_secs());
        let settled = i64::try_from(now.saturating_sub(SETTLED.as_secs())).unwrap_or(i64::MAX);
        self.modified.0 < settled && self.changed.0 < settled
    }
}

impl Allowed {
    fn now(orders: Option<&Confinement>, now: SystemTime) -> Self {
        let mut folders: BTreeMap<PathBuf, Option<FolderState>> = BTreeMap::new();
        let mut others = Vec::new();
        for path in orders.into_iter().flat_map(Confinement::allowed) {
            let settled = path.parent().filter(|folder| {
                let state = folders.entry(folder.to_path_buf()).or_insert_with(|| FolderState::now(folder));
                state.as_ref().is_none_or(|state| state.is_settled(now))
            });
            if settled.is_none() || path.is_symlink() {
                others.push((path.to_path_buf(), identity(path)));
            }
        }
        folders.retain(|_, state| state.as_ref().is_none_or(|state| state.is_settled(now)));
        // Behind the folders: what changes in between is noticed by its folder.
        Self { files: allowed(orders), folders, others }
    }

    fn holds(&self, orders: Option<&Confinement>) -> bool {
        let is_quiet = self.folders.iter().all(|(folder, before)| FolderState::now(folder) == *before)
            && self.others.iter().all(|(path, before)| identity(path) == *before);
        is_quiet || self.files == allowed(orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::sandbox::confine::MountPlan;

    #[test]
    fn a_file_that_took_the_place_of_a_guarded_one_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("turnbuckle.toml");
        fs::write(&file, "a").unwrap();
        let plan = MountPlan {
            folder: folder.path().into(),
            writable: None,
            pinned: Vec::new(),
            read_only: vec![file.clone()],
            hidden: Vec::new(),
            empty: folder.path().into(),
            over: Vec::new(),
            bubblewrap: None,
        };
        let orders = Confinement { mounts: Some(plan), files: None, calls: None };
        let seen = Seen::now(folder.path(), Some(&orders));
        assert!(seen.holds(folder.path(), Some(&orders)));
        // The same file with other contents is still covered by its mount.
        fs::write(&file, "b").unwrap();
        assert!(seen.holds(folder.path(), Some(&orders)));
        fs::write(folder.path().join("new"), "c").unwrap();
        fs::rename(folder.path().join("new"), &file).unwrap();
        assert!(!seen.holds(folder.path(), Some(&orders)));
        // Also one that has the number of the first.
        let seen = Seen::now(folder.path(), Some(&orders));
        fs::remove_file(&file).unwrap();
        fs::write(&file, "c").unwrap();
        assert!(!seen.holds(folder.path(), Some(&orders)));
    }

    #[test]
    fn a_folder_that_appears_or_is_replaced_is_noticed_however_its_folder_was_looked_at() {
        let home = tempfile::tempdir().unwrap();
        let (tools, missing) = (home.path().join("tools"), home.path().join("missing/bin"));
        fs::create_dir(&tools).unwrap();
        std::os::unix::fs::symlink("tools", home.path().join("link")).unwrap();
        let read = vec![tools.clone(), missing.clone(), home.path().join("link")];
        let rights = super::super::confine::FileRights { read, write: Vec::new(), devices: Vec::new() };
        let orders = Confinement { mounts: None, files: Some(rights), calls: None };
        let (soon, later) = (SystemTime::now(), SystemTime::now() + 2 * SETTLED);
        // As if it was last changed long ago: two changes within one tick of the clock have the same time.
        let look = |now| {
            File::open(home.path()).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            Allowed::now(Some(&orders), now)
        };
        for now in [soon, later] {
            let seen = look(now);
            assert!(seen.holds(Some(&orders)));
            // Another file beside them changes the folder, and none of them.
            fs::write(home.path().join("beside"), "").unwrap();
            assert!(seen.holds(Some(&orders)));
            fs::remove_file(home.path().join("beside")).unwrap();
            let seen = look(now);
            fs::rename(&tools, home.path().join("old")).unwrap();
            fs::create_dir(&tools).unwrap();
            assert!(!seen.holds(Some(&orders)), "a folder was replaced");
            fs::remove_dir(home.path().join("old")).unwrap();
            let seen = look(now);
            fs::create_dir_all(&missing).unwrap();
            assert!(!seen.holds(Some(&orders)), "a folder appeared");
            fs::remove_dir_all(home.path().join("missing")).unwrap();
        }
        assert!(Allowed::now(Some(&orders), soon).folders.values().all(Option::is_none));
        assert!(Allowed::now(Some(&orders), later).folders.len() >= 2);
    }
}
