//! Which databases of hooks are the user's own: those that this user's Turnbuckle made, and those that the user accepted. They are
//! noted where the databases of conversations are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnbuckle::hooks::KnownDatabases;
use turnbuckle::store::PrivateFile;
use turnbuckle_hooks::memory::{Memories, MemoryError};
use turnbuckle_stores::DatabaseId;

use super::options::TrustOptions;
use super::records::{RecordError, Records, StoreOrigin};
use super::stores::is_left_by_older_version;
use crate::Stopped;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::project::OWN_FOLDER;

/// The file that the memory hooks share unless they name another.
const MEMORIES: &str = "memories.db";

/// Those of a project.
#[derive(Debug)]
pub(crate) struct HookDatabases {
    /// Absolute, links resolved.
    project: PathBuf,
    /// Every one is used, for this run: `--trust-hooks`.
    uses_all: bool,
    origin: StoreOrigin,
    by: String,
}

impl HookDatabases {
    pub(crate) fn of(project: &Path, trust: TrustOptions) -> Arc<dyn KnownDatabases> {
        let (project, uses_all) = (project.to_owned(), trust.trust_hooks);
        Arc::new(Self { project, uses_all, origin: StoreOrigin::Made, by: String::new() })
    }
}

impl KnownDatabases for HookDatabases {
    fn is_known(&self, path: &Path, id: Option<&str>) -> bool {
        let noted = |records: Records| match id {
            Some(id) => DatabaseId::parse(id).is_some_and(|id| matches!(records.store(&id, path), Ok(Some(_)))),
            None => path.starts_with(self.project.join(OWN_FOLDER)) && is_left_by_older_version(path, &records),
        };
        self.uses_all || Records::open().is_ok_and(noted)
    }

    fn note(&self, path: &Path, id: &str) {
        let Some(id) = DatabaseId::parse(id) else { return };
        let noted = Records::open().and_then(|records| records.know(&id, path, self.origin, &self.by));
        if let Err(error) = noted {
            output::report(&[not_noted(path, &error)]);
        }
    }
}

fn not_noted(path: &Path, error: &RecordError) -> Problem {
    Problem::warning(format!("it cannot be noted that the memories {} are yours: {error}", path.display()))
        .hint("later runs use them only with `--trust-hooks`, or if `file` of the hook names them by an absolute path")
}

/// The memories in a project's own folder.
pub(crate) fn default_memories(project: &Path) -> Memories {
    in_project(project).known_by(HookDatabases::of(project, TrustOptions::default()))
}

fn in_project(project: &Path) -> Memories {
    Memories::in_file(PrivateFile::below(project, project.join(OWN_FOLDER).join(MEMORIES)))
}

/// What is to be said of memories in a project's own folder that are not the user's; none if there are none.
pub(super) fn told(project: &Path) -> Option<String> {
    // What cannot be opened is told by whoever uses it.
    let is_foreign = default_memories(project).is_foreign().unwrap_or(false);
    is_foreign.then(|| {
        let path = project.join(OWN_FOLDER).join(MEMORIES);
        let what = format!("the memories {} were not made by your Turnbuckle, or were moved here", path.display());
        format!("{what}.\nThe model would be told them as what you once said.\n")
    })
}

/// Makes the memories in a project's own folder the user's.
pub(super) fn accept(project: &Path, by: &str) -> Result<(), Stopped> {
    let (origin, by) = (StoreOrigin::Accepted, by.to_owned());
    let databases = HookDatabases { project: project.to_owned(), uses_all: true, origin, by };
    let accepted = in_project(project).known_by(Arc::new(databases)).accept();
    accepted.map_err(|error: MemoryError| Stopped::failed(Problem::error(with_causes(&error))))
}
