//! The kinds of turn that are compared. What a library keeps from turn to turn is made before the measurement and dropped
//! after it.

use std::sync::Arc;

use tokio::runtime::Runtime;
use turnbuckle::Agent;

use crate::batch::{Batch, MESSAGE, Source, Viewers};
use crate::hand::Loop;
use crate::hooks::{CALLS, interested};
use crate::model::{ANSWER, Instant};
use crate::tool::Add;
use crate::{BoxError, measure, rig, swiftide};

/// A kind of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A loop over Turnbuckle's model and tool types, and nothing else.
    Hand,
    /// `Conversations::turn`.
    Turnbuckle {
        /// Whether the conversation has a subscription, which a task reads.
        viewer: bool,
        /// How many hooks it has, each of which is called at all six lifecycle points and does nothing.
        hooks: usize,
    },
    /// `Agent::prompt`.
    Rig,
    /// `Agent::prompt(..).stream()`, read by the caller.
    RigStream,
    /// `Agent::query`.
    Swiftide,
    /// The same with an `on_stream` hook, which turns streaming on.
    SwiftideStream,
}

impl Kind {
    /// All of them, the loop by hand first.
    pub const ALL: [Self; 11] = [
        Self::Hand,
        Self::Turnbuckle { viewer: false, hooks: 0 },
        Self::Turnbuckle { viewer: false, hooks: 1 },
        Self::Turnbuckle { viewer: false, hooks: 5 },
        Self::Turnbuckle { viewer: true, hooks: 0 },
        Self::Turnbuckle { viewer: true, hooks: 1 },
        Self::Turnbuckle { viewer: true, hooks: 5 },
        Self::Rig,
        Self::RigStream,
        Self::Swiftide,
        Self::SwiftideStream,
    ];

    /// Its name in the report.
    pub fn name(self) -> String {
        match self {
            Self::Hand => "loop by hand".to_owned(),
            Self::Turnbuckle { viewer, hooks } => {
                let viewer = if viewer { "one viewer" } else { "no viewer" };
                format!("turnbuckle, {viewer}, hooks: {hooks}")
            }
            Self::Rig => "rig".to_owned(),
            Self::RigStream => "rig, streamed".to_owned(),
            Self::Swiftide => "swiftide".to_owned(),
            Self::SwiftideStream => "swiftide, streamed".to_owned(),
        }
    }
}

/// Measures a piece of work: CPU time or allocations.
pub type Meter = dyn Fn(&mut dyn FnMut() -> Result<(), BoxError>) -> Result<f64, BoxError>;

/// What all turns share.
pub struct Turns {
    runtime: Runtime,
    model: Instant,
    hand: Loop,
    rig: rig_agent::Agent,
    swiftide: swiftide::Instant,
}

impl Turns {
    /// On this thread alone.
    pub fn new() -> Result<Self, BoxError> {
        let (runtime, model) = (measure::runtime()?, Instant::default());
        let hand = runtime.block_on(Loop::new(Arc::new(model.clone()), Add::default()))?;
        Ok(Self { runtime, model, hand, rig: rig::agent(), swiftide: swiftide::Instant::default() })
    }

    /// What `meter` says of one turn, over `count` turns.
    pub fn measure(&self, kind: Kind, count: usize, meter: &Meter) -> Result<f64, BoxError> {
        let whole = match kind {
            Kind::Hand => self.each(count, meter, async || self.hand.turn(MESSAGE).await),
            Kind::Turnbuckle { viewer, hooks } => self.turnbuckle(count, viewer, hooks, meter),
            Kind::Rig => self.each(count, meter, async || rig::turn(&self.rig, MESSAGE).await),
            Kind::RigStream => self.each(count, meter, async || rig::streamed_turn(&self.rig, MESSAGE).await),
            Kind::Swiftide => self.swiftide(count, false, meter),
            Kind::SwiftideStream => self.swiftide(count, true, meter),
        };
        Ok(whole? / count as f64)
    }

    /// The same turn `count` times, and whether each ends with the answer.
    fn each(
        &self,
        count: usize,
        meter: &Meter,
        turn: impl AsyncFn() -> Result<String, BoxError>,
    ) -> Result<f64, BoxError> {
        meter(&mut || {
            self.runtime.block_on(async {
                for _ in 0..count {
                    let answer = turn().await?;
                    if answer != ANSWER {
                        return Err(format!("the answer is {answer:?}").into());
                    }
                }
                Ok(())
            })
        })
    }

    fn turnbuckle(&self, count: usize, viewer: bool, hooks: usize, meter: &Meter) -> Result<f64, BoxError> {
        let agent = Agent::builder("calculator", self.model.clone()).tool(Add::default());
        let agent = interested(hooks).into_iter().fold(agent, |agent, hook| agent.hook(hook)).build()?;
        let viewers = if viewer { Viewers::Lossy(1) } else { Viewers::None };
        let batch = self.runtime.block_on(Batch::new(&agent, count, viewers, Source::System))?;
        let measured = meter(&mut || self.runtime.block_on(batch.fresh_turns()))?;
        if self.runtime.block_on(batch.records())? != hooks * CALLS {
            return Err("a hook was not called".into());
        }
        let short = batch.finish().iter().any(|seen| seen.turns != 1 || seen.missed > 0);
        if short { Err("a viewer missed something".into()) } else { Ok(measured) }
    }

    fn swiftide(&self, count: usize, streams: bool, meter: &Meter) -> Result<f64, BoxError> {
        let mut agents = swiftide::agents(&self.swiftide, count, streams)?;
        let measured = meter(&mut || {
            self.runtime.block_on(async {
                for agent in &mut agents {
                    swiftide::turn(agent, MESSAGE).await?;
                }
                Ok(())
            })
        })?;
        for agent in &agents {
            if !self.runtime.block_on(swiftide::answered(agent))? {
                return Err("swiftide did not answer".into());
            }
        }
        Ok(measured)
    }
}
