//! Which folder is the project: tools are confined to it, hooks run in it, its file and its database are read from it.
//!
//! Looked at are the current folder and those above it, up to the root of the repository; outside a repository up to the home
//! directory, which is not part of it; where neither is above, only the current folder. The nearest folder with a
//! `turnbuckle.toml` or a `.turnbuckle` is the project. Without any, it is the current folder.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use turnbuckle::message::Text;

use crate::output;
use crate::problem::Problem;

/// The project's file.
pub(crate) const FILE: &str = "turnbuckle.toml";
/// The folder for what Turnbuckle keeps in a project.
pub(crate) const OWN_FOLDER: &str = ".turnbuckle";

/// The project's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    /// Absolute, links resolved.
    pub(crate) folder: PathBuf,
    /// The way there from the current folder: empty, or `..` once or more.
    from_here: PathBuf,
    /// Another one above it that was not chosen.
    second: Option<PathBuf>,
    /// What makes it a project above the current folder, if that belongs to another user of the machine.
    pub(crate) foreign: Option<PathBuf>,
}

impl Project {
    /// The one that the current folder is in.
    pub(crate) fn discover() -> Result<Self, Problem> {
        let here = std::env::current_dir().and_then(|here| here.canonicalize());
        let here = here.map_err(|error| Problem::error(format!("the current folder: {error}")))?;
        let home = crate::user_folders::home().and_then(|home| home.canonicalize().ok());
        Ok(Self::find(&here, home.as_deref(), rustix::process::geteuid().as_raw()))
    }

    /// The one that `here` is in, for the user `me`. Both paths are absolute, links resolved.
    fn find(here: &Path, home: Option<&Path>, me: u32) -> Self {
        let candidates = candidates(here, home);
        let mut found = candidates.iter().filter_map(|folder| Some((*folder, marker(folder)?)));
        let Some((folder, marker)) = found.next() else { return Self::at(here, here) };
        let second = found.next().map(|(_, marker)| marker);
        let foreign = Some(marker).filter(|marker| folder != here && !belongs_to(marker, me));
        Self { second, foreign, ..Self::at(folder, here) }
    }

    /// For a current folder that cannot be found out.
    pub(crate) fn unknown() -> Self {
        Self::at(Path::new("."), Path::new("."))
    }

    fn at(folder: &Path, here: &Path) -> Self {
        let steps = here.strip_prefix(folder).map_or(0, |rest| rest.components().count());
        let from_here = std::iter::repeat_n("..", steps).collect();
        Self { folder: folder.to_owned(), from_here, second: None, foreign: None }
    }

    /// The current folder, whatever is above it.
    pub(crate) fn here(self) -> Self {
        let depth = self.from_here.components().count();
        match std::env::current_dir().and_then(|here| here.canonicalize()) {
            Ok(here) if depth > 0 => Self::at(&here, &here),
            _ => self,
        }
    }

    /// A path in the project, as it is reached from the current folder.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.from_here.join(path)
    }

    /// Its name in the store: the folder. A standing approval holds in one project.
    pub(crate) fn name(&self) -> Text {
        self.folder.display().to_string().into()
    }

    /// Its file.
    pub(crate) fn file(&self) -> PathBuf {
        self.join(FILE)
    }

    /// Whether what makes it a project belongs to another user of the machine.
    pub(crate) fn is_anothers(&self) -> bool {
        marker(&self.folder).is_some_and(|marker| !belongs_to(&marker, rustix::process::geteuid().as_raw()))
    }

    fn is_current_folder(&self) -> bool {
        self.from_here.as_os_str().is_empty()
    }

    /// Says which folder it is, once, if it is not the current one.
    pub(crate) fn tell(&self) {
        static TOLD: std::sync::Once = std::sync::Once::new();
        if !self.is_current_folder() {
            TOLD.call_once(|| output::say(&format!("project   {}", self.folder.display())));
        }
    }

    /// Said where an agent may run: its tools reach whatever is in the folder.
    pub(crate) fn too_wide(&self) -> Option<Problem> {
        let home = crate::user_folders::home().and_then(|home| home.canonicalize().ok());
        self.width(home.as_deref())
    }

    fn width(&self, home: Option<&Path>) -> Option<Problem> {
        let what = match home {
            _ if self.folder.parent().is_none() => "the project is `/`, the whole machine",
            Some(home) if home == self.folder => "the project is your home directory",
            _ => return None,
        };
        let what = format!("{what}: file tools and commands reach everything in it");
        Some(Problem::warning(what).hint("change into the folder of a project first"))
    }

    /// What a person should know about the choice.
    pub(crate) fn remarks(&self) -> Vec<Problem> {
        let warn = |second: &PathBuf| {
            let what = format!("{} is not used: {} is nearer", second.display(), self.folder.display());
            Problem::warning(what).hint("the nearest folder with a turnbuckle.toml or a .turnbuckle is the project")
        };
        self.second.iter().map(warn).collect()
    }
}

/// The folders that may be the project, the nearest first.
fn candidates<'a>(here: &'a Path, home: Option<&Path>) -> Vec<&'a Path> {
    let is_root = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    let above_home = home.filter(|home| here.starts_with(home));
    let all: Vec<&Path> = match (here.ancestors().find(is_root), above_home) {
        (Some(root), _) => here.ancestors().take_while(|folder| folder.starts_with(root)).collect(),
        (None, Some(home)) => here.ancestors().take_while(|folder| *folder != home).collect(),
        (None, None) => Vec::new(),
    };
    // Home and the root of the machine are a project only for those who stand in them.
    let is_common = |folder: &Path| Some(folder) == home || folder.parent().is_none();
    let above = all.into_iter().filter(|folder| *folder != here && !is_common(folder));
    std::iter::once(here).chain(above).collect()
}

/// What makes a folder a project.
fn marker(folder: &Path) -> Option<PathBuf> {
    [FILE, OWN_FOLDER].map(|name| folder.join(name)).into_iter().find(|path| path.symlink_metadata().is_ok())
}

/// Whether a file is the user's, or the administrator's. One that cannot be looked at is not.
fn belongs_to(path: &Path, me: u32) -> bool {
    path.symlink_metadata().is_ok_and(|about| [me, 0].contains(&about.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        /// Folders end in a slash.
        fn of(entries: &[&str]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for entry in entries {
                let path = tree.path(entry);
                match entry.ends_with('/') {
                    true => std::fs::create_dir_all(path).unwrap(),
                    false => {
                        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                        std::fs::write(path, "").unwrap();
                    }
                }
            }
            tree
        }

        fn path(&self, entry: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(entry.trim_end_matches('/'))
        }

        fn me(&self) -> u32 {
            self.0.path().metadata().unwrap().uid()
        }

        /// The project from `here`, relative to the tree.
        fn from(&self, here: &str, home: &str) -> (String, Project) {
            let found = Project::find(&self.path(here), Some(&self.path(home)), self.me());
            let folder = found.folder.strip_prefix(self.path("")).map_or("?".into(), |path| path.to_string_lossy());
            (folder.into_owned(), found)
        }
    }

    #[test]
    fn the_nearest_folder_in_the_repository_decides() {
        let tree = Tree::of(&["r/.git/", "r/turnbuckle.toml", "r/a/.turnbuckle/", "r/a/b/c/", "r/d/e/"]);
        assert_eq!(tree.from("r/d/e", "home").0, "r");
        let (folder, found) = tree.from("r/a/b/c", "home");
        assert_eq!((folder.as_str(), found.join("x")), ("r/a", PathBuf::from("../../x")));
        assert_eq!(found.second, Some(tree.path("r/turnbuckle.toml")), "the second one is reported");
        assert_eq!(found.remarks().len(), 1);
        assert!(tree.from("r", "home").1.is_current_folder());
    }

    #[test]
    fn nothing_above_the_repository_is_looked_at() {
        let tree = Tree::of(&["turnbuckle.toml", "home/turnbuckle.toml", "home/r/.git", "home/r/a/"]);
        let (folder, found) = tree.from("home/r/a", "home");
        assert_eq!((folder.as_str(), found.second), ("home/r/a", None));
    }

    #[test]
    fn outside_a_repository_the_home_directory_is_the_limit_and_no_project() {
        let tree =
            Tree::of(&["turnbuckle.toml", "home/turnbuckle.toml", "home/w/turnbuckle.toml", "home/w/x/y/", "home/z/"]);
        assert_eq!(tree.from("home/w/x/y", "home").0, "home/w");
        assert_eq!(tree.from("home/z", "home").0, "home/z");
        assert_eq!(tree.from("home", "home").0, "home", "for those who stand in it it is one");
    }

    #[test]
    fn home_and_the_root_of_the_machine_are_told_of_and_other_projects_are_not() {
        let tree = Tree::of(&["home/w/"]);
        let home = tree.path("home");
        let told = |folder: &Path| Project::at(folder, folder).width(Some(&home)).map(|problem| problem.to_string());
        assert!(told(&home).is_some_and(|told| told.contains("your home directory")));
        assert!(told(Path::new("/")).is_some_and(|told| told.contains("the whole machine")));
        assert_eq!(told(&home.join("w")), None);
    }

    #[test]
    fn where_neither_is_above_only_the_current_folder_is_looked_at() {
        let tree = Tree::of(&["tmp/turnbuckle.toml", "tmp/a/"]);
        assert_eq!(tree.from("tmp/a", "home").0, "tmp/a");
        assert_eq!(Project::find(&tree.path("tmp/a"), None, 0).folder, tree.path("tmp/a"));
    }

    #[test]
    fn a_home_directory_that_is_a_repository_is_no_project_for_what_is_in_it() {
        let tree = Tree::of(&["home/.git/", "home/turnbuckle.toml", "home/a/b/"]);
        assert_eq!(tree.from("home/a/b", "home").0, "home/a/b");
    }

    #[test]
    fn a_file_above_that_belongs_to_another_user_is_told_apart() {
        let tree = Tree::of(&["r/.git/", "r/turnbuckle.toml", "r/a/"]);
        let other = tree.me() + 1;
        let of = |here: &str| Project::find(&tree.path(here), None, other).foreign.is_some();
        // Files of the administrator are not another user's.
        assert_eq!((of("r/a"), of("r")), (tree.me() != 0, false));
    }
}
