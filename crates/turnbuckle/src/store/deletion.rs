//! Deleting conversations, keeping them from being deleted, and the record of both.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::ConversationId;
use crate::message::Text;
use crate::scope::{Actor, Author};

/// A conversation to be deleted.
#[derive(Clone, Copy, Debug)]
pub struct Deletion<'a> {
    /// The conversation. Those of its sub-agents go with it.
    pub conversation: &'a ConversationId,
    /// The claim of the writer that deletes it.
    pub epoch: u64,
    /// Who deletes it.
    pub by: &'a Author,
    /// When it was done.
    pub at: Timestamp,
    /// What is still to be erased elsewhere: becomes [`Tombstone::left`].
    pub left: &'a [Text],
}

/// What stays of a deleted conversation, for ever: its id cannot be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tombstone {
    /// The conversation's id.
    pub id: ConversationId,
    /// Who deleted it.
    pub by: Author,
    /// When it was done.
    pub at: Timestamp,
    /// What still has text of it, by name: [`SideStore`](super::SideStore)s, and the store's own files
    /// ([`STORE_FILES`]). Empty once the deletion is complete.
    pub left: Vec<Text>,
}

impl Tombstone {
    /// For stores that read one back.
    pub fn new(id: ConversationId, by: Author, at: Timestamp, left: Vec<Text>) -> Self {
        Self { id, by, at, left }
    }
}

/// In [`Tombstone::left`]: the files of the store itself, until [`Store::purge`](super::Store::purge) has cleaned them.
pub const STORE_FILES: &str = "the files of the store";

/// A conversation that must not be deleted: since when, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Who put it on hold.
    pub by: Author,
    /// When it was done.
    pub at: Timestamp,
}

/// How far [`Store::purge`](super::Store::purge) may go.
#[derive(Clone, Copy, Debug)]
pub struct PurgeLimits {
    /// How long it may wait for others who read or write.
    pub wait: Duration,
    /// The largest store, in bytes, that it may copy: nobody can write meanwhile. `None`: any.
    pub max_bytes: Option<u64>,
}

/// What became of a [`Store::purge`](super::Store::purge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// Nothing of what was deleted before is left in the files of the store.
    Done,
    /// Somebody reads or writes, and did so until the time was over.
    InUse,
    /// The store is larger than was allowed.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
}

/// Something that was done about a conversation or a project, and that somebody may ask about later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Act {
    /// What was done.
    pub kind: ActKind,
    /// The conversation's id, or what else it was done to.
    pub about: Text,
    /// Who did it.
    pub by: Author,
    /// When it was done.
    pub at: Timestamp,
    /// The user whose conversation it was, if the system deleted it: nobody else could tell them. A person who deletes a
    /// conversation of another may do so to erase every trace of them, so it is not noted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Text>,
}

impl Act {
    /// An act.
    pub fn new(kind: ActKind, about: impl Into<Text>, by: Author, at: Timestamp) -> Self {
        Self { kind, about: about.into(), by, at, owner: None }
    }

    /// The deletion of a conversation of `owner`.
    pub fn deletion(deletion: &Deletion<'_>, owner: &Actor) -> Self {
        let Deletion { conversation, by, at, .. } = *deletion;
        let act = Self::new(ActKind::Deleted, conversation.as_str(), by.clone(), at);
        match by {
            Author::System(_) => Self { owner: owner.user_id().cloned(), ..act },
            _ => act,
        }
    }
}

/// What kind of [`Act`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActKind {
    /// What a project names was accepted.
    Accepted,
    /// That, or a standing approval, was revoked.
    Revoked,
    /// A conversation was deleted.
    Deleted,
    /// A conversation was put on hold.
    Held,
    /// A hold was ended.
    Released,
    /// A person insisted that a turn is carried on although its agent has changed.
    Insisted,
    /// A person read a conversation of another.
    ReadAnothers,
}

impl ActKind {
    /// As it is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Revoked => "revoked",
            Self::Deleted => "deleted",
            Self::Held => "held",
            Self::Released => "released",
            Self::Insisted => "insisted",
            Self::ReadAnothers => "read_anothers",
        }
    }
}
