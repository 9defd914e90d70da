//! The list of conversations.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row};
use turnbuckle::message::Text;
use turnbuckle::store::{ConversationStatus, ConversationSummary, Hold, ListPart, StoreError};
use turnbuckle::{ConversationId, Timestamp};

use super::error::Fault;
use super::lease::LeaseRow;
use super::process::Process;
use super::read::{body, has_titles};
use super::{SqliteError, deletion};

/// What [`SqliteStore::list_with_errors`](super::SqliteStore::list_with_errors) found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The conversations that can be read, the newest first.
    pub conversations: Vec<ConversationSummary>,
    /// Those that cannot.
    pub unreadable: Vec<UnreadableConversation>,
}

impl Listing {
    /// The conversations, if all of them can be read.
    pub(super) fn all_or_error(self) -> Result<Vec<ConversationSummary>, StoreError> {
        match self.unreadable.into_iter().next() {
            None => Ok(self.conversations),
            Some(UnreadableConversation { id, error }) => {
                let which = id.map_or_else(|| "whose id cannot be read".to_owned(), |id| id.to_string());
                Err(StoreError::failed(format!("listing conversation {which}"), error))
            }
        }
    }
}

/// A conversation whose row cannot be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnreadableConversation {
    /// The conversation's id; `None` if that is what cannot be read.
    pub id: Option<ConversationId>,
    /// What is wrong with the row.
    pub error: SqliteError,
}

/// A row that cannot be read: the conversation's id, if that can, and why.
pub(super) type Unreadable = (Option<ConversationId>, Fault);

/// Which conversations are listed.
pub(super) enum Part {
    All,
    Open,
    Newest { most: usize },
    Before { id: ConversationId, most: usize },
    One(ConversationId),
}

impl From<ListPart<'_>> for Part {
    fn from(part: ListPart<'_>) -> Self {
        match part {
            ListPart::Open => Self::Open,
            ListPart::Page { before: None, most } => Self::Newest { most },
            ListPart::Page { before: Some(id), most } => Self::Before { id: id.clone(), most },
            ListPart::One(id) => Self::One(id.clone()),
        }
    }
}

impl Part {
    /// What is asked of the rows, and how many of them.
    fn parts(&self) -> (&'static str, &str, i64) {
        let count = |most: &usize| i64::try_from(*most).unwrap_or(i64::MAX);
        match self {
            Self::All => ("?1 IS NOT NULL", "", -1),
            Self::Open => ("standing <> 'idle' AND ?1 IS NOT NULL", "", -1),
            Self::Newest { most } => ("?1 IS NOT NULL", "", count(most)),
            Self::Before { id, most } => {
                ("made < (SELECT made FROM conversation WHERE id = ?1)", id.as_str(), count(most))
            }
            Self::One(id) => ("id = ?1", id.as_str(), 1),
        }
    }
}

/// Conversations, the newest first, and the rows that cannot be read. An error of the file itself is an error of the whole list.
pub(super) fn list(
    db: &Connection,
    me: Option<&Process>,
    part: &Part,
) -> Result<(Vec<ConversationSummary>, Vec<Unreadable>), Fault> {
    let (condition, id_of, most) = part.parts();
    let mut query = db.prepare_cached(&format!(
        "SELECT format, owner, id, opened, written, seq, standing, due, lease_until, process, made
           FROM conversation WHERE {condition} ORDER BY made DESC LIMIT ?2"
    ))?;
    let mut holds = deletion::holds(db)?;
    let mut titles = Titles::of(db, part)?;
    let mut rows = query.query((id_of, most))?;
    let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        match summary(row, me, &mut holds, &mut titles) {
            Ok(summary) => listed.push(summary),
            // The row's error is reported; whether its id can be read is told by the `Option`.
            Err(fault) => unreadable.push((id(row).ok(), fault)),
        }
    }
    Ok((listed, unreadable))
}

fn id(row: &Row<'_>) -> Result<ConversationId, Fault> {
    Ok(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?.into())
}

/// Where titles come from.
enum Titles<'db> {
    /// All were read at once.
    Read(HashMap<i64, Text>),
    /// Of few conversations each is read by itself.
    OneByOne(CachedStatement<'db>),
}

impl<'db> Titles<'db> {
    fn of(db: &'db Connection, part: &Part) -> Result<Self, Fault> {
        if !has_titles(db)? {
            return Ok(Self::Read(HashMap::new()));
        }
        if !matches!(part, Part::All) {
            return Ok(Self::OneByOne(db.prepare_cached("SELECT text FROM title WHERE conversation = ?")?));
        }
        let mut query = db.prepare_cached("SELECT conversation, text FROM title")?;
        let found = query.query_map([], |row| Ok((row.get(0)?, Text::from(row.get::<_, String>(1)?))))?;
        Ok(Self::Read(found.collect::<Result<_, _>>()?))
    }

    /// The title of the conversation with this key. It is asked for once.
    fn take(&mut self, key: i64) -> Result<Option<Text>, Fault> {
        match self {
            Self::Read(all) => Ok(all.remove(&key)),
            Self::OneByOne(query) => {
                let found: Option<String> = query.query_row([key], |row| row.get(0)).optional()?;
                Ok(found.map(Text::from))
            }
        }
    }
}

fn summary(
    row: &Row<'_>,
    me: Option<&Process>,
    holds: &mut HashMap<i64, Hold>,
    titles: &mut Titles<'_>,
) -> Result<ConversationSummary, Fault> {
    let time = |at| Ok::<_, Fault>(Timestamp::from_millis(row.get::<_, i64>(at)?.unsigned_abs()));
    let lease = LeaseRow { from: None, until: row.get(8)?, process: row.get(9)? };
    Ok(ConversationSummary {
        claimed_until: lease.until_unless_dead(me),
        hold: holds.remove(&row.get(10)?),
        title: titles.take(row.get(10)?)?,
        id: id(row)?,
        owner: body(row)?,
        opened: time(3)?,
        written: time(4)?,
        seq: row.get::<_, i64>(5)?.unsigned_abs(),
        status: match row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)? {
            "idle" => ConversationStatus::Idle,
            "running" => ConversationStatus::Running,
            "waiting" => ConversationStatus::Waiting { until: time(7)? },
            other => return Err(Fault::UnknownStatus(other.to_owned())),
        },
    })
}

/// Jobs of a conversation and its sub-agents that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedJobs {
    /// The main agent's conversation.
    pub conversation: ConversationId,
    /// Those that are given up.
    pub parked: u64,
    /// Those that failed and will be tried again.
    pub failing: u64,
}

/// Conversations with jobs that did not succeed, in the order of their ids.
pub(super) fn failed_jobs(db: &Connection) -> Result<Vec<FailedJobs>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT substr(id, 1, instr(id || '/', '/') - 1) AS main, sum(job.due IS NULL) AS parked,
                sum(job.due IS NOT NULL AND json_valid(body) AND json_extract(body, '$.error') IS NOT NULL) AS failing
           FROM job JOIN conversation ON made = job.conversation GROUP BY main HAVING parked + failing > 0 ORDER BY main",
    )?;
    let mut rows = query.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(FailedJobs {
            conversation: row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?.into(),
            parked: row.get::<_, i64>(1)?.unsigned_abs(),
            failing: row.get::<_, i64>(2)?.unsigned_abs(),
        });
    }
    Ok(found)
}
