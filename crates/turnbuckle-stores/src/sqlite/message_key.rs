//! Keys by which a message that is sent again is known.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::store::{InboxItem, KeyedMessage, MessageKey, StoreError};
use turnbuckle::{ConversationId, Timestamp};

use super::error::Fault;
use super::sql_integer;

/// What was sent under a key in the conversation with this key of a row, if it is still known.
pub(super) fn find(
    db: &Connection,
    conversation: i64,
    (user, key): (&str, &str),
    now: Timestamp,
) -> Result<Option<KeyedMessage>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT digest, turn, at FROM message_key WHERE conversation = ? AND user = ? AND key = ? AND at > ?",
    )?;
    let oldest = sql_integer(KeyedMessage::oldest(now).as_millis());
    let sent = query.query_row((conversation, user, key, oldest), |row| {
        let (digest, turn, at): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let at = Timestamp::from_millis(u64::try_from(at).unwrap_or_default());
        Ok(KeyedMessage { digest: digest.into(), turn: turn.into(), at })
    });
    Ok(sent.optional()?)
}

/// Stores the key of a message that has one, and forgets those of the conversation that are too old. Refused if it is known.
pub(super) fn store(db: &Connection, id: &ConversationId, conversation: i64, item: &InboxItem) -> Result<(), Fault> {
    let Some((user, MessageKey { key, digest })) = item.key() else { return Ok(()) };
    if let Some(sent) = find(db, conversation, (user, key), item.at)? {
        return Err(StoreError::SentBefore { id: id.clone(), sent }.into());
    }
    let oldest = sql_integer(KeyedMessage::oldest(item.at).as_millis());
    db.prepare_cached("DELETE FROM message_key WHERE conversation = ? AND at <= ?")?.execute((conversation, oldest))?;
    db.prepare_cached("INSERT INTO message_key (conversation, user, key, digest, turn, at) VALUES (?, ?, ?, ?, ?, ?)")?
        .execute((conversation, user, &**key, &**digest, item.id.as_str(), sql_integer(item.at.as_millis())))?;
    Ok(())
}
