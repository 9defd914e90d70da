//! A folder that an agent may work in, and the tools for it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnbuckle::tool::Tool;
use turnbuckle::{BoxError, TurnId};

use crate::files::{self, Folder, UndoFiles, Undone};

/// The file tools confined to a folder. Cheap to clone; the clones' changes of files wait for each other.
///
/// No path leads out of the folder: not an absolute one, not `..`, not a symbolic link on the way or at its end. A path is
/// brought to its normal form before anything judges it: relative to the folder, without `.`, `..` and needless slashes,
/// links inside the folder resolved. Hooks, people who approve and the log's `tool_started` see that form, so a rule about
/// a path holds for all its spellings. When the call runs the path must still be its own normal form, and it is opened name by
/// name without following links: a link that was put there in between is refused. Pipes, sockets and devices are refused.
/// What the tools cannot tell is a hard link: reading one reads the file it shares with the outside; changing one never
/// changes that file, because a change is always a new file in its place.
///
/// The folder is all or nothing: its hidden files (`.env`, `.git/config`, `turnbuckle.toml`) are inside, too. Who may
/// change what is for gates and `before_tool` hooks to say.
#[derive(Clone)]
pub struct Workspace {
    root: PathBuf,
    folder: Arc<Folder>,
}

/// Why a folder cannot be worked in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// It is not there, is no folder, or may not be read.
    #[error("could not open the folder {}: {source}", path.display())]
    Open {
        /// The folder as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Workspace {
    /// The tools, by name.
    pub const NAMES: [&'static str; 6] =
        ["read_file", "write_file", "edit_file", "apply_patch", "list_files", "search_files"];

    /// The tools that change files.
    pub const CHANGING: [&'static str; 3] = ["write_file", "edit_file", "apply_patch"];

    /// Opens a folder. It is held open: moved or replaced later, the tools stay with the one that was opened.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        Self::open_without(root, Vec::new())
    }

    /// Opens a folder in which some files are closed to the tools, by whatever name or link they are reached: absolute paths,
    /// which need not be there yet. What SQLite keeps beside a database (`-wal`, `-shm`, `-journal`) is closed with it.
    pub fn open_without(root: impl AsRef<Path>, closed: Vec<PathBuf>) -> Result<Self, WorkspaceError> {
        let given = root.as_ref();
        let opened = given.canonicalize().and_then(|root| Ok((Folder::open(&root, closed)?, root)));
        let (folder, root) = opened.map_err(|source| WorkspaceError::Open { path: given.to_owned(), source })?;
        Ok(Self { root, folder: Arc::new(folder) })
    }

    /// Where it is: absolute, links resolved.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Keeps what the tools change from now on in files, so that [`undo`](Self::undo) knows it in later processes as well.
    pub fn keep_undo(&self, files: UndoFiles) {
        files::keep_undo(&self.folder, files);
    }

    /// Puts back the files that a turn changed with these tools, as far as nobody changed them since: see [`Undone`]. `None` if
    /// the tools changed nothing in that turn, or it is not remembered: the last turns of this process are, and those of earlier
    /// ones with [`keep_undo`](Self::keep_undo). What commands and other programs changed is not known here.
    pub async fn undo(&self, turn: &TurnId) -> Result<Option<Undone>, BoxError> {
        files::undo(&self.folder, turn).await
    }

    /// One of [`NAMES`](Self::NAMES); `None` for any other name. Nothing is gated yet: see
    /// [`AgentBuilder::approve`](turnbuckle::AgentBuilder::approve) and [`CHANGING`](Self::CHANGING).
    pub fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        files::tool(name, &self.folder)
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("root", &self.root).finish_non_exhaustive()
    }
}
