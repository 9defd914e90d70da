//! The events of one answer, and how long each may take.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use reqwest::Response;
use turnbuckle::clock::Clock;
use turnbuckle::model::ModelError;

use crate::failure::broken;
use crate::sse::{LONGEST, Parser};

/// How many bytes one answer may have.
const LONGEST_ANSWER: usize = 128 * 1024 * 1024;
/// How long the end of a stream is waited for once the reply is whole.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// What comes of `future`, unless that takes too long. The timer starts when there is something to wait for.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    idle: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ModelError> {
    let (mut future, mut timer) = (pin!(future), None);
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        let timer = timer.get_or_insert_with(|| clock.sleep(idle));
        timer.as_mut().poll(cx).map(|()| Err(ModelError::Stalled { idle }))
    })
    .await
}

/// The events of one answer. Dropping it closes the connection.
pub(crate) struct Events {
    response: Response,
    parser: Parser,
    clock: Arc<dyn Clock>,
    idle: Duration,
    received: usize,
    over: bool,
}

impl Events {
    /// Those of a response, of which no byte was read; `idle`: how long it may be silent.
    pub(crate) fn of(response: Response, clock: Arc<dyn Clock>, idle: Duration) -> Self {
        Self { response, parser: Parser::default(), clock, idle, received: 0, over: false }
    }

    /// Goes on to the next event; whether there is one.
    pub(crate) async fn advance(&mut self) -> Result<bool, ModelError> {
        self.advance_within(self.idle).await
    }

    pub(crate) async fn advance_within(&mut self, idle: Duration) -> Result<bool, ModelError> {
        loop {
            let too_long = |_| ModelError::Protocol(format!("an event of more than {LONGEST} bytes"));
            if self.parser.advance().map_err(too_long)? {
                if self.data().is_empty() {
                    continue;
                }
                return Ok(true);
            }
            if self.over {
                return Ok(false);
            }
            let piece = within(&*self.clock, idle, self.response.chunk()).await?;
            match piece.map_err(|error| broken("reading the answer", error))? {
                Some(piece) => {
                    self.received += piece.len();
                    if self.received > LONGEST_ANSWER {
                        return Err(ModelError::Protocol(format!("an answer of more than {LONGEST_ANSWER} bytes")));
                    }
                    self.parser.push(&piece);
                }
                None => {
                    self.over = true;
                    return Ok(self.parser.finish());
                }
            }
        }
    }

    /// The event's data.
    pub(crate) fn data(&self) -> &[u8] {
        self.parser.data()
    }

    /// Whether not a single byte came.
    pub(crate) fn is_empty(&self) -> bool {
        self.received == 0
    }

    /// The reply is whole. If the end of the body is here already, the connection can be used again; nobody waits for it.
    pub(crate) async fn close(mut self) {
        let mut rest = pin!(self.response.chunk());
        poll_fn(|cx| {
            let _ = rest.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }
}
