//! Why a file tool did not do what it was asked, in words that the model can act on.

use std::io;
use std::path::Path;

use super::patch::{HunkError, PatchError};

/// Becomes an error result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "{path:?} is not a path below the folder: give it relative to the folder, without `..` that lead out of it"
    )]
    NotBelow { path: String },
    #[error("{path:?} is where Turnbuckle keeps its conversations; tools do not go there")]
    Own { path: String },
    #[error("{path} leads out of the folder (a symbolic link does); only files inside it can be used")]
    Outside { path: String },
    #[error(
        "{path} is not the normal form of a path, or a link was put on its way after the call was checked: it leads to {now}; call again with the path that is meant"
    )]
    Changed { path: String, now: String },
    #[error("{path} passes through too many symbolic links")]
    TooManyLinks { path: String },
    #[error("{path} leads to a file whose name is not Unicode; it cannot be used")]
    NotUnicode { path: String },
    #[error("the path has more than {limit} bytes")]
    TooLong { limit: usize },
    #[error("there is no {path}; list_files shows what there is")]
    Missing { path: String },
    #[error("{path} is a symbolic link to nothing; write to another path, or have the link removed")]
    DanglingLink { path: String },
    #[error("{path} is a folder; give the path of a file")]
    IsFolder { path: String },
    #[error("{path} is not a folder, or a part of it is not")]
    NotFolder { path: String },
    #[error("{path} is not a regular file but a pipe, a socket or a device; it cannot be used")]
    Special { path: String },
    #[error("{path} ends at byte {size}; give a smaller byte_offset")]
    BeyondTheEnd { path: String, size: u64 },
    #[error("{path} has {lines} lines; give a smaller offset")]
    BeyondTheLastLine { path: String, lines: u64 },
    #[error("`offset` counts lines and `byte_offset` counts bytes: give one of them")]
    TwoOffsets,
    #[error("{path} has {size} bytes, or would have them; files up to {limit} can be edited")]
    TooLarge { path: String, size: u64, limit: u64 },
    #[error("{path} is not UTF-8 text; edit_file edits text only")]
    NotText { path: String },
    #[error("give `old` and `new`, or `edits` with a list of them")]
    OneEditOrSeveral,
    #[error("edit {number} of {of} cannot be made, so none was: {refusal}")]
    Edit { number: usize, of: usize, refusal: Box<Refusal> },
    #[error("`old` is empty: give the text to replace")]
    NothingToReplace,
    #[error("the text would be the same: there is nothing to change")]
    NoChange,
    #[error(
        "`old` does not occur in {path}; read the file and copy the text exactly, blanks and line ends included{hint}"
    )]
    NotFound { path: String, hint: &'static str },
    #[error(
        "`old` occurs more than once in {path}, first at line {first} and last at line {last}; add lines around it until it occurs once, or give `all`"
    )]
    NotUnique { path: String, first: usize, last: usize },
    #[error("the pattern is not a regular expression: {0}")]
    Pattern(Box<grep_regex::Error>),
    #[error("`glob` cannot be used: {0}")]
    Glob(Box<ignore::Error>),
    #[error(transparent)]
    Patch(#[from] PatchError),
    #[error("the patch does not fit {path}, so nothing was changed: {source}")]
    Hunk { path: String, source: HunkError },
    #[error("{path} is named twice in the patch; put all its hunks together")]
    Twice { path: String },
    #[error("{path} is there already")]
    Exists { path: String },
    #[error("{path} has more lines than the patch deletes; read the file")]
    NotAll { path: String },
    #[error("{path} is a name that cannot stand in a patch; use edit_file or write_file")]
    NotInPatch { path: String },
    #[error("{refusal}; what was changed before that could not be taken back everywhere: look at {stuck}")]
    HalfDone { refusal: Box<Refusal>, stuck: String },
    #[error("the arguments do not fit: {0}")]
    Arguments(#[from] serde_json::Error),
    #[error("could not {doing} {path}: {source}")]
    Io { doing: &'static str, path: String, source: io::Error },
    #[error("the call was cancelled")]
    Cancelled,
}

impl Refusal {
    /// What the system said when `doing` something to `path`.
    pub(super) fn of(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = shown(path);
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            io::ErrorKind::IsADirectory => Self::IsFolder { path },
            io::ErrorKind::NotADirectory => Self::NotFolder { path },
            // cap-std's word for a path that leaves the folder; the system's own refusals have a number.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => Self::Outside { path },
            _ => Self::Io { doing, path, source },
        }
    }
}

/// A path as the model reads it: one line, whatever the file is called.
pub(super) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    match &*text {
        "" => ".".to_owned(),
        text if text.contains(char::is_control) => text.escape_debug().to_string(),
        text => text.to_owned(),
    }
}
