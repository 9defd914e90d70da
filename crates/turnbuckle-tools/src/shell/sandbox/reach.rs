//! What a policy comes to on this machine at one moment, and from that the orders for the launcher.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::GuardedLook;
use super::confine::{Confinement, FileRights, MountPlan, RefusedCalls};
use super::paths::Closed;
use super::policy::{Network, Policy};
use super::private_tmp::PrivateTmp;
use super::support::{Mounts, Support};
use super::{guarded, own_folders, paths};

/// What commands may reach now. To find it out looks at some forty files and folders, so it is done once for all that one call asks. It is never
/// kept for the next call: links and folders change.
pub(in crate::shell) struct Reach<'a> {
    policy: &'a Policy,
    project: &'a Path,
    support: &'a Support,
    caches: Vec<PathBuf>,
    toolchains: Vec<PathBuf>,
    /// What they may write to, as far as it exists: by its name, and without links in the path.
    writable: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Reach<'a> {
    /// As it is now.
    pub(in crate::shell) fn now(policy: &'a Policy, project: &'a Path, support: &'a Support) -> Self {
        let closed = Closed::of(project, &policy.hidden);
        let (caches, toolchains) = (paths::caches(&closed), paths::toolchains(&closed));
        let named = [project].into_iter().chain(caches.iter().chain(&policy.writable).map(PathBuf::as_path));
        let writable = named.filter_map(|path| Some((path.to_path_buf(), closed.existing(path)?))).collect();
        Self { policy, project, support, caches, toolchains, writable }
    }

    /// What is not enforced, in words for those who are asked about a command.
    pub(in crate::shell) fn not_enforced(&self) -> Vec<String> {
        let (policy, support) = (self.policy, self.support);
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
            if own_folders::any_in(&policy.hidden, &self.readable()) || !support.files {
                missing.push("it can reach the folders in which Turnbuckle keeps what you accepted".to_owned());
            }
        } else {
            let links = own_folders::replaceable_links(&policy.hidden, &self.changeable());
            missing.extend(links.iter().map(|link| {
                format!("it can replace the link {}, which leads to a folder of Turnbuckle's own", link.display())
            }));
        }
        if support.files && !support.rest_read_only {
            missing.push("it can change modes, owners and times of your files outside the project".to_owned());
        }
        if policy.network == Network::Off && !support.network {
            missing.push("it can reach the network".to_owned());
        }
        missing
    }

    /// What a command may read or write, as far as it exists, without links in the paths.
    fn readable(&self) -> Vec<PathBuf> {
        let read = self.policy.readable.iter().filter_map(|path| path.canonicalize().ok());
        self.writable_places().chain(read).collect()
    }

    fn writable_places(&self) -> impl Iterator<Item = PathBuf> {
        self.writable.iter().map(|(_, place)| place.clone())
    }

    /// Where a command can make, rename and remove files, as far as this machine keeps it from doing so elsewhere.
    fn changeable(&self) -> Vec<PathBuf> {
        match self.support.files || self.support.rest_read_only {
            true => self.writable_places().collect(),
            false => vec![PathBuf::from("/")],
        }
    }

    /// Makes the hidden folders that are missing where a command could make them. They lie in what commands may write to, which stays the same.
    pub(in crate::shell) fn make_missing(&self) -> io::Result<()> {
        match self.support.mounts.are_possible() {
            true => own_folders::make_missing(&self.policy.hidden, &self.changeable()),
            // Nothing could be mounted over them.
            false => Ok(()),
        }
    }

    /// The orders for one command. What is hidden is looked at when this is called, what is guarded was looked at before.
    pub(in crate::shell) fn confinement(&self, tmp: &PrivateTmp, names: &GuardedLook) -> Confinement {
        let Self { policy, project, support, caches, toolchains, .. } = self;
        let covered = support.mounts.are_possible().then(|| self.covered(tmp));
        let writable = || -> Vec<PathBuf> {
            let own = Some(tmp.folder()).filter(|path| path.exists());
            self.writable.iter().map(|(path, _)| path.clone()).chain(own).collect()
        };
        let mounts = covered.as_ref().map(|covered| MountPlan {
            folder: project.to_path_buf(),
            writable: support.rest_read_only.then(writable),
            pinned: names.pinned().chain(own_folders::pinned(&policy.hidden, &self.changeable())).collect(),
            read_only: names.existing(),
            hidden: policy.hidden.iter().filter(|path| path.is_dir()).cloned().collect(),
            empty: tmp.empty(),
            over: covered.clone(),
            bubblewrap: support.mounts.bubblewrap(),
        });
        let files = support.files.then(|| {
            let mut read = paths::system();
            read.extend(toolchains.iter().cloned());
            read.extend(paths::git_folders(project));
            read.extend(policy.readable.iter().cloned());
            // As the command sees them: a folder of its own is where it is mounted.
            let mut write: Vec<PathBuf> = covered.iter().flatten().map(|(_, place)| place.clone()).collect();
            write.extend([project.to_path_buf(), tmp.folder()]);
            write.extend(caches.iter().cloned());
            write.extend(policy.writable.iter().cloned());
            let mut known = BTreeSet::new();
            // Folders of programs are named by several variables.
            read.retain(|path| known.insert(path.clone()));
            FileRights { read, write, devices: paths::devices() }
        });
        let calls = match policy.network {
            Network::Off => RefusedCalls::KeysAndSockets,
            Network::On => RefusedCalls::Keys,
        };
        Confinement { mounts, files, calls: support.network.then_some(calls) }
    }

    /// Folders that many programs write to, and which command sees its own in their place: pairs of what is mounted and where.
    fn covered(&self, tmp: &PrivateTmp) -> Vec<(PathBuf, PathBuf)> {
        // `bwrap` starts this executable again when the folders are covered already.
        let executable = self.support.mounts.bubblewrap().and_then(|_| std::env::current_exe().ok());
        let is_needed = |place: &Path| {
            let needed = self.policy.readable.iter().chain(&self.policy.writable).map(PathBuf::as_path);
            needed.chain([self.project]).chain(executable.as_deref()).any(|path| path.starts_with(place))
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
            Reach::now(policy, project, &support).not_enforced().iter().any(|text| text.contains("what you accepted"))
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
        let said = Reach::now(&policy, &home, &support).not_enforced();
        assert!(said.len() == 1 && said[0].contains("can replace the link"), "{said:?}");
    }
}
