//! Ready-made hooks that need nothing but the runtime. One file each, the same shape.

mod redact;

pub use redact::{Redact, RedactBuilder, RedactError, Redactor, Strategy};
