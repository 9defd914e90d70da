//! Files of conversations below a project, a folder for each: only their owner may read them, and no link leads out of the project.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _};
use tokio::task::spawn_blocking;
use turnbuckle::{BoxError, ConversationId};

/// `FOLDER/CONVERSATION/FILE` below a project.
#[derive(Clone, Debug)]
pub(crate) struct ConversationFiles {
    project: PathBuf,
    /// Relative to the project.
    folder: PathBuf,
}

impl ConversationFiles {
    pub(crate) fn below(project: PathBuf, folder: PathBuf) -> Self {
        Self { project, folder }
    }

    /// Where they are.
    pub(crate) fn path(&self) -> PathBuf {
        self.project.join(&self.folder)
    }

    /// The project, and the folder of a conversation in it. It is made if it is not there; git leaves it out then.
    pub(crate) fn make(&self, conversation: &str) -> io::Result<(Dir, PathBuf)> {
        let project = Dir::open_ambient_dir(&self.project, ambient_authority())?;
        let folder = self.folder.join(file_name(conversation));
        let mut private = DirBuilder::new();
        private.mode(0o700);
        // Where the conversations are kept elsewhere, Turnbuckle's own folder may not be there yet.
        if let Some(own) = self.folder.iter().next() {
            match project.create_dir_with(own, &private) {
                Ok(()) => project.write(Path::new(own).join(".gitignore"), "*\n")?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        private.recursive(true);
        project.create_dir_with(&folder, &private)?;
        Ok((project, folder))
    }

    /// The folder with those of all conversations, if there is one.
    pub(crate) fn all(&self) -> io::Result<Option<Dir>> {
        let opened =
            Dir::open_ambient_dir(&self.project, ambient_authority()).and_then(|dir| dir.open_dir(&self.folder));
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The folders of a conversation and of those of its sub-agents.
    fn of(&self, conversation: &str) -> io::Result<Option<(Dir, Vec<PathBuf>)>> {
        let Some(all) = self.all()? else { return Ok(None) };
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

    fn erase_now(&self, conversation: &str) -> io::Result<()> {
        let Some((all, found)) = self.of(conversation)? else { return Ok(()) };
        for folder in found {
            all.remove_dir_all(folder)?;
        }
        Ok(())
    }

    fn count_now(&self, conversation: &str) -> io::Result<u64> {
        let Some((all, found)) = self.of(conversation)? else { return Ok(0) };
        let mut count = 0;
        for folder in found {
            count += all.read_dir(folder)?.count() as u64;
        }
        Ok(count)
    }

    /// How many files a conversation has, with those of its sub-agents.
    pub(crate) async fn count(&self, conversation: &ConversationId) -> Result<u64, BoxError> {
        let (files, id) = (self.clone(), conversation.to_string());
        Ok(spawn_blocking(move || files.count_now(&id)).await??)
    }

    /// Removes them.
    pub(crate) async fn erase(&self, conversation: &ConversationId) -> Result<(), BoxError> {
        let (files, id) = (self.clone(), conversation.to_string());
        Ok(spawn_blocking(move || files.erase_now(&id)).await??)
    }
}

/// An id as a name of a file. A call's id is the model's: it may be anything, and as long as it likes.
pub(crate) fn file_name(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let name =
        id.bytes().take(80).map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") });
    name.collect()
}
