//! How long: checked, limited by the injected clock, and as people read it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use turnbuckle::clock::Clock;
use turnbuckle::hooks::{OptionError, Period};

/// The longest time an option takes. Beyond it additions to a clock could overflow, and nobody means it.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// An option that says how long: more than nothing, at most a year.
pub(crate) fn checked(option: &'static str, Period(time): Period) -> Result<Duration, OptionError> {
    match time {
        Duration::ZERO => Err(OptionError::new(option, "must be more than 0s")),
        time if time > LONGEST => Err(OptionError::new(option, "must be at most a year")),
        _ => Ok(time),
    }
}

/// What `future` came to, or `None` if it took longer. What is ready at once never sees a timer.
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

/// As an error says it: `1m 30s`.
pub(crate) fn shown(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}
