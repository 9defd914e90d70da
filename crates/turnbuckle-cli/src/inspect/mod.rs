//! `turnbuckle list`, `show`, `trace` and `why`: what a store keeps. Nothing is written.

mod context;
mod left;
mod list;
mod pager;
mod show;
mod trace;
mod waterfall;
mod why;

use std::io::{self, Write as _};

use turnbuckle::ConversationId;
use turnbuckle::access::Action;
use turnbuckle::conversation::SendError;
use turnbuckle::store::{ActKind, Job, JobKind, Store as _, StoreError};

pub(crate) use left::{OpenTurn, left_turns, open_turn};
pub(crate) use list::{age, list};
pub(crate) use show::show;
pub(crate) use trace::{hook, trace};
pub(crate) use why::why;

use crate::Stopped;
use crate::args::Common;
use crate::exit::Exit;
use crate::problem::{Problem, with_causes};
use crate::run::{named, refused};
use crate::without_agent::WithoutAgent;

/// A conversation, or a sub-agent's in it.
fn parse_id(given: &str, common: &Common) -> Result<ConversationId, Stopped> {
    match given.split_once('/') {
        Some((parent, call)) if !call.is_empty() => named(parent, common).map(|_| given.into()),
        _ => named(given, common),
    }
}

/// Whether the acting user may read it: to others it does not exist.
async fn check_readable(desk: &WithoutAgent, id: &ConversationId, common: &Common) -> Result<(), Stopped> {
    let refuse = |error| refused(error, common);
    match desk.conversations.may(id, Action::Read, &desk.scope).await {
        Ok(()) => {}
        Err(SendError::NotFound { .. }) => {
            let found = missing(desk, id).await?;
            return Err(match found {
                SendError::Deleted { .. } => gone(&found, common),
                other => refuse(other),
            });
        }
        Err(error) => return Err(refuse(error)),
    }
    let root = id.root();
    let owner = desk.store.owner(root.as_ref().unwrap_or(id)).await.map_err(failed)?;
    if owner.is_some_and(|owner| !desk.scope.actor().is_same_user(&owner)) {
        // Looking writes nothing; only that someone read the conversation of another is kept.
        let writing = WithoutAgent::existing(common)?;
        writing.conversations.begin_reading(id, &desk.scope).await.map_err(refuse)?;
    }
    Ok(())
}

/// Why there is no such conversation. That it was deleted is told to those whom `list --acts` tells it.
async fn missing(desk: &WithoutAgent, id: &ConversationId) -> Result<SendError, Stopped> {
    let acts = desk.conversations.acts(desk.scope.clone()).await.map_err(failed)?;
    let deleted = acts.iter().find(|act| act.kind == ActKind::Deleted && *act.about == *id.as_str());
    Ok(match deleted {
        Some(act) => SendError::Deleted { id: id.clone(), at: act.at },
        None => SendError::NotFound { id: id.clone() },
    })
}

/// For someone who wants to look at what was deleted: another id is no help to them.
fn gone(deleted: &SendError, common: &Common) -> Stopped {
    let hint = format!("`turnbuckle list --acts{}` says who deleted it", common.same_store());
    Stopped::failed(Problem::error(with_causes(deleted)).hint(hint))
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
