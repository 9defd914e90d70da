//! Files of the project that decide what runs outside the sandbox: no command may change them.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, open, openat, statat};
use rustix::io::Errno;

/// Their names, from the project's folder on. Git looks for hooks and settings where `.git/commondir` says, and reads `.git/config.worktree` like its
/// settings.
pub(super) const NAMES: [&str; 8] = [
    ".turnbuckle",
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    "turnbuckle.toml",
    ".claude",
    ".mcp.json",
];

/// Turnbuckle itself writes to this one while a command runs, so a change says nothing.
pub(super) const OWN: &str = ".turnbuckle";

/// A repository's folder, or the file that says where it is.
pub(super) const POINTER: &str = ".git";

/// Files of a repository that mean the same empty as missing. Git fails on an empty `commondir`.
const EMPTY_FILES: [&str; 2] = ["config", "config.worktree"];

/// A folder of a repository that means the same empty as missing.
const EMPTY_FOLDER: &str = "hooks";

/// Behind a link, in the names of marks: no file is called so below a link.
const TARGET: &str = "->";

/// The most entries of a folder that are looked at.
const MOST: usize = 1000;

/// What has these names at one moment. Each is looked at once, for all that is asked about a command.
pub(in crate::shell) struct GuardedLook {
    project: PathBuf,
    /// Also that of [`POINTER`]. No link at the end of a path was followed.
    found: Vec<(&'static str, Metadata)>,
}

impl GuardedLook {
    pub(in crate::shell) fn now(project: &Path) -> Self {
        let about = |name: &'static str| Some((name, fs::symlink_metadata(project.join(name)).ok()?));
        let pointer = about(POINTER);
        let has_files = pointer.as_ref().is_some_and(|(_, about)| about.is_dir() || about.is_symlink());
        // Where there is no repository there is nothing in it.
        let is_possible = |name: &&str| has_files || !Path::new(name).starts_with(POINTER);
        let found = NAMES.into_iter().filter(is_possible).filter_map(about).chain(pointer).collect();
        Self { project: project.to_path_buf(), found }
    }

    pub(super) fn of(&self, name: &str) -> Option<&Metadata> {
        self.found.iter().find(|(found, _)| *found == name).map(|(_, about)| about)
    }

    /// Those that exist. A link cannot be mounted over: what it leads to is, if that is in the project. The link itself can be replaced, which is
    /// noticed afterwards.
    pub(super) fn existing(&self) -> Vec<PathBuf> {
        let mounted = |(name, about): &(&str, Metadata)| {
            let path = self.project.join(name);
            match about {
                // Of a work tree `.git` is a file that says where the repository is: another one could name other hooks.
                about if *name == POINTER => about.is_file().then_some(path),
                about if about.is_symlink() => path.canonicalize().ok().filter(|to| to.starts_with(&self.project)),
                _ => Some(path),
            }
        };
        self.found.iter().filter_map(mounted).collect()
    }

    /// Folders above them inside the project, which must keep their names: whoever renames `.git` could make another with other hooks.
    pub(super) fn pinned(&self) -> Option<PathBuf> {
        self.of(POINTER).filter(|about| about.is_dir()).map(|_| self.project.join(POINTER))
    }

    /// What tells this moment from a later one.
    fn marks(&self) -> BTreeMap<PathBuf, Mark> {
        let mut marks = BTreeMap::new();
        // In the place of a folder it says where the repository is; what is in a folder is looked at by its own name.
        let is_read = |(name, about): &&(&str, Metadata)| match *name {
            OWN => false,
            POINTER => !about.is_dir(),
            _ => true,
        };
        // The name under which a mark is kept, and the file.
        let mut open: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (name, about) in self.found.iter().filter(is_read) {
            let path = self.project.join(name);
            // What links lead to is what is read: it counts like the files themselves.
            let linked = about.is_symlink().then(|| path.canonicalize().ok()).flatten();
            open.extend(linked.map(|target| (path.join(TARGET), target)));
            mark(&mut marks, &mut open, path.clone(), &path, about);
        }
        while let Some((key, path)) = open.pop() {
            if let Ok(about) = fs::symlink_metadata(&path) {
                mark(&mut marks, &mut open, key, &path, &about);
            }
        }
        marks
    }
}

fn mark(
    marks: &mut BTreeMap<PathBuf, Mark>,
    open: &mut Vec<(PathBuf, PathBuf)>,
    key: PathBuf,
    path: &Path,
    about: &Metadata,
) {
    if about.is_dir() && marks.len() < MOST {
        let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        open.extend(entries.map(|entry| (key.join(entry.file_name()), entry.path())).take(MOST));
    }
    let mark = Mark { inode: about.ino(), size: about.size(), changed: (about.ctime(), about.ctime_nsec()) };
    marks.insert(key, mark);
}

/// Makes what a repository may lack without meaning anything by it, so that it can be mounted read-only: nothing can be mounted where nothing is. No
/// link is followed. In a folder that is no repository nothing is made: a command may begin one.
pub(in crate::shell) fn make_missing(project: &Path) -> io::Result<()> {
    let no_link = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let git = match open(project.join(POINTER), no_link, Mode::empty()) {
        // No repository, a file that names one, or a link.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        opened => opened?,
    };
    match statat(&git, "HEAD", AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map(drop)?,
    }
    let made = EMPTY_FILES.map(|name| {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&git, name, new, Mode::from_raw_mode(0o644)).map(drop)
    });
    for made in made.into_iter().chain([mkdirat(&git, EMPTY_FOLDER, Mode::from_raw_mode(0o755))]) {
        match made {
            // A repository that cannot be written to gains nothing from a command either.
            Ok(()) | Err(Errno::EXIST | Errno::ACCESS | Errno::PERM | Errno::ROFS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// How they were before a command ran.
///
/// Mounts keep a command from changing what exists. What does not exist yet, and links, can only be looked at afterwards, and where there are
/// no mounts everything is.
pub(in crate::shell) struct Guarded {
    project: PathBuf,
    before: BTreeMap<PathBuf, Mark>,
}

/// What tells one version of a file from another. A program can set the time of the last change, and not that of the last change of the
/// entry (`ctime`).
#[derive(PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Guarded {
    pub(in crate::shell) fn note(look: &GuardedLook) -> Self {
        Self { project: look.project.clone(), before: look.marks() }
    }

    /// The names of those that are not as they were.
    pub(in crate::shell) fn changed(&self, look: &GuardedLook) -> Vec<&'static str> {
        let after = look.marks();
        if after == self.before {
            return Vec::new();
        }
        let of = |marks: &BTreeMap<PathBuf, Mark>, name: &str| -> Vec<(PathBuf, u64, u64, (i64, i64))> {
            let path = self.project.join(name);
            let below = marks.iter().filter(|(found, _)| found.starts_with(&path));
            below.map(|(found, mark)| (found.clone(), mark.inode, mark.size, mark.changed)).collect()
        };
        let mut changed: Vec<_> = NAMES.into_iter().filter(|name| of(&self.before, name) != of(&after, name)).collect();
        // What is below a folder of this name is looked at above.
        let pointer = self.project.join(POINTER);
        if self.before.get(&pointer) != after.get(&pointer) {
            changed.push(POINTER);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_happens_to_a_guarded_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        fs::create_dir_all(project.join(".git/hooks")).unwrap();
        fs::write(project.join(".git/config"), "[core]").unwrap();
        let before = Guarded::note(&GuardedLook::now(project));
        assert_eq!(before.changed(&GuardedLook::now(project)), Vec::<&str>::new());
        fs::create_dir(project.join(".turnbuckle")).unwrap();
        assert_eq!(before.changed(&GuardedLook::now(project)), Vec::<&str>::new());
        fs::write(project.join(".git/hooks/pre-commit"), "x").unwrap();
        fs::write(project.join("turnbuckle.toml"), "").unwrap();
        fs::remove_file(project.join(".git/config")).unwrap();
        assert_eq!(before.changed(&GuardedLook::now(project)), [".git/hooks", ".git/config", "turnbuckle.toml"]);
    }

    #[test]
    fn a_repository_is_completed_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        let names = |at: &str| -> Vec<String> {
            let entries = fs::read_dir(project.join(at)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        make_missing(project).unwrap();
        assert!(names("").is_empty());
        fs::create_dir(project.join(".git")).unwrap();
        make_missing(project).unwrap();
        assert!(names(".git").is_empty(), "a folder without HEAD is no repository");
        fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(project.join(".git/config"), "[core]\n").unwrap();
        make_missing(project).unwrap();
        make_missing(project).unwrap();
        assert_eq!(names(".git"), ["HEAD", "config", "config.worktree", "hooks"]);
        assert_eq!(fs::read_to_string(project.join(".git/config")).unwrap(), "[core]\n");
        // Through a link nothing is made.
        fs::create_dir(project.join("elsewhere")).unwrap();
        fs::write(project.join("elsewhere/HEAD"), "").unwrap();
        fs::rename(project.join(".git"), project.join("moved")).unwrap();
        std::os::unix::fs::symlink("elsewhere", project.join(".git")).unwrap();
        make_missing(project).unwrap();
        assert_eq!(names("elsewhere"), ["HEAD"]);
    }

    #[test]
    fn what_a_link_leads_to_is_guarded_like_the_file_itself() {
        let folder = tempfile::tempdir().unwrap();
        let project = &folder.path().canonicalize().unwrap();
        fs::create_dir(project.join("real")).unwrap();
        fs::write(project.join("real/settings.json"), "{}").unwrap();
        std::os::unix::fs::symlink("real", project.join(".claude")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", project.join(".mcp.json")).unwrap();
        assert_eq!(GuardedLook::now(project).existing(), [project.join("real")]);
        let before = Guarded::note(&GuardedLook::now(project));
        fs::write(project.join("real/settings.json"), "{\"hooks\": 1}").unwrap();
        fs::write(project.join(".git"), "gitdir: real").unwrap();
        assert_eq!(before.changed(&GuardedLook::now(project)), [".claude", ".git"]);
    }
}
