//! Events as viewers are sent them: as JSON, and as pieces of the page.

use std::sync::Arc;

use axum::body::Bytes;
use turnbuckle::feed::{Cursor, FeedEvent};

use crate::page::Patch;

/// One event, as each kind of viewer is sent it.
pub(super) struct Frame {
    /// Of the last event. Frames behind it that are no event have the same one.
    pub(super) cursor: Cursor,
    pub(super) is_event: bool,
    /// As JSON; empty if the event is for pages alone.
    pub(super) json: Bytes,
    pub(super) page: PageFrame,
}

/// An event as pages are sent it.
pub(super) enum PageFrame {
    /// No page was there when the event came.
    NotMade,
    /// Nothing changes on a page.
    Same,
    /// The same bytes for every viewer.
    Shared(Bytes),
    /// Different for those who may answer a question.
    ByRights(Vec<Patch>),
}

impl PageFrame {
    pub(super) fn of(cursor: Cursor, patches: Vec<Patch>) -> Self {
        let is_shared = patches.iter().all(|patch| !matches!(patch, Patch::Question { .. }));
        match patches.is_empty() {
            true => Self::Same,
            false if is_shared => Self::Shared(page_frame(cursor, patches.iter().map(Patch::for_everyone))),
            false => Self::ByRights(patches),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::NotMade | Self::Same => 0,
            Self::Shared(bytes) => bytes.len(),
            Self::ByRights(patches) => patches.iter().map(Patch::len).sum(),
        }
    }
}

/// The pieces of a page as one event of the stream. Without all of them the page is fetched again.
pub(super) fn page_frame<'a>(cursor: Cursor, pieces: impl Iterator<Item = Option<&'a Arc<str>>>) -> Bytes {
    let pieces: Option<Vec<_>> = pieces.collect();
    let mut text = format!("id: {cursor}\n");
    match pieces {
        None => text.push_str("event: refresh\ndata: \n"),
        Some(pieces) => {
            text.push_str("event: patch\n");
            // A line of HTML is a line of data; a carriage return would end one, too.
            for line in pieces.iter().flat_map(|piece| piece.split(['\n', '\r'])) {
                text.extend(["data: ", line, "\n"]);
            }
        }
    }
    text.push('\n');
    text.into()
}

/// An event as it stands in the stream. `None` if it cannot be written as JSON, which no event of ours is.
pub(super) fn frame(event: &FeedEvent) -> Option<Bytes> {
    let mut bytes = format!("id: {}\nevent: {}\ndata: ", event.cursor, event.item.name()).into_bytes();
    if let Err(error) = serde_json::to_writer(&mut bytes, event) {
        tracing::error!(conversation = %event.conversation, %error, "an event could not be written as JSON");
        return None;
    }
    bytes.extend_from_slice(b"\n\n");
    Some(bytes.into())
}
