//! What makes two requests the same: a digest of all that the model is sent.

use std::io::{self, Write};

use serde::Serialize;
use sha2::{Digest, Sha256};
use turnbuckle::Message;
use turnbuckle::model::Request;
use turnbuckle::scope::Author;

pub(super) type Key = [u8; 32];

/// The key of a request; `None` if it cannot be serialized, and then it is not cached. Attempt and ordinal are left out:
/// they say when it is sent, not what.
pub(super) fn of(model: &str, user: Option<&Author>, request: &Request) -> Option<Key> {
    let mut ink = Ink(Sha256::new());
    ink.part(&(model, user, &request.agent, &request.system, &request.schema, request.tools())).ok()?;
    for message in request.messages.iter() {
        match message {
            Message::User(content) => ink.part(&("user", content)),
            Message::Note(content) => ink.part(&("note", content)),
            Message::Assistant { content, calls } => ink.part(&("assistant", content, calls)),
            Message::Result { call, name, ok, content } => ink.part(&("result", call, name, ok, content)),
            // An unknown kind of message cannot be distinguished from others.
            _ => return None,
        }
        .ok()?;
    }
    Some(ink.0.finalize().into())
}

struct Ink(Sha256);

impl Ink {
    /// JSON values are self-delimiting, so different lists of parts never give the same bytes.
    fn part(&mut self, part: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self, part)?;
        self.write_all(b"\n")
    }
}

impl Write for Ink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
