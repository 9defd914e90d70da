//! The audit of conversations in memory.

use std::collections::{HashMap, HashSet};

use super::Contents;
use crate::clock::Timestamp;
use crate::id::ConversationId;
use crate::message::Text;
use crate::store::{AuditLimits, AuditWrite, AuditedCall};

/// What models were sent in one conversation.
#[derive(Default)]
pub(super) struct Audit {
    pub(super) calls: Vec<AuditedCall>,
    pub(super) contents: HashMap<Text, Text>,
}

impl Audit {
    pub(super) fn add(&mut self, write: &AuditWrite) {
        self.calls.extend_from_slice(&write.calls);
        self.contents.extend(write.contents.iter().cloned());
    }

    fn bytes(&self) -> u64 {
        self.contents.values().map(|body| body.len() as u64).sum()
    }

    /// Drops the oldest call, and what no other refers to.
    fn drop_oldest(&mut self) {
        self.calls.remove(0);
        let kept: HashSet<Text> = self.calls.iter().flat_map(|call| call.references(&self.contents)).cloned().collect();
        self.contents.retain(|digest, _| kept.contains(digest));
    }
}

impl Contents {
    /// Drops calls of all conversations that are beyond the limits, the oldest first. Returns how many.
    pub(super) fn expire_audit(&mut self, limits: AuditLimits, now: Timestamp) -> u64 {
        let mut gone = 0;
        loop {
            let calls: usize = self.rows.values().map(|row| row.audit.calls.len()).sum();
            let bytes: u64 = self.rows.values().map(|row| row.audit.bytes()).sum();
            let oldest = self.rows.iter().filter_map(|(id, row)| Some((row.audit.calls.first()?.at, id.clone()))).min();
            let Some((at, id)): Option<(Timestamp, ConversationId)> = oldest else { return gone };
            if at.after(limits.ttl) > now && calls as u64 <= limits.calls && bytes <= limits.bytes {
                return gone;
            }
            if let Some(row) = self.rows.get_mut(&id) {
                row.audit.drop_oldest();
            }
            gone += 1;
        }
    }
}
