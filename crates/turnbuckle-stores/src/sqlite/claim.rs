//! Claims: who may write, enforced by the rows themselves, and whether a writer's process still lives.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::store::{Claim, LEASE, StoreError};
use turnbuckle::{ConversationId, Timestamp};

use super::error::Fault;
use super::read::{bodies, key};

/// A process, so that another on the same host can tell whether it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// This start of this machine, and the process namespace: numbers mean nothing outside it.
    host: String,
    pid: u32,
    /// In ticks since the machine started: numbers are given out again.
    started: i64,
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

    /// Whether `other`, on the same host, is gone for certain.
    fn outlived(&self, other: &Self) -> bool {
        self.host == other.host
            && match Life::of(other.pid) {
                Life::Runs { started } => started != other.started,
                Life::Over => true,
                Life::Unknown => false,
            }
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

/// The file at a path, however it is called. Read by the writer before each commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|about| Self(about.dev(), about.ino()))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_path: &Path) -> Option<Self> {
        // An open file cannot be moved there.
        None
    }

    pub(super) fn is_at(&self, path: &Path) -> bool {
        Self::of(path).as_ref() == Some(self)
    }
}

/// Makes `writer` in this process the one writer.
pub(super) fn claim(
    db: &Connection,
    id: &ConversationId,
    writer: &str,
    me: Option<&Process>,
    now: Timestamp,
) -> Result<Claim, Fault> {
    let key = key(db, id)?;
    let gone = epoch_of_a_dead_owner(db, key, me)?;
    let (host, pid, started) = (me.map(|me| &me.host), me.map(|me| me.pid), me.map(|me| me.started));
    let (now, until) = (super::number(now.as_millis()), super::number(now.after(LEASE).as_millis()));
    // The same words in another process are another writer.
    let granted: Option<(i64, i64)> = db
        .prepare_cached(
            "UPDATE conversation
                SET epoch = epoch + 1, writer = ?2, lease_until = ?4, host = ?5, pid = ?6, started = ?7
              WHERE made = ?1
                AND (writer IS NULL OR lease_until <= ?3 OR epoch = ?8
                     OR (writer = ?2 AND host IS ?5 AND pid IS ?6 AND started IS ?7))
          RETURNING epoch, seq",
        )?
        .query_row((key, writer, now, until, host, pid, started, gone), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((epoch, seq)) = granted else { return Err(StoreError::InUse { id: id.clone() }.into()) };
    Ok(Claim {
        epoch: epoch.unsigned_abs(),
        seq: seq.unsigned_abs(),
        inbox: bodies(db, "SELECT format, body FROM inbox WHERE conversation = ? ORDER BY place", [key])?,
        beside: bodies(db, "SELECT format, body FROM beside WHERE conversation = ?", [key])?.pop(),
    })
}

/// The epoch of an owner on this host whose process is gone: it is replaced without waiting for its lease.
fn epoch_of_a_dead_owner(db: &Connection, key: i64, me: Option<&Process>) -> Result<Option<i64>, Fault> {
    let Some(me) = me else { return Ok(None) };
    let owner = db
        .prepare_cached(
            "SELECT epoch, host, pid, started FROM conversation
              WHERE made = ? AND writer IS NOT NULL AND host IS NOT NULL AND pid IS NOT NULL AND started IS NOT NULL",
        )?
        .query_row([key], |row| {
            Ok((row.get(0)?, Process { host: row.get(1)?, pid: row.get(2)?, started: row.get(3)? }))
        })
        .optional()?;
    Ok(owner.filter(|(_, owner)| owner != me && me.outlived(owner)).map(|(epoch, _)| epoch))
}

/// Keeps a claim.
pub(super) fn renew(db: &Connection, id: &ConversationId, epoch: u64, now: Timestamp) -> Result<(), Fault> {
    let kept = db
        .prepare_cached("UPDATE conversation SET lease_until = ?3 WHERE id = ?1 AND epoch = ?2 AND writer IS NOT NULL")?
        .execute((id.as_str(), super::number(epoch), super::number(now.after(LEASE).as_millis())))?;
    if kept == 1 {
        return Ok(());
    }
    key(db, id)?;
    Err(StoreError::Fenced { id: id.clone(), epoch }.into())
}
