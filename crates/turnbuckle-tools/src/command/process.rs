//! One run of a program. Its pipes are served while it runs, and dropping the future kills it with its children.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::env::ProgramEnv;
use super::{CommandError, CommandLine};
use crate::watcher::{self, Ticket, WatchError};

/// Kept of stdout beside what an answer may repeat of the input: an answer is never longer.
const MOST_STDOUT: usize = 1024 * 1024;
/// How often an answer may repeat its input. The input is partly the model's: no denial shall be lost because the model wrote much.
const REPEATED: usize = 2;
/// Kept of stdout whatever the input is.
const MOST_KEPT: usize = 64 * 1024 * 1024;
/// Kept of stderr: a reason that the model reads.
const MOST_STDERR: usize = 64 * 1024;
/// How long to go on reading when the program has ended and another process still holds its output. What the program itself
/// wrote is in the pipe by then.
pub(crate) const GRACE: Duration = Duration::from_millis(100);
/// What a program that took too long has to clean up in, between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// What a run left.
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
}

/// The beginning of what was written.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// How much was written beyond it.
    pub(crate) beyond: usize,
}

/// A program that has been started, in a process group of its own. Dropping it kills the group.
pub(crate) struct Started {
    /// Before `child`, so that it is dropped first: until the child is reaped, no other group can have its number.
    pub(crate) group: Group,
    pub(crate) child: Child,
}

/// Starts a program that ends with this process, after the check whether it may run. All three pipes are ours.
pub(crate) async fn start(line: &CommandLine, cwd: &Path, env: &ProgramEnv) -> Result<Started, CommandError> {
    start_reading(line, cwd, env, Stdio::piped()).await
}

/// Like [`start`], with this stdin.
async fn start_reading(
    line: &CommandLine,
    cwd: &Path,
    env: &ProgramEnv,
    stdin: Stdio,
) -> Result<Started, CommandError> {
    let not_allowed = |source| CommandError::NotAllowed { command: line.to_string(), source };
    let mut command = line.command(cwd)?;
    let keeps_away = env.is_without_terminal() && has_terminal();
    match keeps_away.then(|| session_program(&command)).flatten() {
        Some(program) => command = in_session(program, &command),
        None => {
            command.process_group(0);
        }
    }
    command.current_dir(cwd).kill_on_drop(true);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    env.apply(&mut command);
    let unwatched = |source| CommandError::Unwatched { command: line.to_string(), source };
    let ticket = watcher::begin().await.map_err(unwatched)?;
    if let Some(ticket) = &ticket {
        command.env(watcher::VARIABLE, ticket.token());
    }
    // Right before the start: to begin watching may take a while, and files may change meanwhile.
    env.check().await.map_err(not_allowed)?;
    let child = command.spawn().map_err(|source| match cwd.is_dir() {
        true => CommandError::Start { command: line.to_string(), source },
        false => CommandError::Folder { command: line.to_string(), cwd: cwd.to_owned() },
    })?;
    let group = Group::of(&child, ticket).map_err(unwatched)?;
    Ok(Started { group, child })
}

/// Whether this process, and so what it starts, can reach a terminal.
fn has_terminal() -> bool {
    OpenOptions::new().read(true).custom_flags(OFlags::NOCTTY.bits().cast_signed()).open("/dev/tty").is_ok()
}

/// The program that begins a session and then becomes the command, where the machine has one. None for a command that would not be
/// found: then the failure shall be that of its start.
fn session_program(command: &Command) -> Option<&'static Path> {
    static SETSID: LazyLock<Option<PathBuf>> = LazyLock::new(|| in_path(OsStr::new("setsid")));
    let program = command.as_std().get_program();
    let is_found = match program.as_bytes().contains(&b'/') {
        true => Path::new(program).is_file(),
        false => in_path(program).is_some(),
    };
    SETSID.as_deref().filter(|_| is_found)
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The command behind `setsid`. That program does not fork here, because the child does not lead a group yet: so session and group
/// have the child's number, as a group alone would.
fn in_session(setsid: &Path, command: &Command) -> Command {
    let mut wrapped = Command::new(setsid);
    wrapped.arg(command.as_std().get_program()).args(command.as_std().get_args());
    wrapped
}

/// Dropping the future kills the process group.
pub(crate) async fn run(line: &CommandLine, cwd: &Path, env: &ProgramEnv, input: &[u8]) -> Result<Ran, CommandError> {
    run_within(line, cwd, env, input, None).await
}

/// Like [`run`]. When `limit` is over the group gets SIGTERM, and after [`TERM_GRACE`] SIGKILL.
pub(crate) async fn run_within(
    line: &CommandLine,
    cwd: &Path,
    env: &ProgramEnv,
    input: &[u8],
    limit: Option<Duration>,
) -> Result<Ran, CommandError> {
    let unfed = |source| CommandError::Start { command: line.to_string(), source };
    let (stdin, rest) = fed(input).map_err(unfed)?;
    let mut started = start_reading(line, cwd, env, stdin).await?;
    let Started { group, child } = &mut started;
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let most = input.len().saturating_mul(REPEATED).saturating_add(MOST_STDOUT).min(MOST_KEPT);
    let status = {
        let pipes =
            async { tokio::join!(feed(rest), drain(out, &mut stdout, most), drain(err, &mut stderr, MOST_STDERR)) };
        let mut pipes = std::pin::pin!(pipes);
        let over = async {
            tokio::select! {
                biased;
                _ = &mut pipes => (child.wait().await, true),
                status = child.wait() => (status, false),
            }
        };
        let ended = match limit {
            None => Some(over.await),
            Some(limit) => tokio::time::timeout(limit, over).await.ok(),
        };
        let Some((status, drained)) = ended else {
            group.terminate();
            // It may clean up meanwhile. Whether it did or not, dropping the group kills what is left of it.
            let _ = tokio::time::timeout(TERM_GRACE, child.wait()).await;
            return Err(CommandError::TimedOut { command: line.to_string(), limit: limit.unwrap_or_default() });
        };
        group.ended();
        if !drained {
            // Whether it is over or not, what was read is kept.
            let _ = tokio::time::timeout(GRACE, pipes).await;
        }
        status.map_err(|source| CommandError::Wait { command: line.to_string(), source })?
    };
    Ok(Ran { status, stdout, stderr })
}

/// What did not find room in the pipe, and where it is written.
type Rest<'a> = Option<(io::PipeWriter, &'a [u8])>;

/// A pipe to read the input from. What finds room in it, which is nearly always all, is written before the program is started: then
/// the runtime need not watch the pipe, which wakes a thread beside the program that begins.
fn fed(input: &[u8]) -> io::Result<(Stdio, Rest<'_>)> {
    let (reader, mut writer) = io::pipe()?;
    fcntl_setfl(&writer, OFlags::NONBLOCK)?;
    let mut rest = input;
    while !rest.is_empty() {
        match writer.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((reader.into(), (!rest.is_empty()).then_some((writer, rest))))
}

/// A program need not read its stdin, and may close it in the middle: no failure.
async fn feed(rest: Rest<'_>) {
    if let Some((writer, rest)) = rest
        && let Ok(mut pipe) = pipe::Sender::from_owned_fd(writer.into())
    {
        let _ = pipe.write_all(rest).await;
    }
}

/// Reads to the end, so that the program is never held up; keeps the beginning. A pipe that breaks has ended.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Kept, most: usize) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let room = count.min(most - kept.bytes.len());
        kept.bytes.extend_from_slice(&buffer[..room]);
        kept.beyond += count - room;
    }
}

/// The groups of all programs that run now. Written by [`Group`], read by [`kill_all_groups`].
static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn live() -> MutexGuard<'static, BTreeSet<i32>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every command hook and shell command of this process that runs now, with its children.
///
/// For a process that is about to exit: then no future is dropped, and what hooks started would live on. Their runs
/// fail. A program that starts later is not touched. [`watch_programs`](crate::watch_programs) ends them also in a process
/// that is killed.
pub fn kill_all_groups() {
    for group in live().iter().filter_map(|group| Pid::from_raw(*group)) {
        // It may have ended in this moment.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The process group of a child that has not been reaped.
pub(crate) struct Group {
    id: Option<Pid>,
    ticket: Option<Ticket>,
}

impl Group {
    /// An error drops the group, which kills it: no program runs that nothing would end.
    pub(crate) fn of(child: &Child, ticket: Option<Ticket>) -> Result<Self, WatchError> {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        live().extend(id.map(|id| id.as_raw_nonzero().get()));
        let group = Self { id, ticket };
        if let (Some(ticket), Some(leader)) = (&group.ticket, child.id()) {
            ticket.started(leader)?;
        }
        Ok(group)
    }

    /// Asks every process of the group to end.
    fn terminate(&self) {
        if let Some(group) = self.id {
            // It may have ended in this moment.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// Kills every process of the group.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.id {
            // It may have ended in this moment.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Its leader is reaped: the number may soon be another's.
    pub(crate) fn ended(&mut self) {
        if let Some(id) = self.id.take() {
            live().remove(&id.as_raw_nonzero().get());
        }
        self.ticket = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        self.ended();
    }
}
