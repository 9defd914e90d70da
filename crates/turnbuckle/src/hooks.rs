//! Ready-made hooks that need nothing but the runtime. One file each, the same shape.

mod ready_made;
mod redact;

pub use ready_made::{OptionError, ReadyMade, Surroundings};
pub use redact::{Redact, RedactBuilder, RedactError, Redactor, Strategy};
