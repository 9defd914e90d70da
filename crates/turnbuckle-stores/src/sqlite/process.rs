//! A process as it stands in a claim, and whether it still lives.

use std::fmt;
use std::str::FromStr;

/// A process, so that another on the same host can tell whether it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// This start of this machine, and the process namespace: numbers mean nothing outside it.
    host: String,
    pid: u32,
    /// In ticks since the machine started: numbers are given out again.
    started: i64,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs, on this host.
    Lives,
    /// It ran on this host, and is gone for certain.
    Gone,
    /// It is on another host, or not shown to us.
    Unknown,
}

impl Process {
    /// This process; `None` where there is no `/proc`. Then only the lease tells.
    pub(super) fn this() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
        let pid = std::process::id();
        let Life::Runs { started } = Life::of(pid) else { return None };
        Some(Self { host: format!("{} {}", boot.trim(), space.display()), pid, started })
    }

    /// What `self` knows of another process, by the text in its claim.
    pub(super) fn fate_of(&self, other: &str) -> Fate {
        let Ok(other) = other.parse::<Self>() else { return Fate::Unknown };
        if *self == other {
            return Fate::Lives;
        }
        if self.host != other.host {
            return Fate::Unknown;
        }
        match Life::of(other.pid) {
            Life::Runs { started } if started == other.started => Fate::Lives,
            Life::Runs { .. } | Life::Over => Fate::Gone,
            Life::Unknown => Fate::Unknown,
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

enum Life {
    Runs {
        started: i64,
    },
    Over,
    /// It is there, and it is not shown to us.
    Unknown,
}

impl Life {
    fn of(pid: u32) -> Self {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            let there = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
            let probe = there.map(rustix::process::test_kill_process);
            // `/proc` may hide the processes of other users; a signal finds them.
            return if probe == Some(Err(rustix::io::Errno::SRCH)) { Self::Over } else { Self::Unknown };
        };
        // The name, in brackets, may hold anything; after it the state, and further on threads and start.
        let Some((_, rest)) = stat.rsplit_once(')') else { return Self::Unknown };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<i64>().ok());
        let (Some(state), Some(threads), Some(started)) = (fields.first(), number(17), number(19)) else {
            return Self::Unknown;
        };
        // Killed and not yet waited for. With threads left, only its first one ended.
        if matches!(*state, "Z" | "X") && threads <= 1 { Self::Over } else { Self::Runs { started } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_text_and_nonsense_is_not_believed() {
        let me = Process::this().unwrap();
        assert_eq!(me.to_string().parse(), Ok(me.clone()));
        assert_eq!(me.fate_of(&me.to_string()), Fate::Lives);
        // The number was given out again.
        let before = Process { started: me.started - 1, ..me.clone() };
        assert_eq!(me.fate_of(&before.to_string()), Fate::Gone);
        let elsewhere = Process { host: "elsewhere".to_owned(), ..me.clone() };
        for text in [elsewhere.to_string().as_str(), "", "a", "a b c", "a 1 b", "  ", "a -1 1", "a 99999999999 1"] {
            assert_eq!(me.fate_of(text), Fate::Unknown, "{text:?}");
        }
    }
}
