//! Replies in order of use, and no more of them than there is room for.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use hashlink::LinkedHashMap;
use turnbuckle::Reply;

use super::digest::Key;

/// A piece of a reply as it was streamed.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(Box<str>),
    Thinking(Box<str>),
}

/// A reply, and how it came.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) pieces: Vec<Piece>,
    pub(super) reply: Reply,
}

#[derive(Debug)]
struct Slot {
    kept: Arc<Kept>,
    bytes: usize,
    at: Duration,
}

/// Least recently used first.
#[derive(Debug)]
pub(super) struct Shelf {
    slots: LinkedHashMap<Key, Slot>,
    bytes: usize,
    max_bytes: usize,
}

/// What a slot takes beside its text: digest, links, counts.
const FRAME: usize = 256;

impl Shelf {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { slots: LinkedHashMap::new(), bytes: 0, max_bytes }
    }

    /// What is still good. What is not is taken off.
    pub(super) fn get(&mut self, key: &Key, now: Duration, ttl: Duration) -> Option<Arc<Kept>> {
        let at = self.slots.get(key)?.at;
        // An entry from the future: another clock, or one that went back. Nobody knows how old it is.
        if now.checked_sub(at).is_none_or(|age| age >= ttl) {
            self.remove(key);
            return None;
        }
        let slot = self.slots.to_back(key)?;
        Some(slot.kept.clone())
    }

    pub(super) fn put(&mut self, key: Key, kept: Arc<Kept>, at: Duration) {
        let bytes = size(&kept);
        self.remove(&key);
        if bytes > self.max_bytes {
            return;
        }
        self.bytes += bytes;
        self.slots.insert(key, Slot { kept, bytes, at });
        while self.bytes > self.max_bytes {
            let Some((_, slot)) = self.slots.pop_front() else { break };
            self.bytes -= slot.bytes;
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.bytes;
        }
    }
}

fn size(kept: &Kept) -> usize {
    let pieces = kept.pieces.iter().map(|piece| match piece {
        Piece::Text(text) | Piece::Thinking(text) => text.len() + size_of::<Piece>(),
    });
    let mut reply = Count(0);
    // Counting cannot fail, and a reply that cannot be written has no bounded size.
    let counted = serde_json::to_writer(&mut reply, &kept.reply);
    if counted.is_err() { usize::MAX / 2 } else { pieces.sum::<usize>() + reply.0 + FRAME }
}

struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
