//! A file's content, replaced in one step: a new file beside it, then a rename.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cap_std::fs::{
    Dir, DirEntry, File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt,
};
use rustix::fs::OFlags;
use rustix::process::{Pid, test_kill_process};

use super::blocking::CancelFlag;
use super::folder::{Folder, regular};
use super::refusal::{Refusal, shown};

/// How old a temporary file must be before it counts as left over: filling one takes much less.
const ABANDONED: Duration = Duration::from_secs(60);
/// How many folders are remembered as looked through.
const MOST_SWEPT: usize = 1024;

/// Tells the temporary files of this process apart.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Who may read a file that is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    /// Those who may read the old one; for a new one the umask decides.
    AsBefore,
    /// Its owner alone: it holds text of conversations.
    Owner,
}

impl Folder {
    /// Replaces a file, given by its normal form, in one step: a reader sees the old content or the new, never a part; a crash
    /// leaves one of the two. Folders on the way are made. The caller holds [`changing`](Self::changing). Says whether the file
    /// is new.
    pub(super) fn replace(&self, path: &Path, content: &[u8], cancel: &CancelFlag) -> Result<bool, Refusal> {
        self.replace_for(Readers::AsBefore, path, content, cancel)
    }

    /// The same with a say in who may read it.
    pub(super) fn replace_for(
        &self,
        readers: Readers,
        path: &Path,
        content: &[u8],
        cancel: &CancelFlag,
    ) -> Result<bool, Refusal> {
        cancel.check()?;
        let failed = |source| Refusal::of("write", path, source);
        let parent = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().ok_or_else(|| Refusal::IsFolder { path: shown(path) })?;
        let dir = self.make_subfolder(parent)?;
        // Opened for writing: a file that may not be written is not replaced either.
        let old = match regular(&dir, path, OFlags::WRONLY, &self.closed_now()) {
            Ok((_, metadata)) => Some(metadata),
            Err(Refusal::Missing { .. }) => None,
            Err(refusal) => return Err(refusal),
        };
        self.sweep(&dir, parent);
        let is_private = old.is_some() || readers == Readers::Owner;
        let (temporary, file) = fresh(&dir, is_private).map_err(failed)?;
        let mask = if readers == Readers::Owner { 0o700 } else { 0o777 };
        let renamed = fill(file, content, old.as_ref(), mask)
            .map_err(failed)
            .and_then(|()| cancel.check())
            .and_then(|()| dir.rename(&temporary, &dir, name).map_err(failed));
        if let Err(refusal) = renamed {
            // It may be gone already; the refusal is what matters.
            let _ = dir.remove_file(&temporary);
            return Err(refusal);
        }
        // Not every file system can; the rename stands either way.
        let _ = dir.into_std_file().sync_all();
        Ok(old.is_none())
    }

    /// Removes the temporary files that killed processes left in a folder. Each folder is looked through once, before the
    /// first file is written into it.
    fn sweep(&self, dir: &Dir, path: &Path) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MOST_SWEPT {
            swept.clear();
        }
        if !swept.insert(path.to_owned()) {
            return;
        }
        // What cannot be listed or removed stays, and does no harm.
        let Ok(entries) = dir.entries() else { return };
        for entry in entries.flatten() {
            if is_left_over(&entry) {
                let _ = entry.remove_file();
            }
        }
    }
}

/// A new file with a name of its own. One that replaces another is private until it has the other's permissions.
fn fresh(dir: &Dir, is_private: bool) -> io::Result<(String, File)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(if is_private { 0o600 } else { 0o666 });
    loop {
        let name = temporary_name();
        match dir.open_with(&name, &options) {
            // Left behind by a process that had this id and was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (name, file)),
        }
    }
}

/// A name that no other file of this process gets.
pub(super) fn temporary_name() -> String {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".turnbuckle-{}-{count}.tmp", std::process::id())
}

/// Whether a file has the name of one that [`fresh`] makes: it is about to become another, or its process was killed.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    process_of(name).is_some()
}

/// The process that made a temporary file of this name.
fn process_of(name: &OsStr) -> Option<i32> {
    let middle = name.to_str().and_then(|name| name.strip_prefix(".turnbuckle-")?.strip_suffix(".tmp"))?;
    let (id, count) = middle.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(id) && digits(count) { id.parse().ok() } else { None }
}

/// Whether no process will rename a temporary file: its process is gone, and nothing was written for a while. The
/// second condition is for processes of another container, which cannot be seen from here.
fn is_left_over(entry: &DirEntry) -> bool {
    let Some(process) = process_of(&entry.file_name()).and_then(Pid::from_raw) else { return false };
    let Ok(metadata) = entry.metadata() else { return false };
    let age = metadata.modified().ok().and_then(|written| written.into_std().elapsed().ok());
    metadata.is_file()
        && age.is_some_and(|age| age >= ABANDONED)
        && test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

fn fill(mut file: File, content: &[u8], old: Option<&Metadata>, mask: u32) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(old) = old {
        // Only the superuser may give a file away; for everybody else the new file is theirs, as with any editor.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        file.set_permissions(Permissions::from_mode(old.mode() & mask))?;
    }
    file.sync_all()
}
