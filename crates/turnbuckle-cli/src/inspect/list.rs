//! `turnbuckle list`: a line for each conversation, the newest first.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use serde_json::json;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::event::EventKind;
use turnbuckle::store::{ConversationStatus, ConversationSummary, Store as _, StoreError};
use turnbuckle::{ConversationId, Timestamp};
use turnbuckle_stores::{FailedJobs, SqliteStore};
use unicode_width::UnicodeWidthStr as _;

use super::{failed, is_of, print_all, unprintable};
use crate::Stopped;
use crate::args::{Common, List};
use crate::erasure::acts;
use crate::exit::Exit;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::show::{clean, json_line, name, opening, terminal_width};
use crate::store::open_read_only;

/// Those of the person. A sub-agent's, `ID/CALL`, is part of its parent's.
pub(crate) async fn list(args: List, common: &Common) -> Result<Exit, Stopped> {
    let (store, scope) = open_read_only(common)?;
    if args.acts {
        return acts(store, scope, args.json).await;
    }
    let found = store.list_with_errors().await.map_err(failed)?;
    let mut unreadable: Vec<Problem> =
        found.unreadable.iter().map(|row| not_listed(row.id.as_ref(), &row.error)).collect();
    let mut listed = found.conversations;
    listed.retain(|one| is_of(&one.owner, &scope) && !one.id.is_sub_agent());
    if listed.is_empty() && unreadable.is_empty() && !args.json && io::stderr().is_terminal() {
        output::say("there are no conversations yet: `turnbuckle run \"…\"` and `turnbuckle chat` make one");
    }
    let failed_jobs = store.failed_jobs().await.map_err(failed)?;
    let jobs_of = |one: &ConversationSummary| failed_jobs.iter().find(|jobs| jobs.conversation == one.id);
    let mut text = String::new();
    let columns = Columns::of(&listed, SystemClock::default().now());
    for one in &listed {
        let message = match last_message(&store, &one.id).await {
            Ok(message) => message,
            Err(error) => {
                unreadable.push(not_listed(Some(&one.id), &error));
                continue;
            }
        };
        text += &match args.json {
            true => as_json(one, columns.now, message.as_deref(), jobs_of(one)).map_err(unprintable)?,
            false => {
                let line = columns.line(one, message.as_deref().unwrap_or_default());
                let held = if one.hold.is_some() { "  [on hold]" } else { "" };
                format!("{line}{held}{}\n", jobs_of(one).map(told).unwrap_or_default())
            }
        };
    }
    let exit = print_all(&text)?;
    output::report(&unreadable);
    Ok(if unreadable.is_empty() { exit } else { Exit::Failed })
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

fn state(status: ConversationStatus) -> &'static str {
    match status {
        ConversationStatus::Idle => "idle",
        ConversationStatus::Running => "running",
        ConversationStatus::Waiting { .. } => "waiting",
    }
}

/// Whether its turn is open and no process holds it: a crash left it.
fn is_left(one: &ConversationSummary, now: Timestamp) -> bool {
    one.status == ConversationStatus::Running && one.claimed_until.is_none_or(|until| until <= now)
}

/// Jobs that an operator should know of, behind the line of their conversation.
fn told(jobs: &FailedJobs) -> String {
    let count = |count: u64, what: &str| match count {
        0 => None,
        1 => Some(format!("1 job {what}")),
        many => Some(format!("{many} jobs {what}")),
    };
    let counts: Vec<String> =
        [count(jobs.parked, "parked"), count(jobs.failing, "failing")].into_iter().flatten().collect();
    format!("  [{}]", counts.join(", "))
}

fn as_json(
    one: &ConversationSummary,
    now: Timestamp,
    message: Option<&str>,
    jobs: Option<&FailedJobs>,
) -> serde_json::Result<String> {
    let ConversationSummary { id, opened, written, seq, status, .. } = one;
    let (state, left) = (state(*status), is_left(one, now));
    let mut line =
        json!({ "id": id, "opened": opened, "written": written, "state": state, "seq": seq, "message": message });
    if left {
        line["left"] = true.into();
    }
    if let Some(hold) = &one.hold {
        line["hold"] = json!(hold);
    }
    if let Some(jobs) = jobs {
        line["jobs"] = json!({ "parked": jobs.parked, "failing": jobs.failing });
    }
    json_line(&line)
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

    fn line(&self, one: &ConversationSummary, message: &str) -> String {
        let (id, age) = (self.id, age(self.now.since(one.written)));
        let state = if is_left(one, self.now) { "left" } else { state(one.status) };
        let head = format!("{:<id$}  {age:>10}  {state:<7}  ", one.id.as_str());
        let room = self.width.map_or(60, |width| width.saturating_sub(head.width()).clamp(10, 60));
        format!("{head}{}", opening(&clean(message), room)).trim_end().to_owned()
    }
}

/// In the largest unit that it fills.
fn age(age: Duration) -> String {
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
