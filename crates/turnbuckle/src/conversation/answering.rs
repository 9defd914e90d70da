//! Answers to calls that wait: checked, written or stored for the process that has the conversation.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::conversations::Conversations;
use super::error::{AnswerStatus, RecordedFor, ResolveError, SendError, TurnHandle};
use super::order::Order;
use super::pending::{rule_of_last_question, tally_of};
use super::read_back::pending_of;
use super::shared::Conversation;
use crate::access::{AccessTo, Action, AnswerRule};
use crate::event::{EventKind, Resolved};
use crate::feed::projection::Pending;
use crate::id::{CallId, ConversationId, ItemId, TurnId};
use crate::message::Text;
use crate::scope::{Actor, Scope};
use crate::store::{Answer, GivenAnswer, InboxFilter, InboxKind, StoreError};
use crate::turn::{AnswerError, AnswerOrder, AnswerOrigin, AnsweredCall, RecordedAnswer, answer};

/// The longest reason of a denial, in bytes: it is shown to people and to the model.
const MAX_REASON: usize = 16 << 10;
/// The longest result or error, in bytes. What the model sees of it is cut like any tool's result.
const MAX_ANSWER: usize = 1 << 20;

impl Conversations {
    /// Answers a suspended call. Returns when the answer is written, before the turn goes on; the handle follows the turn.
    /// `digest`, if given, is that of what the person was shown: an answer about other arguments is stale. Without one, an
    /// approval is of what is asked at this moment.
    ///
    /// With [`Answer::always`] the call is approved, and a standing approval begins: both or, if the answer is not taken,
    /// neither.
    ///
    /// If another process has the conversation, the answer is stored for it, and the handle says so. The first stored
    /// answer wins; every later one is [`ResolveError::Stale`], and sets nothing going. So is an answer that comes too late;
    /// the turn is carried on without it, because its question has expired.
    ///
    /// A process that has the conversation only to record an answer of its own takes this one into the log and leaves the turn
    /// as it is: [`carry_on_answered`](Self::carry_on_answered) and [`run_maintenance`](Self::run_maintenance) take it up.
    pub async fn resolve(
        &self,
        id: &ConversationId,
        call: &CallId,
        answer: impl Into<GivenAnswer>,
        digest: Option<Text>,
        scope: Scope,
    ) -> Result<TurnHandle, ResolveError> {
        let given = AnswerRequest { call, answer: answer.into(), digest, scope };
        check_size(call, &given.answer.answer)?;
        let conversation = self.answerable_by(id, &given).await?;
        let handle = match self.write_answer(&conversation, &given, AfterAnswer::CarryOn).await {
            Ok(None) => self.store_answer(&conversation, given).await,
            Ok(Some(handle)) => Ok(handle),
            Err(error) => Err(error),
        };
        if !matches!(&handle, Ok(handle) if handle.is_here()) {
            conversation.driver_gone().await;
        }
        handle
    }

    /// Carries a turn on in which the actor answered this call, if no process does: [`resolve`](Self::resolve) may have handed
    /// the answer over to one that only recorded it. `None` if the turn is over, or if the last answer to this call is
    /// another's; [`ResolveError::InUse`] while a process has the conversation.
    pub async fn carry_on_answered(
        &self,
        id: &ConversationId,
        call: &CallId,
        scope: Scope,
    ) -> Result<Option<TurnHandle>, ResolveError> {
        let conversation = self.answerable(id, call, &scope).await?;
        let view = conversation.look(&self.runtime).await?.snapshot();
        let by_actor = view.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Resolution { call: of, by, .. } if of == call => Some(*by == scope.by()),
            _ => None,
        });
        match by_actor {
            Some(true) => match self.resume_turn(&conversation).await {
                Err(SendError::Left { left, .. }) => Ok(Some(TurnHandle::left_behind(left))),
                resumed => Ok(resumed?),
            },
            _ => Ok(None),
        }
    }

    /// Carries a turn on in which this call's question has expired: the call gets an error result, by the system, whichever
    /// agent is here, and the turn goes on if it is this one's. `None` if the question has not expired, or is not open.
    pub async fn carry_on_expired(
        &self,
        id: &ConversationId,
        call: &CallId,
        scope: Scope,
    ) -> Result<Option<TurnHandle>, ResolveError> {
        let conversation = self.answerable(id, call, &scope).await?;
        let now = self.runtime.services.clock.now();
        match conversation.feed.pending(call) {
            Some(pending) if pending.expires <= now => Ok(self.resume_turn(&conversation).await?),
            _ => Ok(None),
        }
    }

    /// What became of the actor's answer to this call, if it was stored for the process that has the conversation.
    pub async fn answer_status(
        &self,
        id: &ConversationId,
        call: &CallId,
        scope: &Scope,
    ) -> Result<AnswerStatus, ResolveError> {
        let conversation = self.answerable(id, call, scope).await?;
        // The inbox before the log: an answer goes from there to here in one write.
        let waiting = self.store().inbox(id, InboxFilter::Control).await?;
        if waiting.iter().any(|item| item.answers() == Some(call) && item.from.author() == scope.by()) {
            return Ok(AnswerStatus::Stored);
        }
        let snapshot = conversation.look(&self.runtime).await?.snapshot();
        let resolutions = snapshot.events.iter().rev().filter_map(|event| match &event.kind {
            EventKind::Resolution { call: of, decision, by, evidence, .. } if of == call => {
                Some((*decision, *by == scope.by(), evidence.open))
            }
            _ => None,
        });
        let resolutions: Vec<_> = resolutions.collect();
        Ok(match resolutions.iter().find(|(_, is_own, _)| *is_own) {
            Some((decision, _, open)) => {
                let needs_more = *open && conversation.feed.is_pending(call);
                AnswerStatus::Recorded { decision: *decision, needs_more }
            }
            None => AnswerStatus::NotTaken { resolved: resolutions.first().map(|(decision, ..)| *decision) },
        })
    }

    /// Only records the answer to a suspended call. It needs neither the agent of the turn nor its tools or keys, so it
    /// also works on conversations [`without an agent`](Self::without_agent). The turn is left as it is until its agent
    /// takes it up: by [`resume`](Self::resume), or by [`run_maintenance`](Self::run_maintenance). If a process has the
    /// conversation, the answer is stored for it. An answer that was stored for a process which has left meanwhile is written
    /// here.
    ///
    /// The same answers are refused as by [`resolve`](Self::resolve).
    pub async fn answer(
        &self,
        id: &ConversationId,
        call: &CallId,
        answer: impl Into<GivenAnswer>,
        digest: Option<Text>,
        scope: Scope,
    ) -> Result<RecordedFor, ResolveError> {
        let given = AnswerRequest { call, answer: answer.into(), digest, scope };
        check_size(call, &given.answer.answer)?;
        let conversation = self.answerable_by(id, &given).await?;
        let begun = self.store().scratch(id).await?;
        let agent = begun.map_or_else(|| self.agent.shared_name().clone(), |scratch| scratch.agent);
        let recorded = self.record_answer(&conversation, &given).await;
        conversation.driver_gone().await;
        let (turn, item) = recorded?;
        let waiting = self.store().inbox(id, InboxFilter::Control).await?;
        let is_stored_for_owner = item.is_some_and(|item| waiting.iter().any(|waits| waits.id == item));
        let pending = pending_of(self.store(), id).await?;
        let asked = pending.iter().map(|(_, pending)| pending).find(|pending| pending.call == *call);
        let needs_more = asked.is_some_and(|asked| {
            let tally = tally_of(asked, &waiting);
            tally.is_approved_by(&given.scope.by()) && !tally.is_settled()
        });
        Ok(RecordedFor { turn, agent, is_stored_for_owner, needs_more })
    }

    /// Writes an answer into the log or, if another process has the conversation, stores it. Returns the turn, and the inbox
    /// item if there is one.
    async fn record_answer(
        &self,
        conversation: &Arc<Conversation>,
        given: &AnswerRequest<'_>,
    ) -> Result<(TurnId, Option<ItemId>), ResolveError> {
        if let Some(handle) = self.write_answer(conversation, given, AfterAnswer::Leave).await? {
            return Ok((handle.turn().clone(), None));
        }
        let (turn, item) = self.deliver_answer(conversation, given).await?;
        // The owner may have left meanwhile: then the answer is written here.
        conversation.submit_and_spawn(&self.runtime, Order::Record);
        Ok((turn, Some(item)))
    }

    /// What a call asks now, for someone who may answer it, to be shown before they do. The same people are refused as by
    /// [`answer`](Self::answer), and what waits for no answer is [`ResolveError::Stale`]. Until when it can be answered,
    /// [`Pending::expires`] says. A question is for those who may answer it, so this is not recorded as reading the conversation
    /// of another.
    pub async fn question(&self, id: &ConversationId, call: &CallId, scope: &Scope) -> Result<Pending, ResolveError> {
        let conversation = self.answerable(id, call, scope).await?;
        match conversation.feed.pending(call) {
            Some(pending) => Ok(pending),
            None => Err(self.not_asked(&conversation, call).await),
        }
    }

    /// Writes an answer into the log. `None` if another process has the conversation.
    async fn write_answer(
        &self,
        conversation: &Arc<Conversation>,
        given: &AnswerRequest<'_>,
        after: AfterAnswer,
    ) -> Result<Option<TurnHandle>, ResolveError> {
        let AnswerRequest { call, answer: GivenAnswer { answer, standing }, digest, scope } = given;
        // Found out without a claim where possible: a claim keeps others out, if only for a moment.
        if conversation.shows_what_is_asked() && !conversation.feed.is_pending(call) {
            return Err(self.not_asked(conversation, call).await);
        }
        let (written, on_written) = oneshot::channel();
        let (waiter, status) = oneshot::channel();
        let digest_of_asked = || answer::digest_of_approved(&conversation.feed.pending(call)?.question, answer);
        let order = AnswerOrder {
            call: (*call).clone(),
            answer: answer.clone(),
            digest: digest.clone().or_else(digest_of_asked),
            standing: standing.clone(),
            from: scope.actor().clone(),
            via: scope.came_via().map(|via| Text::from(&**via)),
            record_only: after == AfterAnswer::Leave,
            at: self.runtime.services.clock.now(),
            tries: 0,
            origin: AnswerOrigin::Local { written, waiter },
        };
        conversation.submit_and_spawn(&self.runtime, Order::Answer(order));
        match on_written.await {
            Ok(Ok(RecordedAnswer { left: Some(left), .. })) => Ok(Some(TurnHandle::left_behind(left))),
            Ok(Ok(RecordedAnswer { turn, left: None })) => Ok(Some(TurnHandle::new(turn, status))),
            Ok(Err(AnswerError::Store(StoreError::InUse { .. }))) => Ok(None),
            Ok(Err(AnswerError::NotAsked)) => Err(self.not_asked(conversation, call).await),
            Ok(Err(error)) => Err(ResolveError::of(&conversation.id, call, error)),
            Err(_) => Err(ResolveError::Gone),
        }
    }

    /// Another process carries the turn on: the answer is stored for it. If that process has left meanwhile, the turn is
    /// carried on here after all.
    async fn store_answer(
        &self,
        conversation: &Arc<Conversation>,
        given: AnswerRequest<'_>,
    ) -> Result<TurnHandle, ResolveError> {
        let (turn, _) = self.deliver_answer(conversation, &given).await?;
        match self.resume_turn(conversation).await {
            Ok(Some(handle)) => Ok(handle),
            Ok(None) | Err(SendError::Store(StoreError::InUse { .. })) => Ok(TurnHandle::remote(turn)),
            Err(SendError::Left { left, .. }) => Ok(TurnHandle::left_behind(left)),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an answer into the inbox of a conversation that another process has. Returns the turn that it is for, and the item.
    async fn deliver_answer(
        &self,
        conversation: &Arc<Conversation>,
        given: &AnswerRequest<'_>,
    ) -> Result<(TurnId, ItemId), ResolveError> {
        let AnswerRequest { call, answer: GivenAnswer { answer, standing }, digest, scope } = given;
        let id = &conversation.id;
        conversation.show_log(&self.runtime).await?;
        let Some(pending) = conversation.feed.pending(call) else {
            return Err(self.not_asked(conversation, call).await);
        };
        if pending.expires <= self.runtime.services.clock.now() {
            return Err(ResolveError::Stale { call: (*call).clone(), why: "it has expired".into() });
        }
        let refused = |error| ResolveError::of(id, call, error);
        answer::check(&pending.question, answer, digest.as_ref()).map_err(refused)?;
        // Everything that the writer would refuse is refused here, as far as it can be known: what is stored counts.
        let begun = self.store().scratch(id).await?.ok_or_else(|| ResolveError::nothing_asked(call))?;
        let of = AnsweredCall { conversation: id, call, question: &pending.question };
        answer::check_edit(of, answer, &begun, &self.agent).map_err(refused)?;
        if let Some(standing) = standing {
            let given = (answer, scope.actor(), self.runtime.services.clock.now());
            answer::check_standing(standing, of, &begun, given).map_err(refused)?;
        }
        let kind = InboxKind::Answer {
            call: (*call).clone(),
            answer: answer.clone(),
            digest: digest.clone().or_else(|| answer::digest_of_approved(&pending.question, answer)),
            via: scope.came_via().map(|via| Text::from(&**via)),
            standing: standing.clone(),
        };
        let item = self.deliver(id, kind, scope).await.map_err(ResolveError::not_stored)?;
        Ok((begun.turn, item))
    }

    /// Why nothing is asked under this id, as far as the log says: a person who answers twice, or mistypes the id, is told which of
    /// both it was.
    pub(super) async fn not_asked(&self, conversation: &Arc<Conversation>, call: &CallId) -> ResolveError {
        let view = match conversation.look(&self.runtime).await {
            Ok(look) => look.snapshot(),
            Err(error) => return error.into(),
        };
        let resolved = view.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Resolution { call: of, decision, by, .. } if of == call => Some((*decision, by, event.at)),
            _ => None,
        });
        let why = match resolved {
            Some((Resolved::Approved, by, at)) => format!("it was answered before: approved by {by} at {at}"),
            Some((Resolved::Denied, by, at)) => format!("it was answered before: denied by {by} at {at}"),
            Some((Resolved::Answered, by, at)) => format!("it was answered before: by {by} at {at}"),
            Some((Resolved::Expired, _, at)) => format!("nobody answered in time, which was until {at}"),
            Some((Resolved::Cancelled, _, at)) => format!("its turn was cancelled at {at}"),
            None if view.events.iter().any(|event| event.kind.names_call() == Some(call)) => {
                "nothing is asked about it".to_owned()
            }
            // Older events than those at hand may have it.
            None if view.more => return ResolveError::nothing_asked(call),
            None => format!("conversation {} has no call {call}", conversation.id),
        };
        ResolveError::Stale { call: call.clone(), why: why.into() }
    }

    /// The conversation, if this answer may be given.
    async fn answerable_by(
        &self,
        id: &ConversationId,
        given: &AnswerRequest<'_>,
    ) -> Result<Arc<Conversation>, ResolveError> {
        let via = given.scope.came_via().map(|via| &**via);
        if !answer::is_denial_by_nobody(given.scope.actor(), via, &given.answer.answer) {
            return self.answerable(id, given.call, &given.scope).await;
        }
        self.check_reachable(id)?;
        self.owner_of(id).await?.ok_or_else(|| ResolveError::NotFound { id: id.clone() })?;
        let conversation = self.conversation(id);
        conversation.show_log(&self.runtime).await?;
        Ok(conversation)
    }

    /// The conversation, if the actor may answer this call. The rule that is stored with the question decides alone; without
    /// one the access rules do. The system never answers.
    pub(super) async fn answerable(
        &self,
        id: &ConversationId,
        call: &CallId,
        scope: &Scope,
    ) -> Result<Arc<Conversation>, ResolveError> {
        self.check_reachable(id)?;
        let not_found = || ResolveError::NotFound { id: id.clone() };
        let owner = self.owner_of(id).await?.ok_or_else(not_found)?;
        let conversation = self.conversation(id);
        if self.parent.is_some() {
            return Ok(conversation);
        }
        conversation.show_log(&self.runtime).await?;
        // Who was asked and is late is told that, also if they know of the conversation only by this question.
        let rule = match conversation.feed.pending(call) {
            Some(pending) => pending.rule,
            None => rule_of_last_question(&conversation.look(&self.runtime).await?.snapshot().events, call),
        };
        match self.may_answer(id, &owner, rule.as_deref(), scope.actor()) {
            true => Ok(conversation),
            false => {
                // Refused because of the answer: whether they know of it at all is another question.
                self.judge(id, &owner, scope, Action::Read)?;
                let access = &self.runtime.services.access;
                let who = rule.map_or_else(|| access.who(Action::Answer), |rule| rule.who());
                Err(ResolveError::Forbidden { id: id.clone(), who: who.into() })
            }
        }
    }

    pub(super) fn may_answer(
        &self,
        id: &ConversationId,
        owner: &Actor,
        rule: Option<&AnswerRule>,
        actor: &Actor,
    ) -> bool {
        match rule {
            Some(rule) => rule.permits(actor),
            None if *actor == Actor::System => false,
            None => self.runtime.services.access.may(actor, AccessTo::new(id, owner), Action::Answer),
        }
    }
}

/// An answer on its way to the log.
struct AnswerRequest<'a> {
    call: &'a CallId,
    answer: GivenAnswer,
    /// The digest of what the person was shown, if they say so.
    digest: Option<Text>,
    scope: Scope,
}

/// What becomes of the turn once an answer is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterAnswer {
    /// This process carries it on.
    CarryOn,
    /// It is left to its agent.
    Leave,
}

/// Refuses an answer that is too long to be kept.
fn check_size(call: &CallId, answer: &Answer) -> Result<(), ResolveError> {
    let (size, most) = match answer {
        Answer::Approve => return Ok(()),
        Answer::Deny(reason) => (reason.as_ref().map_or(0, |reason| reason.len()), MAX_REASON),
        Answer::Error(text) => (text.len(), MAX_ANSWER),
        Answer::Result(value) => (value.to_string().len(), MAX_ANSWER),
        Answer::ApproveWith(arguments) => (arguments.to_string().len(), MAX_ANSWER),
    };
    match size > most {
        true => Err(ResolveError::TooLong { call: call.clone(), size, most }),
        false => Ok(()),
    }
}
