//! What a patch does to each file, for those who judge the file and do not read patches.

use super::{Action, FilePatch, Hunk, Line, Patch};

/// One file of a patch.
pub(crate) struct PatchedFile {
    /// As the patch names it.
    pub(crate) path: String,
    pub(crate) change: FileChange,
}

/// What becomes of the file, as far as the patch says it.
pub(crate) enum FileChange {
    /// It is new, or has its name from now on, with these lines. Of a renamed file they are those that the patch shows.
    Written(String),
    /// These lines become those.
    Edited { old: String, new: String },
}

/// The files of a patch, a renamed one under both names. `None` if the text is no patch.
pub(crate) fn files_of_patch(text: &str) -> Option<Vec<PatchedFile>> {
    let patch = Patch::parse(text).ok()?;
    Some(patch.files.iter().flat_map(files).collect())
}

fn files(file: &FilePatch) -> Vec<PatchedFile> {
    let lines = |of: fn(&Hunk) -> Vec<&Line>| -> String {
        let hunks = file.hunks.iter().map(|hunk| of(hunk).into_iter().map(text).collect::<String>());
        hunks.collect::<Vec<_>>().join("")
    };
    let (old, new) = (lines(|hunk| hunk.old_lines().collect()), lines(|hunk| hunk.new_lines().collect()));
    let change = match file.action {
        Action::Add => FileChange::Written(new.clone()),
        // A file that is gone has no lines, whether the patch shows those that it had or not.
        Action::Delete if old.is_empty() => FileChange::Written(String::new()),
        Action::Delete => FileChange::Edited { old, new: String::new() },
        Action::Update => FileChange::Edited { old, new: new.clone() },
    };
    let renamed = file.to.as_ref().map(|to| PatchedFile { path: to.clone(), change: FileChange::Written(new) });
    std::iter::once(PatchedFile { path: file.path.clone(), change }).chain(renamed).collect()
}

fn text(line: &Line) -> String {
    if line.newline { format!("{}\n", line.text) } else { line.text.clone() }
}
