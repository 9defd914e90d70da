//! Deleting a conversation reaches its lines in the audit log.
//!
//! A line is overwritten where it stands, with one of the same length that says nothing: other processes may append to the file
//! meanwhile, and keep it open. So nothing needs a lock, and a crash in between leaves whole lines.

mod lines;

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use turnbuckle::store::{PrivateFile, PrivateFileError, SideStore};
use turnbuckle::{BoxError, BoxFuture, ConversationId};

use self::lines::Mode;

/// How often the files are looked through at most, until nothing happens to them meanwhile.
const PASSES: usize = 100;
/// How long a pass waits for the processes that interfered with the one before.
const PAUSE: Duration = Duration::from_millis(10);
/// The most files that are held open during a pass.
const HELD: usize = 128;

/// The files of an audit log: the one that is written, and those that are full.
#[derive(Clone, Debug)]
pub struct AuditFiles {
    file: PrivateFile,
}

impl AuditFiles {
    /// Those of the log that is written to `file`.
    pub fn new(file: impl Into<PrivateFile>) -> Self {
        Self { file: file.into() }
    }

    /// The names of all of them that exist: `FILE`, and `FILE.1`, `FILE.2` and so on. A link or a folder of such a name is one of
    /// them: a line of the conversation may be behind it, and whoever opens it says that it cannot be reached.
    fn existing(&self) -> Result<Vec<PathBuf>, BoxError> {
        let path = self.file.path();
        let Some(name) = path.file_name() else { return Ok(Vec::new()) };
        if !self.file.has_folder()? {
            return Ok(Vec::new());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let own = entry.file_name();
            let rest = own.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
            let is_log = rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(b".").is_some_and(is_number));
            if is_log {
                found.push(path.with_file_name(own));
            }
        }
        Ok(found)
    }

    /// The files by name.
    fn listed(&self) -> Result<BTreeMap<PathBuf, (FileId, u64)>, BoxError> {
        let mut listed = BTreeMap::new();
        for path in self.existing()? {
            match path.symlink_metadata() {
                Ok(about) => drop(listed.insert(path, (FileId::of(&about), about.len()))),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(listed)
    }

    /// One of the files, opened once for all that is done with it: under its name there may be another one in the next moment.
    /// `None` if it was removed by rotation.
    fn open(&self, path: &Path, mode: Mode) -> Result<Option<File>, PrivateFileError> {
        let file = self.file.beside(path.file_name().unwrap_or_default());
        match mode {
            Mode::Count => file.look(),
            Mode::Erase => file.existing(),
        }
    }

    /// Looks through the files until nothing was found in them and they were the same before and after: while they are listed
    /// and read, other processes append to them and rotate them, and a file that moves may be missed.
    /// `pause` is called between two passes.
    fn erase_all(&self, conversation: &ConversationId, pause: impl Fn()) -> Result<(), BoxError> {
        for pass in 0..PASSES {
            if pass > 0 {
                pause();
            }
            let before = self.listed()?;
            let (mut seen, mut found) = (Seen::default(), 0);
            for path in before.keys() {
                if let Some(file) = self.open(path, Mode::Erase)? {
                    found += seen.erase_in(file, conversation)?;
                }
            }
            let after = self.listed()?;
            let names = |listed: &BTreeMap<PathBuf, (FileId, u64)>| {
                listed.iter().map(|(path, (id, _))| (path.clone(), *id)).collect::<Vec<_>>()
            };
            if found == 0 && names(&before) == names(&after) && after.values().all(|(id, len)| seen.covers(*id, *len)) {
                return Ok(());
            }
        }
        Err("the files are being written and rotated all the time, and lines of the conversation may be left".into())
    }

    fn count_all(&self, conversation: &ConversationId) -> Result<u64, BoxError> {
        let mut count = 0;
        for path in self.existing()? {
            if let Some(file) = self.open(&path, Mode::Count)? {
                count += lines::scan(&file, conversation, Mode::Count)?.found;
            }
        }
        Ok(count)
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn of(about: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(about.dev(), about.ino())
    }

    /// Without numbers for files, the time at which it was made stands for it.
    #[cfg(not(unix))]
    fn of(about: &Metadata) -> Self {
        let made =
            about.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        Self(made.as_secs(), u64::from(made.subsec_nanos()))
    }
}

/// How far each file was looked through in a pass.
#[derive(Default)]
struct Seen {
    files: HashMap<FileId, (u64, Option<File>)>,
}

impl Seen {
    /// Erases the lines of the conversation in this file, and returns how many there were.
    fn erase_in(&mut self, file: File, conversation: &ConversationId) -> io::Result<u64> {
        let id = FileId::of(&file.metadata()?);
        let scanned = lines::scan(&file, conversation, Mode::Erase)?;
        // While a file is held open, no other file gets its number.
        let is_held = self.files.len() < HELD;
        self.files.insert(id, (scanned.end, is_held.then_some(file)));
        Ok(scanned.found)
    }

    /// Whether a file was looked through up to this length.
    fn covers(&self, id: FileId, length: u64) -> bool {
        self.files.get(&id).is_some_and(|(end, _)| *end >= length)
    }
}

impl SideStore for AuditFiles {
    fn what(&self) -> &'static str {
        "audit log"
    }

    fn name(&self) -> String {
        let path = std::path::absolute(self.file.path()).unwrap_or_else(|_| self.file.path().to_owned());
        format!("{} in {}", self.what(), path.display())
    }

    fn files(&self) -> Vec<PathBuf> {
        // What cannot be listed has no size that could be told.
        self.existing().unwrap_or_default()
    }

    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        let (files, conversation) = (self.clone(), conversation.clone());
        Box::pin(async move { tokio::task::spawn_blocking(move || files.count_all(&conversation)).await? })
    }

    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        let (files, conversation) = (self.clone(), conversation.clone());
        Box::pin(async move {
            tokio::task::spawn_blocking(move || files.erase_all(&conversation, || std::thread::sleep(PAUSE))).await?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_log_that_never_rests_is_told_as_left() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("audit.jsonl");
        let write = || std::fs::write(&base, "{\"conversation\":\"fix\"}\n").unwrap();
        write();
        let error = AuditFiles::new(&base).erase_all(&"fix".into(), write).unwrap_err();
        assert!(error.to_string().contains("may be left"), "{error}");
    }
}
