//! The events of one response, folded into a reply as they come, and the timeouts between them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use reqwest::Response;
use turnbuckle::BoxFuture;
use turnbuckle::clock::Clock;
use turnbuckle::model::{ModelError, Sink};

use crate::failure::{broken, cut_off};
use crate::sse::{LONGEST, Parser};

/// The longest response, in bytes.
const LONGEST_RESPONSE: usize = 128 * 1024 * 1024;
/// How long the end of a stream is waited for once the reply is complete: the usage mostly comes in this time. A server that keeps
/// sending other things does not extend it.
const GRACE: Duration = Duration::from_secs(5);

/// Waits for `future` no longer than `idle`. No timer is set if it is ready at once.
pub(crate) async fn within<T>(
    clock: &Arc<dyn Clock>,
    idle: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ModelError> {
    IdleTimer::new(clock.clone(), idle).wait_for(future).await.ok_or(ModelError::Stalled { idle })
}

/// Notices when nothing comes for too long. Setting a timer for each piece would cost more than reading the piece, so one timer
/// serves the whole stream: when it goes off and pieces came meanwhile, it is set again for the rest of the time.
struct IdleTimer {
    clock: Arc<dyn Clock>,
    limit: Duration,
    /// When the last piece came.
    since: Duration,
    timer: Option<BoxFuture<'static, ()>>,
}

impl IdleTimer {
    fn new(clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self { since: clock.coarse(), clock, limit, timer: None }
    }

    /// The output of `future`; `None` if the time is over first.
    async fn wait_for<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => self.poll(cx).map(|()| None),
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let silent = || self.clock.coarse().saturating_sub(self.since);
            let timer = self.timer.get_or_insert_with(|| self.clock.sleep(self.limit.saturating_sub(silent())));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            // The coarse clock may lag behind the timer by some milliseconds.
            if silent() + Duration::from_millis(10) >= self.limit {
                return Poll::Ready(());
            }
        }
    }

    fn has_expired(&self) -> bool {
        self.clock.coarse().saturating_sub(self.since) >= self.limit
    }

    /// A piece came: the time begins anew.
    fn restart(&mut self) {
        self.since = self.clock.coarse();
    }
}

/// A reply that is being put together from the events of a stream.
pub(crate) trait Fold {
    /// Takes one event. Its text is pushed into `out` by the next [`flush`](Self::flush), or before text of another kind: text and
    /// thinking keep their order.
    fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError>;

    /// Pushes the text that was taken and is not pushed yet.
    fn flush(&mut self, out: &mut dyn Sink);

    /// Whether the reason to stop has come. Only the usage can follow, so an error of the connection no longer matters.
    fn is_complete(&self) -> bool;

    /// Whether the last event of the stream has come.
    fn is_over(&self) -> bool;
}

/// The events of one response. Dropping it closes the connection, so that the server stops computing.
pub(crate) struct Events {
    response: Response,
    parser: Parser,
    timer: IdleTimer,
    received: usize,
    /// The end of the body was read.
    ended: bool,
    /// The reply is complete, and `timer` runs for [`GRACE`] in all.
    in_grace: bool,
}

impl Events {
    /// The events of a response of which nothing was read yet. `idle` is the longest time between two pieces.
    pub(crate) fn of(response: Response, clock: Arc<dyn Clock>, idle: Duration) -> Self {
        let timer = IdleTimer::new(clock, idle);
        Self { response, parser: Parser::default(), timer, received: 0, ended: false, in_grace: false }
    }

    /// Folds the whole response. All events of one read are taken before their text is pushed in one piece: pushing costs more than
    /// reading an event, and no text waits for bytes that have not come yet.
    pub(crate) async fn fold(mut self, folding: &mut impl Fold, out: &mut dyn Sink) -> Result<(), ModelError> {
        loop {
            let taken = self.take_all(folding, out);
            // Also before an error is returned: a retry depends on whether text was pushed, which must not depend on how the
            // server packed its bytes.
            folding.flush(out);
            taken?;
            if folding.is_over() {
                break;
            }
            if folding.is_complete() {
                self.begin_grace();
            }
            if !self.read().await? {
                break;
            }
        }
        match folding.is_complete() {
            true => self.close().await,
            false if self.received == 0 => return Err(cut_off("the answer is empty")),
            false => return Err(cut_off("the answer broke off before its end")),
        }
        Ok(())
    }

    /// Takes all events that were received.
    fn take_all(&mut self, folding: &mut impl Fold, out: &mut dyn Sink) -> Result<(), ModelError> {
        let too_long = |_| ModelError::Protocol(format!("an event of more than {LONGEST} bytes"));
        while !folding.is_over() && self.parser.advance().map_err(too_long)? {
            if !self.parser.data().is_empty() {
                folding.take(self.parser.data(), out)?;
            }
        }
        Ok(())
    }

    /// Reads the next piece. `false` if no further event can come, or none is waited for.
    async fn read(&mut self) -> Result<bool, ModelError> {
        // A server that keeps sending after the end is not listened to for longer than the grace.
        if self.ended || self.in_grace && self.timer.has_expired() {
            return Ok(false);
        }
        let piece = match self.timer.wait_for(self.response.chunk()).await {
            Some(Ok(piece)) => piece,
            // The reply is complete: neither a broken connection nor silence can harm it.
            _ if self.in_grace => return Ok(false),
            Some(Err(error)) => return Err(broken("reading the answer", error)),
            None => return Err(ModelError::Stalled { idle: self.timer.limit }),
        };
        let Some(piece) = piece else {
            self.ended = true;
            self.parser.finish();
            return Ok(true);
        };
        if !self.in_grace {
            self.timer.restart();
        }
        self.received += piece.len();
        if self.received > LONGEST_RESPONSE {
            return Err(ModelError::Protocol(format!("an answer of more than {LONGEST_RESPONSE} bytes")));
        }
        self.parser.push(&piece);
        Ok(true)
    }

    fn begin_grace(&mut self) {
        if !std::mem::replace(&mut self.in_grace, true) {
            self.timer = IdleTimer::new(self.timer.clock.clone(), GRACE);
        }
    }

    /// Reads the end of the body if it has been received, without waiting for it: the connection can then be reused for the next
    /// request. Otherwise it is closed.
    async fn close(mut self) {
        let mut rest = pin!(self.response.chunk());
        poll_fn(|cx| {
            // The reply is complete, so neither data nor an error is of interest.
            let _end_error_or_pending = rest.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }
}
