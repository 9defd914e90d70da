//! Guarded names that nothing had yet when the last command ended.
//!
//! A mount needs a file to lie on, so a name that is missing cannot be closed. A process that a command left in the background can make it long
//! after the call. So it is noted which names were missing, also for later processes, and whoever looks is told of those that came.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};

use super::GuardedLook;
use super::guarded::{NAMES, OWN, POINTER};

/// In Turnbuckle's folder of the project, which commands cannot change.
const FILE: &str = "guarded.json";
/// The most that is read of it.
const MOST_READ: u64 = 4096;

/// Which guarded files of a project were missing when the last command of the `shell` tool ended, and which of them are there now.
#[derive(Clone, Debug)]
pub struct GuardedNames {
    project: PathBuf,
    /// The folder in which they are noted, relative to the project. Where there is none, this process alone remembers.
    own: PathBuf,
    /// What this process remembers. The lock is held for no I/O.
    missing: Arc<Mutex<BTreeSet<String>>>,
}

impl GuardedNames {
    /// Of a project, noted in its folder `own` (`.turnbuckle`) if that is there.
    pub fn below(project: impl Into<PathBuf>, own: impl Into<PathBuf>) -> Self {
        Self { project: project.into(), own: own.into(), missing: Arc::default() }
    }

    /// Those that were missing when the last command ended and are there now: made by a process that a command left in the background, or by
    /// somebody else. Each is told once.
    pub fn appeared(&self) -> Vec<&'static str> {
        let noted = self.noted();
        if noted.is_empty() {
            return Vec::new();
        }
        let look = GuardedLook::now(&self.project);
        let came = |name: &&'static str| noted.contains(*name) && look.of(name).is_some();
        let appeared: Vec<&'static str> = all().filter(came).collect();
        if !appeared.is_empty() {
            self.remember(noted.into_iter().filter(|name| !appeared.contains(&name.as_str())).collect());
        }
        let has_repository = appeared.contains(&POINTER);
        // A new repository has all the rest.
        appeared.into_iter().filter(|name| *name == POINTER || !(has_repository && name.starts_with(POINTER))).collect()
    }

    /// Those that are missing. To be asked of a look that is not later than that at what a command changed: what is made in between is then told
    /// twice, and not never.
    pub(in crate::shell) fn missing(&self, look: &GuardedLook) -> BTreeSet<String> {
        all().filter(|name| look.of(name).is_none()).map(str::to_owned).collect()
    }

    /// A command has ended. Remembers which were missing, but those that were reported meanwhile.
    pub(in crate::shell) fn note(&self, mut missing: BTreeSet<String>, reported: &[String]) {
        missing.retain(|name| !reported.contains(name));
        if missing != self.noted() {
            self.remember(missing);
        }
    }

    fn noted(&self) -> BTreeSet<String> {
        match self.read() {
            Ok(Some(noted)) => noted,
            Ok(None) => self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Err(error) => {
                tracing::warn!(%error, "which guarded files were missing could not be read");
                self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
        }
    }

    fn remember(&self, missing: BTreeSet<String>) {
        if let Err(error) = self.write(&missing) {
            tracing::warn!(%error, "which guarded files are missing could not be noted");
        }
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
    }

    /// No link leads out of the project.
    fn folder(&self) -> io::Result<Option<Dir>> {
        let opened = Dir::open_ambient_dir(&self.project, ambient_authority()).and_then(|dir| dir.open_dir(&self.own));
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn read(&self) -> io::Result<Option<BTreeSet<String>>> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        let file = match folder.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        file.take(MOST_READ).read_to_string(&mut text)?;
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// A new file in the place of the old one: nobody reads half of it.
    fn write(&self, missing: &BTreeSet<String>) -> io::Result<()> {
        let Some(folder) = self.folder()? else { return Ok(()) };
        let text = serde_json::to_vec(missing)?;
        let new = format!("{FILE}.{}", std::process::id());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = folder.open_with(&new, &options)?;
        file.write_all(&text)?;
        folder.rename(&new, &folder, FILE)
    }
}

/// Turnbuckle itself makes its own folder.
fn all() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|name| *name != OWN).chain([POINTER])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn noted(project: &Path) -> GuardedNames {
        let names = GuardedNames::below(project, ".turnbuckle");
        names.note(names.missing(&GuardedLook::now(project)), &[]);
        names
    }

    #[test]
    fn what_is_made_after_the_last_command_is_told_once_also_by_a_later_process() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        fs::create_dir(project.join(".turnbuckle")).unwrap();
        fs::write(project.join("turnbuckle.toml"), "").unwrap();
        let names = noted(project);
        assert_eq!(names.appeared(), Vec::<&str>::new());
        fs::write(project.join(".mcp.json"), "{}").unwrap();
        // As the next process would ask.
        assert_eq!(GuardedNames::below(project, ".turnbuckle").appeared(), [".mcp.json"]);
        assert_eq!(names.appeared(), Vec::<&str>::new());
        fs::create_dir_all(project.join(".git/hooks")).unwrap();
        fs::create_dir(project.join(".claude")).unwrap();
        assert_eq!(names.appeared(), [".claude", ".git"]);
    }

    #[test]
    fn what_was_reported_already_is_not_told_again() {
        let folder = tempfile::tempdir().unwrap();
        let names = GuardedNames::below(folder.path(), ".turnbuckle");
        let missing = names.missing(&GuardedLook::now(folder.path()));
        // Made between the two looks.
        fs::write(folder.path().join(".mcp.json"), "{}").unwrap();
        fs::create_dir(folder.path().join(".claude")).unwrap();
        names.note(missing, &[".claude".to_owned()]);
        assert_eq!(names.appeared(), [".mcp.json"]);
    }

    #[test]
    fn without_a_folder_to_note_it_in_this_process_remembers() {
        let folder = tempfile::tempdir().unwrap();
        let names = noted(folder.path());
        fs::write(folder.path().join(".mcp.json"), "{}").unwrap();
        assert_eq!(names.appeared(), [".mcp.json"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_note_that_cannot_be_read_hides_nothing_of_this_process() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        fs::create_dir(project.join(".turnbuckle")).unwrap();
        let names = noted(project);
        fs::write(project.join(".turnbuckle").join(FILE), "rubbish").unwrap();
        fs::write(project.join(".mcp.json"), "{}").unwrap();
        assert_eq!(names.appeared(), [".mcp.json"]);
    }
}
