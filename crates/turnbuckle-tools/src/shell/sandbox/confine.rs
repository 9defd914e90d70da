//! What the launcher does to itself before it becomes the command. Nothing is skipped: if a step fails, the command does not run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::paths;

#[cfg(target_os = "linux")]
pub(in crate::shell) use linux::{confine, enter_bubblewrap, probe_namespaces};
#[cfg(target_os = "linux")]
pub(super) use linux::{has_landlock, has_seccomp};
#[cfg(not(target_os = "linux"))]
pub(in crate::shell) use other::{confine, enter_bubblewrap, probe_namespaces};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{has_landlock, has_seccomp};

/// The orders for one command. They go to the launcher as JSON in an argument.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::shell) struct Confinement {
    /// Mounts of its own; none where the machine does not allow any.
    pub(super) mounts: Option<MountPlan>,
    /// What it may read and change; nothing is enforced without it.
    pub(super) files: Option<FileRights>,
    /// Which calls of the system are refused, if any can be.
    pub(super) calls: Option<RefusedCalls>,
}

/// Calls that no command makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RefusedCalls {
    /// Keys that the kernel keeps for the user.
    Keys,
    /// Those, and whatever opens a socket that can reach another process.
    KeysAndSockets,
}

impl Confinement {
    /// The same without mounts: `bwrap` has made them.
    pub(in crate::shell) fn without_mounts(&self) -> Self {
        let files = self.files.as_ref().map(|rights| FileRights {
            read: rights.read.clone(),
            write: rights.write.clone(),
            devices: rights.devices.clone(),
        });
        Self { mounts: None, files, calls: self.calls }
    }

    /// Whether the launcher makes mounts itself.
    pub(in crate::shell) fn has_mounts(&self) -> bool {
        self.mounts.is_some()
    }

    /// What it mounts: the files that had these names when the launcher confined itself.
    pub(super) fn mounted(&self) -> impl Iterator<Item = &Path> {
        let mounted = self.mounts.iter().flat_map(|plan| [&plan.pinned, &plan.read_only, &plan.hidden]).flatten();
        mounted.map(PathBuf::as_path)
    }

    /// What it allows besides the system: likewise the files that had these names then.
    pub(super) fn allowed(&self) -> impl Iterator<Item = &Path> {
        let allowed = self.files.iter().flat_map(|rights| rights.read.iter().chain(&rights.write));
        allowed.filter(|path| !paths::is_system(path)).map(PathBuf::as_path)
    }

    /// The temporary folder as the command sees it: `/tmp`, where that is covered by it.
    pub(in crate::shell) fn sees_tmp_at(&self, own: PathBuf) -> PathBuf {
        let over = self.mounts.iter().flat_map(|plan| &plan.over);
        over.rev().find(|(source, _)| *source == own).map_or(own, |(_, place)| place.clone())
    }
}

/// Mounts in a namespace of the command's own.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountPlan {
    /// Where the command runs: entered anew, since it may be another mount than before.
    pub(super) folder: PathBuf,
    /// What stays writable if everything else becomes read-only. Landlock knows no rights for modes, owners, times and attributes of files:
    /// only a mount keeps a command from changing those outside the project.
    pub(super) writable: Option<Vec<PathBuf>>,
    /// Mounted onto themselves, so that they cannot be renamed.
    pub(super) pinned: Vec<PathBuf>,
    /// Mounted onto themselves, and read-only.
    pub(super) read_only: Vec<PathBuf>,
    /// Covered by `empty`.
    pub(super) hidden: Vec<PathBuf>,
    pub(super) empty: PathBuf,
    /// What is mounted, and over which folder.
    pub(super) over: Vec<(PathBuf, PathBuf)>,
    /// The program that makes the mounts, where the launcher may not.
    pub(super) bubblewrap: Option<PathBuf>,
}

/// Rights to files; there are no others.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileRights {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// Device files that are read and written, and controlled.
    pub(super) devices: Vec<PathBuf>,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::fs;
    use std::io;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::{Path, PathBuf};

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
        RulesetCreatedAttr as _, Scope, path_beneath_rules,
    };
    use nix::sched::{CloneFlags, unshare};
    use rustix::fs::{StatVfsMountFlags, statvfs};
    use rustix::io::Errno;
    use rustix::mount::{
        MountFlags, MountPropagationFlags, mount_bind, mount_bind_recursive, mount_change, mount_remount,
    };
    use rustix::process::{getegid, geteuid};
    use rustix::thread::{CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch,
    };

    use super::{Confinement, FileRights, MountPlan, RefusedCalls};

    /// The newest interface whose rights are handled. On an older kernel those that it does not know are left out; the one that
    /// [`has_landlock`] asks for is there.
    const NEWEST: ABI = ABI::V7;
    /// The oldest with which no file outside can be emptied.
    const OLDEST: ABI = ABI::V3;

    /// `socket` has this error: programs take it as "not available" and go on where they can.
    const EACCES: u32 = 13;
    /// Numbers of the x32 interface of x86-64 have this bit, and no filter for the plain number sees them.
    const X32: i64 = 0x4000_0000;

    /// Confines this process, which must have one thread.
    pub(in crate::shell) fn confine(orders: &Confinement) -> io::Result<()> {
        if let Some(plan) = &orders.mounts {
            namespaces()?;
            make(plan)?;
        }
        drop_capabilities()?;
        if let Some(rights) = &orders.files {
            let network_off = orders.calls == Some(RefusedCalls::KeysAndSockets);
            restrict_files(rights, network_off).map_err(io::Error::other)?;
        }
        if let Some(refused) = orders.calls {
            seccompiler::apply_filter(&filter(refused)?).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Whether this process can have mounts of its own, and whether all of them can be read-only.
    pub(in crate::shell) fn probe_namespaces() -> io::Result<bool> {
        namespaces()?;
        let read_only = Path::new("/dev/null");
        mount_bind(read_only, read_only)?;
        remount_read_only(read_only)?;
        Ok(make_rest_read_only(&[]).is_ok())
    }

    pub(in crate::shell::sandbox) fn has_landlock() -> bool {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        ruleset.handle_access(AccessFs::from_all(OLDEST)).and_then(|ruleset| ruleset.create()).is_ok()
    }

    pub(in crate::shell::sandbox) fn has_seccomp() -> bool {
        filter(RefusedCalls::KeysAndSockets).is_ok() && Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
    }

    /// A user namespace, in which mounts need no rights outside, and one for mounts. Ids stay what they are.
    fn namespaces() -> io::Result<()> {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let own = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
        unshare(own).map_err(io::Error::from)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        // Nothing that is mounted here is seen outside. What is unmounted outside is unmounted here: a launcher that waits would keep a
        // device busy otherwise.
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        Ok(())
    }

    fn make(plan: &MountPlan) -> io::Result<()> {
        let failed = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("mounting {}: {error}", path.display()))
        };
        // First, since what is mounted later lies in them.
        for path in plan.writable.iter().flatten() {
            mount_bind_recursive(path, path).map_err(|error| failed(path, error.into()))?;
        }
        // Before what they lie in: a mount shows the folder without what is mounted below it.
        for path in &plan.pinned {
            mount_bind_recursive(path, path).map_err(|error| failed(path, error.into()))?;
        }
        for path in &plan.read_only {
            mount_bind_recursive(path, path).map_err(|error| failed(path, error.into()))?;
            remount_read_only(path).map_err(|error| failed(path, error))?;
        }
        for path in &plan.hidden {
            mount_bind(&plan.empty, path).map_err(|error| failed(path, error.into()))?;
            remount_read_only(path).map_err(|error| failed(path, error))?;
        }
        for (source, place) in &plan.over {
            mount_bind(source, place).map_err(|error| failed(place, error.into()))?;
        }
        if let Some(writable) = &plan.writable {
            let kept = writable.iter().chain(plan.over.iter().map(|(_, place)| place));
            let kept: Vec<PathBuf> = kept.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
            make_rest_read_only(&kept)?;
        }
        // The folder that was current lies below the mount that is writable.
        std::env::set_current_dir(&plan.folder)
    }

    /// Makes every mount read-only that does not lie in one of these.
    fn make_rest_read_only(kept: &[PathBuf]) -> io::Result<()> {
        let mounts = fs::read("/proc/self/mountinfo")?;
        // The last of several at one place is the one that is seen there.
        let mounts: BTreeMap<PathBuf, MountFlags> = mounts.split(|byte| *byte == b'\n').filter_map(mounted).collect();
        for (place, flags) in mounts {
            if flags.contains(MountFlags::RDONLY) || kept.iter().any(|kept| place.starts_with(kept)) {
                continue;
            }
            match mount_remount(&place, flags | MountFlags::BIND | MountFlags::RDONLY, c"") {
                // What this user cannot reach, a command cannot either.
                Ok(()) | Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => {
                    let error = io::Error::from(error);
                    return Err(io::Error::new(
                        error.kind(),
                        format!("mounting {} read-only: {error}", place.display()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Where a line of `mountinfo` says that something is mounted, and with which flags.
    fn mounted(line: &[u8]) -> Option<(PathBuf, MountFlags)> {
        let mut words = line.split(|byte| *byte == b' ');
        let (place, options) = (words.nth(4)?, words.next()?);
        let flags = options.split(|byte| *byte == b',').map(|option| match option {
            b"ro" => MountFlags::RDONLY,
            b"nosuid" => MountFlags::NOSUID,
            b"nodev" => MountFlags::NODEV,
            b"noexec" => MountFlags::NOEXEC,
            b"noatime" => MountFlags::NOATIME,
            b"nodiratime" => MountFlags::NODIRATIME,
            b"relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        });
        Some((unescaped(place), flags.fold(MountFlags::empty(), |all, flag| all | flag)))
    }

    /// Blanks, tabs, ends of lines and backslashes are written as three octal digits.
    fn unescaped(place: &[u8]) -> PathBuf {
        let (mut bytes, mut rest) = (Vec::new(), place);
        while let [first, behind @ ..] = rest {
            let octal = behind.first_chunk::<3>().filter(|_| *first == b'\\');
            let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
            (rest, _) = match octal {
                Some(byte) => (&behind[3..], bytes.push(byte)),
                None => (behind, bytes.push(*first)),
            };
        }
        PathBuf::from(OsString::from_vec(bytes))
    }

    /// A mount that came from outside keeps its flags: without them the kernel refuses to change it.
    fn remount_read_only(path: &Path) -> io::Result<()> {
        let now = statvfs(path)?.f_flag;
        let kept = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
            (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
            (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        ];
        let kept = kept.into_iter().filter(|(flag, _)| now.contains(*flag)).map(|(_, flag)| flag);
        let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, flag| all | flag);
        Ok(mount_remount(path, flags, c"")?)
    }

    /// In its namespace a process has all capabilities, and root keeps them when it executes another program: it could take the mounts
    /// away again.
    fn drop_capabilities() -> io::Result<()> {
        clear_ambient_capability_set()?;
        for capability in CapabilitySet::all().iter() {
            match remove_capability_from_bounding_set(capability) {
                // A capability that this kernel does not know; or a process without any, which has none to lose.
                Err(Errno::INVAL | Errno::PERM) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn restrict_files(rights: &FileRights, network_off: bool) -> Result<(), landlock::RulesetError> {
        let (read, all) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
        let mut ruleset = Ruleset::default().handle_access(all)?.scope(Scope::Signal)?;
        if network_off {
            ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?.scope(Scope::AbstractUnixSocket)?;
        }
        let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
        ruleset
            .create()?
            .add_rules(path_beneath_rules(&rights.read, read))?
            .add_rules(path_beneath_rules(&rights.write, all))?
            .add_rules(path_beneath_rules(&rights.devices, devices))?
            .restrict_self()?;
        Ok(())
    }

    /// Refuses keys of the kernel, and to open sockets of any family, also through an io_uring. A pair of sockets that stay connected with each
    /// other is possible.
    fn filter(refused: RefusedCalls) -> io::Result<BpfProgram> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
        // add_key, request_key and keyctl; socket and io_uring_setup; socketpair.
        let (keys, sockets, pair): ([i64; 3], [i64; 2], i64) = match arch {
            TargetArch::x86_64 => ([248, 249, 250], [41, 425], 53),
            _ => ([217, 218, 219], [198, 425], 199),
        };
        // Without rules a call is refused whatever its arguments are.
        let mut calls: BTreeMap<i64, Vec<SeccompRule>> = keys.into_iter().map(|number| (number, Vec::new())).collect();
        if refused == RefusedCalls::KeysAndSockets {
            calls.extend(sockets.map(|number| (number, Vec::new())));
            calls.insert(pair, pairs_that_reach_others().map_err(io::Error::other)?);
        }
        if matches!(arch, TargetArch::x86_64) {
            calls.extend(calls.clone().into_iter().map(|(number, rules)| (number | X32, rules)));
        }
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, SeccompAction::Errno(EACCES), arch);
        filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
    }

    /// The arguments of `socketpair` that are refused: all but pairs of Unix stream and packet sockets, which stay connected with each other. One of a
    /// pair of datagram sockets can be connected anew, and can send to any other socket that has a name.
    fn pairs_that_reach_others() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        const AF_UNIX: u64 = 1;
        const SOCK_STREAM: u64 = 1;
        const SOCK_SEQPACKET: u64 = 5;
        /// The bits of the second argument that are the type; the others are flags.
        const TYPE: u64 = 0xf;
        let condition = |argument, how, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value);
        let types = (0..=TYPE).filter(|kind| ![SOCK_STREAM, SOCK_SEQPACKET].contains(kind));
        let other_types = types.map(|kind| condition(1, SeccompCmpOp::MaskedEq(TYPE), kind));
        let other_families = condition(0, SeccompCmpOp::Ne, AF_UNIX);
        other_types.chain([other_families]).map(|condition| SeccompRule::new(vec![condition?])).collect()
    }

    /// The arguments with which `bwrap` makes the mounts; behind them comes what it starts.
    pub(in crate::shell) fn enter_bubblewrap(orders: &Confinement) -> Option<(&Path, Vec<OsString>)> {
        let plan = orders.mounts.as_ref()?;
        let program = plan.bubblewrap.as_deref()?;
        let rest = if plan.writable.is_some() { "--ro-bind" } else { "--dev-bind" };
        let mut words: Vec<OsString> =
            [rest, "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-ipc"].map(OsString::from).into();
        let mut mount = |how: &str, source: &Path, place: &Path| {
            words.extend([OsString::from(how), source.into(), place.into()]);
        };
        plan.writable.iter().flatten().for_each(|path| mount("--bind", path, path));
        plan.pinned.iter().for_each(|path| mount("--bind", path, path));
        plan.read_only.iter().for_each(|path| mount("--ro-bind", path, path));
        plan.hidden.iter().for_each(|path| mount("--ro-bind", &plan.empty, path));
        plan.over.iter().for_each(|(source, place)| mount("--bind", source, place));
        words.extend(["--chdir".into(), plan.folder.clone().into_os_string(), "--".into()]);
        Some((program, words))
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::ffi::OsString;
    use std::io;
    use std::path::Path;

    use super::Confinement;

    pub(in crate::shell) fn confine(_: &Confinement) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::shell) fn probe_namespaces() -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::shell) fn enter_bubblewrap(_: &Confinement) -> Option<(&Path, Vec<OsString>)> {
        None
    }

    pub(in crate::shell::sandbox) fn has_landlock() -> bool {
        false
    }

    pub(in crate::shell::sandbox) fn has_seccomp() -> bool {
        false
    }
}
