//! Which databases are carried on: those that this user's Turnbuckle made, and those that the user accepted.
//!
//! A database holds open turns and approvals, and whoever can put one into a folder could forge both. So a database is known by
//! the id that it got when it was made, and by its path; both are noted in the user's folder before there is a file.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use turnbuckle_stores::{DatabaseId, SqliteError, SqliteStore};
use turnbuckle_tools::resolved_path;

use super::records::{RecordError, Records, StoreOrigin};
use super::{Standing, TrustOptions};
use crate::Stopped;
use crate::confirm;
use crate::logging::CLI;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::store::{NamedBy, StoreFile, unopened};

/// How a database stands.
#[derive(Debug)]
pub(crate) enum StoreStanding {
    /// It is made when it is first used.
    NotThere,
    Known(StoreOrigin),
    /// A version without ids made it, and it can only be this user's.
    Adoptable,
    /// Somebody made it; `moved_from`: the path at which this user knows it.
    Unknown {
        moved_from: Option<PathBuf>,
    },
}

/// How a file stands, and its id.
struct Looked {
    standing: StoreStanding,
    id: Option<DatabaseId>,
    /// Links resolved.
    path: PathBuf,
}

fn look(file: &StoreFile) -> Result<Looked, SqliteError> {
    let path = real(&file.path);
    if !is_there(&path) {
        return Ok(Looked { standing: StoreStanding::NotThere, id: None, path });
    }
    let records = Records::open();
    let id = match SqliteStore::id_of(&path) {
        Err(SqliteError::ReadOnly { .. }) if is_own_journal(file, &path, records.as_ref().ok()) => {
            SqliteStore::roll_back(&path)?;
            if path.metadata().is_ok_and(|about| about.len() == 0) {
                return Ok(Looked { standing: StoreStanding::NotThere, id: None, path });
            }
            SqliteStore::id_of(&path)?
        }
        read => read?,
    };
    let standing = match (&records, &id) {
        (Ok(records), Some(id)) => match records.store(id, &path) {
            Ok(Some(known)) => StoreStanding::Known(known.origin),
            _ => StoreStanding::Unknown { moved_from: records.elsewhere(id, &path) },
        },
        (Ok(records), None) if is_adoptable(file, &path, records) => StoreStanding::Adoptable,
        _ => StoreStanding::Unknown { moved_from: None },
    };
    Ok(Looked { standing, id, path })
}

/// Whether the journal beside a database is what a process of this user left that died while it made or migrated it. One that came
/// with a folder is not believed: the path is not one that this user's Turnbuckle noted, or others may read the file.
fn is_own_journal(file: &StoreFile, path: &Path, records: Option<&Records>) -> bool {
    let is_private =
        |path: &Path| path.symlink_metadata().is_ok_and(|about| about.is_file() && about.mode() & 0o077 == 0);
    let is_noted = || records.is_some_and(|records| records.knows_path(path));
    file.is_named_by_user() || (is_private(path) && is_private(&beside(path, "-journal")) && is_noted())
}

/// The file that SQLite keeps beside a database.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// How the database in a file stands.
pub(crate) fn standing(file: &StoreFile) -> Result<StoreStanding, SqliteError> {
    look(file).map(|looked| looked.standing)
}

/// Whether a database without an id can only be this user's: it is in the project's default place, belongs to this user alone, and
/// has not changed since this user's Turnbuckle first noted anything. What came later came from elsewhere, since every database
/// that was made since then has an id. The time of the last change of a file cannot be set by an archive or a checkout.
fn is_adoptable(file: &StoreFile, path: &Path, records: &Records) -> bool {
    file.is_default_at(path) && is_left_by_older_version(path, records)
}

/// Whether a file belongs to this user alone, and has not changed since this user's Turnbuckle first noted anything.
pub(super) fn is_left_by_older_version(path: &Path, records: &Records) -> bool {
    let Ok(about) = path.symlink_metadata() else { return false };
    let seconds = Duration::from_secs(u64::try_from(about.ctime()).unwrap_or(u64::MAX));
    let nanos = Duration::from_nanos(u64::try_from(about.ctime_nsec()).unwrap_or(0));
    let changed = SystemTime::UNIX_EPOCH.checked_add(seconds).and_then(|time| time.checked_add(nanos));
    let is_mine = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0;
    let first_used = records.first_used();
    let is_older = first_used.is_none_or(|first| changed.is_some_and(|changed| changed <= first));
    is_mine && is_older
}

/// Lets the database be carried on, asks, or refuses.
pub(crate) fn admit(file: &StoreFile, standing: &Standing, options: TrustOptions, by: &str) -> Result<(), Stopped> {
    if !options.trust_hooks {
        check_place(file, standing)?;
    }
    let looked = look(file).map_err(|error| unusable(&file.path, &error))?;
    let shown = file.path.display();
    match (&looked.standing, file.is_named_by_user() || options.trust_hooks) {
        (StoreStanding::Known(_), false) => check_files(&looked.path),
        (StoreStanding::NotThere | StoreStanding::Known(_), _) => Ok(()),
        (StoreStanding::Adoptable, _) => adopt(&looked, StoreOrigin::Adopted, by),
        (StoreStanding::Unknown { .. }, true) => Ok(()),
        (StoreStanding::Unknown { moved_from }, false) => {
            let what = unknown(&file.path, moved_from.as_deref());
            tracing::warn!(target: CLI, store = %shown, "store is not accepted");
            let unnoted = super::cannot_accept();
            let problem = Problem::error(&what).hint(how(unnoted.as_ref()));
            let text = format!("{what}.\nOpen turns and approvals in it would be carried on.\n");
            match unnoted.is_none() && confirm::is_possible() && confirm::ask(&text, "Use it?") {
                true => adopt(&looked, StoreOrigin::Accepted, by),
                false => Err(Stopped::usage(problem)),
            }
        }
    }
}

/// Refuses a database that a link leads to, out of the project, unless the user named it or accepted the link; `standing` is that
/// of the project's file. Whoever made the link chose which conversations are read and written. What a project's file names is
/// judged with that file.
pub(crate) fn check_place(file: &StoreFile, standing: &Standing) -> Result<(), Stopped> {
    let is_asked_about = !file.is_named_by_user() && file.named_by != NamedBy::ProjectsFile;
    let real = real(&file.path);
    let leads_out = as_written(&file.path).starts_with(&file.project) && !real.starts_with(&file.project);
    let how = match standing {
        Standing::Accepted { .. } | Standing::Folder { .. } | Standing::ForThisRun => return Ok(()),
        Standing::NotRead => "",
        Standing::NotNeeded | Standing::NotAccepted => "`turnbuckle trust` shows it, and asks; ",
    };
    if !is_asked_about || !leads_out {
        return Ok(());
    }
    let (shown, real) = (file.path.display(), real.display());
    let what = format!("the database {shown} is not in the project: a link leads to {real}");
    Err(Stopped::usage(Problem::error(what).hint(format!("{how}`--store sqlite:{real}` uses it for this run"))))
}

/// A path from the current folder, absolute, without its `..`; links are not looked at.
fn as_written(path: &Path) -> PathBuf {
    let mut written = PathBuf::new();
    for step in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match step {
            Component::ParentDir => drop(written.pop()),
            step => written.push(step),
        }
    }
    written
}

/// The files of a database that is known. SQLite replays what it finds beside a database, and gives such files the mode of the
/// database, which is closed to others when it is made, accepted or opened. So one that others may read or write was put there, by
/// a checkout for instance. A database that now belongs to another user is not the one that was noted.
fn check_files(path: &Path) -> Result<(), Stopped> {
    let refused = |what: String, hint: &str| Err(Stopped::usage(Problem::error(what).hint(hint)));
    let me = rustix::process::geteuid().as_raw();
    if path.symlink_metadata().is_ok_and(|about| about.uid() != me) {
        let what = format!("the database {} belongs to another user", path.display());
        return refused(what, "`--store sqlite:PATH` uses it nevertheless, for this run");
    }
    for end in ["-wal", "-journal"] {
        let beside = beside(path, end);
        let is_foreign = |about: std::fs::Metadata| !about.is_file() || about.mode() & 0o077 != 0;
        if beside.symlink_metadata().is_ok_and(is_foreign) {
            let what = format!("{} was not made by the database beside it: others may use it", beside.display());
            let hint = "if it came with the project, delete it; `--store sqlite:PATH` takes it as it is, for this run";
            return refused(what, hint);
        }
    }
    Ok(())
}

/// What to do about a database that nobody knows. `unnoted`: why it cannot be accepted for good.
fn how(unnoted: Option<&RecordError>) -> String {
    let look = "`turnbuckle list` and `show` look at it without that";
    match unnoted {
        None => format!("`turnbuckle trust` accepts it; `--store sqlite:PATH` names it for this run, and {look}"),
        Some(error) => format!("`--store sqlite:PATH` names it for this run; it cannot be accepted for good: {error}"),
    }
}

/// The same for those who look at it already.
pub(crate) fn how_to_go_on() -> String {
    match super::cannot_accept() {
        None => "`turnbuckle trust` accepts it".to_owned(),
        unnoted => how(unnoted.as_ref()),
    }
}

/// What is to be said of a database that somebody else made.
pub(crate) fn unknown(path: &Path, moved_from: Option<&Path>) -> String {
    match moved_from {
        Some(old) => format!("the database {} was moved or copied here from {}", path.display(), old.display()),
        None => format!("the database {} was not made by your Turnbuckle", path.display()),
    }
}

/// Whether the file is in the project's folder, wherever links lead.
pub(super) fn is_in_project(file: &StoreFile) -> bool {
    real(&file.path).starts_with(&file.project)
}

/// Accepts a database that is there and not known; says whether there was one.
pub(super) fn accept(file: &StoreFile, by: &str) -> Result<bool, Stopped> {
    let looked = look(file).map_err(|error| unusable(&file.path, &error))?;
    match looked.standing {
        StoreStanding::NotThere | StoreStanding::Known(_) => Ok(false),
        StoreStanding::Adoptable | StoreStanding::Unknown { .. } => {
            adopt(&looked, StoreOrigin::Accepted, by).map(|()| true)
        }
    }
}

/// Before a database is opened to write, by a command that carries nothing on. One of an older version is migrated then, so it must
/// be noted before.
pub(crate) fn before_writing(file: &StoreFile) -> Result<(), Stopped> {
    let looked = look(file).map_err(|error| unusable(&file.path, &error))?;
    match looked.standing {
        StoreStanding::Adoptable => adopt(&looked, StoreOrigin::Adopted, ""),
        // Whoever opens the database to write makes SQLite take in what lies beside it.
        StoreStanding::Known(_) if !file.is_named_by_user() => check_files(&looked.path),
        _ => Ok(()),
    }
}

/// Notes the database. One without an id is migrated, and gets the id that was noted before.
fn adopt(looked: &Looked, origin: StoreOrigin, by: &str) -> Result<(), Stopped> {
    let not_noted = |error: RecordError| {
        let problem = Problem::error(format!("it cannot be noted that the database is yours: {error}"));
        Stopped::usage(problem.hint("`--store sqlite:PATH` names it for this run"))
    };
    let unusable = |error: SqliteError| unusable(&looked.path, &error);
    let records = Records::open().map_err(not_noted)?;
    if let Some(id) = &looked.id {
        records.know(id, &looked.path, origin, by).map_err(not_noted)?;
        // From now on only its owner may use it, and what SQLite keeps beside it is told from what others put there.
        return SqliteStore::close_to_others(&looked.path).map_err(unusable);
    }
    let id = DatabaseId::random().map_err(unusable)?;
    records.know(&id, &looked.path, origin, by).map_err(not_noted)?;
    let store = SqliteStore::open_as(&looked.path, &id).map_err(unusable)?;
    keep_noted(&records, &store, &id, &looked.path, origin).map_err(not_noted)
}

/// Opens a database; one that is not there is made, and noted before.
pub(crate) fn open_or_make(path: &Path) -> Result<SqliteStore, SqliteError> {
    let real = real(path);
    if is_there(&real) {
        return SqliteStore::open(path);
    }
    let id = DatabaseId::random()?;
    let made = StoreOrigin::Made;
    let noted = Records::open().and_then(|records| records.know(&id, &real, made, "").map(|()| records));
    let store = SqliteStore::open_as(path, &id)?;
    if let Err(error) = noted.and_then(|records| keep_noted(&records, &store, &id, &real, made)) {
        let problem =
            Problem::warning(format!("it cannot be noted that the database {} is yours: {error}", path.display()));
        output::report(&[problem.hint("later runs go on with it only by `--store sqlite:PATH`")]);
    }
    Ok(store)
}

/// Another process may have made or migrated the file in the same moment, with an id of its own.
fn keep_noted(
    records: &Records,
    store: &SqliteStore,
    chosen: &DatabaseId,
    path: &Path,
    origin: StoreOrigin,
) -> Result<(), RecordError> {
    match store.id() {
        Some(id) if id != chosen => {
            records.know(id, path, origin, "")?;
            records.forget(chosen, path)
        }
        _ => Ok(()),
    }
}

/// Whether something is there. An empty file will be made a database; a pipe or a device is no file, and is refused when it is
/// opened.
fn is_there(path: &Path) -> bool {
    match path.metadata() {
        Ok(about) => !about.is_file() || about.len() > 0,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Where the file is, or will be: absolute, links resolved.
fn real(path: &Path) -> PathBuf {
    resolved_path(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

fn unusable(path: &Path, error: &SqliteError) -> Stopped {
    Stopped::failed(Problem::error(with_causes(error)).hint(unopened(path)))
}
