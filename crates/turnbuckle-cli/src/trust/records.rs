//! What the user accepted, in files of the user's own folder: one for each project, one for each database at a path.
//!
//! A file is written beside its place and then moved there, so a reader sees it whole or not at all, and processes that write
//! different files do not meet. Of two that write the same one the last counts.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use turnbuckle::Timestamp;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle_stores::DatabaseId;

use super::digest;
use crate::read_file::{CONFIGURATION, read_file};
use crate::user_folders;

/// The format of the files.
const FORMAT: u32 = 1;
const PROJECTS: &str = "projects";
const STORES: &str = "stores";
/// Every acceptance and revocation, one JSON object a line.
const HISTORY: &str = "history.jsonl";
/// When this folder was first written to.
const FIRST_USED: &str = "first-used";

/// Why something could not be noted or looked up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("there is no folder to note it in: neither HOME nor XDG_STATE_HOME leads to one")]
    NoFolder,
    #[error("{} is not only yours to write: what stands in it does not count", path.display())]
    Shared { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be understood", path.display())]
    Unreadable { path: PathBuf },
}

/// What was accepted of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AcceptedProject {
    format: u32,
    /// Absolute, links resolved.
    pub(crate) folder: PathBuf,
    pub(crate) accepted: Extent,
    pub(crate) at: Timestamp,
    /// The user that the user's own file names.
    pub(crate) by: String,
}

/// How much of a project's files was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extent {
    /// These definitions, in this order.
    Items(Vec<AcceptedItem>),
    /// Whatever the files say, now and later.
    Folder,
}

/// A definition that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AcceptedItem {
    pub(crate) title: String,
    pub(crate) digest: String,
    /// Of the definition without its files: to tell a change of the one from a change of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) definition: Option<String>,
    /// The digests of the files that are part of it: to name the one that changed.
    pub(crate) files: BTreeMap<PathBuf, String>,
}

/// A database that is carried on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownStore {
    format: u32,
    pub(crate) id: String,
    /// Absolute, links resolved.
    pub(crate) path: PathBuf,
    pub(crate) origin: StoreOrigin,
    pub(crate) at: Timestamp,
}

/// Why a database is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreOrigin {
    /// This user's Turnbuckle made it.
    Made,
    /// An older version made it, in the project's default place.
    Adopted,
    /// The user accepted it.
    Accepted,
}

/// The folder with the files.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    /// Those of this user. Fails if the folder, or one of those in it, may be written by others; they need not be there.
    pub(crate) fn open() -> Result<Self, RecordError> {
        let folder = user_folders::state().ok_or(RecordError::NoFolder)?;
        check_own(&folder)?;
        for inner in [PROJECTS, STORES] {
            check_own(&folder.join(inner))?;
        }
        Ok(Self { folder })
    }

    /// Fails if nothing can be noted: the folder cannot be written to, or not be made. Nothing is made to find out.
    pub(crate) fn check_writable(&self) -> Result<(), RecordError> {
        let there = [PROJECTS, STORES].map(|name| self.folder.join(name));
        for folder in there.iter().filter_map(|folder| folder.ancestors().find(|folder| folder.exists())) {
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            let failed = |source: io::Error| RecordError::Io { path: folder.to_owned(), source };
            rustix::fs::access(folder, access).map_err(|error| failed(error.into()))?;
            if !folder.is_dir() {
                return Err(failed(io::ErrorKind::NotADirectory.into()));
            }
        }
        Ok(())
    }

    pub(super) fn project_file(&self, folder: &Path) -> PathBuf {
        self.folder.join(PROJECTS).join(format!("{}.json", digest::of_path(folder)))
    }

    fn store_file(&self, id: &DatabaseId, path: &Path) -> PathBuf {
        self.folder.join(STORES).join(format!("{id}-{}.json", digest::of_path(path)))
    }

    /// What was accepted of the project in `folder`.
    pub(crate) fn project(&self, folder: &Path) -> Result<Option<AcceptedProject>, RecordError> {
        let path = self.project_file(folder);
        let found: Option<AcceptedProject> = read(&path)?;
        match found {
            Some(found) if found.format != FORMAT || found.folder != folder => Err(RecordError::Unreadable { path }),
            found => Ok(found),
        }
    }

    pub(crate) fn accept(&self, folder: &Path, accepted: Extent, by: &str) -> Result<(), RecordError> {
        let at = SystemClock::default().now();
        let record = AcceptedProject { format: FORMAT, folder: folder.to_owned(), accepted, at, by: by.to_owned() };
        self.write(&self.project_file(folder), &record)?;
        self.remember(&json!({ "at": at, "by": by, "act": "accepted", "folder": folder, "accepted": record.accepted }))
    }

    /// Whether there was something to revoke.
    pub(crate) fn revoke(&self, folder: &Path, by: &str) -> Result<bool, RecordError> {
        let is_in = |store: &KnownStore| store.origin == StoreOrigin::Accepted && store.path.starts_with(folder);
        let stores: Vec<PathBuf> = self
            .stores()
            .into_iter()
            .filter_map(Result::ok)
            .filter(is_in)
            .filter_map(|store| Some(self.store_file(&DatabaseId::parse(&store.id)?, &store.path)))
            .collect();
        let mut revoked = false;
        for path in std::iter::once(self.project_file(folder)).chain(stores) {
            match std::fs::remove_file(&path) {
                Ok(()) => revoked = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(RecordError::Io { path, source }),
            }
        }
        if revoked {
            let at = SystemClock::default().now();
            self.remember(&json!({ "at": at, "by": by, "act": "revoked", "folder": folder }))?;
        }
        Ok(revoked)
    }

    /// What is known of the database with this id at this path.
    pub(crate) fn store(&self, id: &DatabaseId, path: &Path) -> Result<Option<KnownStore>, RecordError> {
        let file = self.store_file(id, path);
        let found: Option<KnownStore> = read(&file)?;
        let is_it = |found: &KnownStore| found.format == FORMAT && found.id == id.as_str() && found.path == path;
        match found {
            Some(found) if !is_it(&found) => Err(RecordError::Unreadable { path: file }),
            found => Ok(found),
        }
    }

    /// Where else the database with this id is known to be.
    pub(crate) fn elsewhere(&self, id: &DatabaseId, path: &Path) -> Option<PathBuf> {
        let same = |store: &KnownStore| store.id == id.as_str() && store.path != path;
        self.stores().into_iter().filter_map(Result::ok).find(same).map(|store| store.path)
    }

    /// Whether a database is known to be at this path, whatever its id.
    pub(crate) fn knows_path(&self, path: &Path) -> bool {
        self.stores().into_iter().filter_map(Result::ok).any(|store| store.path == path)
    }

    pub(crate) fn know(&self, id: &DatabaseId, path: &Path, origin: StoreOrigin, by: &str) -> Result<(), RecordError> {
        let at = SystemClock::default().now();
        let record = KnownStore { format: FORMAT, id: id.to_string(), path: path.to_owned(), origin, at };
        self.write(&self.store_file(id, path), &record)?;
        match origin {
            StoreOrigin::Made => Ok(()),
            origin => self.remember(&json!({ "at": at, "by": by, "act": origin, "store": path, "id": id.as_str() })),
        }
    }

    /// Takes back a note about a database that was not made after all.
    pub(crate) fn forget(&self, id: &DatabaseId, path: &Path) -> Result<(), RecordError> {
        let file = self.store_file(id, path);
        std::fs::remove_file(&file).map_err(|source| RecordError::Io { path: file, source })
    }

    /// All projects, by folder.
    pub(crate) fn projects(&self) -> Vec<Result<AcceptedProject, RecordError>> {
        let mut all = self.all(PROJECTS);
        all.sort_by(|a: &Result<AcceptedProject, _>, b| folder_of(a).cmp(&folder_of(b)));
        all
    }

    /// All databases.
    pub(crate) fn stores(&self) -> Vec<Result<KnownStore, RecordError>> {
        self.all(STORES)
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Vec<Result<T, RecordError>> {
        let Ok(entries) = std::fs::read_dir(self.folder.join(kind)) else { return Vec::new() };
        let files = entries.flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
        files.filter_map(|path| read(&path).transpose()).collect()
    }

    /// When the folder was first written to; `None` if it never was.
    pub(crate) fn first_used(&self) -> Option<SystemTime> {
        self.folder.join(FIRST_USED).metadata().and_then(|about| about.modified()).ok()
    }

    fn make_folders(&self) -> Result<(), RecordError> {
        for folder in [PROJECTS, STORES].map(|name| self.folder.join(name)) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|source| RecordError::Io { path: folder, source })?;
        }
        let path = self.folder.join(FIRST_USED);
        match File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(RecordError::Io { path, source: error }),
            _ => Ok(()),
        }
    }

    fn write(&self, path: &Path, record: &impl Serialize) -> Result<(), RecordError> {
        self.make_folders()?;
        let failed = |source| RecordError::Io { path: path.to_owned(), source };
        let mut text = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        // Readable by the owner alone, which is how temporary files are made.
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(path)).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error)).map(drop)
    }

    /// One line at the end of the history, in one write: lines of several processes do not mix.
    fn remember(&self, act: &serde_json::Value) -> Result<(), RecordError> {
        let path = self.folder.join(HISTORY);
        let opened = File::options().append(true).create(true).mode(0o600).open(&path);
        let written = opened.and_then(|mut file| file.write_all(format!("{act}\n").as_bytes()));
        written.map_err(|source| RecordError::Io { path, source })
    }
}

fn folder_of(record: &Result<AcceptedProject, RecordError>) -> Option<&Path> {
    record.as_ref().ok().map(|record| record.folder.as_path())
}

/// What others may write, or what belongs to somebody else, does not count. A link is judged by what it leads to.
fn check_own(path: &Path) -> Result<(), RecordError> {
    let me = rustix::process::geteuid().as_raw();
    match path.metadata() {
        Ok(about) if about.uid() != me || about.mode() & 0o022 != 0 => {
            Err(RecordError::Shared { path: path.to_owned() })
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(RecordError::Io { path: path.to_owned(), source }),
    }
}

/// `None` if there is no such file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RecordError> {
    check_own(path)?;
    let unreadable = || RecordError::Unreadable { path: path.to_owned() };
    match read_file(path, CONFIGURATION) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|_| unreadable()),
        Err(error) if error.is_missing() => Ok(None),
        Err(_) => Err(unreadable()),
    }
}
