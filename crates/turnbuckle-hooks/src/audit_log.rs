//! Audit log: who decided what, one JSON line each, in a file that is rotated.
//!
//! # What it does
//!
//! Writes a line for everything that was decided: messages and who sent them, replies, tool calls and by whose approval
//! they ran, suspensions and their answers, what hooks decided and how they failed, refused stops, attempts that were
//! taken back, how turns ended. A line is the event as `run --json` has it, without what was said: contents, arguments
//! and results are left out unless `content` is set.
//!
//! Events go to a thread through a bounded queue; events that do not fit are counted, and a line
//! `{"type":"lost","count":3}` says so. The hook waits for its line to be written, and the turn goes on beside it. A line
//! that cannot be written (no such folder, a full disk, a full queue) is the hook's failure: it is reported, and with
//! `on_failure = "block"` it ends the turn, and no turn completes before its lines are written. When the file would grow
//! beyond `max_bytes`, it becomes `FILE.1`, the old `FILE.1` becomes `FILE.2`, and the last is removed. On Unix only the
//! owner may read the files; one that is there already and open to others is closed to them. The file is not written through a
//! link, neither one in its place nor one to a folder of the project on the way. When a conversation is deleted, its lines
//! become `{"type":"erased"}`.
//!
//! # Points
//!
//! `on_event`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `file` | `"audit.jsonl"` in the `.turnbuckle` of the project | where to write; a relative path begins in the project's folder |
//! | `max_bytes` | 10,485,760 (10 MiB) | how large a file may grow; at least 1,024 |
//! | `keep` | 5 | how many full files are kept, 0 to 1,000 |
//! | `content` | `false` | whether what was said, arguments and results are written, too |
//! | `queue` | 1,024 | how many events may wait to be written, 1 to 1,000,000 |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::audit_log::{AuditLog, AuditLogOptions};
//!
//! let hook = AuditLog::new("audit.jsonl", AuditLogOptions { keep: 30, ..Default::default() })?;
//! assert!(AuditLog::new("audit.jsonl", AuditLogOptions { queue: 0, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod erase;
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
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use turnbuckle::store::{PrivateFile, SideStore};

pub use self::erase::AuditFiles;
use self::rotating::Rotating;
use crate::worker::{WorkQueue, Worker};

/// The options of [`AuditLog`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditLogOptions {
    /// The file, for a hook that is built from configuration.
    pub file: Option<PathBuf>,
    /// The largest size of the file, in bytes, before it is rotated.
    pub max_bytes: u64,
    /// How many rotated files are kept.
    pub keep: u32,
    /// Whether contents, arguments and results are written as well.
    pub content: bool,
    /// How many events may be queued for writing.
    pub queue: usize,
}

impl Default for AuditLogOptions {
    fn default() -> Self {
        Self { file: None, max_bytes: 10 << 20, keep: 5, content: false, queue: 1024 }
    }
}

/// How long dropping the hook waits for queued lines.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes who decided what to a file. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct AuditLog {
    worker: Worker<Entry>,
    files: AuditFiles,
}

/// A line to be written.
struct Entry {
    told: FeedEvent,
    /// Receives whether the line was written.
    written: oneshot::Sender<Result<(), BoxError>>,
}

impl AuditLog {
    /// Writes to `file`, whatever the options say of it. Nothing is opened before there is something to write.
    pub fn new(file: impl Into<PrivateFile>, options: AuditLogOptions) -> Result<Self, OptionError> {
        let AuditLogOptions { file: _, max_bytes, keep, content, queue } = options;
        let file = file.into();
        let path = file.path();
        if path.file_name().is_none() || path.is_dir() {
            return Err(OptionError::new("file", format!("must name a file, and is {}", path.display())));
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
        let files = AuditFiles::new(file.clone());
        let work = move |queue: &WorkQueue<Entry>| {
            write_all(queue, &mut Rotating::new(file.clone(), max_bytes, keep), content)
        };
        Ok(Self { worker: Worker::new("audit_log", queue, DRAIN_TIMEOUT, work), files })
    }

    /// How many events were lost, because the queue was full or the file could not be written, and are not accounted for
    /// by a line in the file yet.
    pub fn lost(&self) -> u64 {
        self.worker.lost()
    }
}

fn write_all(queue: &WorkQueue<Entry>, file: &mut Rotating, content: bool) {
    while let Some(Entry { told, written }) = queue.next() {
        let lost = queue.take_lost();
        if lost > 0 && file.write(&line::of_loss(lost, told.at)).is_err() {
            queue.count_lost(lost);
        }
        let result = file.write(&line::of(&told, content)).map_err(|error| {
            queue.count_lost(1);
            format!("could not write to {}: {error}", file.path().display()).into()
        });
        // Fails if the hook no longer waits, after its timeout.
        let _ = written.send(result);
    }
}

impl Hook for AuditLog {
    fn side_store(&self) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(self.files.clone()))
    }

    async fn on_event(&self, told: &FeedEvent) -> Result<(), BoxError> {
        if !line::is_decision(&told.item) {
            return Ok(());
        }
        let (written, result) = oneshot::channel();
        if !self.worker.push(Entry { told: told.clone(), written }) {
            return Err("too many events wait to be written, and this one found no room".into());
        }
        result.await.unwrap_or_else(|_| Err("the thread that writes is gone".into()))
    }
}

impl ConfigHook for AuditLog {
    const NAME: &'static str = "audit_log";
    const SUMMARY: &'static str = "writes who decided what to a file, one JSON line each";
    type Options = AuditLogOptions;

    fn side_store_of(options: &AuditLogOptions, context: &HookBuildContext<'_>) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(AuditFiles::new(file(options, context))))
    }

    fn from_options(options: AuditLogOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(file(&options, context), options)
    }
}

fn file(options: &AuditLogOptions, context: &HookBuildContext<'_>) -> PrivateFile {
    let path = match &options.file {
        Some(file) => context.folder.join(file),
        None => context.data.join("audit.jsonl"),
    };
    PrivateFile::below(context.folder, path)
}
