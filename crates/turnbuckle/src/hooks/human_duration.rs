//! Durations as people write them: `"30s"`, `"2h 30m"`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration in the options of a ready-made hook, written as `"30s"` or `"1m 30s"`.
///
/// ```
/// use std::time::Duration;
/// use turnbuckle::hooks::HumanDuration;
/// let duration: HumanDuration = serde_json::from_str("\"1m 30s\"")?;
/// assert_eq!(duration, HumanDuration(Duration::from_secs(90)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(
    /// The duration itself.
    pub Duration,
);

impl HumanDuration {
    /// A number of seconds, usable in constants.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// A number of milliseconds, usable in constants.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = |_| de::Error::invalid_value(de::Unexpected::Str(&text), &"a duration like \"30s\"");
        humantime::parse_duration(&text).map(Self).map_err(refused)
    }
}
