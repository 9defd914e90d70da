//! What the file tools changed in the last turns, so that it can be put back: those of this process and, where files are kept
//! for it, those before.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use turnbuckle::{ConversationId, TurnId};

use super::blocking::CancelFlag;
use super::change::{Before, Change, Plan};
use super::folder::Folder;
use super::refusal::{Refusal, shown};
use super::undo_files::UndoFiles;

/// How many turns are remembered, and how much text of them together. Older ones go first.
pub(super) const MOST_TURNS: usize = 32;
pub(super) const MOST_BYTES: usize = 32 * 1024 * 1024;

/// The target of what is logged here.
const LOG: &str = "turnbuckle::tools";

/// Changes by turn, the last turn last.
#[derive(Default)]
pub(super) struct UndoLog {
    turns: VecDeque<Noted>,
    bytes: usize,
    /// Where it is kept beyond this process.
    files: Option<UndoFiles>,
}

/// What a turn changed.
pub(super) struct Noted {
    pub(super) turn: TurnId,
    pub(super) changes: Vec<Change>,
    /// The folders that it made.
    pub(super) folders: Vec<PathBuf>,
}

impl Noted {
    fn size(&self) -> usize {
        self.changes.iter().map(size).sum()
    }
}

impl UndoLog {
    /// Keeps from now on what is changed in these files as well.
    pub(super) fn keep_in(&mut self, files: UndoFiles) {
        self.files = Some(files);
    }

    /// Remembers changes that were made, and the folders that were made for them.
    pub(super) fn note(
        &mut self,
        (conversation, turn): (&ConversationId, &TurnId),
        changes: Vec<Change>,
        folders: Vec<PathBuf>,
    ) {
        if let Some(files) = &self.files
            && let Err(error) = files.add((conversation, turn), &changes, &folders)
        {
            // The change is made, and this process can still undo it.
            tracing::warn!(target: LOG, %error, %turn, "what a turn changed is not kept for later processes");
        }
        self.bytes += changes.iter().map(size).sum::<usize>();
        match self.turns.back_mut().filter(|last| last.turn == *turn) {
            Some(noted) => {
                noted.changes.extend(changes);
                noted.folders.extend(folders);
            }
            None => self.turns.push_back(Noted { turn: turn.clone(), changes, folders }),
        }
        while self.turns.len() > MOST_TURNS || self.bytes > MOST_BYTES {
            let Some(gone) = self.turns.pop_front() else { return };
            self.bytes -= gone.size();
        }
    }

    /// What is known of a turn. An earlier process may have begun it: then the files know more than this one.
    fn take(&mut self, turn: &TurnId) -> io::Result<Option<Noted>> {
        let kept = self.files.as_ref().map_or(Ok(None), |files| files.take(turn))?;
        let place = self.turns.iter().position(|noted| noted.turn == *turn);
        let noted = place.and_then(|place| self.turns.remove(place));
        self.bytes -= noted.as_ref().map_or(0, Noted::size);
        let is_longer = |kept: &Noted| noted.as_ref().is_none_or(|noted| kept.changes.len() > noted.changes.len());
        Ok(if kept.as_ref().is_some_and(is_longer) { kept } else { noted })
    }
}

fn size(change: &Change) -> usize {
    let before = if let Before::Text(text) = &change.before { text.len() } else { 0 };
    before + change.after.as_ref().map_or(0, String::len)
}

/// What became of the files that a turn had changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undone {
    /// Files that are as they were before the turn.
    pub restored: Vec<String>,
    /// Files that were left as they are, each with why.
    pub kept: Vec<(String, String)>,
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.restored.is_empty() {
            true => write!(f, "nothing was put back")?,
            false => write!(f, "put back: {}", self.restored.join(", "))?,
        }
        for (path, why) in &self.kept {
            write!(f, "\nleft as it is: {path}: {why}")?;
        }
        Ok(())
    }
}

/// Puts back what a turn changed, the last change first, as far as the files still are as the turn left them. `None` if nothing is
/// known of the turn. The changes are forgotten, whatever became of them.
pub(super) fn undo(folder: &Folder, turn: &TurnId) -> io::Result<Option<Undone>> {
    let Some(Noted { changes, folders, .. }) = folder.undo_log().take(turn)? else { return Ok(None) };
    let _changing = folder.changing();
    let mut undone = Undone::default();
    for change in changes.into_iter().rev() {
        let name = shown(&change.path);
        // A file that could not be put back at a later step is not touched at an earlier one.
        if undone.kept.iter().any(|(kept, _)| *kept == name) {
            continue;
        }
        match put_back(folder, change) {
            Ok(()) if undone.restored.contains(&name) => {}
            Ok(()) => undone.restored.push(name),
            Err(why) => {
                undone.restored.retain(|restored| *restored != name);
                undone.kept.push((name, why));
            }
        }
    }
    for made in folders.iter().rev() {
        // One that holds something is somebody's now, and one that is gone needs nothing.
        let _ = remove_folder(folder, made);
    }
    Ok(Some(undone))
}

/// Removes a folder if it is empty.
fn remove_folder(folder: &Folder, path: &Path) -> Option<()> {
    let (above, name) = (path.parent()?, path.file_name()?);
    folder.subfolder(above).ok()?.remove_dir(name).ok()
}

fn put_back(folder: &Folder, change: Change) -> Result<(), String> {
    let Change { path, before, after, to } = change;
    let now_at = to.clone().unwrap_or_else(|| path.clone());
    let said = |refusal: Refusal| refusal.to_string();
    let now = Before::of(folder, &now_at).map_err(said)?;
    let is_as_left = match (&now, &after) {
        (Before::Text(now), Some(after)) => now == after,
        (Before::Missing, None) => true,
        _ => false,
    };
    if !is_as_left {
        return Err("it was changed since".to_owned());
    }
    let old = match before {
        Before::Text(text) => Some(text),
        Before::Missing => None,
        Before::Other => return Err("what it held before is not text, or was too large to be kept".to_owned()),
    };
    if is_there(folder, &path, &now_at)? {
        return Err("another file has its old name now".to_owned());
    }
    let back = Change { path: now_at, before: now, after: old, to: to.map(|_| path) };
    Plan { changes: vec![back], said: String::new() }.carry_out(folder, &CancelFlag::never()).map_err(said)
}

/// Whether the name that a renamed file had is taken.
fn is_there(folder: &Folder, old: &Path, now: &Path) -> Result<bool, String> {
    let taken =
        old != now && !matches!(Before::of(folder, old).map_err(|refusal| refusal.to_string())?, Before::Missing);
    Ok(taken)
}
