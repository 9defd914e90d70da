//! The side of the process whose programs are watched.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use super::identity::Identity;
use super::{ENABLED, NAME, WatchError, record};

/// How long the watcher may take to answer.
const START: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// This process, as its watcher's file names it.
static ME: LazyLock<Option<Identity>> = LazyLock::new(Identity::this);

/// Held only for a write to the pipe, or while a watcher is started.
static WATCHER: Mutex<Watcher> =
    Mutex::new(Watcher { running: None, notes: None, programs: BTreeMap::new(), count: 0 });

struct Watcher {
    running: Option<(Child, ChildStdin)>,
    /// The same in a file, for the next process, should this one and its watcher be killed. `None` until a watcher has made the
    /// file, and where there can be none.
    notes: Option<record::Notes>,
    /// Those that run or are about to, with their process groups: for a new watcher, should this one be killed.
    programs: BTreeMap<String, Option<u32>>,
    count: u64,
}

fn watcher() -> MutexGuard<'static, Watcher> {
    WATCHER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that the watcher knows of, until this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket(String);

/// To be called before a program is started; `None` if nobody asked for programs to be watched.
pub(crate) async fn begin() -> Result<Option<Ticket>, WatchError> {
    if !ENABLED.load(Ordering::Acquire) {
        return Ok(None);
    }
    let begun = tokio::task::spawn_blocking(|| {
        if let Some(me) = &*ME {
            record::wait_for_the_dead(me)?;
        }
        let token = watcher().begin()?;
        Ok(Some(Ticket(token)))
    });
    begun.await.map_err(|error| WatchError::Start(io::Error::other(error)))?
}

impl Ticket {
    /// The value of [`VARIABLE`](super::VARIABLE) in the program's environment.
    pub(crate) fn token(&self) -> &str {
        &self.0
    }

    /// The program runs, as the leader of a group of its own.
    pub(crate) fn started(&self, leader: u32) -> Result<(), WatchError> {
        let mut watcher = watcher();
        watcher.programs.insert(self.0.clone(), Some(leader));
        let line = format!("group {} {leader}\n", self.0);
        watcher.note(&line);
        watcher.tell(&line)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut watcher = watcher();
        watcher.programs.remove(&self.0);
        let over = format!("over {}\n", self.0);
        watcher.note(&over);
        // A watcher that is gone does not know of it, and the next one is not told of it. One that stands still would look at the
        // start of the process before it kills.
        let _ = watcher.running.as_mut().map(|(_, pipe)| pipe.write_all(over.as_bytes()));
    }
}

impl Watcher {
    fn begin(&mut self) -> Result<String, WatchError> {
        self.count += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let token = format!("{}-{now:x}-{}", std::process::id(), self.count);
        self.programs.insert(token.clone(), None);
        let line = format!("start {token}\n");
        match self.tell(&line) {
            // Noted before the program is started, which is when the caller has the token.
            Ok(()) => {
                self.note(&line);
                Ok(token)
            }
            Err(error) => {
                self.programs.remove(&token);
                Err(error)
            }
        }
    }

    /// Keeps the notes short: what is over need not be known. Without the notes the watcher still ends programs, so it is no error
    /// if they cannot be written.
    fn note(&mut self, line: &str) {
        if self.notes.is_none() && self.running.is_some() {
            self.notes = ME.as_ref().and_then(record::Notes::open);
        }
        let Some(notes) = &mut self.notes else { return };
        let written = match self.programs.is_empty() || notes.are_long() {
            true => notes.replace(&told(&self.programs)),
            false => notes.add(line),
        };
        if let Err(error) = written {
            tracing::warn!(error = &error as &dyn std::error::Error, "programs cannot be noted for the next process");
            self.notes = None;
        }
    }

    /// Lines are much shorter than what a pipe takes in one piece. A watcher that was killed is replaced.
    fn tell(&mut self, line: &str) -> Result<(), WatchError> {
        if let Some((_, pipe)) = &mut self.running {
            match pipe.write_all(line.as_bytes()) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(WatchError::Tell(error)),
                Err(_) => self.bury(),
            }
        }
        let (child, mut pipe) = start().map_err(WatchError::Start)?;
        let told = pipe.write_all(told(&self.programs).as_bytes());
        self.running = Some((child, pipe));
        told.map_err(WatchError::Tell)
    }

    fn bury(&mut self) {
        if let Some((mut child, pipe)) = self.running.take() {
            drop(pipe);
            // It closed its end of the pipe, so it has ended or is about to.
            let _ = child.wait();
        }
    }
}

/// All programs, in the lines that a watcher reads.
fn told(programs: &BTreeMap<String, Option<u32>>) -> String {
    let line = |(token, leader): (&String, &Option<u32>)| match leader {
        None => format!("start {token}\n"),
        Some(leader) => format!("group {token} {leader}\n"),
    };
    programs.iter().map(line).collect()
}

/// Starts a watcher and waits until it watches.
fn start() -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new(executable()?);
    command.arg0(NAME).args(ME.as_ref().and_then(record::file_of));
    // It needs nothing of the environment, keys least of all, and keeps no folder busy.
    command.env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let started = (|| {
        let (Some(pipe), Some(mut answer)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // A watcher that stands still must not hold this process up.
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        if poll(&mut [PollFd::new(&answer, PollFlags::IN)], Some(&START))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        answer.read_exact(&mut [0])?;
        Ok(pipe)
    })();
    match started {
        Ok(pipe) => Ok((child, pipe)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

/// This executable, also if its file was replaced or removed in the meantime.
pub(crate) fn executable() -> io::Result<PathBuf> {
    let this = PathBuf::from("/proc/self/exe");
    if this.exists() { Ok(this) } else { std::env::current_exe() }
}
