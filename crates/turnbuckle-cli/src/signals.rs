//! SIGINT, SIGTERM and SIGHUP: the first asks for the turn to be cancelled, the second ends the program at once.
//!
//! A thread of its own listens, with a runtime of its own. Whatever keeps the other threads busy (drawing a long reply, a
//! hook that computes, a store that waits for a disk), the second signal is obeyed.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::exit::Exit;

/// How many signals may wait to be handled; more of them mean nothing new.
const WAITING: usize = 4;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Ctrl-C: what is under way should stop.
    Stop,
    /// SIGTERM, or the terminal is gone: the program should end.
    Leave,
}

/// What the second signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// It ends the program, at once and from the listening thread.
    Ends,
    /// It is passed on like the first: a chat decides by what was typed in between, and gives its terminal back.
    IsPassedOn,
}

/// All three, from the moment this is made.
pub(crate) struct Signals {
    heard: Receiver<Heard>,
    /// Whether one came before. The listening thread sets it.
    came: Arc<AtomicBool>,
}

impl Signals {
    /// Takes the signals over; none that comes after this is lost.
    pub(crate) fn listen(second: Second) -> io::Result<Self> {
        let (tell, heard) = channel(WAITING);
        let (started, ready) = mpsc::sync_channel(1);
        let came = Arc::new(AtomicBool::new(false));
        let noted = came.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async move {
                match Sources::take() {
                    // The receiver waits for one of the two messages, so neither is lost.
                    Err(error) => drop(started.send(Err(error))),
                    Ok(sources) => {
                        drop(started.send(Ok(())));
                        listen(sources, tell, second, &noted).await;
                    }
                }
            });
        })?;
        ready.recv().map_err(|_| io::Error::other("the thread that listens for signals ended"))??;
        Ok(Self { heard, came })
    }

    /// Ready at the next signal.
    pub(crate) async fn next(&mut self) -> Heard {
        match self.heard.recv().await {
            Some(heard) => heard,
            None => std::future::pending().await,
        }
    }

    /// What the last signal asked for is done: the next one is a first one again.
    pub(crate) fn begin_anew(&self) {
        self.came.store(false, Ordering::Release);
    }

    /// Ready at the next signal, for those who do the same about all of them.
    pub(crate) async fn first(&mut self) {
        self.next().await;
    }
}

/// Passes signals on until the receiver is dropped.
async fn listen(mut sources: Sources, tell: Sender<Heard>, second: Second, came: &AtomicBool) {
    loop {
        let heard = sources.next().await;
        if tell.is_closed() {
            return;
        }
        if came.swap(true, Ordering::AcqRel) && second == Second::Ends {
            // The person does not want to wait until the turn is closed in the log. Programs of hooks are not left behind.
            turnbuckle_tools::kill_all_groups();
            std::process::exit(Exit::Cancelled as i32);
        }
        match tell.try_send(heard) {
            // As many as fit are waiting already.
            Ok(()) | Err(tokio::sync::mpsc::error::TrySendError::Full(_)) => {}
            Err(tokio::sync::mpsc::error::TrySendError::Closed(_)) => return,
        }
    }
}

struct Sources {
    interrupt: Signal,
    terminate: Signal,
    /// None under `nohup`.
    hang_up: Option<Signal>,
}

impl Sources {
    fn take() -> io::Result<Self> {
        let hang_up = if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hang_up })
    }

    async fn next(&mut self) -> Heard {
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
}

/// A file that would grow beyond the limit of `ulimit -f` fails with an error instead of ending the program. The signal is
/// caught and not ignored, so programs of hooks start with its default. Needs a runtime, whose handler stays for good.
pub(crate) fn catch_file_limit() -> io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// Whether the program was started to go on without its terminal. Listening would undo that. Where there is no `/proc`,
/// this cannot be found out, and SIGHUP is listened to.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1: the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
