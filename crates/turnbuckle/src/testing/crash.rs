//! The crash kit: kills your agent at every boundary, revives it from the store, and checks what it promises.
//!
//! A script is played once without a crash. Then, for every boundary that was passed (each write to the log, each other
//! call of the store, each start and end of a tool, a hook or a model call, each effect, each wait), it is played
//! again: the process dies there, another one is born with nothing but the store, finishes, and is judged.
//!
//! ```
//! use serde_json::json;
//! use turnbuckle::models::{Script, ScriptReply};
//! use turnbuckle::testing::crash::{Kit, World};
//! use turnbuckle::tool::Effect;
//! use turnbuckle::tools::function_with_schema;
//! use turnbuckle::{Agent, BuildError};
//!
//! fn clerk(world: &World) -> Result<Agent, BuildError> {
//!     let world = world.clone();
//!     let book = function_with_schema("book", "Books.", json!({"type": "object"}), Effect::Idempotent, move |turn, _| {
//!         let world = world.clone();
//!         async move {
//!             if !world.has_happened(&turn) {
//!                 world.happened(&turn, "booked room 7").await;
//!             }
//!             Ok("booked")
//!         }
//!     });
//!     let script = Script::of([ScriptReply::calls("c1", "book", json!({})), ScriptReply::says("Room 7 is yours.")]);
//!     Agent::builder("clerk", script).tool(book).build()
//! }
//!
//! let report = Kit::new(clerk).say("A room, please.").run();
//! report.assert_kept();
//! assert!(report.boundaries().len() > 20);
//! ```

mod caller;
mod crashing_store;
mod effects;
mod life;
mod promises;
mod report;
mod run;
mod transcript;
mod watched;
mod world;

use std::fmt;
use std::panic::resume_unwind;

use serde_json::Value;

use self::caller::{Step, Trouble};
pub use self::life::{Boundary, BoundaryKind};
pub use self::promises::Promise;
pub use self::report::{Broken, Report};
pub use self::world::World;
use crate::agent::{Agent, BuildError};
use crate::conversation::ConversationsBuilder;
use crate::id::CallId;
use crate::message::{Content, Text};
use crate::scope::Scope;
use crate::store::Answer;

type Make = dyn Fn(&World) -> Result<Agent, BuildError> + Send + Sync;
type Change = dyn Fn(ConversationsBuilder) -> ConversationsBuilder + Send + Sync;

/// An agent and a script, to be crashed at every boundary.
pub struct Kit {
    make: Box<Make>,
    change: Box<Change>,
    steps: Vec<Step>,
    scope: Scope,
}

impl Kit {
    /// `make` builds a fresh agent: for every life of the process one, with nothing left in it from the last. What must
    /// outlive the process belongs to the [`World`].
    pub fn new(make: impl Fn(&World) -> Result<Agent, BuildError> + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), change: Box::new(|builder| builder), steps: Vec::new(), scope: Scope::local() }
    }

    /// Then somebody says this, and waits until the turn rests and background hooks are done.
    pub fn say(mut self, message: impl Into<Content>) -> Self {
        self.steps.push(Step::Say(message.into()));
        self
    }

    /// Then somebody says this to the turn that waits: its model is given it at the next call. What is said here must differ
    /// from everything else that is said.
    pub fn steer(mut self, message: impl Into<Content>) -> Self {
        self.steps.push(Step::Steer(message.into()));
        self
    }

    /// Then somebody approves a call. Questions of the runtime itself are `pause_1` and `reply_1`, counted.
    pub fn approve(self, call: impl Into<CallId>) -> Self {
        self.then(call.into(), Answer::Approve)
    }

    /// Then somebody denies a call.
    pub fn deny(self, call: impl Into<CallId>, reason: impl Into<Text>) -> Self {
        self.then(call.into(), Answer::Deny(Some(reason.into())))
    }

    /// Then a person or a client gives the result of a call.
    pub fn answer(self, call: impl Into<CallId>, result: impl Into<Value>) -> Self {
        self.then(call.into(), Answer::Result(result.into()))
    }

    fn then(mut self, call: CallId, answer: Answer) -> Self {
        self.steps.push(Step::Answer(call, answer));
        self
    }

    /// Who talks. Default: [`Scope::local`].
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// With other settings: a `scope_source`, for instance. Clock and ids are the kit's.
    pub fn with(
        mut self,
        change: impl Fn(ConversationsBuilder) -> ConversationsBuilder + Send + Sync + 'static,
    ) -> Self {
        self.change = Box::new(change);
        self
    }

    /// Crashes it at every boundary. Takes as long as the script, times the number of boundaries, times two.
    ///
    /// # Panics
    /// If the closure that builds the agent does.
    pub fn run(&self) -> Report {
        // A thread of its own: runtimes come and go here, and whoever calls may be inside one.
        std::thread::scope(|scope| match scope.spawn(|| self.crash_everywhere()).join() {
            Ok(report) => report,
            Err(panic) => resume_unwind(panic),
        })
    }

    fn crash_everywhere(&self) -> Report {
        let reference = self.play(None);
        let mut report = Report::of(reference.boundaries.clone());
        let mut found = promises::check_alone(&reference);
        if let Some(Trouble::Stuck(what) | Trouble::Lost(what)) = &reference.trouble {
            found.push((Promise::GoesOn, what.clone()));
        }
        if !found.is_empty() {
            report.add(None, found);
            return report;
        }
        for (place, boundary) in reference.boundaries.iter().enumerate() {
            let run = self.play(Some(place));
            match &run.death {
                Some(death) if death == boundary => report.add(Some(boundary), promises::check(&reference, &run)),
                _ => report.miss(boundary),
            }
        }
        report
    }
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kit").field("steps", &self.steps).finish_non_exhaustive()
    }
}
