//! The process of a lease, and whether it is still alive.

use std::fmt;
use std::str::FromStr;

/// A process, named so that another one on the same host can tell whether it is still alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The boot of the machine and the process namespace: process ids mean nothing outside them.
    host: String,
    pid: u32,
    /// When it started, in clock ticks since the boot. Process ids are reused; a pair of id and start is not.
    started: i64,
}

/// What is known of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It runs on this host.
    Alive,
    /// It ran on this host and has ended for certain.
    Dead,
    /// It is on another host, or hidden from this process: only the end of its lease tells.
    Unknown,
}

impl Process {
    /// This process; `None` on systems without Linux's `/proc`. Leases then have no process, and others wait until they end.
    pub(super) fn this() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
        let pid = std::process::id();
        let ProcessState::Running { started } = ProcessState::of(pid) else { return None };
        Some(Self { host: format!("{} {}", boot.trim(), space.display()), pid, started })
    }

    /// Whether another process is alive, by the text in its lease. A text that cannot be parsed says nothing.
    pub(super) fn liveness_of(&self, other: &str) -> Liveness {
        let Ok(other) = other.parse::<Self>() else { return Liveness::Unknown };
        if *self == other {
            return Liveness::Alive;
        }
        if self.host != other.host {
            return Liveness::Unknown;
        }
        match ProcessState::of(other.pid) {
            ProcessState::Running { started } if started == other.started => Liveness::Alive,
            ProcessState::Running { .. } | ProcessState::Ended => Liveness::Dead,
            ProcessState::Unknown => Liveness::Unknown,
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.host, self.pid, self.started)
    }
}

impl FromStr for Process {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.rsplitn(3, ' ');
        let mut part = || parts.next().ok_or(());
        let (started, pid, host) = (part()?, part()?, part()?);
        let (started, pid) = (started.parse().map_err(drop)?, pid.parse().map_err(drop)?);
        Ok(Self { host: host.to_owned(), pid, started })
    }
}

enum ProcessState {
    Running {
        started: i64,
    },
    Ended,
    /// It exists, and its state is hidden from this process.
    Unknown,
}

impl ProcessState {
    fn of(pid: u32) -> Self {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            let there = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
            let probe = there.map(rustix::process::test_kill_process);
            // `/proc` can hide the processes of other users. Signal 0 finds them.
            return if probe == Some(Err(rustix::io::Errno::SRCH)) { Self::Ended } else { Self::Unknown };
        };
        // The name, in parentheses, may contain anything, also parentheses. After it come the state and, at 17 and 19, the
        // number of threads and the start.
        let Some((_, rest)) = stat.rsplit_once(')') else { return Self::Unknown };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<i64>().ok());
        let (Some(state), Some(threads), Some(started)) = (fields.first(), number(17), number(19)) else {
            return Self::Unknown;
        };
        // A zombie has ended and is not yet waited for by its parent. With threads left, only its first thread has ended.
        if matches!(*state, "Z" | "X") && threads <= 1 { Self::Ended } else { Self::Running { started } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_text_and_nonsense_is_not_believed() {
        let me = Process::this().unwrap();
        assert_eq!(me.to_string().parse(), Ok(me.clone()));
        assert_eq!(me.liveness_of(&me.to_string()), Liveness::Alive);
        // The process id was reused.
        let before = Process { started: me.started - 1, ..me.clone() };
        assert_eq!(me.liveness_of(&before.to_string()), Liveness::Dead);
        let elsewhere = Process { host: "elsewhere".to_owned(), ..me.clone() };
        for text in [elsewhere.to_string().as_str(), "", "a", "a b c", "a 1 b", "  ", "a -1 1", "a 99999999999 1"] {
            assert_eq!(me.liveness_of(text), Liveness::Unknown, "{text:?}");
        }
    }
}
