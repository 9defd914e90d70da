//! The files with outputs that are too long for a result: `output/CONVERSATION/CALL.txt` in Turnbuckle's folder of a project.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, File, OpenOptions, OpenOptionsExt as _};
use tokio::task::spawn_blocking;
use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId};

/// Below Turnbuckle's folder.
const FOLDER: &str = "output";

/// Where outputs of commands are kept. As a [`SideStore`], the files of a conversation are erased when it is deleted.
///
/// No link leads out of the project, and only the owner may read the files.
#[derive(Clone, Debug)]
pub struct ShellOutputs {
    project: PathBuf,
    /// Relative to the project.
    folder: PathBuf,
}

/// A file that is written.
pub(super) struct OutputFile {
    pub(super) file: File,
    /// Relative to the project.
    pub(super) path: String,
}

impl ShellOutputs {
    /// In the folder `own` (`.turnbuckle`) of a project.
    pub fn below(project: impl Into<PathBuf>, own: impl AsRef<Path>) -> Self {
        Self { project: project.into(), folder: own.as_ref().join(FOLDER) }
    }

    /// Makes the file of a call. One that is there is of the same call, and is replaced.
    pub(super) fn create(&self, conversation: &str, call: &str) -> io::Result<OutputFile> {
        let project = Dir::open_ambient_dir(&self.project, ambient_authority())?;
        let folder = self.folder.join(file_name(conversation));
        let mut private = DirBuilder::new();
        private.recursive(true).mode(0o700);
        project.create_dir_with(&folder, &private)?;
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

    /// The folders of a conversation and of those of its sub-agents.
    fn folders_of(&self, conversation: &str) -> io::Result<Option<(Dir, Vec<PathBuf>)>> {
        let opened =
            Dir::open_ambient_dir(&self.project, ambient_authority()).and_then(|dir| dir.open_dir(&self.folder));
        let all = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let (own, below) = (file_name(conversation), file_name(&format!("{conversation}/")));
        let mut found = Vec::new();
        for entry in all.entries()? {
            let name = entry?.file_name();
            let is_of = |name: &str| name == own || name.starts_with(&below);
            if name.to_str().is_some_and(is_of) {
                found.push(PathBuf::from(name));
            }
        }
        Ok(Some((all, found)))
    }

    fn erase_all(&self, conversation: &str) -> io::Result<()> {
        let Some((all, found)) = self.folders_of(conversation)? else { return Ok(()) };
        for folder in found {
            all.remove_dir_all(folder)?;
        }
        Ok(())
    }

    fn count_all(&self, conversation: &str) -> io::Result<u64> {
        let Some((all, found)) = self.folders_of(conversation)? else { return Ok(0) };
        let mut count = 0;
        for folder in found {
            count += all.read_dir(folder)?.count() as u64;
        }
        Ok(count)
    }
}

/// An id as a name of a file. A call's id is the model's: it may be anything, and as long as it likes.
fn file_name(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let name =
        id.bytes().take(80).map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") });
    name.collect()
}

impl SideStore for ShellOutputs {
    fn what(&self) -> &'static str {
        "outputs of commands"
    }

    fn name(&self) -> String {
        format!("{} in {}", self.what(), self.project.join(&self.folder).display())
    }

    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        let (outputs, id) = (self.clone(), conversation.to_string());
        Box::pin(async move { Ok(spawn_blocking(move || outputs.count_all(&id)).await??) })
    }

    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        let (outputs, id) = (self.clone(), conversation.to_string());
        Box::pin(async move { Ok(spawn_blocking(move || outputs.erase_all(&id)).await??) })
    }
}
