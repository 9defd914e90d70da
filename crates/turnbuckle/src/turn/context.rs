//! What stays the same through a turn, and what its hooks and tools share.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;

use super::abort::AbortToken;
use super::budget::Budget;
use super::calibrations::Calibrations;
use super::host::TurnHost;
use super::left::{ChangedAgentPolicy, OtherAgents};
use super::state::OpenQuestion;
use crate::access::{Access, AccessTo, Action, AnswerRule};
use crate::agent::Agent;
use crate::audit::{AuditOptions, AuditRedaction};
use crate::clock::Clock;
use crate::context::summary_room::SummaryRoom;
use crate::cut::Factor;
use crate::event::{EventKind, Question};
use crate::feed::{EventFeed, LiveEvent};
use crate::id::{CallId, ConversationId, Ids, TurnId};
use crate::limits::Limits;
use crate::message::{Text, Usage};
use crate::model::{Model, Request};
use crate::record::Record;
use crate::scope::{Actor, PermissionMode, Scope};
use crate::store::{Store, StoreError};

/// What every turn of a process works with. Set once, when the runtime is built.
pub(crate) struct Services {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) permission_mode: PermissionMode,
    /// False if background hooks are not to be enqueued.
    pub(crate) background_hooks: bool,
    /// The project that standing approvals are given for.
    pub(crate) project: Text,
    /// Who may do what.
    pub(crate) access: Arc<dyn Access>,
    /// What becomes of an open turn whose agent has changed since it began.
    pub(crate) on_changed_agent: Arc<ChangedAgentPolicy>,
    /// What becomes of a message in a conversation of another agent.
    pub(crate) other_agents: OtherAgents,
    /// What corrects the estimates of tokens.
    pub(crate) calibrations: Calibrations,
    /// Set if what models are sent is recorded.
    pub(crate) audit: Option<Arc<AuditOptions>>,
    /// Takes secrets out of what records of hooks have.
    pub(crate) redact_records: Option<Arc<AuditRedaction>>,
}

/// Room for the records of a turn's wraps, so that the list does not grow step by step.
const RECORDS: usize = 8;

/// The most bytes of what hooks changed that records of one turn have, in one process.
const CHANGED_BYTES: usize = 256 << 10;

/// Found again by type, like a request's extensions.
type Bag = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// What stays the same through a turn, and what its hooks and tools share. Stages, hooks, wraps and tools of one turn
/// hold the same one, also in tasks of their own; it lives as long as the last of them.
pub(crate) struct TurnContext {
    pub(crate) conversation: ConversationId,
    pub(crate) id: TurnId,
    pub(crate) scope: Scope,
    /// The configuration snapshot: an agent is immutable.
    pub(crate) agent: Agent,
    /// The turn that started this one as a sub-agent.
    pub(crate) parent: Option<Arc<TurnContext>>,
    /// The limits the turn began with; those of `agent` may have changed since.
    pub(crate) limits: Limits,
    pub(crate) services: Arc<Services>,
    pub(crate) feed: Arc<EventFeed>,
    /// The conversation the turn belongs to.
    pub(crate) host: Arc<dyn TurnHost>,
    pub(crate) abort: AbortToken,
    pub(crate) budget: Budget,
    shared: Shared,
}

/// What hooks, wraps and tools of a turn write, possibly at the same time.
#[derive(Default)]
struct Shared {
    /// Files touched: written by tools, read by stop hooks and by the write that stores the scratch.
    touched: Mutex<BTreeSet<String>>,
    /// Records of wraps, which run inside a stage and cannot reach the stage's own list. Taken by the next write.
    records: Mutex<Vec<Record>>,
    /// Whether `records` is not empty, so that a write without records does not lock.
    has_records: AtomicBool,
    /// Bytes of what hooks changed that records have.
    changed: AtomicUsize,
    /// Requests that a model has answered. Taken by `call`, which compares them.
    sent: Mutex<SmallVec<[Box<SentAttempt>; 1]>>,
    /// What hooks share with each other.
    bag: Mutex<Bag>,
}

/// A request that a model has answered, as it was sent. Large, so it is passed on in a box.
pub(crate) struct SentAttempt {
    pub(crate) request: Request,
    pub(crate) model: Arc<dyn Model>,
    /// The name that the model was chosen by.
    pub(crate) name: Text,
    pub(crate) usage: Usage,
    /// In dollars, if prices are known.
    pub(crate) cost: Option<f64>,
    pub(crate) took: Duration,
    /// The wrap that changed the request.
    pub(crate) changed_by: Option<Text>,
    /// Why there was no reply. Only kept for an audit.
    pub(crate) error: Option<Text>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a new turn runs with, from its conversation.
pub(crate) struct NewTurn {
    pub(crate) conversation: ConversationId,
    pub(crate) id: TurnId,
    pub(crate) scope: Scope,
    pub(crate) agent: Agent,
    pub(crate) parent: Option<Arc<TurnContext>>,
    pub(crate) services: Arc<Services>,
    pub(crate) feed: Arc<EventFeed>,
    pub(crate) host: Arc<dyn TurnHost>,
    pub(crate) abort: AbortToken,
}

impl TurnContext {
    /// `touched`: files that tools touched before a crash.
    pub(crate) fn new(new: NewTurn, limits: Limits, budget: Budget, touched: Vec<String>) -> Arc<Self> {
        let NewTurn { conversation, id, scope, agent, parent, services, feed, host, abort } = new;
        let shared = Shared { touched: Mutex::new(touched.into_iter().collect()), ..Shared::default() };
        Arc::new(Self { conversation, id, scope, agent, parent, limits, services, feed, host, abort, budget, shared })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.services.clock
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.services.store
    }

    pub(crate) fn publish(&self, live: LiveEvent) {
        self.feed.publish_live(Some(&self.id), live);
    }

    /// Keeps the record of a wrap until the next write.
    #[inline]
    pub(crate) fn record(&self, record: Record) {
        let mut records = lock(&self.shared.records);
        if records.capacity() == 0 {
            records.reserve(RECORDS);
        }
        records.push(record);
        drop(records);
        self.shared.has_records.store(true, Ordering::Release);
    }

    /// Whether records of this turn have room for so many bytes more of what hooks changed. If so, they are taken.
    pub(crate) fn takes_change(&self, bytes: usize) -> bool {
        let most = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= CHANGED_BYTES);
        self.shared.changed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, most).is_ok()
    }

    /// Moves the records of wraps to the end of `to`.
    pub(crate) fn take_records(&self, to: &mut Vec<Record>) {
        if self.shared.has_records.swap(false, Ordering::AcqRel) {
            to.append(&mut lock(&self.shared.records));
        }
    }

    /// Keeps a request that a model has answered until `call` looks at it.
    pub(crate) fn note_sent(&self, sent: Box<SentAttempt>) {
        lock(&self.shared.sent).push(sent);
    }

    /// Those that were noted since the last time.
    pub(crate) fn take_sent(&self) -> SmallVec<[Box<SentAttempt>; 1]> {
        std::mem::take(&mut *lock(&self.shared.sent))
    }

    pub(crate) fn touch(&self, path: String) {
        lock(&self.shared.touched).insert(path);
    }

    pub(crate) fn touched_count(&self) -> usize {
        lock(&self.shared.touched).len()
    }

    pub(crate) fn touched(&self) -> Vec<String> {
        lock(&self.shared.touched).iter().cloned().collect()
    }

    pub(crate) fn share(&self, key: TypeId, thing: Arc<dyn Any + Send + Sync>) {
        lock(&self.shared.bag).insert(key, thing);
    }

    pub(crate) fn shared(&self, key: TypeId) -> Option<Arc<dyn Any + Send + Sync>> {
        lock(&self.shared.bag).get(&key).cloned()
    }

    /// The event that asks `question`. `rule` says who may answer; without one the access rules do.
    pub(crate) async fn suspension(
        &self,
        call: CallId,
        question: Question,
        rule: Option<AnswerRule>,
    ) -> Result<EventKind, StoreError> {
        let expires = self.clock().now().after(self.limits.approval_timeout);
        // Who may approve a tool says nothing about who may give the result of one that a client runs.
        let approves = match &question {
            Question::Approval { tool, .. } => tool.as_deref(),
            _ => None,
        };
        let rule = match rule.or_else(|| self.services.access.answer_rule(approves)) {
            Some(rule) => Some(Arc::new(self.completed(rule).await?)),
            None => None,
        };
        Ok(EventKind::Suspension { call, question: Box::new(question), expires, rule })
    }

    /// Puts the users into a rule that it knows only by their part: every process must be able to check it.
    pub(crate) async fn completed(&self, mut rule: AnswerRule) -> Result<AnswerRule, StoreError> {
        if std::mem::take(&mut rule.owner) {
            let root = self.conversation.root();
            let owner = self.store().owner(root.as_ref().unwrap_or(&self.conversation)).await?;
            rule.users.extend(owner.iter().filter_map(|owner| owner.user_id()).map(|id| Text::from(&**id)));
        }
        if std::mem::take(&mut rule.not_requester) {
            rule.not = self.scope.user_id().map(|id| Text::from(&**id));
        }
        Ok(rule)
    }

    /// Whether those who answered may, checked again where the turn is carried on. The rule that is stored with the question
    /// decides; without one, the access rules of this process do. `by` are those who gave the answer, with their roles.
    pub(crate) async fn accepts_answer(&self, question: &OpenQuestion, by: &[Actor]) -> Result<bool, StoreError> {
        if question.rule.is_some() || !question.has_answer_of_people() || self.parent.is_some() {
            return Ok(question.is_answered_by(by));
        }
        if question.is_denied_by_nobody(by) {
            return Ok(true);
        }
        for actor in by {
            if !self.may_answer(actor).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether this actor may answer what is asked here, by the access rules. A sub-agent's conversation is judged like the
    /// one that it works for. The system never answers.
    pub(crate) async fn may_answer(&self, actor: &Actor) -> Result<bool, StoreError> {
        let root = self.conversation.root();
        let id = root.as_ref().unwrap_or(&self.conversation);
        let owner = self.store().owner(id).await?;
        let may = |owner: &Actor| self.services.access.may(actor, AccessTo::new(id, owner), Action::Answer);
        Ok(*actor != Actor::System && owner.as_ref().is_some_and(may))
    }

    /// How large a summary may become in contexts with these limits, where estimates are corrected by `factor`.
    pub(crate) fn summary_room(&self, limits: &Limits, factor: Factor) -> SummaryRoom {
        SummaryRoom::of(self.agent.history_capacity(limits, factor), self.agent.history_target(limits, factor))
    }

    pub(crate) fn agent_name(&self) -> &Text {
        self.agent.shared_name()
    }
}

impl fmt::Debug for TurnContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnContext")
            .field("conversation", &self.conversation)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
