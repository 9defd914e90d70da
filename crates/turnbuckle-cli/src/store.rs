//! Where conversations are kept: `--store`, else `url` in `[store]`, else a database in the project's folder.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, Conversations};
use turnbuckle_server::Metrics;
use turnbuckle_stores::SqliteStore;

use crate::Stopped;
use crate::args::Common;
use crate::config::Config;
use crate::logging::CLI;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::project::{OWN_FOLDER, Project};
use crate::show::clean;
use crate::trust::stores::{self, StoreStanding};
use crate::trust::{Standing, TrustOptions};

/// The database of a project, from its folder on.
pub(crate) const DEFAULT: &str = ".turnbuckle/turnbuckle.db";

/// A store's name, understood; nothing is opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreName {
    /// Forgotten with the process.
    Memory,
    Sqlite(StoreFile),
}

/// The file of a SQLite database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreFile {
    /// As it is reached from the current folder.
    pub(crate) path: PathBuf,
    pub(crate) named_by: NamedBy,
    /// The project's folder, absolute, links resolved.
    pub(crate) project: PathBuf,
}

/// A store that is open.
enum Made {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
}

/// Who chose a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    Option,
    /// Or the file of `--config`.
    UsersFile,
    ProjectsFile,
    Default,
}

impl StoreFile {
    /// Whether the user named this very file: on the command line, or in their own file by an absolute path. A relative one is
    /// another file in every project.
    pub(crate) fn is_named_by_user(&self) -> bool {
        match self.named_by {
            NamedBy::Option => true,
            NamedBy::UsersFile => self.path.is_absolute(),
            NamedBy::ProjectsFile | NamedBy::Default => false,
        }
    }

    /// Whether a path with its links resolved is the default place of the project's database.
    pub(crate) fn is_default_at(&self, path: &Path) -> bool {
        path == self.project.join(DEFAULT)
    }
}

impl StoreName {
    /// Which one is chosen. A path in a file starts at the project's folder, one on the command line at the current folder.
    pub(crate) fn choose(common: &Common, config: &Config, project: &Project) -> Result<Self, Problem> {
        let found = config.store.url.as_ref();
        match (&common.store, found) {
            (Some(url), _) => Self::parse(url, |path| (path.to_owned(), NamedBy::Option), project),
            (None, Some(found)) => {
                let is_projects = *found.place.file == *project.file().display().to_string() && common.config.is_none();
                let by = if is_projects { NamedBy::ProjectsFile } else { NamedBy::UsersFile };
                let in_project = |path: &Path| (project.join(path), by);
                Self::parse(&found.value, in_project, project).map_err(|problem| problem.at(&found.place))
            }
            (None, None) => Ok(Self::default_in(project)),
        }
    }

    /// The project's own.
    pub(crate) fn default_in(project: &Project) -> Self {
        let (path, folder) = (project.join(DEFAULT), project.folder.clone());
        Self::Sqlite(StoreFile { path, named_by: NamedBy::Default, project: folder })
    }

    /// The path that a URL names, if it names a file.
    pub(crate) fn path_in(url: &str) -> Option<&Path> {
        url.strip_prefix("sqlite:").map(Path::new)
    }

    fn parse(url: &str, file: impl FnOnce(&Path) -> (PathBuf, NamedBy), project: &Project) -> Result<Self, Problem> {
        let hint = "use `sqlite:PATH`, or `memory:` to forget conversations when the program ends";
        let refused = |what: String| Err(Problem::error(what).hint(hint));
        // A URL that was mistyped may still have a password.
        let server = || match (url.split_once(':'), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}:…@{host}"),
            (None, Some((_, host))) => format!("…@{host}"),
            (_, None) => url.to_owned(),
        };
        match (url, url.strip_prefix("sqlite:")) {
            ("memory:", _) => Ok(Self::Memory),
            (_, Some("" | ":memory:")) => refused(format!("store {url:?} names no file")),
            (_, Some(path)) if path.starts_with("//") => {
                refused(format!("store {url:?}: after `sqlite:` comes a path, not `//`"))
            }
            (_, Some(path)) => {
                let (path, named_by) = file(Path::new(path));
                Ok(Self::Sqlite(StoreFile { path, named_by, project: project.folder.clone() }))
            }
            _ if ["postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme)) => {
                refused(format!("store {:?}: this version has no client for PostgreSQL", server()))
            }
            _ => refused(format!("there is no store {:?}", server())),
        }
    }

    /// Whether there is something under its name already. What cannot be looked at counts as there.
    pub(crate) fn is_there(&self) -> bool {
        let missing = |path: &Path| path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.file_path().is_some_and(|path| !missing(path))
    }

    /// The file that it writes: no tool of a model reaches it, nor what SQLite keeps beside it.
    pub(crate) fn absolute_file(&self) -> Option<PathBuf> {
        self.file_path().and_then(|path| std::path::absolute(path).ok())
    }

    fn file_path(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::Sqlite(file) => Some(&file.path),
        }
    }

    /// Whether conversations outlive the process.
    pub(crate) fn is_durable(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Conversations of `agent` in it; made if it is not there.
    pub(crate) fn conversations(&self, agent: Agent) -> Result<ConversationsBuilder, Stopped> {
        Ok(match self.made()? {
            Made::Memory(store) => Conversations::builder(agent, store),
            Made::Sqlite(store) => Conversations::builder(agent, store),
        })
    }

    /// The same, with what is written counted.
    pub(crate) fn measured(&self, agent: Agent, metrics: &Metrics) -> Result<ConversationsBuilder, Stopped> {
        Ok(match self.made()? {
            Made::Memory(store) => Conversations::builder(agent, metrics.measured(store)),
            Made::Sqlite(store) => Conversations::builder(agent, metrics.measured(store)),
        })
    }

    fn made(&self) -> Result<Made, Stopped> {
        match self {
            Self::Memory => {
                tracing::info!(target: CLI, store = %self, "store opened");
                Ok(Made::Memory(MemoryStore::default()))
            }
            Self::Sqlite(file) => {
                let path = &file.path;
                make_own_folder(path).map_err(|error| {
                    let what = format!("making the folder of the database {}: {error}", path.display());
                    Stopped::failed(Problem::error(what).hint(ELSEWHERE))
                })?;
                Ok(Made::Sqlite(self.opened(stores::open_or_make(path), "read and write")?))
            }
        }
    }

    /// How many bytes its files have; `None` if it has none.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let path = self.file_path()?;
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            std::fs::metadata(name).map_or(0, |about| about.len())
        };
        Some(std::fs::metadata(path).ok()?.len() + beside("-wal") + beside("-shm"))
    }

    /// To go on with what is kept in it already; nothing is made. `hint`: what to do if there is no database.
    pub(crate) fn existing(&self, hint: &str) -> Result<SqliteStore, Stopped> {
        let file = self.file(hint)?;
        stores::before_writing(file)?;
        self.opened(SqliteStore::open(&file.path), "read and write")
    }

    /// To look at what is kept in it; nothing is written.
    pub(crate) fn open_read_only(&self) -> Result<SqliteStore, Stopped> {
        self.opened(SqliteStore::open_read_only(&self.file(MADE_BY_RUN)?.path), "read only")
    }

    fn opened<E: std::error::Error>(&self, opened: Result<SqliteStore, E>, mode: &str) -> Result<SqliteStore, Stopped> {
        let hint = self.file_path().map_or(ELSEWHERE, unopened);
        let store = opened.map_err(|error| Stopped::failed(Problem::error(with_causes(&error)).hint(hint)))?;
        tracing::info!(target: CLI, store = %self, mode, "store opened");
        if let Some(copy) = store.backup() {
            output::say(&clean(&format!(
                "note: the database {self} was made by an older version and was migrated; {} is as it was",
                copy.display()
            )));
        }
        Ok(store)
    }

    /// The database, which is there.
    fn file(&self, hint: &str) -> Result<&StoreFile, Stopped> {
        let Self::Sqlite(file) = self else {
            let problem = Problem::error("the store `memory:` keeps nothing: there are no conversations in it");
            let hint = "give the store that `run` had: `--store sqlite:PATH`, or `url` in [store]";
            return Err(Stopped::failed(problem.hint(hint)));
        };
        let from = match file.named_by {
            NamedBy::Option => "the path of `--store` starts at the current folder; ",
            _ => "",
        };
        let missing = |what: String| Stopped::failed(Problem::error(what).hint(format!("{from}{hint}")));
        // An empty file would be made a database.
        let path = &file.path;
        match std::fs::metadata(path) {
            Ok(about) if !about.is_file() => {
                let what = format!("{} is not a file", path.display());
                Err(Stopped::failed(Problem::error(what).hint(ELSEWHERE)))
            }
            Ok(about) if about.len() > 0 => Ok(file),
            Ok(_) => Err(missing(format!("the file {} is empty", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(missing(format!("there is no database {}", path.display())))
            }
            Err(error) => {
                let what = format!("the database {} cannot be opened: {error}", path.display());
                Err(Stopped::failed(Problem::error(what).hint(unopened(path))))
            }
        }
    }
}

impl StoreName {
    /// Whether it is a database that this user's Turnbuckle made, or that the user accepted for good. What is recorded in
    /// another one may have been written by anybody.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Memory => true,
            Self::Sqlite(file) => {
                matches!(stores::standing(file), Ok(StoreStanding::Known(_) | StoreStanding::Adoptable))
            }
        }
    }

    /// Whether it must be accepted before a turn in it is carried on.
    pub(crate) fn needs_acceptance(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Sqlite(file) => !file.is_named_by_user() && !self.is_known(),
        }
    }

    /// Says to those who only look that nobody will carry this database on.
    pub(crate) fn tell_standing(&self) {
        let Self::Sqlite(file) = self else { return };
        if file.is_named_by_user() {
            return;
        }
        if let Ok(StoreStanding::Unknown { moved_from }) = stores::standing(file) {
            let what = stores::unknown(&file.path, moved_from.as_deref());
            let what = format!("{what}: `run`, `chat` and `resolve` do not go on with it");
            output::report(&[Problem::warning(what).hint(stores::how_to_go_on())]);
        }
    }

    /// Lets the store be carried on, asks, or refuses.
    pub(crate) fn admit(&self, standing: &Standing, options: TrustOptions, by: &str) -> Result<(), Stopped> {
        match self {
            Self::Memory => Ok(()),
            Self::Sqlite(file) => stores::admit(file, standing, options, by),
        }
    }

    /// Refuses a database that a link leads to, out of the project, unless the user named it or accepted the link.
    pub(crate) fn check_place(&self, standing: &Standing) -> Result<(), Stopped> {
        match self {
            Self::Memory => Ok(()),
            Self::Sqlite(file) => stores::check_place(file, standing),
        }
    }
}

impl std::fmt::Display for StoreName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.path.display()),
        }
    }
}

/// Where a database comes from.
pub(crate) const MADE_BY_RUN: &str = "`turnbuckle run \"…\"` makes the database";

/// What to do about a database that cannot be opened.
pub(crate) fn unopened(path: &Path) -> &'static str {
    // Opening a pipe would wait for its other end.
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        return ELSEWHERE;
    }
    // Asked, not tried: closing a descriptor of the file would drop the locks of this process on it.
    match rustix::fs::access(path, rustix::fs::Access::READ_OK) {
        Err(rustix::io::Errno::ACCESS) => {
            "this database belongs to another account; use `--store sqlite:PATH` for one of your own"
        }
        _ => ELSEWHERE,
    }
}

/// Where else conversations can be kept.
const ELSEWHERE: &str = "`--store sqlite:PATH` keeps conversations elsewhere, `--store memory:` nowhere";

/// Makes the folder of the database, with a `.gitignore` that keeps it out of git. An existing folder is left alone.
pub(crate) fn make_own_folder(database: &Path) -> io::Result<()> {
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
