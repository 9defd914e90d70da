//! Durations as people write them: `"30s"`, `"2h 30m"`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration in a ready-made hook's options, written `"30s"`.
///
/// ```
/// use std::time::Duration;
/// use turnbuckle::hooks::Period;
/// let period: Period = serde_json::from_str("\"1m 30s\"")?;
/// assert_eq!(period, Period(Duration::from_secs(90)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(
    /// How long.
    pub Duration,
);

impl Period {
    /// So many seconds: for defaults.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// So many milliseconds: for defaults.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        period.0
    }
}

impl From<Duration> for Period {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = |_| de::Error::invalid_value(de::Unexpected::Str(&text), &"a duration like \"30s\"");
        humantime::parse_duration(&text).map(Self).map_err(refused)
    }
}
