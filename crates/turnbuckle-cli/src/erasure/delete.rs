//! `turnbuckle delete`: shows what goes, asks, and deletes it for good.

use std::path::PathBuf;

use serde_json::{Value, json};
use turnbuckle::access::Action;
use turnbuckle::conversation::{Deleted, Leftover, SendError};
use turnbuckle::store::{ConversationStatus, ConversationSummary};
use turnbuckle::{ConversationId, Conversations, Scope};
use turnbuckle_stores::SqliteStore;

use crate::Stopped;
use crate::args::{Common, Delete};
use crate::confirm;
use crate::exit::Exit;
use crate::inspect::{failed, print_all, unprintable};
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::run::{named, refused, who_acts};
use crate::show::{clean, json_line};
use crate::without_agent::WithoutAgent;

/// Deletes one conversation, or all of a person.
pub(crate) async fn delete(args: Delete, common: &Common) -> Result<Exit, Stopped> {
    let WithoutAgent { conversations, scope, store, .. } = WithoutAgent::deleting(common)?;
    let printed = if args.json { Printed::Json } else { Printed::Text };
    let desk = Desk { conversations, scope, store, yes: args.yes, printed, common };
    match (&args.id, &args.user) {
        (Some(id), _) => desk.delete_one(&named(id, common)?).await,
        (None, user) => desk.delete_user(user.as_deref().unwrap_or_default()).await,
    }
}

/// Cleaning a large database takes some seconds.
const DELETING: &str = "deleting, and cleaning the files …";

/// What stdout has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Printed {
    /// Nothing: people read stderr.
    Text,
    /// What became of each conversation.
    Json,
}

struct Desk<'a> {
    conversations: Conversations,
    scope: Scope,
    store: SqliteStore,
    yes: bool,
    printed: Printed,
    common: &'a Common,
}

impl Desk<'_> {
    async fn delete_one(&self, id: &ConversationId) -> Result<Exit, Stopped> {
        let listed = self.conversations.list(self.scope.clone()).await.map_err(failed)?;
        // One that is not listed may have been deleted before, and something be left of it.
        if let Some(one) = listed.iter().find(|one| one.id == *id) {
            if let Some(error) = self.stands_against(one).await {
                return Err(self.refused(error));
            }
            self.show(one).await?;
            if !self.is_wanted(&format!("Delete conversation {id} for good?"))? {
                return Ok(not_deleted());
            }
            output::say(DELETING);
        }
        let deleted = self.conversations.delete(id, self.scope.clone()).await;
        let deleted = deleted.map_err(|error| self.refused(error))?;
        self.tell(&[deleted], &[])
    }

    async fn delete_user(&self, user: &str) -> Result<Exit, Stopped> {
        let owned = self.conversations.owned_by(user, &self.scope).await.map_err(failed)?;
        let mut staying = Vec::new();
        for one in &owned {
            match self.stands_against(one).await {
                None => self.show(one).await?,
                Some(error) => {
                    self.tell_kept(&one.id, &error)?;
                    staying.push(&one.id);
                }
            }
        }
        let is_self = self.scope.user_id().is_some_and(|id| **id == *user);
        if owned.is_empty() && !is_self {
            let what = format!("there is no conversation of user {} that you may delete", clean(user));
            return Err(Stopped::failed(Problem::error(what).hint(who_acts(&self.scope))));
        }
        let question = match owned.len() - staying.len() {
            0 if !owned.is_empty() => return Ok(not_deleted()),
            0 => {
                output::say("you own no conversation here");
                "Delete what else is kept about you?".to_owned()
            }
            1 => format!("Delete this conversation of user {} for good?", clean(user)),
            count => format!("Delete these {count} conversations of user {} for good?", clean(user)),
        };
        if !self.is_wanted(&question)? {
            return Ok(not_deleted());
        }
        output::say(DELETING);
        let result = self.conversations.delete_user(user, self.scope.clone()).await;
        let result = result.map_err(|error| self.refused(error))?;
        // Of the others it was told before.
        for (id, error) in result.kept.iter().filter(|(id, _)| !staying.contains(&id)) {
            self.tell_kept(id, error)?;
        }
        if result.forbidden {
            let what = format!("you may not delete for user {}; what else is kept about them stays", clean(user));
            output::report(&[Problem::error(what).hint(who_acts(&self.scope))]);
        }
        let exit = self.tell(&result.deleted, &result.left)?;
        Ok(if result.kept.is_empty() && !result.forbidden { exit } else { Exit::Failed })
    }

    /// Why it cannot be deleted, as far as that is known before anything is done.
    async fn stands_against(&self, one: &ConversationSummary) -> Option<SendError> {
        let id = one.id.clone();
        if let Err(error) = self.conversations.may(&id, Action::Delete, &self.scope).await {
            return Some(error);
        }
        match (&one.hold, one.status) {
            (Some(hold), _) => Some(SendError::Held { id, hold: hold.clone() }),
            (None, ConversationStatus::Idle) => None,
            (None, _) => Some(SendError::Busy { id, pending: Vec::new() }),
        }
    }

    fn refused(&self, error: SendError) -> Stopped {
        match &error {
            SendError::Busy { id, .. } => Stopped::failed(self.not_deleted_because(id, &error)),
            _ => refused(error, self.common),
        }
    }

    fn not_deleted_because(&self, id: &ConversationId, error: &SendError) -> Problem {
        let options = self.common.same_store();
        let problem = |why: &str| Problem::error(format!("conversation {id} was not deleted: {why}"));
        match error {
            SendError::Held { .. } => {
                problem(&with_causes(error)).hint(format!("`turnbuckle hold {id} --release{options}` ends the hold"))
            }
            SendError::Busy { .. } => problem("it is busy: its turn is not over").hint(format!(
                "`turnbuckle cancel {id}{options}` ends the turn, `turnbuckle show {id}{options}` says how it stands"
            )),
            SendError::Forbidden { .. } => problem(&with_causes(error)).hint(who_acts(&self.scope)),
            _ => problem(&with_causes(error)),
        }
    }

    /// What goes with a conversation.
    async fn show(&self, one: &ConversationSummary) -> Result<(), Stopped> {
        let refuse = |error| refused(error, self.common);
        let inside = self.conversations.sub_agents(&one.id, self.scope.clone()).await.map_err(refuse)?;
        let events: u64 = inside.iter().chain([one]).map(|one| one.seq).sum();
        let jobs = self.conversations.jobs(&one.id, self.scope.clone()).await.map_err(refuse)?;
        let standing = self.conversations.standing(&self.scope).await.map_err(failed)?;
        let standing = standing.iter().filter(|approval| approval.from.0.is_within(&one.id)).count();
        let parts = [
            counted(usize::try_from(events).unwrap_or(usize::MAX), ["event", "events"]),
            counted(inside.len(), ["conversation of a sub-agent", "conversations of sub-agents"]),
            counted(jobs.len(), ["job that is not done", "jobs that are not done"]),
            counted(standing, ["standing approval", "standing approvals"]),
        ];
        let owner = one.owner.author();
        output::say(&clean(&format!("conversation {} of {owner}: {}", one.id, joined(parts))));
        for side in self.conversations.side_stores() {
            match side.count(&one.id).await {
                Ok(0) => {}
                Ok(count) => {
                    let count = counted(usize::try_from(count).unwrap_or(usize::MAX), ["entry", "entries"]);
                    output::say(&clean(&format!("  also {}: {}", count.unwrap_or_default(), side.name())));
                }
                // It is tried all the same, and told if it cannot be erased.
                Err(error) => {
                    let what = format!("{} cannot be looked at: {}", side.name(), with_causes(&*error));
                    output::report(&[Problem::warning(clean(&what))]);
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self, question: &str) -> Result<bool, Stopped> {
        if self.yes {
            return Ok(true);
        }
        if !confirm::is_possible() {
            let problem = Problem::error("there is no terminal to ask on, and nothing was deleted");
            return Err(Stopped::usage(problem.hint("`--yes` deletes without asking")));
        }
        Ok(confirm::ask("", question))
    }

    /// Names the copies that were made of the database when it was migrated: what was deleted may still stand in them.
    fn tell_of_copies(&self) {
        let shown = |path: &PathBuf| clean(&path.display().to_string());
        match SqliteStore::backups_of(self.store.path()) {
            Ok(copies) if copies.is_empty() => {}
            Ok(copies) => {
                let names: Vec<String> = copies.iter().map(shown).collect();
                let what = format!("what was deleted may still be in {}", names.join(", "));
                let hint = "copies of the database, made when it was migrated from an older version; delete them when they \
                            are no longer needed";
                output::report(&[Problem::warning(what).hint(hint)]);
            }
            Err(error) => {
                let what = format!("the folder of the database cannot be looked at for older copies of it: {error}");
                output::report(&[Problem::warning(what)]);
            }
        }
    }

    /// Says that a conversation stays, and why.
    fn tell_kept(&self, id: &ConversationId, error: &SendError) -> Result<(), Stopped> {
        output::report(&[self.not_deleted_because(id, error)]);
        self.print(&json!({ "conversation": id, "deleted": false, "why": with_causes(error) }))
    }

    fn print(&self, line: &Value) -> Result<(), Stopped> {
        match self.printed {
            Printed::Text => Ok(()),
            Printed::Json => print_all(&json_line(line).map_err(unprintable)?).map(drop),
        }
    }

    /// Says what was deleted, and what was not.
    fn tell(&self, deleted: &[Deleted], left: &[Leftover]) -> Result<Exit, Stopped> {
        for Deleted { id, left, .. } in deleted {
            output::say(&format!("conversation {id} was deleted"));
            let left: Vec<Value> =
                left.iter().map(|Leftover { what, why, .. }| json!({ "what": what, "why": why })).collect();
            self.print(&json!({ "conversation": id, "deleted": true, "left": left }))?;
        }
        let mut problems = Vec::new();
        let mut note = |Leftover { what, why, .. }: &Leftover, hint: String| {
            problems.push(Problem::error(clean(&format!("not erased yet: {what} ({why})"))).hint(hint));
        };
        let options = self.common.same_store();
        for Deleted { id, left, .. } in deleted {
            let again = format!("`turnbuckle delete {id}{options}` tries again; so does the next deletion, or a chat");
            left.iter().for_each(|leftover| note(leftover, again.clone()));
        }
        // Nothing notes what is left of a person and of no conversation.
        left.iter()
            .for_each(|leftover| note(leftover, "the user's own `turnbuckle delete --user` tries again".to_owned()));
        if !deleted.is_empty() {
            self.tell_of_copies();
        }
        output::report(&problems);
        Ok(if problems.is_empty() { Exit::Completed } else { Exit::Failed })
    }
}

fn not_deleted() -> Exit {
    output::say("nothing was deleted");
    Exit::Failed
}

fn counted(count: usize, [one, many]: [&str; 2]) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    }
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing in it".to_owned() } else { parts.join(", ") }
}
