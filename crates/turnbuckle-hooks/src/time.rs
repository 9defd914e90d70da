//! Durations in options: checked, used as limits by the injected clock, and shown to people.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use turnbuckle::clock::Clock;
use turnbuckle::hooks::{HumanDuration, OptionError};

/// The longest duration an option may have. Longer ones could overflow when added to a clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Checks a duration: more than zero, at most a year.
pub(crate) fn checked(option: &'static str, HumanDuration(time): HumanDuration) -> Result<Duration, OptionError> {
    match time {
        Duration::ZERO => Err(OptionError::new(option, "must be more than 0s")),
        time if time > LONGEST => Err(OptionError::new(option, "must be at most a year")),
        _ => Ok(time),
    }
}

/// The output of `future`, or `None` if it takes longer than `limit`. No timer is made if it is ready at once.
pub(crate) async fn within<T>(clock: &dyn Clock, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        timer.get_or_insert_with(|| clock.sleep(limit)).as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// A duration as messages show it: `1m 30s`.
pub(crate) fn shown(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}
