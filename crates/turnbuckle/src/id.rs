//! Ids: newtypes over short text, and the injected source of new ones.
//!
//! Every event has two or three of them. Ids of up to 23 bytes are stored in place and copied, which is cheaper than
//! counting references to shared text.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, SmolStrBuilder};

/// A map by id or by name. Its hasher is seeded at random in each process, so that ids which strangers choose cannot be made
/// to collide, and takes a fifth of the time of the standard one.
pub(crate) type NameMap<K, V> = HashMap<K, V, foldhash::quality::RandomState>;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(SmolStr);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text.into())
            }
        }
        impl From<NewId> for $name {
            fn from(new: NewId) -> Self {
                Self(new.0)
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// One ordered log, one writer. A sub-agent's conversation is `PARENT/CALL`.
    ConversationId
}
id! {
    /// From one user message to one outcome.
    TurnId
}
id! {
    /// One tool call, unique in its conversation.
    CallId
}
id! {
    /// One inbox item, unique in its conversation. A message's is the id of the turn that it opens.
    ItemId
}

impl ItemId {
    /// The id of the message that opens this turn.
    pub fn of_turn(turn: &TurnId) -> Self {
        Self(turn.0.clone())
    }
}

impl From<ItemId> for TurnId {
    /// The turn that the message of this id opens.
    fn from(item: ItemId) -> Self {
        Self(item.0)
    }
}

/// A conversation id that people may not choose.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("conversation id {0:?} is not made of 1 to 64 of A-Z a-z 0-9 _ -")]
pub struct BadConversationId(pub String);

impl ConversationId {
    /// Whether it is `PARENT/CALL`. The process that has the parent takes care of it.
    pub fn is_sub_agent(&self) -> bool {
        self.0.contains('/')
    }

    /// The conversation of the main agent, if it is a sub-agent's.
    pub fn root(&self) -> Option<Self> {
        self.0.split_once('/').map(|(root, _)| root.into())
    }

    /// Whether it is this conversation, or one of a sub-agent at any depth below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(other.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// An id given from outside: `[A-Za-z0-9_-]{1,64}`.
    pub fn parse(text: &str) -> Result<Self, BadConversationId> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(BadConversationId(text.chars().take(80).collect()))
        }
    }

    /// The conversation of the sub-agent that `call` started.
    pub fn child(&self, call: &CallId) -> Self {
        Self(format!("{self}/{call}").into())
    }
}

/// A new id, before it is decided what it is the id of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewId(SmolStr);

impl NewId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl From<String> for NewId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
impl From<NewId> for Arc<str> {
    fn from(new: NewId) -> Self {
        new.0.into()
    }
}

/// Where new ids come from. Injected, so that tests and replays are exact.
pub trait Ids: Send + Sync + 'static {
    /// A new id that begins with `prefix`, never given out before. Ids of up to 23 bytes are copied without an
    /// allocation.
    fn mint(&self, prefix: &str) -> NewId;
}

/// Ids that sort by time and do not collide between processes, on whatever host: milliseconds, a random number of the
/// source, counter, each in base 36. Those of turns stay within 23 bytes for the first
/// two billion of a process.
#[derive(Debug)]
pub struct SystemIds {
    /// 24 bits: in two containers the number of a process is the same.
    source: u64,
}

impl Default for SystemIds {
    fn default() -> Self {
        // The keys of a new hasher are random.
        Self { source: RandomState::new().hash_one(std::process::id()) & 0xff_ffff }
    }
}

impl Ids for SystemIds {
    fn mint(&self, prefix: &str) -> NewId {
        // One for the whole process: two sources must not give out the same id in the same millisecond.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_millis() as u64);
        let mut text = SmolStrBuilder::new();
        text.push_str(prefix);
        push_digits(&mut text, ms, 36);
        text.push('-');
        push_digits(&mut text, self.source, 36);
        text.push('-');
        push_digits(&mut text, count, 36);
        NewId(text.finish())
    }
}

/// Writes a number in base 10 or 36, without the formatter: an id is made for every turn.
fn push_digits(text: &mut SmolStrBuilder, mut number: u64, base: u64) {
    // 20 decimal digits hold every 64-bit number.
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % base) as usize];
        number /= base;
        if number == 0 {
            break;
        }
    }
    digits[first..].iter().for_each(|digit| text.push(char::from(*digit)));
}

/// Ids that count from 1: `t_1`, `t_2`, … one series a prefix.
#[derive(Debug, Default)]
pub struct CountingIds {
    counts: std::sync::Mutex<std::collections::BTreeMap<String, u64>>,
}

impl Ids for CountingIds {
    fn mint(&self, prefix: &str) -> NewId {
        let mut counts = self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = match counts.get_mut(prefix) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                counts.insert(prefix.to_owned(), 1);
                1
            }
        };
        let mut text = SmolStrBuilder::new();
        text.push_str(prefix);
        push_digits(&mut text, count, 10);
        NewId(text.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_allowed_characters_make_a_conversation_id() {
        assert!(ConversationId::parse("Az_9-").is_ok());
        for bad in ["", "a b", "a/b", "ä", "a.b", &"x".repeat(65)] {
            assert!(ConversationId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn minted_ids_sort_by_time_and_fit_in_place() {
        let digits = |number| {
            let mut text = SmolStrBuilder::new();
            push_digits(&mut text, number, 36);
            text.finish()
        };
        assert_eq!([0, 35, 36, u64::MAX].map(digits), ["0", "z", "10", "3w5e11264sgsf"]);
        // Until 2059 the milliseconds have eight digits.
        assert_eq!([1_577_836_800_000, 2_800_000_000_000].map(|ms| digits(ms).len()), [8, 8]);
        assert!(digits(1_577_836_800_000) < digits(1_577_836_800_001));
        assert!(!SystemIds::default().mint("t_").0.is_heap_allocated());
    }

    #[test]
    fn ids_of_one_source_and_of_several_are_unique() {
        let sources = [SystemIds::default(), SystemIds::default()];
        let mint = |_| [sources[0].mint("t_"), sources[1].mint("t_")];
        let minted: std::collections::BTreeSet<_> = (0..1000).flat_map(mint).collect();
        assert_eq!(minted.len(), 2000);
    }
}
