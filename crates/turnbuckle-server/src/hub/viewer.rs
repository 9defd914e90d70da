//! One viewer of a hub: a place among its frames, and no buffer.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use turnbuckle::feed::{Cursor, LiveEvent};

use super::frames::{Frame, PageFrame, frame, page_frame};
use super::{Change, Hub};
use crate::page::Rights;

/// One viewer's place.
pub(crate) struct Viewer {
    pub(super) hub: Arc<Hub>,
    pub(super) next: u64,
    /// How many events were missed, if that is to be told.
    pub(super) lagged: Option<u64>,
    /// From where it begins.
    pub(crate) cursor: Cursor,
    /// What a page may do; `None` for viewers that are sent JSON.
    pub(super) page: Option<Rights>,
    pub(super) changed: watch::Receiver<Change>,
}

/// How many bytes a viewer takes at once, so that many small events are one write.
const AT_ONCE: usize = 32 << 10;

impl Viewer {
    /// The next frames; `None` when the conversation is gone. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.take() {
                return Some(bytes);
            }
            let (next, is_behind) = (self.next, |change: &Change, next| change.ended || change.next > next);
            let change = *self.changed.wait_for(|change| is_behind(change, next)).await.ok()?;
            if change.ended && change.next <= next {
                return None;
            }
        }
    }

    /// What a page may do, if that has changed.
    pub(crate) fn set_rights(&mut self, rights: Rights) {
        if self.page.is_some() {
            self.page = Some(rights);
        }
    }

    /// The frame as this viewer is sent it, empty if there is nothing to send; `None` if it was not made for this kind of viewer.
    fn bytes_of(&self, frame: &Frame) -> Option<Bytes> {
        let Some(rights) = &self.page else { return Some(frame.json.clone()) };
        match &frame.page {
            PageFrame::NotMade => None,
            PageFrame::Same => Some(Bytes::new()),
            PageFrame::Shared(bytes) => Some(bytes.clone()),
            PageFrame::ByRights(patches) => {
                Some(page_frame(frame.cursor, patches.iter().map(|patch| patch.html_for(rights))))
            }
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let hub = self.hub.clone();
        let state = hub.lock();
        if self.next < state.first {
            self.lagged = Some(state.first - self.next);
            self.next = state.end();
        }
        let begin = usize::try_from(self.next - state.first).ok()?;
        let mut together = Vec::new();
        for frame in state.frames.range(begin.min(state.frames.len())..) {
            let Some(bytes) = self.bytes_of(frame) else {
                // What was missed is in the page when it is fetched again.
                self.lagged = Some(state.end() - self.next);
                self.next = state.end();
                break;
            };
            if !together.is_empty() && together.len() + bytes.len() > AT_ONCE {
                break;
            }
            self.next += 1;
            if together.is_empty() && bytes.len() >= AT_ONCE {
                return Some(bytes);
            }
            together.extend_from_slice(&bytes);
        }
        if let Some(missed) = self.lagged.take() {
            let cursor = state.told(state.view.projection().cursor);
            return frame(&hub.live(cursor, LiveEvent::Lagged { missed }));
        }
        (!together.is_empty()).then(|| together.into())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        state.viewers -= 1;
        state.unwatched_since = Instant::now();
        if self.page.is_some() {
            state.pages -= 1;
            state.rendered_for = Some(Instant::now());
        }
    }
}
