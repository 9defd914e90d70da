//! Files of the project that decide what runs outside the sandbox: no command may change them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use super::repositories::Repositories;

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

/// The same in the repository of a submodule.
const IN_REPOSITORY: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// The same in what git keeps of a further work tree. It has no hooks and settings beside these.
const IN_WORK_TREE: [&str; 3] = ["config.worktree", "commondir", "gitdir"];

/// Files of a repository that mean the same empty as missing. Git fails on an empty `commondir`.
const EMPTY_FILES: [&str; 2] = ["config", "config.worktree"];

/// A folder of a repository that means the same empty as missing.
const EMPTY_FOLDER: &str = "hooks";

/// Behind a link, in the names of marks: no file is called so below a link.
const TARGET: &str = "->";

/// The most entries of a folder that are looked at.
const MOST: usize = 1000;

/// How many names of a path in the project, from the first one on, say that it is guarded; `None` if it is not. In a repository everything counts, also
/// in one below the project: which of its files name programs is known to git alone. Whether capitals are told apart is not asked.
pub(in crate::shell) fn guarded_by(path: &str) -> Option<usize> {
    let names: Vec<&str> = path.split('/').collect();
    let is_first = |guarded: &str| names.first().is_some_and(|name| name.eq_ignore_ascii_case(guarded));
    match names.iter().position(|name| name.eq_ignore_ascii_case(POINTER)) {
        Some(place) => Some(names.len().min(place + 2)),
        None => NAMES.into_iter().any(is_first).then_some(1),
    }
}

/// What is guarded in other repositories than that of the project.
fn elsewhere(repositories: &Repositories) -> BTreeSet<PathBuf> {
    let of = |folders: &BTreeSet<PathBuf>, names: &[&str]| -> Vec<PathBuf> {
        folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).collect()
    };
    let mut paths = repositories.pointers.clone();
    paths.extend(of(&repositories.folders, &IN_REPOSITORY));
    paths.extend(of(&repositories.work_trees, &IN_WORK_TREE));
    paths
}

/// What has these names at one moment. Each is looked at once, for all that is asked about a command.
pub(in crate::shell) struct GuardedLook {
    project: PathBuf,
    /// Also that of [`POINTER`]. No link at the end of a path was followed.
    found: Vec<(&'static str, Metadata)>,
    repositories: Repositories,
}

impl GuardedLook {
    pub(in crate::shell) fn now(project: &Path) -> Self {
        let about = |name: &'static str| Some((name, fs::symlink_metadata(project.join(name)).ok()?));
        let pointer = about(POINTER);
        let has_files = pointer.as_ref().is_some_and(|(_, about)| about.is_dir() || about.is_symlink());
        // Where there is no repository there is nothing in it.
        let is_possible = |name: &&str| has_files || !Path::new(name).starts_with(POINTER);
        let found = NAMES.into_iter().filter(is_possible).filter_map(about).chain(pointer).collect();
        let repositories = if has_files { Repositories::of(project) } else { Repositories::default() };
        Self { project: project.to_path_buf(), found, repositories }
    }

    pub(super) fn of(&self, name: &str) -> Option<&Metadata> {
        self.found.iter().find(|(found, _)| *found == name).map(|(_, about)| about)
    }

    /// Those that exist. A link cannot be mounted over: what it leads to is, if that is in the project. The link itself can be replaced, which is
    /// noticed afterwards.
    pub(super) fn existing(&self) -> Vec<PathBuf> {
        let mounted = |path: PathBuf, about: &Metadata| match about.is_symlink() {
            true => path.canonicalize().ok().filter(|to| to.starts_with(&self.project)),
            false => Some(path),
        };
        let named = self.found.iter().filter_map(|(name, about)| {
            let path = self.project.join(name);
            // Of a work tree `.git` is a file that says where the repository is: another one could name other hooks.
            if *name == POINTER { about.is_file().then_some(path) } else { mounted(path, about) }
        });
        // What was not looked at lies in folders that are closed as a whole, except for what is pinned in them.
        let others = self.repositories.unread.iter().cloned().chain(elsewhere(&self.repositories));
        let others = others.filter_map(|path| fs::symlink_metadata(&path).ok().and_then(|about| mounted(path, &about)));
        named.chain(others).collect()
    }

    /// Folders above them inside the project, which must keep their names: whoever renames `.git` could make another with other hooks.
    pub(super) fn pinned(&self) -> impl Iterator<Item = PathBuf> {
        let git = self.of(POINTER).filter(|about| about.is_dir()).map(|_| self.project.join(POINTER));
        git.into_iter().chain(self.repositories.pinned.iter().cloned())
    }

    /// What tells this moment from a later one, of these names in other repositories, too.
    fn marks(&self, elsewhere: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, Mark> {
        let mut marks = BTreeMap::new();
        // In the place of a folder it says where the repository is; what is in a folder is looked at by its own name.
        let is_read = |(name, about): &&(&str, Metadata)| match *name {
            OWN => false,
            POINTER => !about.is_dir(),
            _ => true,
        };
        for (name, about) in self.found.iter().filter(is_read) {
            marks.extend(marks_of(&self.project.join(name), about));
        }
        for path in elsewhere {
            if let Ok(about) = fs::symlink_metadata(path) {
                marks.extend(marks_of(path, &about));
            }
        }
        marks
    }
}

/// A file, or a folder with what is in it. What a link leads to is what is read: it counts like the file itself.
fn marks_of(path: &Path, about: &Metadata) -> BTreeMap<PathBuf, Mark> {
    let mut marks = BTreeMap::new();
    let linked = about.is_symlink().then(|| path.canonicalize().ok()).flatten();
    // The name under which a mark is kept, and the file.
    let mut open: Vec<(PathBuf, PathBuf)> = linked.map(|target| (path.join(TARGET), target)).into_iter().collect();
    mark(&mut marks, &mut open, path.to_path_buf(), path, about);
    while let Some((key, path)) = open.pop() {
        if let Ok(about) = fs::symlink_metadata(&path) {
            mark(&mut marks, &mut open, key, &path, &about);
        }
    }
    marks
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
    let Repositories { folders, work_trees, .. } = Repositories::of(project);
    for repository in [project.join(POINTER)].iter().chain(&folders) {
        complete(project, repository, &EMPTY_FILES, Some(EMPTY_FOLDER))?;
    }
    work_trees.iter().try_for_each(|work_tree| complete(project, work_tree, &EMPTY_FILES[1..], None))
}

/// Opens a folder of the project through folders alone.
fn opened(project: &Path, folder: &Path) -> Result<OwnedFd, Errno> {
    let options = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = folder.strip_prefix(project).unwrap_or(folder);
    // The project's own path may have links in it.
    let mut at = openat(CWD, project, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for name in below.components() {
        at = openat(&at, name.as_os_str(), options, Mode::empty())?;
    }
    Ok(at)
}

/// Makes what is missing in a folder with `HEAD`.
fn complete(project: &Path, repository: &Path, files: &[&str], folder: Option<&str>) -> io::Result<()> {
    let git = match opened(project, repository) {
        // No repository, a file that names one, or a link.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        opened => opened?,
    };
    match statat(&git, "HEAD", AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map(drop)?,
    }
    let made = files.iter().map(|name| {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&git, *name, new, Mode::from_raw_mode(0o644)).map(drop)
    });
    for made in made.chain(folder.map(|name| mkdirat(&git, name, Mode::from_raw_mode(0o755)))) {
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
    /// Repositories of submodules that were there, and what is guarded in them.
    repositories: BTreeSet<PathBuf>,
    elsewhere: BTreeSet<PathBuf>,
    before: BTreeMap<PathBuf, Mark>,
}

/// What tells one version of a file from another. A program can set the time of the last change, and not that of the last change of the
/// entry (`ctime`).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Guarded {
    pub(in crate::shell) fn note(look: &GuardedLook) -> Self {
        let elsewhere = elsewhere(&look.repositories);
        let before = look.marks(&elsewhere);
        let Repositories { folders, work_trees, .. } = &look.repositories;
        let repositories = folders.iter().chain(work_trees).cloned().collect();
        Self { project: look.project.clone(), repositories, elsewhere, before }
    }

    /// The names of those that are not as they were. A repository of a submodule that was not there has one name.
    pub(in crate::shell) fn changed(&self, look: &GuardedLook) -> Vec<String> {
        let now = &look.repositories;
        let mut watched = elsewhere(now);
        watched.extend(self.elsewhere.iter().cloned());
        let after = look.marks(&watched);
        if after == self.before {
            return Vec::new();
        }
        let below = |marks: &BTreeMap<PathBuf, Mark>, path: &Path| -> BTreeMap<PathBuf, Mark> {
            let below = marks.iter().filter(|(found, _)| found.starts_with(path));
            below.map(|(found, mark)| (found.clone(), *mark)).collect()
        };
        let is_other = |path: &Path| below(&self.before, path) != below(&after, path);
        let names = NAMES.into_iter().filter(|name| is_other(&self.project.join(name)));
        let mut changed: Vec<String> = names.map(str::to_owned).collect();
        // What is below a folder of this name is looked at above.
        let pointer = self.project.join(POINTER);
        if self.before.get(&pointer) != after.get(&pointer) {
            changed.push(POINTER.to_owned());
        }
        let is_new = |folder: &&PathBuf| !self.repositories.contains(*folder);
        let new: Vec<&PathBuf> = now.folders.iter().chain(&now.work_trees).filter(is_new).collect();
        let known = watched.iter().filter(|path| !new.iter().any(|folder| path.starts_with(folder)));
        let others = new.iter().copied().chain(known.filter(|path| is_other(path)));
        changed.extend(others.map(|path| path.strip_prefix(&self.project).unwrap_or(path).display().to_string()));
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
        assert!(before.changed(&GuardedLook::now(project)).is_empty());
        fs::create_dir(project.join(".turnbuckle")).unwrap();
        assert!(before.changed(&GuardedLook::now(project)).is_empty());
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
    fn a_submodule_and_a_work_tree_are_guarded_and_new_ones_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let project = &folder.path().canonicalize().unwrap();
        let repository = |path: &str, settings: &str| {
            fs::create_dir_all(project.join(path)).unwrap();
            fs::write(project.join(path).join("HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(project.join(path).join("config"), settings).unwrap();
        };
        repository(".git", "");
        repository(".git/modules/sub", "[core]\n\tworktree = ../../../sub\n");
        fs::create_dir_all(project.join(".git/worktrees/tree")).unwrap();
        fs::write(project.join(".git/worktrees/tree/HEAD"), "x").unwrap();
        fs::create_dir(project.join("sub")).unwrap();
        fs::write(project.join("sub/.git"), "gitdir: ../.git/modules/sub").unwrap();
        make_missing(project).unwrap();
        let guarded = GuardedLook::now(project).existing();
        for path in [
            ".git/modules/sub/config",
            ".git/modules/sub/config.worktree",
            ".git/modules/sub/hooks",
            ".git/worktrees/tree/config.worktree",
            "sub/.git",
        ] {
            assert!(guarded.contains(&project.join(path)), "{path}");
        }
        assert_eq!(fs::read_dir(project.join(".git/worktrees/tree")).unwrap().count(), 2);
        assert!(GuardedLook::now(project).pinned().any(|path| path == project.join("sub")));
        let before = Guarded::note(&GuardedLook::now(project));
        assert!(before.changed(&GuardedLook::now(project)).is_empty());
        fs::write(project.join(".git/modules/sub/hooks/post-checkout"), "x").unwrap();
        fs::write(project.join(".git/modules/sub/commondir"), "x").unwrap();
        fs::write(project.join("sub/.git"), "gitdir: ../evil").unwrap();
        repository(".git/modules/new", "[core]\n\tworktree = ../../../new\n");
        let changed =
            [".git/modules/new", ".git/modules/sub/commondir", ".git/modules/sub/hooks", "sub/.git"].map(str::to_owned);
        assert_eq!(before.changed(&GuardedLook::now(project)), changed);
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
