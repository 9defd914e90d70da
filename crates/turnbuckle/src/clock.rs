//! Time, injected. Nothing in the runtime reads a clock or sleeps but through [`Clock`].

mod beat;

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Wall time to the millisecond; in JSON `2026-01-31T12:00:00.000Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Milliseconds since 1970.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This much later.
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How much later this is than `earlier`; nothing if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last moment that RFC 3339 can write; later ones would make the formatter fail.
        const YEAR_9999: u64 = 253_402_300_799_999;
        let time = UNIX_EPOCH + Duration::from_millis(self.0.min(YEAR_9999));
        humantime::format_rfc3339_millis(time).fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let time = humantime::parse_rfc3339(&text).map_err(de::Error::custom)?;
        let past = time.duration_since(UNIX_EPOCH).map_err(de::Error::custom)?;
        Ok(Self(u64::try_from(past.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The one source of time.
pub trait Clock: Send + Sync + 'static {
    /// Wall time, for stamps and expiries.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment; never goes back.
    fn elapsed(&self) -> Duration;

    /// Like [`elapsed`](Self::elapsed), a few milliseconds late and several times cheaper.
    fn coarse(&self) -> Duration {
        self.elapsed()
    }

    /// Ready when `wait` has passed.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clock and tokio's timer.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    coarse_start: coarsetime::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now(), coarse_start: coarsetime::Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let past = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(past.as_millis()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn coarse(&self) -> Duration {
        coarsetime::Instant::now().duration_since(self.coarse_start).into()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        beat::keep(wait);
        Box::pin(tokio::time::sleep(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_rfc_3339_with_milliseconds_and_comes_back() {
        let stamp = Timestamp::from_millis(1_769_860_800_123);
        let json = serde_json::to_string(&stamp).unwrap();
        assert_eq!(json, "\"2026-01-31T12:00:00.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), stamp);
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }
}
