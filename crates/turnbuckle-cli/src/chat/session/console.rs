//! The terminal that a chat has, from one conversation to the next.

use super::super::keys::Keys;
use super::super::terminal::{BEGIN_REPORTS, END_REPORTS, Terminal};
use crate::Stopped;
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::Problem;
use crate::show::clean;
use crate::signals::{Second, Signals};

/// The terminal, which stays the same from one conversation to the next.
pub(in super::super) struct Console {
    /// `None` while a session has it.
    pub(super) output: Option<Output>,
    pub(super) signals: Signals,
    pub(super) terminal: Terminal,
    /// A conversation may end in the middle of a paste, whose rest must not become keys for the next one.
    pub(super) keys: Keys,
}

impl Console {
    pub(in super::super) fn open() -> Result<Self, Stopped> {
        let broken = |error: std::io::Error| Stopped::failed(Problem::error(format!("starting: {error}")));
        let output = Output::start().map_err(broken)?;
        let signals = Signals::listen(Second::IsPassedOn).map_err(broken)?;
        let terminal = Terminal::take().map_err(broken)?;
        output.out(BEGIN_REPORTS);
        Ok(Self { output: Some(output), signals, terminal, keys: Keys::default() })
    }

    /// Says why the chat goes on as it was.
    pub(in super::super) fn report(&self, stopped: &Stopped) {
        if let Some(output) = &self.output {
            for problem in &stopped.problems {
                output.out(format!("{}\n", clean(&problem.to_string())));
            }
        }
    }

    /// Gives the terminal back.
    pub(in super::super) async fn close(mut self, exit: Exit) -> Exit {
        if let Some(output) = self.output.take() {
            output.out(END_REPORTS);
            // A terminal that takes nothing any more has gone.
            let _ = output.finish().await;
        }
        exit
    }
}
