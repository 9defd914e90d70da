//! Keys by which a message that is sent again is known.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::TurnId;
use crate::message::Text;

/// How long a key is known.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A key that a message was sent with. Messages of one user in one conversation under one key are one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageKey {
    /// As the sender chose it.
    pub key: Text,
    /// The digest of what was sent with it.
    pub digest: Text,
}

/// What was sent under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedMessage {
    /// The digest of what was sent.
    pub digest: Text,
    /// The turn that it opens, or the id that it has if it steers another.
    pub turn: TurnId,
    /// When it was sent.
    pub at: Timestamp,
}

impl KeyedMessage {
    /// Whether the key is still known at this time.
    pub fn is_known(&self, now: Timestamp) -> bool {
        self.at > Self::oldest(now)
    }

    /// Keys that were used at this time, or before, are not known any more.
    pub fn oldest(now: Timestamp) -> Timestamp {
        let kept = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(now.as_millis().saturating_sub(kept))
    }
}
