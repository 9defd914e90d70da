//! A sink that remembers whether the current attempt has streamed text.

use crate::model::Sink;

/// Forwards everything to another sink.
pub(super) struct TrackingSink<'a> {
    out: &'a mut dyn Sink,
    /// Whether the current attempt has streamed text. Reset when the next attempt begins.
    pub(super) has_text: bool,
}

impl<'a> TrackingSink<'a> {
    pub(super) fn new(out: &'a mut dyn Sink) -> Self {
        Self { out, has_text: false }
    }
}

impl Sink for TrackingSink<'_> {
    fn begin(&mut self, attempt: u32) {
        self.has_text = false;
        self.out.begin(attempt);
    }
    fn text(&mut self, text: &str) {
        self.has_text |= !text.is_empty();
        self.out.text(text);
    }
    fn thinking(&mut self, text: &str) {
        self.out.thinking(text);
    }
}
