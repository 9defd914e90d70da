//! How much one caller, and all of them, may ask.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::caller::Identity;
use crate::rejection::{Code, Rejection};

/// How much callers may ask of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Requests that one caller may make in a second, in the long run. Default: 100.
    pub requests_per_second: u32,
    /// Requests that one caller may make at once. Default: 200.
    pub burst: u32,
    /// Requests that all callers with a token or a link may make together in a second, in the long run and at once. Default: 10,000.
    pub all_requests_per_second: u32,
    /// Open streams of events of one caller. Default: 100.
    pub streams_per_caller: usize,
    /// Open streams of events of all callers. Default: 10,000.
    pub streams: usize,
    /// Open connections. Default: 20,000.
    pub connections: usize,
    /// The largest body, in bytes. Default: 1 MiB.
    pub body_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            requests_per_second: 100,
            burst: 200,
            all_requests_per_second: 10_000,
            streams_per_caller: 100,
            streams: 10_000,
            connections: 20_000,
            body_bytes: 1 << 20,
        }
    }
}

/// What callers have used of their limits.
#[derive(Debug)]
pub(crate) struct Usage {
    limits: ServerLimits,
    callers: Mutex<Callers>,
    streams: AtomicUsize,
}

#[derive(Debug, Default)]
struct Callers {
    /// By caller. There are as many as tokens; those of removed tokens go when the list is cleaned.
    each: HashMap<Identity, CallerUsage>,
    /// What those who are known made together.
    together: Option<Allowance>,
}

#[derive(Debug)]
struct CallerUsage {
    requests: Allowance,
    streams: usize,
}

/// Requests that may be made now.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// How many, up to the burst.
    left: f64,
    /// When that was right.
    at: Instant,
}

impl Allowance {
    /// As of now. `rate` come back in a second.
    fn grown(self, rate: f64, burst: f64, now: Instant) -> Self {
        Self { left: (self.left + now.duration_since(self.at).as_secs_f64() * rate).min(burst), at: now }
    }

    /// When the next request may be made, if none may be now.
    fn wait(&self, rate: f64) -> Option<Duration> {
        (self.left < 1.0).then(|| Duration::from_secs_f64((1.0 - self.left) / rate))
    }
}

/// How much more all those without a token may ask than one caller with one.
const TIMES_FOR_NOBODY: f64 = 10.0;
/// How many callers are kept before those at rest are removed.
const MANY_CALLERS: usize = 4_096;

impl Usage {
    pub(crate) fn new(limits: ServerLimits) -> Self {
        Self { limits, callers: Mutex::default(), streams: AtomicUsize::new(0) }
    }

    pub(crate) fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// How many streams are open.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request, or says when the next one may come.
    pub(crate) fn admit(&self, caller: Identity) -> Result<(), Rejection> {
        // These are many people at once, and cost little.
        let times = if matches!(caller, Identity::Nobody | Identity::AtLogin) { TIMES_FOR_NOBODY } else { 1.0 };
        let burst = f64::from(self.limits.burst.max(1)) * times;
        let rate = f64::from(self.limits.requests_per_second.max(1)) * times;
        let now = Instant::now();
        let mut callers = self.lock();
        let Callers { each, together } = &mut *callers;
        if each.len() >= MANY_CALLERS {
            each.retain(|_, usage| usage.streams > 0 || usage.requests.grown(rate, burst, now).left < burst);
        }
        let full = Allowance { left: burst, at: now };
        let own = &mut each.entry(caller).or_insert(CallerUsage { requests: full, streams: 0 }).requests;
        *own = own.grown(rate, burst, now);
        if let Some(wait) = own.wait(rate) {
            return Err(Rejection::new(Code::RateLimited, "too many requests").retry_after(wait));
        }
        if caller.is_known() {
            let most = f64::from(self.limits.all_requests_per_second.max(1));
            let all = together.get_or_insert(Allowance { left: most, at: now });
            *all = all.grown(most, most, now);
            if let Some(wait) = all.wait(most) {
                let rejection = Rejection::new(Code::InUse, "too many requests of all callers together");
                return Err(rejection.retry_after(wait));
            }
            all.left -= 1.0;
        }
        own.left -= 1.0;
        Ok(())
    }

    /// Counts a token that is not known: all of them together, because whoever tries is nobody yet. Known tokens are not held up by
    /// it, so a guesser keeps nobody out.
    pub(crate) fn admit_unknown(&self) -> Result<(), Rejection> {
        self.admit(Identity::Unknown)
    }

    /// Counts an open stream until the guard is dropped.
    pub(crate) fn open_stream(self: &Arc<Self>, caller: Identity) -> Result<OpenStream, Rejection> {
        let mut callers = self.lock();
        if self.streams.load(Ordering::Relaxed) >= self.limits.streams {
            return Err(Rejection::new(Code::InUse, "too many streams are open").retry_after(Duration::from_secs(5)));
        }
        let now = Instant::now();
        let full = Allowance { left: f64::from(self.limits.burst), at: now };
        let usage = callers.each.entry(caller).or_insert(CallerUsage { requests: full, streams: 0 });
        if usage.streams >= self.limits.streams_per_caller {
            let rejection = Rejection::new(Code::RateLimited, "too many streams of this caller are open");
            return Err(rejection.retry_after(Duration::from_secs(5)));
        }
        usage.streams += 1;
        self.streams.fetch_add(1, Ordering::Relaxed);
        Ok(OpenStream { usage: self.clone(), caller })
    }
}

/// A stream that is open. Both counts are changed under the lock of `callers`.
#[derive(Debug)]
pub(crate) struct OpenStream {
    usage: Arc<Usage>,
    caller: Identity,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut callers = self.usage.lock();
        if let Some(usage) = callers.each.get_mut(&self.caller) {
            usage.streams = usage.streams.saturating_sub(1);
        }
        self.usage.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Arc<Usage> {
        let limits = ServerLimits {
            requests_per_second: 10,
            burst: 3,
            streams_per_caller: 2,
            streams: 3,
            ..ServerLimits::default()
        };
        Arc::new(Usage::new(limits))
    }

    fn code<T>(result: Result<T, Rejection>) -> Option<Code> {
        result.err().map(|rejection| rejection.code())
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_may_make_a_burst_and_then_so_many_a_second() {
        let (usage, other) = (usage(), Identity::Token([1; 32]));
        for _ in 0..3 {
            assert_eq!(code(usage.admit(Identity::Local)), None);
        }
        assert_eq!(code(usage.admit(Identity::Local)), Some(Code::RateLimited));
        assert_eq!(code(usage.admit(other)), None, "another caller is not held up");
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(code(usage.admit(Identity::Local)), None);
        assert_eq!(code(usage.admit(Identity::Local)), Some(Code::RateLimited));
    }

    #[tokio::test(start_paused = true)]
    async fn all_known_callers_together_may_make_so_many_a_second_and_strangers_take_nothing_of_it() {
        let limits = ServerLimits { all_requests_per_second: 4, ..ServerLimits::default() };
        let usage = Usage::new(limits);
        for _ in 0..10 {
            assert_eq!(code(usage.admit(Identity::Nobody)), None);
            assert_eq!(code(usage.admit_unknown()), None);
        }
        for number in 0..4 {
            assert_eq!(code(usage.admit(Identity::Token([number; 32]))), None);
        }
        assert_eq!(code(usage.admit(Identity::Token([9; 32]))), Some(Code::InUse));
        assert_eq!(code(usage.admit(Identity::Nobody)), None);
        tokio::time::advance(Duration::from_millis(251)).await;
        assert_eq!(code(usage.admit(Identity::Token([9; 32]))), None);
        assert_eq!(code(usage.admit(Identity::Token([9; 32]))), Some(Code::InUse));
    }

    #[tokio::test]
    async fn streams_are_counted_by_caller_and_together_until_they_close() {
        let (usage, other) = (usage(), Identity::Token([1; 32]));
        let (one, two) = (usage.open_stream(Identity::Local), usage.open_stream(Identity::Local));
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(code(usage.open_stream(Identity::Local)), Some(Code::RateLimited));
        let three = usage.open_stream(other);
        assert!(three.is_ok());
        assert_eq!(code(usage.open_stream(other)), Some(Code::InUse));
        drop((one, two, three));
        assert_eq!(usage.open_streams(), 0);
        assert_eq!(code(usage.open_stream(other)), None);
    }
}
