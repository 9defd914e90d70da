//! Where conversations are kept: `--store`, else `url` in `[store]`, else memory.

use std::path::PathBuf;

use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, Conversations};
use turnbuckle_stores::SqliteStore;

use crate::Stopped;
use crate::args::Common;
use crate::config::{self, Config};
use crate::exit::Exit;
use crate::problem::{Problem, with_causes};

/// A store's name, understood; nothing is opened yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreName {
    /// Forgotten with the process.
    #[default]
    Memory,
    /// A file, relative to the current folder.
    Sqlite(PathBuf),
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

    /// Whether conversations outlive the process.
    pub(crate) fn is_durable(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Conversations of `agent` in it; made if it is not there.
    pub(crate) fn conversations(&self, agent: Agent) -> Result<ConversationsBuilder, Stopped> {
        match self {
            Self::Memory => Ok(Conversations::builder(agent, MemoryStore::default())),
            Self::Sqlite(path) => Ok(Conversations::builder(agent, open(path)?)),
        }
    }

    /// What is kept in it already; nothing is made.
    pub(crate) fn existing(&self) -> Result<SqliteStore, Stopped> {
        let Self::Sqlite(path) = self else {
            let problem = Problem::error("the store `memory:` keeps nothing: there are no conversations in it");
            let hint = "give the store that `run` had: `--store sqlite:PATH`, or `url` in [store]";
            return Err(Stopped::failed(problem.hint(hint)));
        };
        // An empty file would be made a database.
        match std::fs::metadata(path) {
            Ok(about) if about.len() > 0 => open(path),
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

/// The chosen store for those who only look: of the configuration nothing else matters, but it must be readable.
pub(crate) fn existing(common: &Common) -> Result<SqliteStore, Stopped> {
    let config::Loaded { config, mut problems, .. } = config::load(common.config.as_deref());
    problems.retain(Problem::is_error);
    match StoreName::choose(common, &config) {
        Ok(name) if problems.is_empty() => name.existing(),
        Ok(_) => Err(Stopped { problems, exit: Exit::Usage }),
        Err(problem) => {
            problems.push(problem);
            Err(Stopped { problems, exit: Exit::Usage })
        }
    }
}

fn missing(what: String) -> Stopped {
    Stopped::failed(Problem::error(what).hint("a path is relative to the current folder; `run` makes the database"))
}

fn open(path: &PathBuf) -> Result<SqliteStore, Stopped> {
    SqliteStore::open(path).map_err(|error| Stopped::failed(Problem::error(with_causes(&error))))
}
