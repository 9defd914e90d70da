//! Patches as models write them: the unified format of `diff` and `git`, and the one that begins with `*** Begin Patch`.

mod apply;
mod marked;
mod told;
mod unified;

use std::fmt;

pub(super) use apply::{HunkError, applied};
pub(crate) use told::{FileChange, PatchedFile, files_of_patch};

/// The longest patch that is read.
const MOST_BYTES: usize = 1024 * 1024;

/// What a patch does, file by file. Its `Display` is the normal form: the same format, with the paths that are in it and the
/// line counts that are right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Patch {
    format: Format,
    pub(super) files: Vec<FilePatch>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Unified,
    Marked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Add,
    Delete,
    Update,
}

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilePatch {
    pub(super) action: Action,
    pub(super) path: String,
    /// The new name, if it has one.
    pub(super) to: Option<String>,
    pub(super) hunks: Vec<Hunk>,
}

/// Lines that stand together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hunk {
    /// The first line in the old and in the new text, if the patch says so.
    at: Option<(usize, usize)>,
    /// Lines that stand somewhere before it, outermost first.
    sections: Vec<String>,
    lines: Vec<Line>,
    /// Whether the hunk stands at the end of the file.
    at_end: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    mark: Mark,
    text: String,
    /// False if the patch says that no newline follows.
    newline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Context,
    Removed,
    Added,
}

impl Mark {
    fn of(line: &str) -> Option<(Self, &str)> {
        let mark = match line.as_bytes().first() {
            // An editor or a model took the blank of an empty context line away.
            None => return Some((Self::Context, "")),
            Some(b' ') => Self::Context,
            Some(b'-') => Self::Removed,
            Some(b'+') => Self::Added,
            Some(_) => return None,
        };
        Some((mark, &line[1..]))
    }

    fn char(self) -> char {
        match self {
            Self::Context => ' ',
            Self::Removed => '-',
            Self::Added => '+',
        }
    }
}

/// Why a text is no patch. `line` counts from 1.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatchError {
    #[error("the patch has more than {MOST_BYTES} bytes; make it in several calls")]
    TooLong,
    #[error("the patch changes nothing: begin with `*** Begin Patch`, or with `--- a/FILE` and `+++ b/FILE`")]
    Empty,
    #[error("line {line} of the patch is {found:?}; {expected}")]
    Unexpected { line: usize, found: String, expected: &'static str },
}

impl PatchError {
    fn at(index: usize, found: &str, expected: &'static str) -> Self {
        let found = found.chars().take(80).collect();
        Self::Unexpected { line: index + 1, found, expected }
    }
}

impl Patch {
    pub(super) fn parse(text: &str) -> Result<Self, PatchError> {
        if text.len() > MOST_BYTES {
            return Err(PatchError::TooLong);
        }
        let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
        let first = lines.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
        let (format, files) = match first.trim_end() == marked::BEGIN {
            true => (Format::Marked, marked::parse(&lines)?),
            false => (Format::Unified, unified::parse(&lines)?),
        };
        if files.is_empty() { Err(PatchError::Empty) } else { Ok(Self { format, files }) }
    }
}

impl FilePatch {
    /// The patch that takes this one back.
    pub(super) fn inverse(&self) -> Self {
        let action = match self.action {
            Action::Add => Action::Delete,
            Action::Delete => Action::Add,
            Action::Update => Action::Update,
        };
        let (path, to) = match &self.to {
            Some(to) => (to.clone(), Some(self.path.clone())),
            None => (self.path.clone(), None),
        };
        Self { action, path, to, hunks: self.hunks.iter().map(Hunk::inverse).collect() }
    }
}

impl Hunk {
    fn inverse(&self) -> Self {
        let turned = |line: &Line| Line {
            mark: match line.mark {
                Mark::Context => Mark::Context,
                Mark::Removed => Mark::Added,
                Mark::Added => Mark::Removed,
            },
            ..line.clone()
        };
        let at = self.at.map(|(old, new)| (new, old));
        Self { at, lines: self.lines.iter().map(turned).collect(), ..self.clone() }
    }

    /// The lines that the hunk looks for.
    fn old_lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.mark != Mark::Added)
    }

    /// The lines that stand there afterwards.
    fn new_lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.mark != Mark::Removed)
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            Format::Unified => self.files.iter().try_for_each(|file| unified::write(f, file)),
            Format::Marked => marked::write(f, &self.files),
        }
    }
}

#[cfg(test)]
mod tests;
