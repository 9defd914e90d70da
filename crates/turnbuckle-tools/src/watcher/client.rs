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
use super::{BY_PIPE, ENABLED, NAME, WatchError, record};

/// How long the watcher may take to answer.
const START: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// This process, as its watcher's file names it.
static ME: LazyLock<Option<Identity>> = LazyLock::new(Identity::this);

/// Held only for a write to the pipe, or while a watcher is started.
static WATCHER: Mutex<Watcher> =
    Mutex::new(Watcher { running: None, notes: None, is_told: false, programs: BTreeMap::new(), count: 0 });

struct Watcher {
    running: Option<(Child, ChildStdin)>,
    /// What runs, in a file: the watcher reads it when this process has ended, and the next process does, should both be killed. So
    /// the watcher need not wake up for each program. `None` until a watcher has made the file, and where there can be none.
    notes: Option<record::Notes>,
    /// Whether the watcher is told through the pipe instead, because there is no file. It stays so for this watcher.
    is_told: bool,
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
    // Nearly always there is nothing to wait for, and a hop to another thread would take longer than the few calls that this needs.
    if !is_one_dead()
        && let Some(token) = watcher().begin_at_once()
    {
        return Ok(Some(Ticket(token)));
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

/// Waits for programs of processes that have died, as [`begin`] does.
pub(crate) async fn wait_for_the_dead() -> Result<(), WatchError> {
    if !ENABLED.load(Ordering::Acquire) || !is_one_dead() {
        return Ok(());
    }
    let waited = tokio::task::spawn_blocking(|| ME.as_ref().map_or(Ok(()), record::wait_for_the_dead));
    waited.await.map_err(|error| WatchError::Start(io::Error::other(error)))?
}

fn is_one_dead() -> bool {
    ME.as_ref().is_some_and(record::is_one_dead)
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
        watcher.pass_on(&format!("group {} {leader}\n", self.0))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut watcher = watcher();
        watcher.programs.remove(&self.0);
        // A watcher that is gone does not know of it, and the next one is not told of it. One that stands still would look at the
        // start of the process before it kills.
        let _ = watcher.pass_on(&format!("over {}\n", self.0));
    }
}

impl Watcher {
    fn begin(&mut self) -> Result<String, WatchError> {
        if !self.is_watching() {
            self.replace()?;
        }
        self.begin_watched()
    }

    fn begin_watched(&mut self) -> Result<String, WatchError> {
        let token = new_token(&mut self.count);
        self.programs.insert(token.clone(), None);
        // Passed on before the program is started, which is when the caller has the token.
        match self.pass_on(&format!("start {token}\n")) {
            Ok(()) => Ok(token),
            Err(error) => {
                self.programs.remove(&token);
                Err(error)
            }
        }
    }

    /// Like [`begin`](Self::begin), if a watcher runs; otherwise nothing is begun.
    fn begin_at_once(&mut self) -> Option<String> {
        if self.is_watching() { self.begin_watched().ok() } else { None }
    }

    fn is_watching(&mut self) -> bool {
        self.running.as_mut().is_some_and(|(child, _)| matches!(child.try_wait(), Ok(None)))
    }

    /// Starts a watcher, in the place of one that was killed. It finds what runs in the file.
    fn replace(&mut self) -> Result<(), WatchError> {
        self.running = None;
        self.running = Some(start().map_err(WatchError::Start)?);
        (self.is_told, self.notes) = (false, ME.as_ref().and_then(record::Notes::open));
        self.pass_on("")
    }

    /// What became of a program: a line of the file, or of the pipe where there is none. Empty: all that is known.
    fn pass_on(&mut self, line: &str) -> Result<(), WatchError> {
        if let Some(notes) = &mut self.notes {
            let written = match line.is_empty() || notes.are_long(self.programs.is_empty()) {
                true => notes.replace(&told(&self.programs)),
                false => notes.add(line),
            };
            match written {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "programs cannot be noted for the next process");
                    self.notes = None;
                }
            }
        }
        let Some((_, pipe)) = &mut self.running else { return Err(WatchError::Tell(io::ErrorKind::BrokenPipe.into())) };
        // Lines are much shorter than what a pipe takes in one piece.
        let written = match self.is_told {
            true => pipe.write_all(line.as_bytes()),
            false => pipe.write_all(format!("{BY_PIPE}\n{}", told(&self.programs)).as_bytes()),
        };
        self.is_told = true;
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !self.is_watching() => self.replace(),
            written => written.map_err(WatchError::Tell),
        }
    }
}

fn new_token(count: &mut u64) -> String {
    *count += 1;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{now:x}-{count}", std::process::id())
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
