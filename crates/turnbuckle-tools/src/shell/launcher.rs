//! The process between this one and a command: it leaves the session of the terminal, confines itself and becomes the command.
//!
//! A program may begin a session only if it leads no process group, and nothing can run between fork and exec without unsafe
//! code. So the executable is started again under another name, begins the session, and executes the shell in its place. It reads
//! the command from its stdin, a socket, when it is ready. Before there is a command it becomes a shell that reads the command from there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{getppid, setsid};
use tokio::process;

use super::sandbox::{Confinement, confine, enter_bubblewrap, probe_namespaces};
use super::script::SHELL;
use crate::watcher;

/// What the launching process is called, until it has become the command.
pub(crate) const NAME: &str = "turnbuckle-shell";

/// The first argument by which the executable knows that `bwrap` started it: that program cannot give another name.
pub(crate) const INSIDE_BUBBLEWRAP: &str = "turnbuckle-shell-inside-bwrap";

/// The only argument if nothing is to be launched, and only tried whether a process can have mounts of its own.
const PROBE: &str = "probe";

/// The exit code of a probe: mounts can be made, and some that exist cannot be made read-only.
pub(super) const NOT_READ_ONLY: u8 = 3;

/// As shells have it: the command was found and could not be started.
const NOT_STARTED: u8 = 126;

/// The most that a command and its environment may be; the system takes less.
const MOST_READ: u32 = 16 << 20;

/// What follows a [`message`] when the command may begin.
pub(super) const BEGIN: u8 = 1;

/// What follows a [`message`] without a line: the launcher becomes a shell that reads a script from the same socket.
pub(super) const WAIT: u8 = 2;

/// The command that starts a launcher. It confines itself by these orders, and then waits for a [`message`] and one of the words on its stdin.
pub(super) fn command(orders: Option<&Confinement>) -> io::Result<process::Command> {
    let mut command = process::Command::new(watcher::executable()?);
    command.arg0(NAME).arg(std::process::id().to_string());
    if let Some(orders) = orders {
        command.arg(serde_json::to_string(orders)?);
    }
    Ok(command)
}

/// What a launcher is told: a line for the shell, and its environment. Its length comes first; each part ends with a zero byte.
pub(super) fn message(line: &str, environment: impl IntoIterator<Item = (OsString, OsString)>) -> io::Result<Vec<u8>> {
    if line.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command contains a zero byte"));
    }
    let mut message = vec![0; 4];
    message.extend_from_slice(line.as_bytes());
    message.push(0);
    for (name, value) in environment {
        message.extend_from_slice(name.as_bytes());
        message.push(b'=');
        message.extend_from_slice(value.as_bytes());
        message.push(0);
    }
    let length = u32::try_from(message.len() - 4).ok().filter(|length| *length <= MOST_READ);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::ArgumentListTooLong))?;
    message[..4].copy_from_slice(&length.to_le_bytes());
    Ok(message)
}

/// The command that ends well if a process can have mounts of its own, and with [`NOT_READ_ONLY`] if not all of them can be read-only.
pub(super) fn probe() -> io::Result<Command> {
    let mut command = Command::new(watcher::executable()?);
    command.arg0(NAME).arg(PROBE);
    Ok(command)
}

/// The launching process. It returns only if there was no command, or it could not be started.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(parent) = arguments.next() else { return ExitCode::from(NOT_STARTED) };
    if parent == PROBE {
        return match probe_namespaces() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(NOT_READ_ONLY),
            Err(_) => ExitCode::FAILURE,
        };
    }
    let begun = close_inherited().and_then(|()| begin_session(&parent.to_string_lossy()));
    tell(begun.and_then(|()| confine_and_wait(arguments.next())))
}

/// The launching process a second time, with the mounts that `bwrap` made.
pub(crate) fn run_inside_bubblewrap(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(orders) = arguments.next() else { return ExitCode::from(NOT_STARTED) };
    tell(read(&orders).and_then(|orders| confine(&orders.without_mounts())).and_then(|()| become_command()))
}

/// This is the command's own output, which the model reads. Where it cannot be written, the exit code says it.
fn tell(outcome: io::Result<()>) -> ExitCode {
    if let Err(error) = outcome {
        let _ = writeln!(io::stderr(), "turnbuckle: the command could not be started: {error}");
    }
    ExitCode::from(NOT_STARTED)
}

/// Closes all files that whoever started Turnbuckle left open, except stdin, stdout and stderr: a command could write to them, wherever they are. This
/// process has opened none itself yet.
fn close_inherited() -> io::Result<()> {
    let listed = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("listing open files in {listed}: {error}"));
    let entries = fs::read_dir(listed).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(failed)?;
    let numbers = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let numbers: Vec<RawFd> = numbers.filter(|number| *number > 2).collect();
    // This closes the listing itself, whose number is among them.
    drop(entries);
    for number in numbers {
        match nix::unistd::close(number) {
            Err(nix::errno::Errno::EBADF) => {}
            closed => closed?,
        }
    }
    Ok(())
}

fn begin_session(parent: &str) -> io::Result<()> {
    setsid()?;
    // If the parent died before the session began, there was no group yet that could be killed with it.
    if getppid().map(|pid| pid.as_raw_nonzero().to_string()).as_deref() != Some(parent) {
        return Err(io::Error::other("the process that started it has ended"));
    }
    Ok(())
}

fn confine_and_wait(orders: Option<OsString>) -> io::Result<()> {
    let Some(text) = orders else { return become_command() };
    let orders = read(&text)?;
    if let Some((program, words)) = enter_bubblewrap(&orders) {
        let this = std::env::current_exe()?;
        return Err(Command::new(program).args(words).arg(this).arg(INSIDE_BUBBLEWRAP).arg(text).exec());
    }
    confine(&orders).map_err(|error| io::Error::new(error.kind(), format!("its sandbox: {error}")))?;
    if orders.has_mounts() {
        keep_namespace()?;
    }
    become_command()
}

fn read(orders: &OsString) -> io::Result<Confinement> {
    Ok(serde_json::from_slice(orders.as_encoded_bytes())?)
}

/// Sends the mount namespace to the parent. Otherwise it would end with the command, before the parent is told that the command has
/// ended, and to take the mounts away needs longer than many a command. The parent lets go of it later; it need not even receive it.
fn keep_namespace() -> io::Result<()> {
    // Without `/proc` the namespace ends with the command.
    let Ok(namespace) = File::open("/proc/self/ns/mnt") else { return Ok(()) };
    let (mut space, sent) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [namespace.as_fd()]);
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&sent)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(rustix::stdio::stdin(), &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for the command and for the word to begin, and executes it, or for the word to become a shell that waits. If the parent ends or has none, or lets go
/// of this process before it gave a word, this returns.
fn become_command() -> io::Result<()> {
    // Without the buffer of the standard library, which would read on: what follows may be for the shell.
    let mut told = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some(length) = read_or_end::<4>(&mut told)? else { return Ok(()) };
    let length = u32::from_le_bytes(length);
    if length > MOST_READ {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = Vec::new();
    (&mut told).take(length.into()).read_to_end(&mut message)?;
    let mut parts = message.split(|byte| *byte == 0);
    let line = OsString::from_vec(parts.next().unwrap_or_default().to_vec());
    let variables = parts.filter_map(|part| {
        let at = part.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&part[..at]), OsStr::from_bytes(&part[at + 1..])))
    });
    let mut command = Command::new(SHELL);
    command.env_clear().envs(variables);
    let nothing = File::open("/dev/null")?;
    match read_or_end(&mut told)? {
        Some([BEGIN]) => {
            command.arg("-c").arg(line);
            // Otherwise the command could write to the socket.
            rustix::stdio::dup2_stdin(nothing)?;
        }
        // The script begins with the same for the commands in it.
        Some([WAIT]) => {}
        Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        None => return Ok(()),
    }
    Err(command.exec())
}

/// The next bytes, or nothing if there are fewer.
fn read_or_end<const N: usize>(told: &mut File) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    match told.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(bytes)),
    }
}
