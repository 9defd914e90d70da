//! A connection of which it is not clear yet what it speaks: hyper waits for that as long as the client likes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What a client that speaks HTTP/2 says first. By the first byte that differs it is clear that it speaks something else.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream with a deadline for its first bytes.
pub(super) struct Opening<S> {
    stream: S,
    /// None once it is clear what the client speaks.
    deadline: Option<Pin<Box<Sleep>>>,
    /// How much of the preface was read.
    read: usize,
}

impl<S> Opening<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, deadline: Some(Box::pin(sleep(patience))), read: 0 }
    }

    fn has_read(&mut self, bytes: &[u8]) {
        let rest = &PREFACE[self.read..];
        let is_clear = bytes.is_empty() || bytes.len() >= rest.len() || !rest.starts_with(bytes);
        if is_clear {
            self.deadline = None;
        } else {
            self.read += bytes.len();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                read?;
                if self.deadline.is_some() {
                    self.has_read(&buffer.filled()[before..]);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending => match &mut self.deadline {
                None => Poll::Pending,
                Some(deadline) => {
                    ready!(deadline.as_mut().poll(cx));
                    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was asked")))
                }
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
