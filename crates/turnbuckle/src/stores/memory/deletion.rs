//! Deletions, holds and acts in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::Contents;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::ConversationId;
use crate::scope::{Actor, Author};
use crate::store::{Act, ActKind, ConversationStatus, Deletion, Hold, StoreError, Tombstone};

/// Why there is no conversation of this id. A sub-agent's was deleted with its main agent's.
pub(super) fn missing(tombstones: &BTreeMap<ConversationId, Tombstone>, id: &ConversationId) -> StoreError {
    match tombstones.get(id).or_else(|| tombstones.get(&id.root()?)) {
        Some(tombstone) => StoreError::Deleted { id: id.clone(), at: tombstone.at },
        None => StoreError::NotFound { id: id.clone() },
    }
}

impl Contents {
    pub(super) fn open(&mut self, id: &ConversationId, owner: &Actor, now: Timestamp) -> Result<Actor, StoreError> {
        if let Some(row) = self.rows.get(id) {
            return Ok(row.owner.clone());
        }
        match missing(&self.tombstones, id) {
            StoreError::NotFound { .. } => {}
            deleted => return Err(deleted),
        }
        self.rows.insert(id.clone(), Row::new(owner.clone(), self.made, now));
        self.made += 1;
        Ok(owner.clone())
    }

    pub(super) fn delete(&mut self, deletion: Deletion<'_>) -> Result<(), StoreError> {
        let Deletion { conversation: id, epoch, by, at, left } = deletion;
        let row = self.row(id)?;
        row.check_epoch(id, epoch)?;
        if let Some(hold) = &row.hold {
            return Err(StoreError::Held { id: id.clone(), hold: hold.clone() });
        }
        let act = Act::deletion(&deletion, &row.owner);
        if self.rows.iter().any(|(other, row)| other.is_within(id) && row.has_job_in_hand(at)) {
            return Err(StoreError::InUse { id: id.clone() });
        }
        self.rows.retain(|other, _| !other.is_within(id));
        self.standing.retain(|approval| !approval.from.0.is_within(id));
        let tombstone = Tombstone { id: id.clone(), by: by.clone(), at, left: left.to_vec() };
        self.tombstones.insert(id.clone(), tombstone);
        self.acts.push(act);
        Ok(())
    }

    pub(super) fn unfinished(&self) -> Vec<Tombstone> {
        let mut unfinished: Vec<_> = self.tombstones.values().filter(|one| !one.left.is_empty()).cloned().collect();
        unfinished.sort_by_key(|tombstone| tombstone.at);
        unfinished
    }

    pub(super) fn place_hold(&mut self, id: &ConversationId, hold: &Hold) -> Result<bool, StoreError> {
        let row = self.row(id)?;
        if row.hold.is_some() {
            return Ok(false);
        }
        row.hold = Some(hold.clone());
        self.acts.push(Act::new(ActKind::Held, id.as_str(), hold.by.clone(), hold.at));
        Ok(true)
    }

    pub(super) fn lift_hold(&mut self, id: &ConversationId, by: &Author, now: Timestamp) -> Result<bool, StoreError> {
        if self.row(id)?.hold.take().is_none() {
            return Ok(false);
        }
        self.acts.push(Act::new(ActKind::Released, id.as_str(), by.clone(), now));
        Ok(true)
    }

    pub(super) fn unused_since(
        &self,
        before: Timestamp,
        after: Option<&ConversationId>,
        most: usize,
    ) -> Vec<ConversationId> {
        let is_unused =
            |row: &Row| row.written < before && row.status == ConversationStatus::Idle && row.hold.is_none();
        let unused = self.rows.iter().filter(|(id, row)| !id.is_sub_agent() && is_unused(row));
        let ids: BTreeSet<_> = unused.map(|(id, _)| id).filter(|id| after.is_none_or(|after| *id > after)).collect();
        ids.into_iter().take(most).cloned().collect()
    }
}
