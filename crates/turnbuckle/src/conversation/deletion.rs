//! Deleting conversations, holding and exporting them, and the record of such acts.
//!
//! A deletion is written to the store first, in one step, with the names of everything else that has text of the
//! conversation. Then each of these is erased, and its name removed. So a crash in between loses nothing: the next
//! deletion, or maintenance, goes on with the names that are left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::conversations::Conversations;
use super::error::{SendError, with_causes};
use super::order::{DeleteOrder, Order};
use crate::access::Action;
use crate::clock::Timestamp;
use crate::feed::FeedEvent;
use crate::id::ConversationId;
use crate::message::Text;
use crate::scope::{Actor, Author, Scope, SystemAuthor};
use crate::store::{
    Act, ActKind, ConversationSummary, Hold, PurgeLimits, Purged, STORE_FILES, SideStore, StoreError, Tombstone,
};

/// How long a deletion waits for others who use the store's files.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest store whose files maintenance cleans: nobody can write while it is copied, at about 100 MB a second.
const MAINTAINED_BYTES: u64 = 256 << 20;
/// How often maintenance looks for conversations that were kept long enough.
const RETENTION_EVERY: Duration = Duration::from_secs(60 * 60);
/// How many conversations are looked at in one go, and how many acts are given.
const PAGE: usize = 1_000;

/// A conversation that was deleted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deleted {
    /// Its id, which cannot be used again.
    pub id: ConversationId,
    /// What may still have text of it, and why. Empty: nothing.
    pub left: Vec<Leftover>,
}

/// Something that may still have text of a deleted conversation. The next deletion, and maintenance, try again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leftover {
    /// What it is: the name of a [`SideStore`], or the store's own files.
    pub what: Text,
    /// Why it was not erased.
    pub why: Text,
}

/// What became of the conversations of a person.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct DeletedUser {
    /// Those that were deleted.
    pub deleted: Vec<Deleted>,
    /// Those that were not, and why.
    pub kept: Vec<(ConversationId, SendError)>,
    /// What else is kept about the person and could not be erased.
    pub left: Vec<Leftover>,
    /// Whether the actor may not delete for the person: what else is kept about them was not touched.
    pub forbidden: bool,
}

impl Conversations {
    /// Deletes a conversation, those of its sub-agents, and everything that was made from it: in the store, in the store's
    /// files, and in every [`SideStore`]. A tombstone (id, who, when) stays, and the id cannot be used again.
    ///
    /// Refused with [`SendError::Busy`] while a turn is open, a message waits or a background hook is at work, and with
    /// [`SendError::Held`] if the conversation is on hold. What could not be erased is in [`Deleted::left`]; repeating the
    /// call goes on with that, and erases what is in side stores that only the present program knows.
    pub async fn delete(&self, id: &ConversationId, scope: Scope) -> Result<Deleted, SendError> {
        self.check_reachable(id)?;
        let again = match self.check(id, &scope, Action::Delete).await {
            Ok(()) => {
                self.remove(id, scope.by()).await?;
                Vec::new()
            }
            Err(SendError::NotFound { .. }) if self.was_deleted_by(id, &scope).await? => self.erase_beside(id).await,
            Err(error) => return Err(error),
        };
        let mut left = of(id, &self.erase(PurgeLimits { wait: PATIENCE, max_bytes: None }).await?);
        for one in again {
            if !left.iter().any(|known| known.what == one.what) {
                left.push(one);
            }
        }
        Ok(Deleted { id: id.clone(), left })
    }

    /// Deletes all conversations that a user owns, as far as the actor may, and what is kept about the user beside them. For the
    /// latter the actor must be the user, the system, or someone who may delete a new conversation of the user.
    pub async fn delete_user(&self, user: &str, scope: Scope) -> Result<DeletedUser, SendError> {
        let mut result = DeletedUser::default();
        let mut gone = Vec::new();
        for one in self.owned_by(user, &scope).await? {
            let removed = match self.check(&one.id, &scope, Action::Delete).await {
                Ok(()) => self.remove(&one.id, scope.by()).await,
                refused => refused,
            };
            match removed {
                Ok(()) => gone.push(one.id),
                Err(error) => result.kept.push((one.id, error)),
            }
        }
        // Someone who may not delete the conversations of this user has no say about what else is kept.
        result.forbidden = gone.is_empty() && !self.may_delete_for(user, &scope);
        if !result.forbidden {
            let kept = self.kept_from(&result.kept).await?;
            for side in self.side_stores() {
                if let Err(error) = side.erase_user(user, &kept).await {
                    result.left.push(Leftover { what: side.name().into(), why: with_causes(&*error).into() });
                }
            }
        }
        let left = self.erase(PurgeLimits { wait: PATIENCE, max_bytes: None }).await?;
        result.deleted = gone.into_iter().map(|id| Deleted { left: of(&id, &left), id }).collect();
        Ok(result)
    }

    /// Deletes conversations in which nothing was written for this long, by the system. Those that are on hold, or in which
    /// something is to be done, stay. Returns how many went. [`run_maintenance`](Self::run_maintenance) calls this every hour
    /// if [`retain`](super::ConversationsBuilder::retain) says how long.
    pub async fn delete_unused_for(&self, age: Duration) -> Result<usize, StoreError> {
        let now = self.runtime.services.clock.now();
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = Timestamp::from_millis(now.as_millis().saturating_sub(age));
        let (mut after, mut gone) = (None, 0);
        loop {
            let page = self.store().unused_since(before, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(gone) };
            after = Some(last.clone());
            for id in &page {
                match self.remove(id, Author::System(SystemAuthor::Retention)).await {
                    Ok(()) => gone += 1,
                    Err(SendError::Store(error)) => return Err(error),
                    Err(error) => tracing::debug!(conversation = %id, %error, "not deleted by retention"),
                }
            }
        }
    }

    /// Goes on with deletions of which something is left to be erased. Returns what is left after that.
    /// [`run_maintenance`](Self::run_maintenance) does this, too.
    pub async fn finish_deletions(&self) -> Result<Vec<(ConversationId, Leftover)>, StoreError> {
        self.erase(PurgeLimits { wait: Duration::ZERO, max_bytes: Some(MAINTAINED_BYTES) }).await
    }

    /// Keeps a conversation from being deleted, by people and by retention, until it is released. False if it is on hold
    /// already.
    pub async fn place_hold(&self, id: &ConversationId, scope: Scope) -> Result<bool, SendError> {
        self.check_reachable(id)?;
        self.check(id, &scope, Action::Delete).await?;
        let hold = Hold { by: scope.by(), at: self.runtime.services.clock.now() };
        Ok(self.store().place_hold(id, &hold).await?)
    }

    /// Ends a hold. False if there is none.
    pub async fn lift_hold(&self, id: &ConversationId, scope: Scope) -> Result<bool, SendError> {
        self.check_reachable(id)?;
        self.check(id, &scope, Action::Delete).await?;
        Ok(self.store().lift_hold(id, &scope.by(), self.runtime.services.clock.now()).await?)
    }

    /// The whole log of a conversation as its viewers were told it, oldest first, and behind it those of its sub-agents.
    pub async fn export(&self, id: &ConversationId, scope: Scope) -> Result<Vec<FeedEvent>, SendError> {
        self.check_reachable(id)?;
        self.begin_reading(id, &scope).await?;
        let mut ids = vec![id.clone()];
        ids.extend(self.below(id).await?.into_iter().map(|one| one.id));
        let mut events = Vec::new();
        for one in ids {
            let log = self.store().log(&one, 1, usize::MAX).await?;
            events.extend(log.into_iter().map(|event| FeedEvent::read_back(&one, event)));
        }
        Ok(events)
    }

    /// The conversations of its sub-agents, at any depth.
    pub async fn sub_agents(&self, id: &ConversationId, scope: Scope) -> Result<Vec<ConversationSummary>, SendError> {
        self.check_reachable(id)?;
        self.check(id, &scope, Action::Read).await?;
        Ok(self.below(id).await?)
    }

    async fn below(&self, id: &ConversationId) -> Result<Vec<ConversationSummary>, StoreError> {
        let mut all = self.store().list().await?;
        all.retain(|other| other.id != *id && other.id.is_within(id));
        all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// The conversations that a user owns and that the actor may read, the newest first.
    pub async fn owned_by(&self, user: &str, scope: &Scope) -> Result<Vec<ConversationSummary>, StoreError> {
        let mut owned = self.list(scope.clone()).await?;
        owned.retain(|one| one.owner.user_id().is_some_and(|id| **id == *user));
        Ok(owned)
    }

    /// What was done about conversations (deleted, held, released, insisted, read by another) and by whom, the newest first, at
    /// most 1,000: acts of the actor, those about conversations that the actor may delete, and deletions of the actor's own by the
    /// system. The system is given all.
    pub async fn acts(&self, scope: Scope) -> Result<Vec<Act>, StoreError> {
        let mut acts = Vec::new();
        for act in self.store().acts(PAGE).await? {
            let is_owners = act.owner.is_some() && act.owner.as_ref() == scope.user_id();
            let is_told = *scope.actor() == Actor::System || act.by == scope.by() || is_owners;
            if is_told || self.check(&(*act.about).into(), &scope, Action::Delete).await.is_ok() {
                acts.push(act);
            }
        }
        Ok(acts)
    }

    /// What is kept beside the store: by hooks of the agent, and by what the builder was given.
    pub fn side_stores(&self) -> Vec<Arc<dyn SideStore>> {
        let mut all: Vec<Arc<dyn SideStore>> = Vec::new();
        for side in self.agent.side_stores().into_iter().chain(self.runtime.side_stores.iter().cloned()) {
            if !all.iter().any(|known| known.name() == side.name()) {
                all.push(side);
            }
        }
        all
    }

    /// Records that a person reads a conversation of another: before anything of it is given.
    pub(super) async fn note_read(&self, id: &ConversationId, owner: &Actor, scope: &Scope) -> Result<(), StoreError> {
        let Some(reader) = scope.user_id() else { return Ok(()) };
        let root = id.root().unwrap_or_else(|| id.clone());
        if self.parent.is_some() || scope.actor().is_same_user(owner) || self.runtime.has_read(&root, reader) {
            return Ok(());
        }
        let act = Act::new(ActKind::ReadAnothers, root.as_str(), scope.by(), self.runtime.services.clock.now());
        self.store().record_act(act).await?;
        self.runtime.remember_read(root, reader.clone());
        Ok(())
    }

    /// What maintenance does about deletions. A store that fails is reported by what maintenance does next.
    pub(super) async fn maintain_deletions(&self, retention_due: &mut Timestamp) {
        let now = self.runtime.services.clock.now();
        let is_due = *retention_due <= now;
        if is_due {
            *retention_due = now.after(RETENTION_EVERY);
            // Also if nothing is recorded any more: what was recorded earlier ends with its time.
            let limits = self.runtime.services.audit.as_ref().map(|audit| audit.limits).unwrap_or_default();
            match self.store().expire_audit(limits, now).await {
                Ok(0) => {}
                Ok(gone) => tracing::info!(gone, "removed calls from the audit that were kept long enough"),
                Err(error) => tracing::warn!(%error, "the audit could not be cleared of what was kept long enough"),
            }
        }
        if let Some(age) = self.runtime.retain.filter(|_| is_due) {
            match self.delete_unused_for(age).await {
                Ok(0) => {}
                Ok(gone) => tracing::info!(gone, "deleted conversations that were kept long enough"),
                Err(error) => tracing::warn!(%error, "conversations could not be deleted by retention"),
            }
        }
        match self.finish_deletions().await {
            Ok(left) => {
                for (id, Leftover { what, why }) in left {
                    tracing::debug!(conversation = %id, %what, %why, "a deletion is not complete yet");
                }
            }
            Err(error) => tracing::warn!(%error, "deletions could not be finished"),
        }
    }

    /// Removes a conversation from the store, under a claim.
    async fn remove(&self, id: &ConversationId, by: Author) -> Result<(), SendError> {
        let sides = self.side_stores();
        let left = sides.iter().map(|side| side.name().into()).chain([STORE_FILES.into()]).collect();
        let (reply, on_reply) = oneshot::channel();
        let conversation = self.conversation(id);
        conversation.submit_and_spawn(&self.runtime, Order::Delete(DeleteOrder { by, left, reply }));
        on_reply.await.map_err(|_| SendError::Gone)?.map_err(SendError::or_busy)?;
        // If its driver still works, it lets go of the conversation when it is done.
        self.runtime.forget(&conversation);
        Ok(())
    }

    /// Erases a deleted conversation in all side stores. A process with another configuration may have deleted it, and not have
    /// known of some of them.
    async fn erase_beside(&self, id: &ConversationId) -> Vec<Leftover> {
        let mut left = Vec::new();
        for side in self.side_stores() {
            if let Err(error) = side.erase(id).await {
                left.push(Leftover { what: side.name().into(), why: with_causes(&*error).into() });
            }
        }
        left
    }

    /// Whether the actor may delete conversations of a user who may have none here.
    fn may_delete_for(&self, user: &str, scope: &Scope) -> bool {
        let owner = Scope::user(user);
        let any = ConversationId::from(self.runtime.services.ids.mint("c_"));
        scope.actor().is_same_user(owner.actor()) || self.judge(&any, owner.actor(), scope, Action::Delete).is_ok()
    }

    /// Conversations from which nothing may be erased: those that were not deleted now, and all on hold, whoever owns them.
    async fn kept_from(&self, refused: &[(ConversationId, SendError)]) -> Result<Vec<ConversationId>, StoreError> {
        let held = self.store().list().await?.into_iter().filter(|one| one.hold.is_some()).map(|one| one.id);
        Ok(refused.iter().map(|(id, _)| id.clone()).chain(held).collect())
    }

    pub(super) async fn was_deleted_by(&self, id: &ConversationId, scope: &Scope) -> Result<bool, StoreError> {
        let tombstone = self.store().tombstone(id).await?;
        Ok(tombstone.is_some_and(|tombstone| tombstone.by == scope.by() || *scope.actor() == Actor::System))
    }

    /// Erases what deletions have left. Returns what is left after that.
    async fn erase(&self, limits: PurgeLimits) -> Result<Vec<(ConversationId, Leftover)>, StoreError> {
        let unfinished = self.store().unfinished_deletions().await?;
        let sides = self.side_stores();
        let mut left = Vec::new();
        for Tombstone { id, left: names, .. } in &unfinished {
            for name in names.iter().filter(|name| ***name != *STORE_FILES) {
                let erased = match sides.iter().find(|side| side.name() == **name) {
                    Some(side) => side.erase(id).await.map_err(|error| with_causes(&*error)),
                    None => Err("it is not in the configuration of this program".to_owned()),
                };
                match erased {
                    Ok(()) => self.store().note_erased(id, name).await?,
                    Err(why) => left.push((id.clone(), Leftover { what: name.clone(), why: why.into() })),
                }
            }
        }
        let in_files: Vec<_> =
            unfinished.iter().filter(|one| one.left.iter().any(|name| **name == *STORE_FILES)).collect();
        if in_files.is_empty() {
            return Ok(left);
        }
        let purged = self.store().purge(limits).await?;
        for Tombstone { id, .. } in in_files {
            let why = match purged {
                Purged::Done => {
                    self.store().note_erased(id, STORE_FILES).await?;
                    continue;
                }
                Purged::InUse => "another process reads or writes them".to_owned(),
                Purged::TooLarge { bytes } => {
                    format!("they are too large ({bytes} bytes) to be cleaned beside other work")
                }
            };
            left.push((id.clone(), Leftover { what: STORE_FILES.into(), why: why.into() }));
        }
        Ok(left)
    }
}

fn of(id: &ConversationId, left: &[(ConversationId, Leftover)]) -> Vec<Leftover> {
    left.iter().filter(|(other, _)| other == id).map(|(_, leftover)| leftover.clone()).collect()
}
