//! Ready-made hooks that need nothing but the runtime. One file each, the same shape.

mod adviser;
mod period;
mod ready_made;
mod redact;

pub use adviser::Adviser;
pub use period::Period;
pub use ready_made::{OpenModel, OptionError, ReadyMade, Surroundings};
pub use redact::{Redact, RedactBuilder, RedactError, Redactor, Strategy};
