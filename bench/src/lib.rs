//! What the measurements share: the model, the tool, the hooks and the loops they are made of.
//!
//! Wall time is never used: other programs run on the same machine. What is compared is the CPU time of one thread,
//! within one run, or instructions.

pub mod agents;
pub mod batch;
pub mod chunks;
pub mod growth;
pub mod hand;
pub mod hooks;
pub mod long;
pub mod measure;
pub mod model;
pub mod ready_made;
pub mod report;
pub mod streams;
pub mod tape;
pub mod tool;

/// What a measurement fails with.
pub type BoxError = turnbuckle::BoxError;
