//! Changes of files that are known before they are made: all of them are made, or none.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::blocking::CancelFlag;
use super::diff::{short_diff, whole_diff};
use super::folder::Folder;
use super::refusal::{Refusal, shown};
use super::replace::temporary_name;

/// The largest text that is compared and edited. It is held in memory, a few times.
pub(super) const MOST: u64 = 8 * 1024 * 1024;

/// What a call will do, and what it was made of.
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// What the result begins with.
    pub(super) said: String,
}

/// What becomes of one file.
#[derive(Deserialize, Serialize)]
pub(super) struct Change {
    pub(super) path: PathBuf,
    /// What the file holds now.
    pub(super) before: Before,
    /// What it will hold; `None` if it is deleted.
    pub(super) after: Option<String>,
    /// Its new name.
    pub(super) to: Option<PathBuf>,
}

/// What a file holds before a change.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Before {
    Missing,
    Text(String),
    /// Not UTF-8, or too large to be compared.
    Other,
}

impl Before {
    pub(super) fn of(folder: &Folder, path: &Path) -> Result<Self, Refusal> {
        match text(folder, path) {
            Ok(text) => Ok(Self::Text(text)),
            Err(Refusal::Missing { .. }) => Ok(Self::Missing),
            Err(Refusal::NotText { .. } | Refusal::TooLarge { .. }) => Ok(Self::Other),
            Err(refusal) => Err(refusal),
        }
    }
}

/// The text in a file.
pub(super) fn text(folder: &Folder, path: &Path) -> Result<String, Refusal> {
    let (file, metadata) = folder.read(path)?;
    let too_large = |size| Refusal::TooLarge { path: shown(path), size, limit: MOST };
    if metadata.len() > MOST {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|source| Refusal::of("read", path, source))?;
    if bytes.len() as u64 > MOST {
        return Err(too_large(bytes.len() as u64));
    }
    String::from_utf8(bytes).map_err(|_| Refusal::NotText { path: shown(path) })
}

impl Plan {
    /// What the model reads once the changes are made: it has just written all of a new file, and is not shown it again.
    pub(super) fn result(&self) -> String {
        let shown = self.changes.iter().filter(|change| !matches!(change.before, Before::Missing));
        let diff: String = shown.map(|change| change.diff(short_diff)).collect();
        if diff.is_empty() { self.said.clone() } else { format!("{}\n{diff}", self.said) }
    }

    /// All that would change, for a person who is asked. Nothing is left out: whoever shows it may cut it, and show the rest when asked to.
    pub(super) fn preview(&self) -> String {
        self.changes.iter().map(|change| change.diff(whole_diff)).collect()
    }

    /// The folders that the changes will make, each before those below it.
    pub(super) fn missing_folders(&self, folder: &Folder) -> Vec<PathBuf> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for change in self.changes.iter().filter(|change| change.after.is_some()) {
            let path = change.to.as_ref().unwrap_or(&change.path);
            let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            let is_missing = |above: &&Path| matches!(folder.subfolder(above), Err(Refusal::Missing { .. }));
            let new: Vec<PathBuf> = above.take_while(is_missing).map(Path::to_owned).collect();
            missing.extend(new.into_iter().rev());
        }
        missing
    }

    /// The files that will be there, or gone.
    pub(super) fn touched(&self) -> Vec<PathBuf> {
        self.changes.iter().flat_map(|change| [Some(&change.path), change.to.as_ref()]).flatten().cloned().collect()
    }

    /// Makes the changes. If one of them fails, those before it are taken back. The caller holds
    /// [`Folder::changing`], and held it when the plan was made.
    pub(super) fn carry_out(&self, folder: &Folder, cancel: &CancelFlag) -> Result<(), Refusal> {
        let mut made = Vec::new();
        for change in &self.changes {
            if let Err(refusal) = change.make(folder, cancel, &mut made) {
                return Err(taken_back(folder, made, refusal));
            }
        }
        for step in made {
            step.settle();
        }
        Ok(())
    }
}

fn taken_back(folder: &Folder, made: Vec<Made>, refusal: Refusal) -> Refusal {
    let mut stuck = Vec::new();
    for step in made.into_iter().rev() {
        let path = step.path().to_owned();
        if step.take_back(folder).is_err() {
            stuck.push(shown(&path));
        }
    }
    match stuck.is_empty() {
        true => refusal,
        false => Refusal::HalfDone { refusal: Box::new(refusal), stuck: stuck.join(", ") },
    }
}

impl Change {
    fn diff(&self, of: fn(&str, Option<&str>, Option<&str>) -> String) -> String {
        let name = shown(&self.path);
        let renamed = self.to.as_deref().map(|to| format!("rename from {name}\nrename to {}\n", shown(to)));
        let before = match &self.before {
            Before::Missing => None,
            Before::Text(text) => Some(text.as_str()),
            Before::Other => return format!("[{name} is not text, or is too large to be compared]\n"),
        };
        let is_same = before == self.after.as_deref();
        let diff = if is_same { String::new() } else { of(&name, before, self.after.as_deref()) };
        renamed.unwrap_or_default() + &diff
    }

    fn make(&self, folder: &Folder, cancel: &CancelFlag, made: &mut Vec<Made>) -> Result<(), Refusal> {
        let Some(after) = &self.after else {
            made.push(set_aside(folder, &self.path, cancel)?);
            return Ok(());
        };
        if let Some(to) = &self.to {
            cancel.check()?;
            move_file(folder, &self.path, to)?;
            made.push(Made::Moved { from: self.path.clone(), to: to.clone() });
        }
        let path = self.to.as_ref().unwrap_or(&self.path);
        let old = match &self.before {
            Before::Text(text) if text == after => return Ok(()),
            Before::Text(text) => Some(text.clone()),
            Before::Missing | Before::Other => None,
        };
        let created = folder.replace(path, after.as_bytes(), cancel)?;
        made.push(match (old, created) {
            (_, true) => Made::Created { path: path.clone() },
            (Some(old), false) => Made::Replaced { path: path.clone(), old },
            // Only a plan with this change alone has one: there is nothing after it that could fail.
            (None, false) => Made::Lost { path: path.clone() },
        });
        Ok(())
    }
}

/// A change that was made, with what it takes to undo it.
enum Made {
    Created {
        path: PathBuf,
    },
    Replaced {
        path: PathBuf,
        old: String,
    },
    Lost {
        path: PathBuf,
    },
    Moved {
        from: PathBuf,
        to: PathBuf,
    },
    /// Deleted files are first renamed, so that they can come back as they were.
    SetAside {
        path: PathBuf,
        dir: Dir,
        temporary: String,
    },
}

impl Made {
    fn path(&self) -> &Path {
        match self {
            Self::Created { path }
            | Self::Replaced { path, .. }
            | Self::Lost { path }
            | Self::SetAside { path, .. }
            | Self::Moved { from: path, .. } => path,
        }
    }

    fn take_back(self, folder: &Folder) -> Result<(), Refusal> {
        match self {
            Self::Created { path } => {
                set_aside(folder, &path, &CancelFlag::never())?.settle();
                Ok(())
            }
            Self::Replaced { path, old } => folder.replace(&path, old.as_bytes(), &CancelFlag::never()).map(drop),
            Self::Lost { path } => Err(Refusal::NotText { path: shown(&path) }),
            Self::Moved { from, to } => move_file(folder, &to, &from),
            Self::SetAside { path, dir, temporary } => {
                let name = path.file_name().ok_or_else(|| Refusal::IsFolder { path: shown(&path) })?;
                renameat_with(&dir, &*temporary, &dir, name, RenameFlags::NOREPLACE)
                    .map_err(|errno| Refusal::of("put back", &path, errno.into()))
            }
        }
    }

    fn settle(self) {
        if let Self::SetAside { dir, temporary, .. } = self {
            // If it stays, it is swept away like every temporary file.
            let _ = dir.remove_file(temporary);
        }
    }
}

/// Renames a file to a temporary name beside it.
fn set_aside(folder: &Folder, path: &Path, cancel: &CancelFlag) -> Result<Made, Refusal> {
    cancel.check()?;
    // Checks that this is a regular file that tools may touch.
    folder.read(path)?;
    let dir = folder.subfolder(path.parent().unwrap_or(Path::new("")))?;
    let name = path.file_name().ok_or_else(|| Refusal::IsFolder { path: shown(path) })?;
    let temporary = temporary_name();
    renameat_with(&dir, name, &dir, &*temporary, RenameFlags::NOREPLACE)
        .map_err(|errno| Refusal::of("delete", path, errno.into()))?;
    Ok(Made::SetAside { path: path.to_owned(), dir, temporary })
}

/// Renames a file, never onto another. Folders on the way are made.
fn move_file(folder: &Folder, from: &Path, to: &Path) -> Result<(), Refusal> {
    folder.read(from)?;
    let parent = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
    let (old, new) = (folder.subfolder(&parent(from))?, folder.make_subfolder(&parent(to))?);
    let (Some(old_name), Some(new_name)) = (from.file_name(), to.file_name()) else {
        return Err(Refusal::IsFolder { path: shown(to) });
    };
    renameat_with(&old, old_name, &new, new_name, RenameFlags::NOREPLACE).map_err(|errno| match errno {
        Errno::EXIST => Refusal::Exists { path: shown(to) },
        errno => Refusal::of("rename", from, errno.into()),
    })
}
