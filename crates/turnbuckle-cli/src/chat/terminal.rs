//! The terminal that a person types into: keys come one by one, and it is given back as it was.

use std::io::{self, Read as _};
use std::thread;

use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc::{Receiver, channel};

/// How many reads may wait for the program; a person who types faster waits.
const READS: usize = 64;

/// Given back when it is dropped.
pub(super) struct Terminal {
    before: Termios,
    /// Bytes as they are typed.
    pub(super) bytes: Receiver<Vec<u8>>,
}

/// Pasted text is marked as such, and the terminal says when it gets and loses the focus.
pub(super) const BEGIN_REPORTS: &str = "\x1b[?2004h\x1b[?1004h";
/// And no longer.
pub(super) const END_REPORTS: &str = "\x1b[?1004l\x1b[?2004l";

impl Terminal {
    /// Keys are no longer echoed, and not held back until a line is complete. Ctrl-C stays a signal.
    pub(super) fn take() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        // Ctrl-S and Ctrl-Q are keys, and do not stop the output.
        modes.input_modes.remove(InputModes::IXON);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        // A stopped program would leave the shell a terminal that does not echo.
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &modes)?;
        let terminal = |bytes| Self { before, bytes };
        let (send, bytes) = channel(READS);
        let terminal = terminal(bytes);
        // The thread ends with the program, because a blocking read cannot be interrupted.
        thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let mut room = [0; 1024];
            while let Ok(length @ 1..) = io::stdin().lock().read(&mut room) {
                if send.blocking_send(room[..length].to_vec()).is_err() {
                    return;
                }
            }
        })?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
