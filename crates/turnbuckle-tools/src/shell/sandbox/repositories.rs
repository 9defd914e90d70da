//! Repositories that git uses together with that of the project: those of submodules, and what it keeps of further work trees.
//!
//! Git runs in a submodule when it is asked about the project (`git status`), with the hooks and settings of the submodule.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use super::guarded::POINTER;

/// The most entries of `.git/modules` and `.git/worktrees` that are looked at. A folder with further ones becomes read-only as a whole.
const MOST: usize = 64;

/// The most that is read of a file of settings.
const MOST_READ: u64 = 64 * 1024;

/// Those of one project, as they are now. All paths begin with that of the project.
#[derive(Debug, Default)]
pub(super) struct Repositories {
    /// The folders of submodules' repositories.
    pub(super) folders: BTreeSet<PathBuf>,
    /// What git keeps of each further work tree.
    pub(super) work_trees: BTreeSet<PathBuf>,
    /// In the folder of a submodule or a further work tree, the file that says where its repository is. Not each is there.
    pub(super) pointers: BTreeSet<PathBuf>,
    /// Folders that must keep their names: whoever renames one could make another in its place. A folder stands before those in it.
    pub(super) pinned: BTreeSet<PathBuf>,
    /// Folders in which not everything was looked at.
    pub(super) unread: BTreeSet<PathBuf>,
    looked_at: usize,
}

impl Repositories {
    pub(super) fn of(project: &Path) -> Self {
        let mut found = Self::default();
        let git = project.join(POINTER);
        let mut open: VecDeque<PathBuf> =
            [git.join("modules")].into_iter().filter(|folder| is_folder(folder)).collect();
        while let Some(folder) = open.pop_front() {
            found.pinned.insert(folder.clone());
            for entry in found.folders_in(&folder) {
                // The name of a submodule may have a slash: then there are folders on the way.
                let is_repository = is_repository(&entry);
                let next = if is_repository { entry.join("modules") } else { entry.clone() };
                if is_repository {
                    found.add(project, entry);
                }
                open.extend(is_folder(&next).then_some(next));
            }
        }
        let work_trees = git.join("worktrees");
        if is_folder(&work_trees) {
            for folder in found.folders_in(&work_trees) {
                if let Some(place) = place_of(&folder) {
                    found.add_place(project, &place);
                }
                found.pinned.insert(folder.clone());
                found.work_trees.insert(folder);
            }
            found.pinned.insert(work_trees);
        }
        found
    }

    /// A repository, and the folder in which its files are.
    fn add(&mut self, project: &Path, repository: PathBuf) {
        for place in work_trees_in(&repository) {
            self.add_place(project, &place);
        }
        self.pinned.insert(repository.clone());
        self.folders.insert(repository);
    }

    /// A folder with the files of a repository.
    fn add_place(&mut self, project: &Path, place: &Path) {
        let Some(below) = place.strip_prefix(project).ok().filter(|below| !below.as_os_str().is_empty()) else {
            return;
        };
        let above = below.ancestors().map(|path| project.join(path)).filter(|path| path != project);
        self.pinned.extend(above.filter(|path| is_folder(path)));
        let pointer = place.join(POINTER);
        if is_folder(&pointer) {
            // As older versions of git made them.
            self.pinned.insert(pointer.clone());
            self.folders.insert(pointer);
        } else {
            self.pointers.insert(pointer);
        }
    }

    /// The folders in a folder. Links are guarded like files, with what they lead to.
    fn folders_in(&mut self, folder: &Path) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            if self.looked_at == MOST {
                self.unread.insert(folder.to_path_buf());
                break;
            }
            self.looked_at += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_symlink() => drop(self.pointers.insert(entry.path())),
                _ => {}
            }
        }
        folders
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

/// By its settings, too: they are read-only from the first command on, whereas a command can take `HEAD` away and put it back in a later one.
fn is_repository(folder: &Path) -> bool {
    ["config", "HEAD"].iter().any(|name| fs::symlink_metadata(folder.join(name)).is_ok())
}

/// Where the settings of a repository say that its files are. They are not read as git reads them: a folder too many that is guarded does no harm.
fn work_trees_in(repository: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in ["config", "config.worktree"] {
        let mut text = Vec::new();
        let Ok(file) = File::open(repository.join(name)) else { continue };
        if file.take(MOST_READ).read_to_end(&mut text).is_err() {
            continue;
        }
        let text = String::from_utf8_lossy(&text);
        let values = text.lines().filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            key.trim().eq_ignore_ascii_case("worktree").then(|| unquoted(value.trim()))
        });
        found.extend(values.map(|value| without_dots(&repository.join(value))));
    }
    found
}

/// Where the files of a further work tree are.
fn place_of(work_tree: &Path) -> Option<PathBuf> {
    let mut text = String::new();
    File::open(work_tree.join("gitdir")).ok()?.take(MOST_READ).read_to_string(&mut text).ok()?;
    without_dots(&work_tree.join(text.trim_end())).parent().map(Path::to_path_buf)
}

/// A value as git writes it: in quotes if it has signs with a meaning of their own.
fn unquoted(value: &str) -> String {
    let (mut text, mut is_escaped) = (String::new(), false);
    for sign in value.chars() {
        match sign {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => {}
            sign => {
                text.push(sign);
                is_escaped = false;
            }
        }
    }
    text
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path, settings: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(folder.join("config"), settings).unwrap();
    }

    fn below(project: &Path, paths: &BTreeSet<PathBuf>) -> Vec<String> {
        paths.iter().map(|path| path.strip_prefix(project).unwrap().display().to_string()).collect()
    }

    #[test]
    fn submodules_of_submodules_and_work_trees_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        assert!(Repositories::of(project).pinned.is_empty());
        fs::create_dir_all(project.join("libs/a b/deep")).unwrap();
        let modules = project.join(".git/modules");
        repository(&modules.join("libs/a"), "[core]\n\tworktree = \"../../../../libs/a b\"\n");
        repository(&modules.join("libs/a/modules/deep"), "[core]\n\tWorkTree=../../../../../../libs/a b/deep\n");
        repository(&modules.join("outside"), "[core]\n\tworktree = ../../../../elsewhere\n");
        repository(&modules.join("whole"), "[core]\n\tworktree = ../../..\n");
        fs::create_dir_all(project.join(".git/worktrees/one")).unwrap();
        fs::write(project.join(".git/worktrees/one/gitdir"), format!("{}/trees/one/.git\n", project.display()))
            .unwrap();
        std::os::unix::fs::symlink("/etc", modules.join("link")).unwrap();
        let found = Repositories::of(project);
        let folders =
            [".git/modules/libs/a", ".git/modules/libs/a/modules/deep", ".git/modules/outside", ".git/modules/whole"];
        assert_eq!(below(project, &found.folders), folders);
        assert_eq!(below(project, &found.work_trees), [".git/worktrees/one"]);
        let pointers = [".git/modules/link", "libs/a b/.git", "libs/a b/deep/.git", "trees/one/.git"];
        assert_eq!(below(project, &found.pointers), pointers);
        let pinned = below(project, &found.pinned);
        for path in [".git/modules", ".git/modules/libs", ".git/modules/libs/a/modules", "libs", "libs/a b/deep"] {
            assert!(pinned.iter().any(|pinned| pinned == path), "{path}: {pinned:?}");
        }
        assert!(found.unread.is_empty());
    }

    #[test]
    fn a_repository_is_known_also_without_its_head() {
        let folder = tempfile::tempdir().unwrap();
        let one = folder.path().join(".git/modules/one");
        repository(&one, "");
        fs::remove_file(one.join("HEAD")).unwrap();
        assert!(Repositories::of(folder.path()).folders.contains(&one));
    }

    #[test]
    fn a_folder_with_too_many_is_closed_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join(".git/modules");
        for number in 0..=MOST {
            repository(&modules.join(format!("m{number}")), "");
        }
        let found = Repositories::of(folder.path());
        assert_eq!(found.folders.len(), MOST);
        assert_eq!(found.unread, BTreeSet::from([modules]));
    }
}
