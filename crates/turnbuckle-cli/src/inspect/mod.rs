//! `turnbuckle list`, `show` and `trace`: what a store keeps. Nothing is written.

mod list;
mod show;
mod trace;

use std::io::{self, Write as _};

use turnbuckle::scope::Actor;
use turnbuckle::store::{Job, JobKind, Store as _, StoreError};
use turnbuckle::{ConversationId, Scope};
use turnbuckle_stores::SqliteStore;

pub(crate) use list::list;
pub(crate) use show::show;
pub(crate) use trace::{hook, trace};

use crate::Stopped;
use crate::args::Common;
use crate::exit::Exit;
use crate::problem::{Problem, with_causes};
use crate::run::{how_to_find, named};

/// A conversation, or a sub-agent's in it.
fn parse_id(given: &str, common: &Common) -> Result<ConversationId, Stopped> {
    match given.split_once('/') {
        Some((parent, call)) if !call.is_empty() => named(parent, common).map(|_| given.into()),
        _ => named(given, common),
    }
}

/// To others than its owner a conversation does not exist.
async fn check_owner(store: &SqliteStore, id: &ConversationId, scope: &Scope, common: &Common) -> Result<(), Stopped> {
    let owner = store.owner(id).await.map_err(failed)?;
    match owner.is_some_and(|owner| is_of(&owner, scope)) {
        true => Ok(()),
        false => {
            let problem = Problem::error(StoreError::NotFound { id: id.clone() }.to_string());
            Err(Stopped::failed(problem.hint(how_to_find(&common.same_store()))))
        }
    }
}

/// Roles come and go; the user stays the owner.
fn is_of(owner: &Actor, scope: &Scope) -> bool {
    matches!(owner, Actor::User { id, .. } if Some(id) == scope.user_id())
}

/// A job of the outbox: its label, and how it stands.
fn told_job(job: &Job) -> (&'static str, String) {
    let (hook, turn) = (&job.hook, &job.turn);
    let what = match (job.kind, job.reminder) {
        (JobKind::Logged, Some(percent)) => format!("reminder at {percent} %, event {}", job.seq),
        (JobKind::Logged, None) => format!("event {}", job.seq),
        (kind, _) => kind.name().to_owned(),
    };
    let head = format!("{hook} ({what}, turn {turn})");
    let error = job.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    match job.due {
        None => ("parked", format!("{head}: given up after {} tries{error}", job.tries)),
        Some(_) if job.error.is_some() => ("outbox", format!("{head}: failed, will be tried again{error}")),
        Some(due) if job.reminder.is_some() => ("outbox", format!("{head}: due at {due}")),
        Some(_) => ("outbox", format!("{head}: not done yet")),
    }
}

pub(crate) fn failed(error: StoreError) -> Stopped {
    Stopped::failed(Problem::error(with_causes(&error)))
}

pub(crate) fn unprintable(error: serde_json::Error) -> Stopped {
    Stopped::failed(Problem::error(format!("what was found cannot be printed as JSON: {error}")))
}

/// Prints to stdout. `false` if stdout is closed: that is not an error, and no more need be printed.
pub(crate) fn print(text: &str) -> Result<bool, Stopped> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Stopped::failed(Problem::error(format!("writing to stdout: {error}")))),
    }
}

pub(crate) fn print_all(text: &str) -> Result<Exit, Stopped> {
    print(text).map(|_| Exit::Completed)
}
