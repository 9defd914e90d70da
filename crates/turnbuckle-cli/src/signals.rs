//! SIGINT and SIGTERM: the first asks for the turn to be cancelled, the second ends the program at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Both signals, from the moment this is made.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    heard: bool,
}

impl Signals {
    /// Takes them over.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, heard: false })
    }

    /// Ready at the first signal, again at no other: the second never comes back.
    pub(crate) async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        if self.heard {
            // Whoever asks twice does not want to wait for the books.
            std::process::exit(Exit::Cancelled as i32);
        }
        self.heard = true;
    }
}
