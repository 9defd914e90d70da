//! For your tests as for ours: a clock that stands still, models that remember, turns as text,
//! what every store promises, and crashes at every boundary.

mod clock;
pub mod conformance;
pub mod crash;
mod fold;
mod rig;

pub use clock::PausedClock;
pub use fold::Fold;
pub use rig::{Recorder, Rig};
