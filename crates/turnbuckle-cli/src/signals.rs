//! SIGINT, SIGTERM and SIGHUP: the first asks for the turn to be cancelled, the second ends the program at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Ctrl-C: whatever is under way should stop.
    Stop,
    /// The terminal is gone, or somebody ends the program.
    Leave,
}

/// All three, from the moment this is made.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None under `nohup`.
    hang_up: Option<Signal>,
    heard: bool,
}

impl Signals {
    /// Takes them over.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let hang_up = if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hang_up, heard: false })
    }

    /// Ready at the next signal.
    pub(crate) async fn next(&mut self) -> Heard {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Heard::Stop,
            _ = self.terminate.recv() => Heard::Leave,
            _ = hang_up => Heard::Leave,
        }
    }

    /// Ready at the first signal, again at no other: the second never comes back.
    pub(crate) async fn first(&mut self) {
        self.next().await;
        if self.heard {
            // Whoever asks twice does not want to wait for the books. Hooks' programs do not outlive them.
            turnbuckle_tools::kill_all_groups();
            std::process::exit(Exit::Cancelled as i32);
        }
        self.heard = true;
    }
}

/// Whether the program was started to go on without its terminal. Taking the signal over would undo that. Where there is
/// no `/proc` nobody can say, and the signal is heard.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1: the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
