//! What has changed in the protocol over time, as data: its documentation moves every month.

/// How answers are read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dialect {
    /// Whether a JSON object on stdout is read on every exit code, or on exit 0 alone.
    pub json_on_every_exit: bool,
    /// Whether exit 2 denies at `PermissionRequest`.
    pub permission_request_exit_2: bool,
    /// Whether an object must also end with `}`; otherwise what only begins like one is an answer that cannot be read.
    pub object_ends_with_brace: bool,
    /// Characters of context or of a message that are kept where they are; longer text goes to a file.
    pub most_text: usize,
}

impl Default for Dialect {
    /// As documented in autumn 2026.
    fn default() -> Self {
        Self {
            json_on_every_exit: true,
            permission_request_exit_2: false,
            object_ends_with_brace: true,
            most_text: 10_000,
        }
    }
}
