//! Cached replies in order of use, within a limit of bytes.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use hashlink::LinkedHashMap;
use turnbuckle::Reply;

use super::digest::Key;

/// A chunk of a reply as it was streamed.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    Text(Box<str>),
    Thinking(Box<str>),
}

/// A reply, and the chunks it was streamed in.
#[derive(Debug)]
pub(super) struct CachedReply {
    pub(super) chunks: Vec<Chunk>,
    pub(super) reply: Reply,
}

#[derive(Debug)]
struct Entry {
    cached: Arc<CachedReply>,
    bytes: usize,
    /// When it was stored, by the runtime's monotonic clock.
    at: Duration,
}

/// The cache itself: the least recently used entry is dropped first.
#[derive(Debug)]
pub(super) struct Lru {
    /// Least recently used first.
    entries: LinkedHashMap<Key, Entry>,
    bytes: usize,
    max_bytes: usize,
}

/// The size of an entry without its text, in bytes: digest, links, counts.
const OVERHEAD: usize = 256;

impl Lru {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: LinkedHashMap::new(), bytes: 0, max_bytes }
    }

    /// The reply, unless it is older than `ttl`, in which case it is removed.
    pub(super) fn get(&mut self, key: &Key, now: Duration, ttl: Duration) -> Option<Arc<CachedReply>> {
        let at = self.entries.get(key)?.at;
        // An entry from the future comes from another clock, or the clock went back: its age is unknown.
        if now.checked_sub(at).is_none_or(|age| age >= ttl) {
            self.remove(key);
            return None;
        }
        let entry = self.entries.to_back(key)?;
        Some(entry.cached.clone())
    }

    pub(super) fn put(&mut self, key: Key, cached: Arc<CachedReply>, at: Duration) {
        let bytes = size(&cached);
        self.remove(&key);
        if bytes > self.max_bytes {
            return;
        }
        self.bytes += bytes;
        self.entries.insert(key, Entry { cached, bytes, at });
        while self.bytes > self.max_bytes {
            let Some((_, entry)) = self.entries.pop_front() else { break };
            self.bytes -= entry.bytes;
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

fn size(cached: &CachedReply) -> usize {
    let chunks = cached.chunks.iter().map(|chunk| match chunk {
        Chunk::Text(text) | Chunk::Thinking(text) => text.len() + size_of::<Chunk>(),
    });
    let mut reply = ByteCount(0);
    // Counting cannot fail. A reply that cannot be serialized has no known size, so it must not be cached.
    let counted = serde_json::to_writer(&mut reply, &cached.reply);
    if counted.is_err() { usize::MAX / 2 } else { chunks.sum::<usize>() + reply.0 + OVERHEAD }
}

/// Counts the bytes written to it.
struct ByteCount(usize);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
