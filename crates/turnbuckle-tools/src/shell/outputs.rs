//! The files with outputs that are too long for a result: `output/CONVERSATION/CALL.txt` in Turnbuckle's folder of a project.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::{File, OpenOptions, OpenOptionsExt as _};
use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId};

use crate::conversation_files::{ConversationFiles, file_name};

/// Below Turnbuckle's folder.
const FOLDER: &str = "output";

/// Where outputs of commands are kept. As a [`SideStore`], the files of a conversation are erased when it is deleted.
///
/// No link leads out of the project, and only the owner may read the files.
#[derive(Clone, Debug)]
pub struct ShellOutputs(ConversationFiles);

/// A file that is written.
pub(super) struct OutputFile {
    pub(super) file: File,
    /// Relative to the project.
    pub(super) path: String,
}

impl ShellOutputs {
    /// In the folder `own` (`.turnbuckle`) of a project.
    pub fn below(project: impl Into<PathBuf>, own: impl AsRef<Path>) -> Self {
        Self(ConversationFiles::below(project.into(), own.as_ref().join(FOLDER)))
    }

    /// Makes the file of a call. One that is there is of the same call, and is replaced.
    pub(super) fn create(&self, conversation: &str, call: &str) -> io::Result<OutputFile> {
        let (project, folder) = self.0.make(conversation)?;
        let path = folder.join(file_name(call) + ".txt");
        match project.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = project.open_with(&path, &options)?;
        Ok(OutputFile { file, path: path.display().to_string() })
    }
}

impl SideStore for ShellOutputs {
    fn what(&self) -> &'static str {
        "outputs of commands"
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
