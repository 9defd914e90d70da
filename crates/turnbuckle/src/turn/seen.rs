//! The turn that hooks and tools see: one struct, one mechanism for both.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cut::CutToken;
use super::meter::{Left, Meter};
use crate::agent::{Agent, Limits};
use crate::clock::Clock;
use crate::conversation::House;
use crate::hook::{Injection, Record};
use crate::id::{CallId, ConversationId, TurnId};
use crate::live::{Level, Live, Plane};
use crate::message::{Content, Reply, Text};
use crate::model::Request;
use crate::scope::{By, Scope};
use crate::store::Answer;

/// Whether a person is there to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PermissionMode {
    /// Someone watches.
    #[default]
    Interactive,
    /// Nobody does.
    Headless,
}

impl PermissionMode {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Headless => "headless",
        }
    }
}

type Bag = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// What stays the same through a turn, and what its hooks and tools share.
pub(crate) struct Frame {
    pub(crate) conversation: ConversationId,
    pub(crate) id: TurnId,
    pub(crate) scope: Scope,
    pub(crate) agent: Agent,
    /// Of the turn that started this one as a sub-agent.
    pub(crate) parent: Option<Arc<Frame>>,
    pub(crate) mode: PermissionMode,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) plane: Arc<Plane>,
    pub(crate) house: Arc<House>,
    pub(crate) cut: CutToken,
    pub(crate) meter: Meter,
    /// Written by tools, read by stop hooks.
    touched: Mutex<BTreeSet<String>>,
    /// Written by wraps, which run inside a stage; taken by the stage.
    records: Mutex<Vec<Record>>,
    /// Whether there are any: a stage looks here before it locks.
    recorded: AtomicBool,
    bag: Mutex<Bag>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("conversation", &self.conversation).field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a frame is made of.
pub(crate) struct FrameParts {
    pub(crate) conversation: ConversationId,
    pub(crate) id: TurnId,
    pub(crate) scope: Scope,
    pub(crate) agent: Agent,
    pub(crate) parent: Option<Arc<Frame>>,
    pub(crate) limits: Limits,
    pub(crate) plane: Arc<Plane>,
    pub(crate) house: Arc<House>,
    pub(crate) cut: CutToken,
    pub(crate) meter: Meter,
    pub(crate) touched: Vec<String>,
}

impl Frame {
    pub(crate) fn new(parts: FrameParts) -> Self {
        let FrameParts { conversation, id, scope, agent, parent, limits, plane, house, cut, meter, touched } = parts;
        Self {
            conversation,
            id,
            scope,
            agent,
            parent,
            mode: house.mode,
            limits,
            clock: house.clock.clone(),
            plane,
            house,
            cut,
            meter,
            touched: Mutex::new(touched.into_iter().collect()),
            records: Mutex::default(),
            recorded: AtomicBool::new(false),
            bag: Mutex::default(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn tell(&self, live: Live) {
        self.plane.tell_live(Some(&self.id), live);
    }

    pub(crate) fn record(&self, record: Record) {
        let mut records = lock(&self.records);
        records.push(record);
        self.recorded.store(true, Ordering::Release);
    }

    /// Gives the records of wraps to the stage.
    pub(crate) fn move_records(&self, to: &mut Vec<Record>) {
        if self.recorded.load(Ordering::Acquire) {
            let mut records = lock(&self.records);
            to.append(&mut records);
            self.recorded.store(false, Ordering::Release);
        }
    }

    pub(crate) fn touched_count(&self) -> usize {
        lock(&self.touched).len()
    }

    pub(crate) fn touched(&self) -> Vec<String> {
        lock(&self.touched).iter().cloned().collect()
    }
}

/// The turn, as hooks and tools see it. Cheap to clone.
#[derive(Clone)]
pub struct Turn {
    pub(crate) frame: Arc<Frame>,
    /// As of now; whoever has a clone keeps what it saw.
    pub(crate) seen: Arc<Seen>,
    /// Set inside a tool.
    pub(crate) in_tool: Option<Arc<InTool>>,
}

/// What changes as a turn goes on. Written by stages, read by hooks and tools.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) user_message: Content,
    pub(crate) context: Option<Request>,
    pub(crate) injections: Vec<Injection>,
    pub(crate) assistant_message: Option<Arc<Reply>>,
    pub(crate) stop_active: bool,
}

/// What only a tool has.
pub(crate) struct InTool {
    pub(crate) call: CallId,
    pub(crate) approved_by: Option<By>,
    pub(crate) answer: Option<Answer>,
    /// How many answers the call was given, this one included.
    pub(crate) answers: usize,
}

impl Turn {
    pub(crate) fn new(frame: Arc<Frame>, user_message: Content) -> Self {
        let (injections, assistant_message) = (Vec::new(), None);
        let seen = Seen { user_message, context: None, injections, assistant_message, stop_active: false };
        Self { frame, seen: Arc::new(seen), in_tool: None }
    }

    /// What is seen from now on.
    pub(crate) fn change(&mut self) -> &mut Seen {
        Arc::make_mut(&mut self.seen)
    }

    /// The conversation's id.
    pub fn conversation(&self) -> &ConversationId {
        &self.frame.conversation
    }

    /// The turn's id.
    pub fn id(&self) -> &TurnId {
        &self.frame.id
    }

    /// Who acts, and the things that came with them.
    pub fn scope(&self) -> &Scope {
        &self.frame.scope
    }

    /// The agent: its name, limits, tools and hooks as they were when the turn began.
    pub fn agent(&self) -> &Agent {
        &self.frame.agent
    }

    /// The agent whose tool this agent is, if it is a sub-agent.
    pub fn parent_agent(&self) -> Option<&str> {
        self.frame.parent.as_ref().map(|parent| parent.agent.name())
    }

    /// The message that opened the turn, as rewritten so far.
    pub fn user_message(&self) -> &Content {
        &self.seen.user_message
    }

    /// The context of the present model call, as assembled; none before the first.
    pub fn context(&self) -> Option<&Request> {
        self.seen.context.as_ref()
    }

    /// What hooks added so far: of the turn, then of the present call.
    pub fn injections(&self) -> &[Injection] {
        &self.seen.injections
    }

    /// The finished reply, from `after_model` on.
    pub fn assistant_message(&self) -> Option<&Arc<Reply>> {
        self.seen.assistant_message.as_ref()
    }

    /// The call id, inside a tool.
    pub fn call(&self) -> Option<&CallId> {
        self.in_tool.as_ref().map(|tool| &tool.call)
    }

    /// Who approved the call, inside a tool. The tool itself runs with the requester's scope.
    pub fn approved_by(&self) -> Option<&By> {
        self.in_tool.as_ref()?.approved_by.as_ref()
    }

    /// What was answered, inside a tool that returned [`Output::wait`](crate::tool::Output::wait) before.
    pub fn answer(&self) -> Option<&Answer> {
        self.in_tool.as_ref()?.answer.as_ref()
    }

    /// What is left of the turn's budget.
    pub fn left(&self) -> Left {
        self.frame.meter.left(&self.frame.limits)
    }

    /// Files that tools touched in this turn, in order of name.
    pub fn touched(&self) -> Vec<String> {
        self.frame.touched()
    }

    /// Says that a tool touched a file.
    pub fn touch(&self, path: impl Into<String>) {
        lock(&self.frame.touched).insert(path.into());
    }

    /// Whether a stop of this turn was refused: what the model says now, it says because of that.
    pub fn stop_active(&self) -> bool {
        self.seen.stop_active
    }

    /// The one source of time: a wrap that waits sleeps by it.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.frame.clock
    }

    /// Cancelled when the turn is, and when it is over or waits for an answer: for what a hook or a tool started and left
    /// running. A turn that goes on has a new one.
    pub fn cancellation(&self) -> &CancellationToken {
        self.frame.cut.token()
    }

    /// Tells viewers something a person should know, in the name of `hook`.
    pub fn notice(&self, level: Level, hook: &Text, text: impl Into<Text>) {
        self.frame.tell(Live::Notice { level, text: text.into(), hook: Some(hook.clone()) });
    }

    /// Whether a person is there to be asked.
    pub fn permission_mode(&self) -> PermissionMode {
        self.frame.mode
    }

    /// Tells viewers how far a tool is; a string is its status line. Outside a tool it does nothing.
    pub fn report_progress(&self, payload: impl Into<Value>) {
        if let Some(tool) = &self.in_tool {
            self.frame.tell(Live::ToolProgress { call: tool.call.clone(), payload: payload.into() });
        }
    }

    /// Puts something into the bag that hooks share within the turn; it is found again by its type.
    pub fn share<T: Send + Sync + 'static>(&self, thing: T) {
        lock(&self.frame.bag).insert(TypeId::of::<T>(), Arc::new(thing));
    }

    /// The `T` in the bag.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let thing = lock(&self.frame.bag).get(&TypeId::of::<T>()).cloned()?;
        thing.downcast().ok()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("conversation", &self.frame.conversation)
            .field("id", &self.frame.id)
            .field("agent", &self.frame.agent.name())
            .finish_non_exhaustive()
    }
}
