//! `turnbuckle list`: a line for each conversation, the newest first.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use serde_json::json;
use turnbuckle::access::{Access as _, AccessTo, Action};
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::event::EventKind;
use turnbuckle::message::Text;
use turnbuckle::store::{ConversationStatus, ConversationSummary, Hold, Job, Store as _, StoreError};
use turnbuckle::{ConversationId, Timestamp};
use turnbuckle_stores::{FailedJobs, SqliteStore};
use unicode_width::UnicodeWidthStr as _;

use super::left::{Left, LeftTurns, is_left};
use super::pager::print_long;
use super::{failed, print_all, unprintable};
use crate::Stopped;
use crate::args::{Common, List};
use crate::assemble::agent_name;
use crate::erasure::acts;
use crate::exit::Exit;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::show::{self, clean, json_line, name, opening, terminal_width};
use crate::without_agent::WithoutAgent;

/// The first message is among the first events.
const FIRST_EVENTS: usize = 8;

/// Those that the person may read. A sub-agent's, `ID/CALL`, is part of its parent's.
pub(crate) async fn list(args: List, common: &Common) -> Result<Exit, Stopped> {
    let desk = WithoutAgent::read_only(common)?;
    desk.name.tell_standing();
    if args.acts {
        return acts(&desk, args.json).await;
    }
    let store = &desk.store;
    let found = store.list_with_errors().await.map_err(failed)?;
    let mut unreadable: Vec<Problem> =
        found.unreadable.iter().map(|row| not_listed(row.id.as_ref(), &row.error)).collect();
    let mut listed = found.conversations;
    let may_read = |one: &ConversationSummary| {
        desk.access.may(desk.scope.actor(), AccessTo::new(&one.id, &one.owner), Action::Read)
    };
    // A chat in which nothing was said leaves a conversation without anything in it.
    let is_empty = |one: &ConversationSummary| one.seq == 0 && one.status == ConversationStatus::Idle;
    listed.retain(|one| !one.id.is_sub_agent() && !is_empty(one) && may_read(one));
    if listed.is_empty() && unreadable.is_empty() && !args.json && io::stderr().is_terminal() {
        output::say("there are no conversations yet: `turnbuckle run \"…\"` and `turnbuckle chat` make one");
    }
    let failed_jobs = store.failed_jobs().await.map_err(failed)?;
    let mut text = String::new();
    let columns = Columns::of(&listed, SystemClock::default().now());
    let judge = listed.iter().any(|one| is_left(one, columns.now)).then(|| LeftTurns::new(&desk, common));
    for one in &listed {
        let jobs = failed_jobs.iter().find(|jobs| jobs.conversation == one.id);
        let seen = match Seen::look(&desk, judge.as_ref(), one, jobs, columns.now).await {
            Ok(seen) => seen,
            Err(error) => {
                unreadable.push(not_listed(Some(&one.id), &error));
                continue;
            }
        };
        text += &match args.json {
            true => seen.as_json(one).map_err(unprintable)?,
            false => format!("{}{}\n", columns.line(one, &seen), seen.marks(agent_name(&desk.config))),
        };
    }
    let exit = match args.json {
        true => print_all(&text)?,
        false => print_long(&text).map(|()| Exit::Completed)?,
    };
    output::report(&unreadable);
    Ok(if unreadable.is_empty() { exit } else { Exit::Failed })
}

/// What is told of a conversation beside its row.
struct Seen<'a> {
    /// What the person said last.
    message: Option<String>,
    /// Of a hook, or else the first words of the conversation.
    title: Option<String>,
    /// The agent of the open turn.
    agent: Option<Text>,
    /// Why the open turn is not carried on, if it is not.
    left: Option<Left>,
    jobs: Option<&'a FailedJobs>,
    /// Jobs that are due and that no process does: their hook may be gone.
    undone: u64,
    /// Who keeps it from being deleted.
    hold: Option<Hold>,
}

impl<'a> Seen<'a> {
    async fn look(
        desk: &WithoutAgent,
        judge: Option<&LeftTurns<'_>>,
        one: &ConversationSummary,
        jobs: Option<&'a FailedJobs>,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let begun = match one.status {
            ConversationStatus::Idle => None,
            _ => desk.store.scratch(&one.id).await?,
        };
        let left = match judge.filter(|_| is_left(one, now)) {
            Some(judge) => Some(judge.why(&one.id, begun.as_ref()).await?),
            None => None,
        };
        // That someone reads the conversation of another is recorded, and a list records nothing.
        let is_own = desk.scope.actor().is_same_user(&one.owner);
        // What others said is not shown, and a title may be their words.
        let (message, title) = match is_own {
            true => (last_message(&desk.store, &one.id).await?, title(&desk.store, one).await?),
            false => (None, None),
        };
        let is_undone = |job: &&Job| job.error.is_none() && job.due.is_some_and(|due| due <= now);
        let is_held = one.claimed_until.is_some_and(|until| until > now);
        let undone = match is_held {
            true => 0,
            false => desk.store.jobs(&one.id).await?.iter().filter(is_undone).count() as u64,
        };
        Ok(Self { message, title, agent: begun.map(|begun| begun.agent), left, jobs, undone, hold: one.hold.clone() })
    }

    /// What an operator should know, behind the line of the conversation.
    fn marks(&self, own: &str) -> String {
        let count = |count: u64, what: &str| match count {
            0 => None,
            1 => Some(format!("1 job {what}")),
            many => Some(format!("{many} jobs {what}")),
        };
        let jobs = self.jobs.map(|jobs| [count(jobs.parked, "parked"), count(jobs.failing, "failing")]);
        let left = match &self.left {
            // That a turn is left says it already.
            Some(Left::Crash) | None => None,
            Some(left) => Some(left.words()),
        };
        let tells_agent = matches!(self.left, Some(Left::OtherAgent(_)));
        let agent = self.agent.as_ref().filter(|agent| &***agent != own && !tells_agent);
        let agent = agent.map(|agent| format!("agent {agent}"));
        let hold = self.hold.as_ref().map(|_| "on hold".to_owned());
        let jobs = jobs.into_iter().flatten().flatten().chain(count(self.undone, "not done"));
        let marks: Vec<String> = agent.into_iter().chain(left).chain(hold).chain(jobs).collect();
        if marks.is_empty() { String::new() } else { clean(&format!("  [{}]", marks.join(", "))) }
    }

    fn as_json(&self, one: &ConversationSummary) -> serde_json::Result<String> {
        let ConversationSummary { id, opened, written, seq, status, .. } = one;
        let (state, message) = (state(*status), &self.message);
        let mut line =
            json!({ "id": id, "opened": opened, "written": written, "state": state, "seq": seq, "message": message });
        if let Some(title) = &self.title {
            line["title"] = json!(title);
        }
        if let Some(agent) = &self.agent {
            line["agent"] = json!(agent);
        }
        if let Some(left) = &self.left {
            (line["left"], line["left_reason"]) = (true.into(), left.name().into());
        }
        if let Some(Left::Changed { missing }) = &self.left {
            line["missing"] = json!(missing);
        }
        if let Some(hold) = &self.hold {
            line["hold"] = json!(hold);
        }
        if self.jobs.is_some() || self.undone > 0 {
            let (parked, failing) = self.jobs.map_or((0, 0), |jobs| (jobs.parked, jobs.failing));
            line["jobs"] = json!({ "parked": parked, "failing": failing, "not_done": self.undone });
        }
        json_line(&line)
    }
}

/// One conversation that cannot be read does not hide the others. Whose it is may be what cannot be read, so every reader of
/// the database is told of it.
fn not_listed(id: Option<&ConversationId>, error: &dyn std::error::Error) -> Problem {
    let which = id.map_or_else(|| "whose id cannot be read".to_owned(), |id| name(id.as_str()));
    Problem::error(format!("conversation {which} is not listed: {}", with_causes(error)))
        .hint("the others are listed; the database may be damaged, or written by a newer version")
}

/// What the person said last. The log is read backwards, a little more each time.
async fn last_message(store: &SqliteStore, id: &ConversationId) -> Result<Option<String>, StoreError> {
    let (mut before, mut tokens) = (u64::MAX, 64);
    loop {
        let events = store.tail(id, before, tokens).await?;
        let said = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::UserMessage { content, .. } => Some(content.text()),
            _ => None,
        });
        match events.first() {
            Some(first) if said.is_none() => (before, tokens) = (first.seq, tokens.saturating_mul(4)),
            _ => return Ok(said),
        }
    }
}

/// The title that a hook made, or else the first words that the person said: they cost nothing, and are mostly about the same.
async fn title(store: &SqliteStore, one: &ConversationSummary) -> Result<Option<String>, StoreError> {
    if let Some(title) = &one.title {
        return Ok(Some(title.to_string()));
    }
    let mut from = 1;
    loop {
        let events = store.log(&one.id, from, FIRST_EVENTS).await?;
        let said = events.iter().find_map(|event| match &event.kind {
            EventKind::UserMessage { content, .. } => Some(show::title(content)),
            _ => None,
        });
        match events.last() {
            Some(last) if said.is_none() => from = last.seq + 1,
            _ => return Ok(said),
        }
    }
}

fn state(status: ConversationStatus) -> &'static str {
    match status {
        ConversationStatus::Idle => "idle",
        ConversationStatus::Running => "running",
        ConversationStatus::Waiting { .. } => "waiting",
    }
}

/// How wide everything is.
struct Columns {
    id: usize,
    now: Timestamp,
    /// None: a line may be as long as it likes.
    width: Option<usize>,
}

impl Columns {
    fn of(listed: &[ConversationSummary], now: Timestamp) -> Self {
        let id = listed.iter().map(|one| one.id.as_str().len()).max().unwrap_or_default();
        Self { id, now, width: terminal_width(&io::stdout()) }
    }

    fn line(&self, one: &ConversationSummary, seen: &Seen<'_>) -> String {
        let (id, age) = (self.id, age(self.now.since(one.written)));
        let title = seen.title.as_deref().unwrap_or_default();
        let state = if seen.left.is_some() { "left" } else { state(one.status) };
        let head = format!("{:<id$}  {age:>10}  {state:<7}  ", one.id.as_str());
        let room = self.width.map_or(60, |width| width.saturating_sub(head.width()).clamp(10, 60));
        format!("{head}{}", opening(&clean(title), room)).trim_end().to_owned()
    }
}

/// In the largest unit that it fills.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_in_the_largest_unit_that_fits() {
        for (seconds, shown) in [(0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7_200, "2 h ago")] {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(age(Duration::from_secs(100 * 86_400)), "100 d ago");
    }
}
