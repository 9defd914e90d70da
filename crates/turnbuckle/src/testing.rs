//! For your tests as for ours: a clock that stands still, models that remember, turns as text,
//! and what every store promises.

mod clock;
pub mod conformance;
mod rig;

pub use clock::PausedClock;
pub use rig::{Recorder, Rig};
