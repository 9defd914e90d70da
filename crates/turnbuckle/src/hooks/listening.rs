//! A sink that notes whether anything was told.

use crate::model::Sink;

/// Passes everything on.
pub(super) struct Listening<'a> {
    out: &'a mut dyn Sink,
    /// Whether the present attempt has said something.
    pub(super) spoke: bool,
}

impl<'a> Listening<'a> {
    pub(super) fn to(out: &'a mut dyn Sink) -> Self {
        Self { out, spoke: false }
    }
}

impl Sink for Listening<'_> {
    fn begin(&mut self, attempt: u32) {
        self.spoke = false;
        self.out.begin(attempt);
    }
    fn text(&mut self, text: &str) {
        self.spoke |= !text.is_empty();
        self.out.text(text);
    }
    fn thinking(&mut self, text: &str) {
        self.out.thinking(text);
    }
}
