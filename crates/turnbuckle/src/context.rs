//! The context of a model call: which part of the log it shows, how that is laid out, what hooks may add, and what is done
//! when it becomes too large.

pub(crate) mod layout;
pub mod plan;
pub(crate) mod prefix;
pub mod reducer;
pub mod reducers;
pub(crate) mod reserve;
pub(crate) mod summary_room;
pub mod tokens;
pub(crate) mod window;

pub use crate::cache_break::{BreakCause, CacheBreak, FixedTokens, Repeated, Segment, SegmentMark, SentRequest};
pub use crate::cut::{Cut, CutCause, Factor, LeftOutSteps, Recovery, Stub};
