//! The events of one answer, folded into a reply as they come, and how long each may take.

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

/// How many bytes one answer may have.
const LONGEST_ANSWER: usize = 128 * 1024 * 1024;
/// How long the end of a stream is waited for once the reply is whole, whatever else comes meanwhile.
const GRACE: Duration = Duration::from_secs(5);

/// What comes of `future`, unless that takes too long. The timer starts when there is something to wait for.
pub(crate) async fn within<T>(
    clock: &Arc<dyn Clock>,
    idle: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ModelError> {
    Watch::new(clock.clone(), idle).over(future).await.ok_or(ModelError::Stalled { idle })
}

/// Notices a silence. One timer serves a whole stream: it is set again when it goes off, not with every piece that comes.
struct Watch {
    clock: Arc<dyn Clock>,
    patience: Duration,
    /// Since when nothing came.
    since: Duration,
    timer: Option<BoxFuture<'static, ()>>,
}

impl Watch {
    fn new(clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self { since: clock.coarse(), clock, patience, timer: None }
    }

    /// What comes of `future`; nothing, if that takes too long.
    async fn over<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
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
            let timer = self.timer.get_or_insert_with(|| self.clock.sleep(self.patience.saturating_sub(silent())));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            // A coarse clock is a little late: what is nearly over is over.
            if silent() + Duration::from_millis(10) >= self.patience {
                return Poll::Ready(());
            }
        }
    }

    fn is_over(&self) -> bool {
        self.clock.coarse().saturating_sub(self.since) >= self.patience
    }

    fn heard(&mut self) {
        self.since = self.clock.coarse();
    }
}

/// A reply under way.
pub(crate) trait Fold {
    /// One event. What it says is told with the next [`tell`](Self::tell), or before anything of another kind.
    fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError>;

    /// Tells what was said and is not told yet.
    fn tell(&mut self, out: &mut dyn Sink);

    /// Whether the reply has said why it ends. Only its usage can follow; nothing that happens to the connection matters.
    fn is_whole(&self) -> bool;

    /// Whether nothing can follow.
    fn is_over(&self) -> bool;
}

/// The events of one answer. Dropping it closes the connection.
pub(crate) struct Events {
    response: Response,
    parser: Parser,
    watch: Watch,
    received: usize,
    /// The server has closed.
    ended: bool,
    /// The reply is whole; the rest is waited for only so long.
    hurried: bool,
}

impl Events {
    /// Those of a response, of which no byte was read; `idle`: how long it may be silent.
    pub(crate) fn of(response: Response, clock: Arc<dyn Clock>, idle: Duration) -> Self {
        let watch = Watch::new(clock, idle);
        Self { response, parser: Parser::default(), watch, received: 0, ended: false, hurried: false }
    }

    /// Folds the whole answer. What came in one piece is told in one: nothing waits for what is not here yet.
    pub(crate) async fn fold(mut self, folding: &mut impl Fold, out: &mut dyn Sink) -> Result<(), ModelError> {
        loop {
            let taken = self.take_all(folding, out);
            // Also before an error: whether text was told is not to depend on how the bytes were packed.
            folding.tell(out);
            taken?;
            if folding.is_over() {
                break;
            }
            if folding.is_whole() {
                self.hurry();
            }
            if !self.read().await? {
                break;
            }
        }
        match folding.is_whole() {
            true => self.close().await,
            false if self.received == 0 => return Err(cut_off("the answer is empty")),
            false => return Err(cut_off("the answer broke off before its end")),
        }
        Ok(())
    }

    /// Every event that is here.
    fn take_all(&mut self, folding: &mut impl Fold, out: &mut dyn Sink) -> Result<(), ModelError> {
        let too_long = |_| ModelError::Protocol(format!("an event of more than {LONGEST} bytes"));
        while !folding.is_over() && self.parser.advance().map_err(too_long)? {
            if !self.parser.data().is_empty() {
                folding.take(self.parser.data(), out)?;
            }
        }
        Ok(())
    }

    /// The next piece; whether anything can have come by it.
    async fn read(&mut self) -> Result<bool, ModelError> {
        // Somebody who never stops sending is not waited for either.
        if self.ended || self.hurried && self.watch.is_over() {
            return Ok(false);
        }
        let piece = match self.watch.over(self.response.chunk()).await {
            Some(Ok(piece)) => piece,
            _ if self.hurried => return Ok(false),
            Some(Err(error)) => return Err(broken("reading the answer", error)),
            None => return Err(ModelError::Stalled { idle: self.watch.patience }),
        };
        let Some(piece) = piece else {
            self.ended = true;
            self.parser.finish();
            return Ok(true);
        };
        if !self.hurried {
            self.watch.heard();
        }
        self.received += piece.len();
        if self.received > LONGEST_ANSWER {
            return Err(ModelError::Protocol(format!("an answer of more than {LONGEST_ANSWER} bytes")));
        }
        self.parser.push(&piece);
        Ok(true)
    }

    fn hurry(&mut self) {
        if !std::mem::replace(&mut self.hurried, true) {
            self.watch = Watch::new(self.watch.clock.clone(), GRACE);
        }
    }

    /// The reply is whole. If the end of the body is here already, the connection can be used again; nobody waits for it.
    async fn close(mut self) {
        let mut rest = pin!(self.response.chunk());
        poll_fn(|cx| {
            let _ = rest.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }
}
