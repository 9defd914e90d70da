//! Audit log: who decided what, one JSON line each, in a file that is rotated.
//!
//! # What it does
//!
//! Writes a line for everything that was decided: messages and who sent them, replies, tool calls and by whose approval
//! they ran, suspensions and their answers, what hooks decided and how they failed, refused stops, attempts that were
//! taken back, how turns ended. A line is the event as `run --json` has it, without what was said: contents, arguments
//! and results are left out unless `content` is set.
//!
//! Events go to a thread by a queue of bounded length; what finds no room there is counted, and a line
//! `{"type":"lost","count":3}` says so. The hook waits for its line to be written, and the turn goes on beside it. A line
//! that cannot be written (no such folder, a full disk, no room in the queue) is the hook's failure: it is told, and with
//! `on_failure = "block"` it ends the turn, and no turn completes before its lines are written. When the file would grow beyond `max_bytes`, it becomes
//! `FILE.1`, what was `FILE.1` becomes `FILE.2`, and the last is removed. On Unix only the owner may read the files.
//!
//! # Points
//!
//! `on_event`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `file` | `"audit.jsonl"` in the folder for data | where to write; a relative path begins in the project's folder |
//! | `max_bytes` | 10,485,760 (10 MiB) | how large a file may grow; at least 1,024 |
//! | `keep` | 5 | how many full files are kept, 0 to 1,000 |
//! | `content` | `false` | whether what was said, arguments and results are written, too |
//! | `queue` | 1,024 | how many events may wait to be written, 1 to 1,000,000 |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::{AuditLog, AuditLogOptions};
//!
//! let hook = AuditLog::new("audit.jsonl", AuditLogOptions { keep: 30, ..Default::default() })?;
//! assert!(AuditLog::new("audit.jsonl", AuditLogOptions { queue: 0, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod line;
mod rotating;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::oneshot;
use turnbuckle::BoxError;
use turnbuckle::feed::FeedEvent;
use turnbuckle::hook::Hook;
use turnbuckle::hooks::{OptionError, ReadyMade, Surroundings};

use self::rotating::Rotating;
use crate::aside::{Aside, Inbox};

/// What a person may set of an [`AuditLog`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditLogOptions {
    /// Where to write, for a hook that configuration builds.
    pub file: Option<PathBuf>,
    /// How large a file may grow.
    pub max_bytes: u64,
    /// How many full files are kept.
    pub keep: u32,
    /// Whether what was said is written, too.
    pub content: bool,
    /// How many events may wait to be written.
    pub queue: usize,
}

impl Default for AuditLogOptions {
    fn default() -> Self {
        Self { file: None, max_bytes: 10 << 20, keep: 5, content: false, queue: 1024 }
    }
}

/// The end of the hook waits so long for the file.
const LINGER: Duration = Duration::from_secs(5);

/// Writes down who decided what. The rules are at the top of its source file.
#[derive(Debug)]
pub struct AuditLog {
    aside: Aside<Entry>,
}

/// A line to be written.
struct Entry {
    told: Arc<FeedEvent>,
    /// Told what came of it.
    written: oneshot::Sender<Result<(), BoxError>>,
}

impl AuditLog {
    /// Writes to `file`, whatever the options say of it. Nothing is opened before there is something to write.
    pub fn new(file: impl Into<PathBuf>, options: AuditLogOptions) -> Result<Self, OptionError> {
        let AuditLogOptions { file: _, max_bytes, keep, content, queue } = options;
        let file = file.into();
        if file.file_name().is_none() || file.is_dir() {
            return Err(OptionError::new("file", format!("must name a file, and is {}", file.display())));
        }
        if max_bytes < 1024 {
            return Err(OptionError::new("max_bytes", format!("must be at least 1024, and is {max_bytes}")));
        }
        if keep > 1000 {
            return Err(OptionError::new("keep", format!("must be at most 1000, and is {keep}")));
        }
        if !(1..=1_000_000).contains(&queue) {
            return Err(OptionError::new("queue", format!("must be 1 to 1000000, and is {queue}")));
        }
        let work = move |inbox: &Inbox<Entry>| write_all(inbox, &mut Rotating::new(&file, max_bytes, keep), content);
        Ok(Self { aside: Aside::new("audit_log", queue, LINGER, work) })
    }

    /// How many events found no room, or could not be written, and have no line that says so yet.
    pub fn lost(&self) -> u64 {
        self.aside.lost()
    }
}

fn write_all(inbox: &Inbox<Entry>, file: &mut Rotating, content: bool) {
    while let Some(Entry { told, written }) = inbox.next() {
        let lost = inbox.take_lost();
        if lost > 0 && file.write(&line::of_loss(lost, told.at)).is_err() {
            inbox.lose(lost);
        }
        let result = file.write(&line::of(&told, content)).map_err(|error| {
            inbox.lose(1);
            format!("could not write to {}: {error}", file.path().display()).into()
        });
        // Its time may have been up.
        let _ = written.send(result);
    }
}

impl Hook for AuditLog {
    async fn on_event(&self, told: &Arc<FeedEvent>) -> Result<(), BoxError> {
        if !line::is_decision(&told.item) {
            return Ok(());
        }
        let (written, result) = oneshot::channel();
        if !self.aside.give(Entry { told: told.clone(), written }) {
            return Err("too many events wait to be written, and this one found no room".into());
        }
        result.await.unwrap_or_else(|_| Err("the thread that writes is gone".into()))
    }
}

impl ReadyMade for AuditLog {
    const USE: &'static str = "audit_log";
    const DOES: &'static str = "writes who decided what to a file, one JSON line each";
    type Options = AuditLogOptions;

    fn from_options(options: AuditLogOptions, around: &Surroundings<'_>) -> Result<Self, OptionError> {
        let file = match &options.file {
            Some(file) => around.folder.join(file),
            None => around.data.join("audit.jsonl"),
        };
        Self::new(file, options)
    }
}
