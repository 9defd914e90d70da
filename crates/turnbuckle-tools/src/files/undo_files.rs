//! What turns changed, kept beyond the process: `undo/CONVERSATION/TURN.jsonl` in Turnbuckle's folder of a project.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use serde::{Deserialize, Serialize};
use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId, TurnId};

use super::change::Change;
use super::undo::{MOST_BYTES, MOST_TURNS, Noted};
use crate::conversation_files::{ConversationFiles, file_name};

/// Below Turnbuckle's folder.
const FOLDER: &str = "undo";

/// Where a [`Workspace`](crate::Workspace) keeps what the file tools changed, so that it can be undone after a restart. As a
/// [`SideStore`], what is kept of a conversation is erased when that is deleted.
///
/// The last turns are kept, and so much of them: the oldest go first. No link leads out of the project, and only the owner may
/// read the files.
#[derive(Clone, Debug)]
pub struct UndoFiles(ConversationFiles);

/// What one call changed: a line of the file of its turn.
#[derive(Serialize)]
struct Line<'a> {
    changes: &'a [Change],
    folders: &'a [PathBuf],
}

#[derive(Deserialize)]
struct ReadLine {
    changes: Vec<Change>,
    folders: Vec<PathBuf>,
}

/// The file of one turn.
struct TurnFile {
    folder: PathBuf,
    path: PathBuf,
    size: u64,
    written: SystemTime,
}

impl UndoFiles {
    /// In the folder `own` (`.turnbuckle`) of a project.
    pub fn below(project: impl Into<PathBuf>, own: impl AsRef<Path>) -> Self {
        Self(ConversationFiles::below(project.into(), own.as_ref().join(FOLDER)))
    }

    /// Adds what a call changed, and removes what is too old.
    pub(super) fn add(
        &self,
        (conversation, turn): (&ConversationId, &TurnId),
        changes: &[Change],
        folders: &[PathBuf],
    ) -> io::Result<()> {
        let line = serde_json::to_string(&Line { changes, folders })?;
        let (project, folder) = self.0.make(conversation.as_str())?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut file = project.open_with(folder.join(name_of(turn)), &options)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        self.remove_oldest()
    }

    /// Takes what is kept of a turn: it is removed.
    pub(super) fn take(&self, turn: &TurnId) -> io::Result<Option<Noted>> {
        let Some(all) = self.0.all()? else { return Ok(None) };
        let name = name_of(turn);
        for entry in all.entries()? {
            let folder = PathBuf::from(entry?.file_name());
            let path = folder.join(&name);
            let file = match all.open(&path) {
                // The folder may be a file that somebody left here.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    continue;
                }
                opened => opened?,
            };
            let mut text = String::new();
            file.take(MOST_BYTES as u64).read_to_string(&mut text)?;
            remove(&all, &folder, &path)?;
            let mut noted = Noted { turn: turn.clone(), changes: Vec::new(), folders: Vec::new() };
            // A process that was killed may have left half a line. What it stood for is then taken for a later change of others.
            for line in text.lines().map_while(|line| serde_json::from_str::<ReadLine>(line).ok()) {
                noted.changes.extend(line.changes);
                noted.folders.extend(line.folders);
            }
            return Ok(Some(noted).filter(|noted| !noted.changes.is_empty()));
        }
        Ok(None)
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let Some(all) = self.0.all()? else { return Ok(()) };
        let mut files = files_in(&all)?;
        files.sort_by_key(|file| file.written);
        let mut bytes: u64 = files.iter().map(|file| file.size).sum();
        let mut count = files.len();
        for TurnFile { folder, path, size, .. } in &files {
            if count <= MOST_TURNS && bytes <= MOST_BYTES as u64 {
                break;
            }
            remove(&all, folder, path)?;
            (count, bytes) = (count - 1, bytes - size);
        }
        Ok(())
    }
}

fn name_of(turn: &TurnId) -> String {
    file_name(turn.as_str()) + ".jsonl"
}

fn files_in(all: &Dir) -> io::Result<Vec<TurnFile>> {
    let mut files = Vec::new();
    for entry in all.entries()? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let folder = PathBuf::from(entry.file_name());
        for file in all.read_dir(&folder)? {
            let file = file?;
            let about = file.metadata()?;
            let written = about.modified()?.into_std();
            files.push(TurnFile {
                path: folder.join(file.file_name()),
                folder: folder.clone(),
                size: about.len(),
                written,
            });
        }
    }
    Ok(files)
}

/// Removes a file, and its folder with the last one. Another process may have been faster.
fn remove(all: &Dir, folder: &Path, path: &Path) -> io::Result<()> {
    match all.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // One that holds something stays.
    let _ = all.remove_dir(folder);
    Ok(())
}

impl SideStore for UndoFiles {
    fn what(&self) -> &'static str {
        "what file tools changed"
    }

    fn name(&self) -> String {
        format!("{} in {}", self.what(), self.0.path().display())
    }

    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        Box::pin(self.0.count(conversation))
    }

    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(self.0.erase(conversation))
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::Before;
    use super::*;

    fn change(path: &str, before: Before, after: &str) -> Change {
        Change { path: path.into(), before, after: Some(after.to_owned()), to: None }
    }

    fn add(files: &UndoFiles, conversation: &str, turn: &str, text: &str) {
        let changes = [change("a.txt", Before::Text(text.to_owned()), "new")];
        files.add((&conversation.into(), &turn.into()), &changes, &["new".into()]).unwrap();
    }

    #[test]
    fn what_a_turn_changed_is_taken_once_and_half_a_line_is_left_out() {
        let project = tempfile::tempdir().unwrap();
        let files = UndoFiles::below(project.path(), ".own");
        assert!(files.take(&"t1".into()).unwrap().is_none());
        add(&files, "w", "t1", "old");
        add(&files, "w", "t1", "older");
        let file = project.path().join(".own/undo/w/t1.jsonl");
        assert_eq!(std::fs::read_to_string(project.path().join(".own/.gitignore")).unwrap(), "*\n");
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str(&text.clone()[..20]);
        std::fs::write(&file, text).unwrap();
        let Noted { changes, folders, .. } = files.take(&"t1".into()).unwrap().unwrap();
        assert_eq!((changes.len(), folders.len()), (2, 2));
        assert!(matches!(&changes[1].before, Before::Text(text) if text == "older"));
        assert!(files.take(&"t1".into()).unwrap().is_none());
        assert!(!project.path().join(".own/undo/w").exists(), "nothing of it stays");
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_large() {
        let project = tempfile::tempdir().unwrap();
        let files = UndoFiles::below(project.path(), ".own");
        let count = || files_in(&files.0.all().unwrap().unwrap()).unwrap().len();
        for turn in 0..MOST_TURNS + 3 {
            add(&files, &format!("c{}", turn % 5), &format!("t{turn}"), "old");
        }
        assert_eq!(count(), MOST_TURNS);
        add(&files, "large", "t1", &"x".repeat(MOST_BYTES - 1_000));
        add(&files, "large", "t2", &"x".repeat(10_000));
        let left = files_in(&files.0.all().unwrap().unwrap()).unwrap();
        assert!(left.iter().map(|file| file.size).sum::<u64>() <= MOST_BYTES as u64);
        assert!(files.take(&"t2".into()).unwrap().is_some(), "the last turn stays");
    }
}
