//! The context: what a model is sent. The log is what happened; the context is what fits.

pub(crate) mod layout;
pub(crate) mod reserve;
pub mod tokens;
