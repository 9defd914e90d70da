//! The format of stored bodies: one of an older format is brought up to date when it is read.
//!
//! Everything that a store keeps is JSON with the number of the format it was written in beside it
//! ([`FORMAT`](turnbuckle::event::FORMAT)). A body in the present format is parsed as it is. One in an older format goes
//! through the steps of [`STEPS`] first, in order. A row keeps its old format until it is written again.

use serde::de::DeserializeOwned;
use serde_json::Value;
use turnbuckle::Actor;
use turnbuckle::event::{Event, FORMAT};
use turnbuckle::hook::Record;
use turnbuckle::scope::Author;
use turnbuckle::store::{
    Act, AuditedCall, CacheBreak, Calibration, Cut, Hold, InboxItem, Job, Scratch, SentRequest, StandingApproval,
    Summary,
};

use crate::json::parsed;

/// What a body is. A step looks at it to know which JSON it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Owner,
    Event,
    InboxItem,
    Scratch,
    Records,
    Cut,
    CacheBreak,
    SentRequest,
    AuditedCall,
    Job,
    Standing,
    Author,
    Hold,
    Act,
    Calibration,
    Summary,
}

/// Brings a body from one format to the next.
type Step = fn(Kind, Value) -> Result<Value, FormatError>;

/// The step at index `n` brings format `n + 1` to format `n + 2`. Never edited once released.
const STEPS: &[Step] = &[];
/// Raising `FORMAT` without a step from the format before it does not compile.
const _: () = assert!(STEPS.len() as u64 + 1 == FORMAT as u64, "each format needs a step from the one before it");

/// Why a body could not be read. The text of the body is not shown: it may be private.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    /// A newer program wrote the body.
    #[error("format {found} is newer than {FORMAT}, the newest that this program knows")]
    Newer { found: i64 },
    /// No program ever wrote this format.
    #[error("{0} is not the number of a format")]
    Unknown(i64),
    /// The body is not JSON of the kind that it should be.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A type that is stored as a body.
pub(crate) trait Stored: DeserializeOwned {
    const KIND: Kind;
}

impl Stored for Actor {
    const KIND: Kind = Kind::Owner;
}
impl Stored for Event {
    const KIND: Kind = Kind::Event;
}
impl Stored for InboxItem {
    const KIND: Kind = Kind::InboxItem;
}
impl Stored for Scratch {
    const KIND: Kind = Kind::Scratch;
}
impl Stored for Vec<Record> {
    const KIND: Kind = Kind::Records;
}
impl Stored for Cut {
    const KIND: Kind = Kind::Cut;
}
impl Stored for CacheBreak {
    const KIND: Kind = Kind::CacheBreak;
}
impl Stored for SentRequest {
    const KIND: Kind = Kind::SentRequest;
}
impl Stored for AuditedCall {
    const KIND: Kind = Kind::AuditedCall;
}
impl Stored for Calibration {
    const KIND: Kind = Kind::Calibration;
}
impl Stored for Summary {
    const KIND: Kind = Kind::Summary;
}
impl Stored for StandingApproval {
    const KIND: Kind = Kind::Standing;
}
impl Stored for Author {
    const KIND: Kind = Kind::Author;
}
impl Stored for Hold {
    const KIND: Kind = Kind::Hold;
}
impl Stored for Act {
    const KIND: Kind = Kind::Act;
}
impl Stored for Job {
    const KIND: Kind = Kind::Job;
}

/// Reads a body that was written in `format`.
pub(crate) fn read<T: Stored>(format: i64, body: &str) -> Result<T, FormatError> {
    if format == i64::from(FORMAT) {
        return Ok(parsed(body)?);
    }
    let upgraded = upgrade(STEPS, T::KIND, format, body)?;
    Ok(serde_json::from_value(upgraded)?)
}

/// Applies the steps that lie between `format` and the newest one.
fn upgrade(steps: &[Step], kind: Kind, format: i64, body: &str) -> Result<Value, FormatError> {
    let newest = steps.len() as i64 + 1;
    if format > newest {
        return Err(FormatError::Newer { found: format });
    }
    let past = format.checked_sub(1).and_then(|past| usize::try_from(past).ok()).ok_or(FormatError::Unknown(format))?;
    steps.iter().skip(past).try_fold(parsed(body)?, |body, step| step(kind, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Format 2 renamed a field of inbox items, format 3 gave jobs a number of tries.
    const TWO_STEPS: &[Step] = &[
        |kind, mut body| {
            if let (Kind::InboxItem, Some(fields)) = (kind, body.as_object_mut())
                && let Some(says) = fields.remove("letter")
            {
                fields.insert("says".to_owned(), says);
            }
            Ok(body)
        },
        |kind, mut body| {
            if kind == Kind::Job {
                body["tries"] = json!(0);
            }
            Ok(body)
        },
    ];

    #[test]
    fn a_body_of_an_older_format_goes_through_every_step_behind_it_and_through_no_other() {
        let upgraded = |kind, format, body: &str| upgrade(TWO_STEPS, kind, format, body).unwrap();
        assert_eq!(upgraded(Kind::InboxItem, 1, r#"{"letter":"hi"}"#), json!({ "says": "hi" }));
        assert_eq!(upgraded(Kind::InboxItem, 2, r#"{"letter":"hi"}"#), json!({ "letter": "hi" }));
        assert_eq!(upgraded(Kind::Job, 1, "{}"), json!({ "tries": 0 }));
        assert_eq!(upgraded(Kind::Job, 2, "{}"), json!({ "tries": 0 }));
        assert_eq!(upgraded(Kind::Job, 3, "{}"), json!({}));
    }

    #[test]
    fn a_format_that_is_newer_or_none_is_refused() {
        assert!(matches!(upgrade(TWO_STEPS, Kind::Job, 4, "{}"), Err(FormatError::Newer { found: 4 })));
        for none in [0, -1, i64::MIN] {
            assert!(matches!(upgrade(TWO_STEPS, Kind::Job, none, "{}"), Err(FormatError::Unknown(_))), "{none}");
        }
        assert!(matches!(upgrade(TWO_STEPS, Kind::Job, 1, "{"), Err(FormatError::Json(_))));
    }

    #[test]
    fn a_body_of_the_first_format_is_read() {
        let owner: Actor = read(1, &serde_json::to_string(&Actor::System).unwrap()).unwrap();
        assert_eq!(owner, Actor::System);
        assert!(matches!(read::<Actor>(i64::from(FORMAT) + 1, "{}"), Err(FormatError::Newer { .. })));
        assert!(matches!(read::<Actor>(0, "{}"), Err(FormatError::Unknown(0))));
    }
}
