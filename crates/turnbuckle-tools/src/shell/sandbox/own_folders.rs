//! Folders in which Turnbuckle keeps what the user decided, where they lie in something that commands may write to.
//!
//! A mount covers such a folder, but nothing can be mounted where nothing is, and whoever renames a folder above it can make another in its place, which
//! Turnbuckle would then read. So missing ones are made before a command runs, and the folders above them are mounted onto themselves.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// What is passed on the way to a folder. No path in it leads through a link.
#[derive(Debug, Default, PartialEq, Eq)]
struct Way {
    /// Folders that exist, from the outside in. The last is the folder itself, unless something is missing.
    folders: Vec<PathBuf>,
    links: Vec<PathBuf>,
    /// The first that does not exist, or is no folder.
    missing: Option<PathBuf>,
}

impl Way {
    fn to(path: &Path) -> Self {
        let name = |one: Component<'_>| match one {
            Component::Normal(_) | Component::ParentDir => Some(one.as_os_str().to_owned()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        };
        let mut names: VecDeque<OsString> = path.components().filter_map(name).collect();
        let (mut way, mut here) = (Self::default(), PathBuf::from("/"));
        while let Some(next) = names.pop_front() {
            if next == ".." {
                here.pop();
                continue;
            }
            let place = here.join(&next);
            match fs::symlink_metadata(&place) {
                Ok(about) if about.is_symlink() && way.links.len() < MOST_LINKS => {
                    let target = fs::read_link(&place).unwrap_or_default();
                    way.links.push(place);
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    target.components().rev().filter_map(name).for_each(|name| names.push_front(name));
                }
                Ok(about) if about.is_dir() => {
                    way.folders.push(place.clone());
                    here = place;
                }
                // Nothing, or something that is no folder.
                _ => {
                    way.missing = Some(place);
                    break;
                }
            }
        }
        way
    }

    /// The folder itself, or the nearest to it that exists or could be made.
    fn end(&self) -> Option<&Path> {
        self.missing.as_deref().or_else(|| self.folders.last().map(PathBuf::as_path))
    }
}

fn is_in(path: &Path, places: &[PathBuf]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

/// Whether one of them lies in one of these places, which have no links in them.
pub(super) fn any_in(hidden: &[PathBuf], places: &[PathBuf]) -> bool {
    hidden.iter().any(|folder| Way::to(folder).end().is_some_and(|end| is_in(end, places)))
}

/// Folders above them that a command could rename: those that lie in a place that it may write to.
pub(super) fn pinned(hidden: &[PathBuf], writable: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in hidden {
        let way = Way::to(folder);
        let above = if way.missing.is_some() { way.folders.len() } else { way.folders.len().saturating_sub(1) };
        let inside = |path: &&PathBuf| writable.iter().any(|place| path.starts_with(place) && *path != place);
        found.extend(way.folders.iter().take(above).filter(inside).cloned());
    }
    // A folder comes before those in it.
    found.sort();
    found.dedup();
    found
}

/// Links on the way to them that a command could replace: a mount covers what a link leads to, never the link.
pub(super) fn replaceable_links(hidden: &[PathBuf], writable: &[PathBuf]) -> Vec<PathBuf> {
    let is_replaceable = |link: &PathBuf| link.parent().is_some_and(|folder| is_in(folder, writable));
    let mut found: Vec<PathBuf> =
        hidden.iter().flat_map(|folder| Way::to(folder).links).filter(is_replaceable).collect();
    found.sort();
    found.dedup();
    found
}

/// Makes those that are missing where a command could make them.
pub(super) fn make_missing(hidden: &[PathBuf], writable: &[PathBuf]) -> io::Result<()> {
    for folder in hidden {
        let way = Way::to(folder);
        if !way.missing.is_some_and(|missing| is_in(&missing, writable)) {
            continue;
        }
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(folder) {
            // Where this process may not make it, a command may not either.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Which folders they were before a command ran.
pub(in crate::shell) struct OwnFolders(Vec<(PathBuf, Option<(u64, u64)>)>);

impl OwnFolders {
    pub(in crate::shell) fn note(hidden: &[PathBuf]) -> Self {
        Self(hidden.iter().map(|folder| (folder.clone(), identity(folder))).collect())
    }

    /// Those that are others now, or are gone, or new.
    pub(in crate::shell) fn changed(&self) -> Vec<String> {
        let changed = self.0.iter().filter(|(folder, before)| identity(folder) != *before);
        changed.map(|(folder, _)| folder.display().to_string()).collect()
    }
}

/// Turnbuckle itself writes to them while a command runs, so what is in them says nothing.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    fs::metadata(folder).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn what_is_above_a_folder_is_pinned_from_the_writable_place_on() {
        let home = tempfile::tempdir().unwrap();
        let home = &home.path().canonicalize().unwrap();
        let hidden = [home.join(".local/state/turnbuckle")];
        let (all, local) = ([home.clone()], [home.join(".local")]);
        assert!(any_in(&hidden, &all) && any_in(&hidden, &local), "also if it does not exist yet");
        make_missing(&hidden, &[home.join("project")]).unwrap();
        assert!(!home.join(".local").exists(), "nothing is made where no command could make it");
        make_missing(&hidden, &all).unwrap();
        assert_eq!(fs::metadata(&hidden[0]).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(pinned(&hidden, &all), [home.join(".local"), home.join(".local/state")]);
        assert_eq!(pinned(&hidden, &local), [home.join(".local/state")]);
        assert!(pinned(&hidden, &[home.join("project")]).is_empty());
        assert!(any_in(&hidden, &local) && !any_in(&hidden, &[home.join("project")]));
        let before = OwnFolders::note(&hidden);
        assert!(before.changed().is_empty());
        fs::rename(home.join(".local"), home.join("l2")).unwrap();
        make_missing(&hidden, &all).unwrap();
        assert_eq!(before.changed(), [hidden[0].display().to_string()]);
    }

    #[test]
    fn a_link_on_the_way_is_named_and_what_it_leads_to_is_pinned() {
        let home = tempfile::tempdir().unwrap();
        let home = &home.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("dot/config/turnbuckle")).unwrap();
        symlink("dot/../dot/config", home.join(".config")).unwrap();
        symlink("loop", home.join("loop")).unwrap();
        let hidden = [home.join(".config/turnbuckle")];
        let writable = [home.clone()];
        assert_eq!(pinned(&hidden, &writable), [home.join("dot"), home.join("dot/config")]);
        assert_eq!(replaceable_links(&hidden, &writable), [home.join(".config")]);
        assert!(replaceable_links(&hidden, &[home.join("dot")]).is_empty());
        assert!(make_missing(&[home.join("loop/turnbuckle")], &writable).is_err(), "nothing fails silently");
    }
}
