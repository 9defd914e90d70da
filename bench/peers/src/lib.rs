//! The same turn on Turnbuckle, on other agent libraries, and by hand.
//!
//! Turnbuckle's part and the loop by hand are compiled from the files in `bench/src`, so that this comparison and `bench/run`
//! measure the same turn.

pub mod rig;
pub mod swiftide;
pub mod turns;

#[path = "../../src/batch.rs"]
pub mod batch;
#[path = "../../src/hand.rs"]
pub mod hand;
#[path = "../../src/hooks.rs"]
pub mod hooks;
#[path = "../../src/measure.rs"]
pub mod measure;
#[path = "../../src/model.rs"]
pub mod model;
#[path = "../../src/report.rs"]
pub mod report;
#[path = "../../src/tool.rs"]
pub mod tool;

/// What a measurement fails with.
pub type BoxError = turnbuckle::BoxError;
