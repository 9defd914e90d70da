//! Turns that are open and that no process carries on, and why.

use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::conversation::{LeftReason, LeftTurn, SendError};
use turnbuckle::event::{Event, EventKind, Resolved};
use turnbuckle::message::Text;
use turnbuckle::store::{ConversationStatus, ConversationSummary, Scratch, Store as _, StoreError};
use turnbuckle::{ConversationId, Conversations, Scope, Timestamp};
use turnbuckle_stores::SqliteStore;

use crate::args::Common;
use crate::assemble::{agent_name, prepare};
use crate::trust::Gate;
use crate::without_agent::WithoutAgent;

/// Why an open turn rests that waits for nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The process that carried it on is gone.
    Crash,
    /// What it asked was answered, and its agent has not taken it up yet.
    Answered,
    /// Nobody answered in time, and its agent has not taken it up yet.
    Expired,
    /// The agent lacks something that the turn began with.
    Changed { missing: Vec<String> },
    /// It is about another project than the one here.
    OtherProject(Text),
    /// It is a turn of another agent than the one here.
    OtherAgent(Text),
}

impl Left {
    /// For programs.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Answered => "answered",
            Self::Expired => "expired",
            Self::Changed { .. } => "changed",
            Self::OtherProject(_) => "other_project",
            Self::OtherAgent(_) => "other_agent",
        }
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Crash => "the process that carried it on is gone".to_owned(),
            Self::Answered => "answered, and not taken up yet".to_owned(),
            Self::Expired => "nobody answered in time, and it is not taken up yet".to_owned(),
            Self::Changed { missing } => format!("its agent has changed: it lacks {}", missing.join(", ")),
            Self::OtherProject(project) => format!("a turn of project {project}"),
            Self::OtherAgent(agent) => format!("a turn of agent {agent}"),
        }
    }
}

/// Whether its turn is open, nobody can be waited for, and no process holds it.
pub(super) fn is_left(one: &ConversationSummary, now: Timestamp) -> bool {
    let waits_for_nobody = one.status == ConversationStatus::Running || has_expired(one, now);
    waits_for_nobody && one.claimed_until.is_none_or(|until| until <= now)
}

/// Whether what it asks can no longer be answered, and nobody has noted that in the log.
fn has_expired(one: &ConversationSummary, now: Timestamp) -> bool {
    matches!(one.status, ConversationStatus::Waiting { until } if until <= now)
}

/// How the open turn of a conversation stands that waits for nobody any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenTurn {
    /// No process holds it: someone must take it up.
    Rests,
    /// A process holds it, if only for a moment.
    Held,
}

/// How the open turn of a conversation stands; `None` if there is none, or if it waits for someone.
pub(crate) async fn open_turn(desk: &WithoutAgent, id: &ConversationId) -> Result<Option<OpenTurn>, StoreError> {
    let (listed, now) = (desk.store.list_with_errors().await?.conversations, SystemClock::default().now());
    Ok(listed.iter().find(|one| one.id == *id).and_then(|one| match one.status {
        ConversationStatus::Idle => None,
        ConversationStatus::Waiting { until } if until > now => None,
        _ if one.claimed_until.is_none_or(|until| until <= now) => Some(OpenTurn::Rests),
        _ => Some(OpenTurn::Held),
    }))
}

/// Judges turns that are left by the agent that is configured here.
pub(super) struct LeftTurns<'a> {
    desk: &'a WithoutAgent,
    /// Of that agent. Without one, because the configuration has errors, only its name is compared.
    own: Option<Conversations>,
}

impl<'a> LeftTurns<'a> {
    /// The agent is built and nothing of it runs.
    pub(super) fn new(desk: &'a WithoutAgent, common: &Common) -> Self {
        let own = prepare(common, Gate::Judged).agent.map(|agent| {
            Conversations::builder(agent, desk.store.clone())
                .access(desk.access.clone())
                .project(desk.project.clone())
                .build()
        });
        Self { desk, own }
    }

    /// Why a turn that [`is_left`] is.
    pub(super) async fn why(&self, id: &ConversationId, begun: Option<&Scratch>) -> Result<Left, StoreError> {
        if let Some(own) = &self.own {
            match own.left_turn(id, Scope::system()).await {
                Ok(Some(left)) => return Ok(of_agent(left)),
                Ok(None) => {}
                Err(SendError::Store(error)) => return Err(error),
                // It was judged before whether the actor may see it; it may be gone meanwhile.
                Err(_) => {}
            }
        } else if let Some(other) = begun.filter(|begun| *begun.agent != *agent_name(&self.desk.config)) {
            return Ok(Left::OtherAgent(other.agent.clone()));
        }
        last_word(&self.desk.store, id).await
    }
}

fn of_agent(left: LeftTurn) -> Left {
    match left.reason {
        LeftReason::Changed { missing } => Left::Changed { missing: missing.iter().map(ToString::to_string).collect() },
        LeftReason::OtherProject { project } => Left::OtherProject(project),
        _ => Left::OtherAgent(left.agent),
    }
}

/// What the log of a turn that is left ends with. A question at the end has expired, otherwise it would be waited for. The result of a call that expired stands behind its resolution.
async fn last_word(store: &SqliteStore, id: &ConversationId) -> Result<Left, StoreError> {
    let mut log = store.tail(id, u64::MAX, 1).await?;
    if let Some(Event { seq, kind: EventKind::ToolResult { .. }, .. }) = log.last().map(|event| &**event) {
        log = store.tail(id, *seq, 1).await?;
        let is_expiry = |kind: &EventKind| matches!(kind, EventKind::Resolution { decision: Resolved::Expired, .. });
        log.retain(|event| is_expiry(&event.kind));
    }
    Ok(match log.last().map(|event| &event.kind) {
        Some(EventKind::Resolution { decision: Resolved::Expired, .. } | EventKind::Suspension { .. }) => Left::Expired,
        Some(EventKind::Resolution { .. }) => Left::Answered,
        _ => Left::Crash,
    })
}

/// Turns of the store that the actor may read and that this agent does not carry on.
pub(crate) async fn left_turns(
    conversations: &Conversations,
    scope: &Scope,
    now: Timestamp,
) -> Result<Vec<(ConversationId, LeftTurn)>, StoreError> {
    let mut found = Vec::new();
    for one in conversations.list(scope.clone()).await?.into_iter().filter(|one| is_left(one, now)) {
        match conversations.left_turn(&one.id, scope.clone()).await {
            Ok(Some(left)) => found.push((one.id, left)),
            Err(SendError::Store(error)) => return Err(error),
            // It is gone meanwhile.
            Ok(None) | Err(_) => {}
        }
    }
    Ok(found)
}
