//! A model that streams many small chunks, and yields now and then as a connection would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cpu_time::ThreadTime;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{BoxFuture, Reply};

/// Prose without secrets, to be cut into chunks.
const PROSE: &str = "A turnbuckle has a hook at each end and a turn in the middle. The rope is made fast to one hook and \
the load to the other; whoever turns the body draws both in, and what was slack a moment ago is tight. Nothing is \
pulled that was not hooked in first, and what has been drawn in stays so, even when the hand lets go. ";
/// How long a chunk is.
pub const CHUNK: usize = 5;
/// After how many chunks it yields.
const YIELD: usize = 64;

/// Says so many chunks of five bytes each.
#[derive(Debug)]
pub struct Chunks {
    text: String,
    /// CPU time from a yield to the next, in nanoseconds: what telling costs the one who speaks.
    pushing: Arc<AtomicU64>,
}

impl Chunks {
    /// So many chunks of prose.
    pub fn new(count: usize) -> Self {
        Self::of(PROSE.bytes().cycle().take(count * CHUNK).map(char::from).collect())
    }

    /// Chunks of this text, which is ASCII.
    pub fn of(text: String) -> Self {
        Self { text, pushing: Arc::default() }
    }

    /// Where it counts the CPU time of its pushes.
    pub fn pushing(&self) -> Arc<AtomicU64> {
        self.pushing.clone()
    }

    /// The chunks in order.
    fn pieces(&self) -> impl Iterator<Item = &str> {
        (0..self.text.len()).step_by(CHUNK).filter_map(|at| self.text.get(at..at + CHUNK))
    }
}

impl Model for Chunks {
    fn stream<'a>(&'a self, _: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let mut began = ThreadTime::now();
            let count = |began: ThreadTime| {
                let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.pushing.fetch_add(took, Ordering::Relaxed);
            };
            for (index, piece) in self.pieces().enumerate() {
                if index % YIELD == YIELD - 1 {
                    count(began);
                    tokio::task::yield_now().await;
                    began = ThreadTime::now();
                }
                out.text(piece);
            }
            count(began);
            Ok(Reply::text(self.text.as_str()))
        })
    }
}
