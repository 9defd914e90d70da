//! The reducer contract: what makes a context smaller that has become too large.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::plan::{Plan, Pressure};
use crate::message::Text;

/// Makes contexts smaller.
///
/// Reducers run in order, only when a context has become too large, and only until it is down to 60 % of what it may hold. So
/// the part of the context that the provider's prompt cache knows changes rarely. They run in the path of a model call: one
/// looks at its plan, changes it, and returns.
///
/// If it is not small enough after all of them, they run again and go further: see [`Pressure`].
///
/// What a reducer decides may only depend on the plan: a process that carries a turn on after a crash asks it again and must get
/// the same context.
///
/// ```
/// use turnbuckle::context::plan::Plan;
/// use turnbuckle::context::reducer::Reducer;
///
/// /// Results of a search are of no use once they were read.
/// struct ForgetSearches;
///
/// impl Reducer for ForgetSearches {
///     fn name(&self) -> &str {
///         "forget_searches"
///     }
///     fn reduce(&self, plan: &mut Plan) {
///         for at in 0..plan.results().len() {
///             let result = &plan.results()[at];
///             if result.was_read && &*result.tool == "search" && plan.is_too_large() {
///                 plan.stub(at);
///             }
///         }
///     }
/// }
/// # use turnbuckle::context::reducers::{ToolResults, Window};
/// # use turnbuckle::{Agent, models::Script};
/// let agent = Agent::builder("a", Script::says(["hi"])).reducer(ForgetSearches).reducer(ToolResults).reducer(Window);
/// # agent.build().unwrap();
/// ```
pub trait Reducer: Send + Sync + 'static {
    /// Its name, for the record of what it did.
    fn name(&self) -> &str;

    /// Called before any reducer makes the plan smaller: takes up what was made earlier.
    fn prepare(&self, plan: &mut Plan) {
        let _ = plan;
    }

    /// Whether it shows summaries: then they are made, between turns.
    fn wants_summaries(&self) -> bool {
        false
    }

    /// Makes the plan smaller, until [`Plan::is_too_large`] is false or there is nothing more to do.
    fn reduce(&self, plan: &mut Plan);
}

/// What the reducers of an agent did to a plan.
#[derive(Debug, Default)]
pub(crate) struct Reduced {
    /// Those that changed something.
    pub(crate) by: Vec<Text>,
    /// Those that panicked.
    pub(crate) panicked: Vec<Text>,
}

/// Runs reducers in order until the plan is small enough, `from` this pressure on.
pub(crate) fn reduce<'r>(
    reducers: impl Iterator<Item = &'r dyn Reducer> + Clone,
    plan: &mut Plan,
    from: Pressure,
) -> Reduced {
    let mut reduced = Reduced::default();
    for reducer in reducers.clone() {
        run(reducer, plan, &mut reduced, |plan| reducer.prepare(plan));
    }
    for pressure in [Pressure::Normal, Pressure::Recent, Pressure::Urgent, Pressure::Last] {
        if pressure < from {
            continue;
        }
        let is_enough = match pressure {
            Pressure::Normal | Pressure::Recent => false,
            // A cut that leaves a context nearly full is followed by the next one soon, and each of them costs the prompt cache.
            Pressure::Urgent => plan.tokens() <= plan.enough(),
            Pressure::Last => plan.tokens() <= plan.limit(),
        };
        if is_enough {
            break;
        }
        plan.set_pressure(pressure);
        for reducer in reducers.clone() {
            if !plan.is_too_large() {
                return reduced;
            }
            run(reducer, plan, &mut reduced, |plan| reducer.reduce(plan));
        }
    }
    reduced
}

fn run(reducer: &dyn Reducer, plan: &mut Plan, reduced: &mut Reduced, work: impl FnOnce(&mut Plan)) {
    let before = plan.tokens();
    // Every change of a plan leaves it consistent, so one that was changed half-way can be used.
    let done = catch_unwind(AssertUnwindSafe(|| work(plan)));
    let note = |names: &mut Vec<Text>| {
        if !names.iter().any(|name| **name == *reducer.name()) {
            names.push(reducer.name().into());
        }
    };
    if plan.tokens() < before {
        note(&mut reduced.by);
    }
    if done.is_err() {
        note(&mut reduced.panicked);
    }
}
