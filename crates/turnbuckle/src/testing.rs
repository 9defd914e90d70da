//! For your tests as for ours: a clock that stands still, models that remember, turns as text.

mod clock;
mod rig;

pub use clock::PausedClock;
pub use rig::{Recorder, Rig};
