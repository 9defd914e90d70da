//! The context of a model call: which part of the log it shows, how that is laid out, what hooks may add.

pub(crate) mod layout;
pub(crate) mod reserve;
pub mod tokens;
pub(crate) mod window;
