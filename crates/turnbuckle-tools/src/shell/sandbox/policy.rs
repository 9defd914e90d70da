//! What commands may reach, and from that the orders for the launcher.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::confine::{Confinement, FileRights, MountPlan, RefusedCalls};
use super::paths::Closed;
use super::private_tmp::PrivateTmp;
use super::support::{Mounts, Support};
use super::{guarded, own_folders, paths};

/// Whether commands may open sockets, of any family: those of the machine itself count as network, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None can be opened.
    #[default]
    Off,
    /// As on the machine.
    On,
}

/// What commands may reach beyond the project, the system, the toolchains and a temporary folder of their own.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Policy {
    /// Further files and folders that they may read.
    pub readable: Vec<PathBuf>,
    /// Further files and folders that they may read and change.
    pub writable: Vec<PathBuf>,
    /// Whether they may open sockets.
    pub network: Network,
    /// Folders that no command reaches, also if they lie inside one that it may read: what Turnbuckle itself keeps for the user.
    pub hidden: Vec<PathBuf>,
}

impl Policy {
    /// What is not enforced on a machine with this support, in words for those who are asked about a command.
    pub(in crate::shell) fn not_enforced(&self, project: &Path, support: &Support) -> Vec<String> {
        if support.is_nothing() {
            let text = "no sandbox: the command can read and change all that you can, also outside the project, and reach the network";
            return vec![text.to_owned()];
        }
        let mut missing = Vec::new();
        if !support.files {
            missing.push("it can read and change files outside the project".to_owned());
        }
        if matches!(support.mounts, Mounts::None) {
            missing.push(format!("it can change {}", guarded::NAMES.join(", ")));
            if own_folders::any_in(&self.hidden, &self.reachable(project)) || !support.files {
                missing.push("it can reach the folders in which Turnbuckle keeps what you accepted".to_owned());
            }
        } else {
            let links =
                own_folders::replaceable_links(&self.hidden, &self.changeable(project, &self.closed(project), support));
            missing.extend(links.iter().map(|link| {
                format!("it can replace the link {}, which leads to a folder of Turnbuckle's own", link.display())
            }));
        }
        if support.files && !support.rest_read_only {
            missing.push("it can change modes, owners and times of your files outside the project".to_owned());
        }
        if self.network == Network::Off && !support.network {
            missing.push("it can reach the network".to_owned());
        }
        missing
    }

    /// What a command may read or write, as far as it exists, without links in the paths.
    fn reachable(&self, project: &Path) -> Vec<PathBuf> {
        let read = self.readable.iter().filter_map(|path| path.canonicalize().ok());
        self.writable_places(project, &self.closed(project)).into_iter().chain(read).collect()
    }

    fn writable_places(&self, project: &Path, closed: &Closed) -> Vec<PathBuf> {
        let caches = paths::caches(closed);
        let named = [project.to_path_buf()].into_iter().chain(caches).chain(self.writable.iter().cloned());
        named.filter_map(|path| closed.existing(&path)).collect()
    }

    fn closed(&self, project: &Path) -> Closed {
        Closed::of(project, &self.hidden)
    }

    /// Where a command can make, rename and remove files, as far as this machine keeps it from doing so elsewhere.
    fn changeable(&self, project: &Path, closed: &Closed, support: &Support) -> Vec<PathBuf> {
        match support.files || support.rest_read_only {
            true => self.writable_places(project, closed),
            false => vec![PathBuf::from("/")],
        }
    }

    /// Makes the hidden folders that are missing where a command could make them.
    pub(in crate::shell) fn make_missing(&self, project: &Path, support: &Support) -> io::Result<()> {
        match support.mounts.are_possible() {
            true => own_folders::make_missing(&self.hidden, &self.changeable(project, &self.closed(project), support)),
            // Nothing could be mounted over them.
            false => Ok(()),
        }
    }

    /// The orders for one command.
    pub(in crate::shell) fn confinement(&self, project: &Path, tmp: &PrivateTmp, support: &Support) -> Confinement {
        let closed = self.closed(project);
        let caches = paths::caches(&closed);
        let covered = support.mounts.are_possible().then(|| self.covered(project, tmp));
        let writable = || -> Vec<PathBuf> {
            let own = [project.to_path_buf(), tmp.folder()];
            let named = own.into_iter().chain(caches.clone()).chain(self.writable.iter().cloned());
            named.filter(|path| path.exists()).collect()
        };
        let mounts = covered.as_ref().map(|covered| MountPlan {
            folder: project.to_path_buf(),
            writable: support.rest_read_only.then(writable),
            pinned: guarded::pinned(project)
                .into_iter()
                .chain(own_folders::pinned(&self.hidden, &self.changeable(project, &closed, support)))
                .collect(),
            read_only: guarded::existing(project),
            hidden: self.hidden.iter().filter(|path| path.is_dir()).cloned().collect(),
            empty: tmp.empty(),
            over: covered.clone(),
            bubblewrap: support.mounts.bubblewrap(),
        });
        let files = support.files.then(|| {
            let mut read = paths::system();
            read.extend(paths::toolchains(&closed));
            read.extend(paths::git_folders(project));
            read.extend(self.readable.iter().cloned());
            // As the command sees them: a folder of its own is where it is mounted.
            let mut write: Vec<PathBuf> = covered.iter().flatten().map(|(_, place)| place.clone()).collect();
            write.extend([project.to_path_buf(), tmp.folder()]);
            write.extend(caches.iter().cloned());
            write.extend(self.writable.iter().cloned());
            let mut known = BTreeSet::new();
            // Folders of programs are named by several variables.
            read.retain(|path| known.insert(path.clone()));
            FileRights { read, write, devices: paths::devices() }
        });
        let calls = match self.network {
            Network::Off => RefusedCalls::KeysAndSockets,
            Network::On => RefusedCalls::Keys,
        };
        Confinement { mounts, files, calls: support.network.then_some(calls) }
    }

    /// Folders that many programs write to, and which command sees its own in their place: pairs of what is mounted and where.
    fn covered(&self, project: &Path, tmp: &PrivateTmp) -> Vec<(PathBuf, PathBuf)> {
        let is_needed = |place: &Path| {
            let needed = self.readable.iter().chain(&self.writable).map(PathBuf::as_path);
            needed.chain([project]).any(|path| path.starts_with(place))
        };
        // `/tmp` comes last: what is mounted lies in it.
        let own = [("/dev/shm", tmp.shared_memory()), ("/var/tmp", tmp.folder()), ("/tmp", tmp.folder())];
        let free = own.into_iter().filter(|(place, _)| Path::new(place).is_dir() && !is_needed(Path::new(place)));
        free.map(|(place, own)| (own, PathBuf::from(place))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn without_mounts_a_question_says_whether_turnbuckles_own_folders_can_be_reached() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("project")).unwrap();
        let support = Support { mounts: Mounts::None, rest_read_only: false, files: true, network: true };
        let policy = Policy { hidden: vec![home.join(".config/turnbuckle")], ..Policy::default() };
        let says = |policy: &Policy, project: &Path| {
            policy.not_enforced(project, &support).iter().any(|text| text.contains("what you accepted"))
        };
        assert!(!says(&policy, &home.join("project")));
        assert!(says(&policy, &home), "the home directory is the project");
        let wide = Policy { writable: vec![home.clone()], ..policy };
        assert!(says(&wide, &home.join("project")));
    }

    #[test]
    fn a_link_to_turnbuckles_own_folder_that_can_be_replaced_is_said() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("dot/turnbuckle")).unwrap();
        std::os::unix::fs::symlink("dot", home.join(".config")).unwrap();
        let support = Support { mounts: Mounts::Own, rest_read_only: true, files: true, network: true };
        let policy = Policy { hidden: vec![home.join(".config/turnbuckle")], ..Policy::default() };
        let said = policy.not_enforced(&home, &support);
        assert!(said.len() == 1 && said[0].contains("can replace the link"), "{said:?}");
    }
}
