//! A sink for a call that runs inside a service. Such a call owns its data and may run in any task, while the sink of a
//! model call is borrowed, so chunks are queued here and forwarded by the task that owns the borrowed sink.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use turnbuckle::model::Sink;

enum Piece {
    Begin(u32),
    Text(String),
    Thinking(String),
}

#[derive(Default)]
struct Inner {
    /// The chunks since the call was polled last; forwarded at each poll.
    pieces: Vec<Piece>,
    waker: Option<Waker>,
}

/// An owned sink. Clones share one queue.
#[derive(Clone, Default)]
pub(super) struct SharedSink(Arc<Mutex<Inner>>);

impl SharedSink {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, piece: Piece) {
        let mut inner = self.lock();
        inner.pieces.push(piece);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Runs `call` and forwards to `out` what is pushed meanwhile.
    pub(super) async fn into_while<T>(self, out: &mut dyn Sink, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        poll_fn(|cx| {
            // Set before the call is polled, so that a push from another task after this point wakes this one.
            self.lock().waker = Some(cx.waker().clone());
            let polled = call.as_mut().poll(cx);
            let pieces = std::mem::take(&mut self.lock().pieces);
            for piece in pieces {
                match piece {
                    Piece::Begin(attempt) => out.begin(attempt),
                    Piece::Text(text) => out.text(&text),
                    Piece::Thinking(text) => out.thinking(&text),
                }
            }
            polled
        })
        .await
    }
}

impl Sink for SharedSink {
    fn begin(&mut self, attempt: u32) {
        self.push(Piece::Begin(attempt));
    }
    fn text(&mut self, text: &str) {
        self.push(Piece::Text(text.to_owned()));
    }
    fn thinking(&mut self, text: &str) {
        self.push(Piece::Thinking(text.to_owned()));
    }
}
