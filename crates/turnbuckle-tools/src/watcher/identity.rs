//! Which process is which: process ids are reused, a pair of id and start is not.

use std::fmt;
use std::io::Read as _;
use std::str::FromStr;
use std::sync::LazyLock;

/// A process of this boot and process namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The process namespace: process ids mean nothing outside it.
    space: u64,
    pub(super) pid: u32,
    started: u64,
}

impl Identity {
    /// This process; `None` where there is no Linux `/proc`.
    pub(super) fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { space: (*SPACE)?, pid, started: started(pid)? })
    }

    /// Whether it has ended for certain. One of another namespace is never known to have.
    pub(super) fn has_ended(&self) -> bool {
        if *SPACE != Some(self.space) {
            return false;
        }
        match Stat::of(self.pid) {
            Some(stat) => stat.started != self.started || stat.is_dead,
            None => std::path::Path::new("/proc/self/stat").exists(),
        }
    }
}

/// A process stays in its namespace.
static SPACE: LazyLock<Option<u64>> = LazyLock::new(this_space);

/// The number of this process namespace, which the kernel shows as `pid:[4026531836]`.
fn this_space() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.space, self.pid, self.started)
    }
}

impl FromStr for Identity {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().unwrap_or_default();
        let (space, pid, started) = (part().parse()?, part().parse()?, part().parse()?);
        Ok(Self { space, pid, started })
    }
}

/// When a process started, in clock ticks since the boot; also of one that has ended and is not waited for yet.
pub(super) fn started(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.started)
}

/// The time now, as [`started`] has it: that of the start of a thread. `/proc/uptime` is another clock in some containers.
pub(super) fn now() -> Option<u64> {
    let started = || Stat::read(std::path::Path::new("/proc/thread-self/stat")).map(|stat| stat.started);
    std::thread::spawn(started).join().ok().flatten()
}

/// All processes that can be seen; none where there is no Linux `/proc`.
fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// All of them, each with its process group. Those that have ended and are not waited for are left out.
pub(super) fn processes_with_groups() -> impl Iterator<Item = (u32, u32)> {
    processes().filter_map(|pid| {
        let stat = Stat::of(pid).filter(|stat| !stat.is_dead)?;
        Some((pid, u32::try_from(stat.group).ok()?))
    })
}

/// Those that lead a process group.
pub(super) fn group_leaders() -> impl Iterator<Item = u32> {
    processes().filter(|pid| Stat::of(*pid).is_some_and(|stat| stat.group == u64::from(*pid)))
}

/// Whether a process of this group lives. One that has ended and is not waited for does not: some systems never do that.
pub(super) fn group_lives(group: u32) -> bool {
    processes().filter_map(Stat::of).any(|stat| stat.group == u64::from(group) && !stat.is_dead)
}

struct Stat {
    group: u64,
    started: u64,
    /// It has ended, and its parent has not asked how. With threads left, only its first thread has ended.
    is_dead: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::read(std::path::Path::new(&format!("/proc/{pid}/stat")))
    }

    fn read(file: &std::path::Path) -> Option<Self> {
        // One read takes all of it. The name may be cut off in the middle of a sign.
        let mut bytes = [0; 1024];
        let length = std::fs::File::open(file).ok()?.read(&mut bytes).ok()?;
        let stat = String::from_utf8_lossy(&bytes[..length]);
        // The name, in parentheses, may contain anything, also parentheses. After it come the state and, at 2, 17 and 19, the process
        // group, the number of threads and the start.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let is_dead = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
        Some(Self { group: number(2)?, started: number(19)?, is_dead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_can_be_looked_at_also_those_of_the_kernel() {
        let me = std::process::id();
        assert!(processes().any(|pid| pid == me));
        assert!(group_leaders().all(|pid| pid > 0));
        assert!(group_lives(u32::try_from(Stat::of(me).unwrap().group).unwrap()));
        assert!(!group_lives(u32::MAX));
    }

    #[test]
    fn a_process_is_known_by_its_text_and_a_reused_id_is_another() {
        let me = Identity::this().unwrap();
        assert_eq!(me.to_string().parse(), Ok(me.clone()));
        assert!(!me.has_ended());
        assert!(Identity { started: me.started - 1, ..me.clone() }.has_ended());
        assert!(!Identity { space: 1, started: me.started - 1, ..me }.has_ended());
        for text in ["", "a", "1-2", "1-2-x", "1--2"] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
