//! Parts of the list of conversations, so that a page of it does not read the whole store.

use super::{ConversationStatus, ConversationSummary};
use crate::id::ConversationId;

/// Which conversations [`Store::list_part`](super::Store::list_part) finds.
#[derive(Clone, Copy, Debug)]
pub enum ListPart<'a> {
    /// Those with an open turn.
    Open,
    /// At most `most` that were made before this one, or the newest. Before one that is not there is none.
    Page {
        /// The conversation that they come behind in the list.
        before: Option<&'a ConversationId>,
        /// How many.
        most: usize,
    },
    /// This one.
    One(&'a ConversationId),
}

impl ListPart<'_> {
    /// This part of a whole list.
    pub(super) fn of(self, mut all: Vec<ConversationSummary>) -> Vec<ConversationSummary> {
        match self {
            Self::Open => all.retain(|one| one.status != ConversationStatus::Idle),
            Self::Page { before, most } => {
                if let Some(before) = before {
                    let end = all.iter().position(|one| one.id == *before).map_or(all.len(), |place| place + 1);
                    all.drain(..end);
                }
                all.truncate(most);
            }
            Self::One(id) => all.retain(|one| one.id == *id),
        }
        all
    }
}
