//! What a model says on its way out of a service: a call is owned and may run anywhere, the sink is borrowed.

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
    /// Emptied whenever the call is polled, so it holds what was said since then.
    pieces: Vec<Piece>,
    waker: Option<Waker>,
}

/// A sink that anybody can hold. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Spout(Arc<Mutex<Inner>>);

impl Spout {
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

    /// Runs `call`, and passes on what is said meanwhile.
    pub(super) async fn into_while<T>(self, out: &mut dyn Sink, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        poll_fn(|cx| {
            // Before the call is polled: what another task pushes from here on wakes us.
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

impl Sink for Spout {
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
