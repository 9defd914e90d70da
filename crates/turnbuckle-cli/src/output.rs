//! Output to stdout and stderr: one thread writes both, in order, so a slow reader does not hold up the turn.
//!
//! The turn does not wait for a full pipe, signals are heard while one is full, and no line is lost: what
//! is not written yet stands in a queue.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tokio::sync::watch;

use crate::problem::Problem;

enum Piece {
    Out(String),
    Err(String),
}

/// The sending end.
pub(crate) struct Output {
    pieces: Sender<Piece>,
    state: watch::Receiver<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Why stdout takes nothing any more.
    failed: Option<(io::ErrorKind, String)>,
    finished: bool,
}

impl Output {
    /// Starts the writing thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (pieces, queue) = channel();
        let (tell, state) = watch::channel(State::default());
        thread::Builder::new().name("output".to_owned()).spawn(move || write_all(&queue, &tell))?;
        Ok(Self { pieces, state })
    }

    /// To stdout.
    pub(crate) fn out(&self, text: impl Into<String>) {
        // Sending fails only when the thread has ended, which it does when stdout is closed.
        let _ = self.pieces.send(Piece::Out(text.into()));
    }

    /// To stderr.
    pub(crate) fn err(&self, text: impl Into<String>) {
        let _ = self.pieces.send(Piece::Err(text.into()));
    }

    /// A problem, to stderr.
    pub(crate) fn problem(&self, problem: &Problem) {
        self.err(format!("{problem}\n"));
    }

    /// Ready when stdout was closed or broke.
    pub(crate) fn broken(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.state.clone();
        async move {
            if state.wait_for(|state| state.failed.is_some()).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until everything is written. A closed stdout is not an error: `turnbuckle … | head` is ordinary use.
    pub(crate) async fn finish(self) -> Result<(), String> {
        drop(self.pieces);
        let mut state = self.state;
        let state = state.wait_for(|state| state.finished).await.map(|state| state.clone()).unwrap_or_default();
        match state.failed {
            Some((kind, why)) if kind != io::ErrorKind::BrokenPipe => Err(why),
            _ => Ok(()),
        }
    }
}

fn write_all(queue: &Receiver<Piece>, tell: &watch::Sender<State>) {
    // Locked for each piece: a panic elsewhere must find stderr free.
    while let Ok(piece) = queue.recv() {
        let done = match piece {
            // There is no place to report that stderr is broken, and the turn does not depend on it.
            Piece::Err(text) => {
                let _ = io::stderr().lock().write_all(text.as_bytes());
                Ok(())
            }
            Piece::Out(_) if tell.borrow().failed.is_some() => Ok(()),
            Piece::Out(text) => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
        };
        if let Err(error) = done {
            tell.send_modify(|state| state.failed = Some((error.kind(), error.to_string())));
        }
    }
    tell.send_modify(|state| state.finished = true);
}

/// Problems, to stderr, where no writing thread runs.
pub(crate) fn report(problems: &[Problem]) {
    let mut err = io::stderr().lock();
    for problem in problems {
        let _ = writeln!(err, "{problem}");
    }
}

/// How many problems are shown with their lines: of a flood of them the places are enough.
const MOST_EXCERPTS: usize = 6;

/// Problems with the lines that they are about, to stderr, where no writing thread runs.
pub(crate) fn report_with_excerpts(problems: &[Problem]) {
    let (first, rest) = problems.split_at(problems.len().min(MOST_EXCERPTS));
    {
        let mut err = io::stderr().lock();
        for problem in first {
            let _ = writeln!(err, "{}", problem.with_excerpt());
        }
    }
    report(rest);
}

/// One line, to stderr, where no writing thread runs.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
