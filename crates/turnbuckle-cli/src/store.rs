//! Where conversations are kept: `--store`, else `url` in `[store]`, else a database in this folder.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, Conversations};
use turnbuckle_stores::SqliteStore;

use crate::Stopped;
use crate::args::Common;
use crate::config::Config;
use crate::logging::CLI;
use crate::problem::{Problem, with_causes};

/// The folder for what Turnbuckle keeps in a project.
const OWN_FOLDER: &str = ".turnbuckle";
const DEFAULT: &str = ".turnbuckle/turnbuckle.db";

/// A store's name, understood; nothing is opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreName {
    /// Forgotten with the process.
    Memory,
    /// A file, relative to the current folder.
    Sqlite(PathBuf),
}

impl Default for StoreName {
    fn default() -> Self {
        Self::Sqlite(DEFAULT.into())
    }
}

impl StoreName {
    /// Which one is chosen.
    pub(crate) fn choose(common: &Common, config: &Config) -> Result<Self, Problem> {
        let found = config.store.url.as_ref();
        match (&common.store, found) {
            (Some(url), _) => Self::parse(url),
            (None, Some(found)) => Self::parse(&found.value).map_err(|problem| problem.at(&found.place)),
            (None, None) => Ok(Self::default()),
        }
    }

    fn parse(url: &str) -> Result<Self, Problem> {
        let hint = "use `sqlite:PATH`, or `memory:` to forget conversations when the program ends";
        let refused = |what: String| Err(Problem::error(what).hint(hint));
        match (url, url.strip_prefix("sqlite:")) {
            ("memory:", _) => Ok(Self::Memory),
            (_, Some("" | ":memory:")) => refused(format!("store {url:?} names no file")),
            (_, Some(path)) if path.starts_with("//") => {
                refused(format!("store {url:?}: after `sqlite:` comes a path, not `//`"))
            }
            (_, Some(path)) => Ok(Self::Sqlite(path.into())),
            _ if ["postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme)) => {
                refused(format!("store {url:?}: this version has no client for PostgreSQL"))
            }
            _ => refused(format!("there is no store {url:?}")),
        }
    }

    /// The file that it writes: no tool of a model reaches it, nor what SQLite keeps beside it.
    pub(crate) fn file_in(&self, folder: &Path) -> Option<PathBuf> {
        match self {
            Self::Memory => None,
            Self::Sqlite(path) => Some(folder.join(path)),
        }
    }

    /// Whether conversations outlive the process.
    pub(crate) fn is_durable(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Conversations of `agent` in it; made if it is not there.
    pub(crate) fn conversations(&self, agent: Agent) -> Result<ConversationsBuilder, Stopped> {
        match self {
            Self::Memory => {
                tracing::info!(target: CLI, store = %self, "store opened");
                Ok(Conversations::builder(agent, MemoryStore::default()))
            }
            Self::Sqlite(path) => {
                make_own_folder(path).map_err(|error| {
                    let what = format!("making the folder of the database {}: {error}", path.display());
                    Stopped::failed(Problem::error(what).hint(ELSEWHERE))
                })?;
                Ok(Conversations::builder(agent, self.opened(SqliteStore::open(path), "read and write")?))
            }
        }
    }

    /// To go on with what is kept in it already; nothing is made. `hint`: what to do if there is no database.
    pub(crate) fn existing(&self, hint: &str) -> Result<SqliteStore, Stopped> {
        self.opened(SqliteStore::open(self.file(hint)?), "read and write")
    }

    /// To look at what is kept in it; nothing is written.
    pub(crate) fn open_read_only(&self) -> Result<SqliteStore, Stopped> {
        self.opened(SqliteStore::open_read_only(self.file(MADE_BY_RUN)?), "read only")
    }

    fn opened<E: std::error::Error>(&self, opened: Result<SqliteStore, E>, mode: &str) -> Result<SqliteStore, Stopped> {
        let store = opened.map_err(|error| Stopped::failed(Problem::error(with_causes(&error)).hint(ELSEWHERE)))?;
        tracing::info!(target: CLI, store = %self, mode, "store opened");
        Ok(store)
    }

    /// The database, which is there.
    fn file(&self, hint: &str) -> Result<&Path, Stopped> {
        let Self::Sqlite(path) = self else {
            let problem = Problem::error("the store `memory:` keeps nothing: there are no conversations in it");
            let hint = "give the store that `run` had: `--store sqlite:PATH`, or `url` in [store]";
            return Err(Stopped::failed(problem.hint(hint)));
        };
        let missing = |what: String| Stopped::failed(Problem::error(what).hint(hint));
        // An empty file would be made a database.
        match std::fs::metadata(path) {
            Ok(about) if about.len() > 0 => Ok(path),
            Ok(_) => Err(missing(format!("the file {} is empty", path.display()))),
            Err(error) => Err(missing(format!("there is no database {}: {error}", path.display()))),
        }
    }
}

impl std::fmt::Display for StoreName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

/// Where a database comes from.
pub(crate) const MADE_BY_RUN: &str =
    "a path is relative to the current folder; `turnbuckle run \"…\"` makes the database";

/// Where else conversations can be kept.
const ELSEWHERE: &str = "`--store sqlite:PATH` keeps conversations elsewhere, `--store memory:` nowhere";

/// Makes the folder of the database, with a `.gitignore` that keeps it out of git. An existing folder is left alone.
fn make_own_folder(database: &Path) -> io::Result<()> {
    let Some(folder) = database.parent().filter(|folder| folder.file_name().is_some_and(|name| name == OWN_FOLDER))
    else {
        return Ok(());
    };
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::create_dir(folder) {
        Ok(()) => std::fs::File::create_new(folder.join(".gitignore"))?.write_all(b"*\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
