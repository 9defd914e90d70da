//! One run of a command. Dropping the future kills it with its children.

use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use turnbuckle::Turn;
use turnbuckle::message::ToolCall;
use turnbuckle::tool::Output;

use super::output::CommandOutput;
use super::{ShellOptions, launcher};
use crate::command::process::{GRACE, Group};
use crate::watcher::{self, WatchError};

/// How often viewers are told the last line.
const PROGRESS: Duration = Duration::from_millis(200);

/// Why a command could not be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShellError {
    #[error("the command could not be started: {0}")]
    Start(#[source] io::Error),
    #[error("the command was not started: {0}")]
    Unwatched(#[from] WatchError),
    #[error("waiting for the command: {0}")]
    Wait(#[source] io::Error),
}

/// How it ended.
enum Ended {
    ByItself(ExitStatus),
    TimeIsUp,
}

pub(super) async fn run(
    options: &ShellOptions,
    turn: &Turn,
    call: &ToolCall,
    line: &str,
    limit: Duration,
) -> Result<Output, ShellError> {
    let ticket = watcher::begin().await?;
    let mut command = launcher::command(line).map_err(ShellError::Start)?;
    command.current_dir(&options.folder).env_clear().envs(options.environment()).kill_on_drop(true);
    if let Some(ticket) = &ticket {
        command.env(watcher::VARIABLE, ticket.token());
    }
    // One pipe for both outputs, so that they come in the order in which they were written.
    let (reader, writer) = io::pipe().map_err(ShellError::Start)?;
    let second = writer.try_clone().map_err(ShellError::Start)?;
    command.stdin(Stdio::null()).stdout(writer).stderr(second);
    let mut child = command.spawn().map_err(ShellError::Start)?;
    // It holds the writing ends of the pipe, whose end would never come.
    drop(command);
    // Dropped before `child`: until the child is reaped, no other group can have its number.
    let mut group = Group::of(&child, ticket)?;
    let mut reader = Receiver::from_owned_fd(reader.into()).map_err(ShellError::Start)?;

    let mut output = CommandOutput::new(options.outputs.clone().map(|outputs| {
        let (conversation, call) = (turn.conversation().to_string(), call.call.to_string());
        Box::new(move || outputs.create(&conversation, &call)) as Box<_>
    }));
    let (mut buffer, mut is_open, mut is_told) = (vec![0; 16 * 1024], true, true);
    let (mut time_is_up, mut progress) = (turn.clock().sleep(limit), turn.clock().sleep(PROGRESS));
    // At random among those that are ready: a command that writes without end must not keep its time from being up.
    let ended = loop {
        tokio::select! {
            read = reader.read(&mut buffer), if is_open => match read {
                Ok(count @ 1..) => {
                    output.add(&buffer[..count]).await;
                    is_told = false;
                }
                // A pipe that breaks has ended.
                _ => is_open = false,
            },
            status = child.wait() => break Ended::ByItself(status.map_err(ShellError::Wait)?),
            () = &mut time_is_up => break Ended::TimeIsUp,
            () = &mut progress, if !is_told => {
                if let Some(line) = output.last_line() {
                    turn.report_progress(line);
                }
                is_told = true;
                progress = turn.clock().sleep(PROGRESS);
            }
        }
    };
    match ended {
        Ended::ByItself(_) => group.ended(),
        Ended::TimeIsUp => {
            drop(group);
            // The group is there once the launcher has begun its session; it may not have come so far.
            child.kill().await.map_err(ShellError::Wait)?;
        }
    }
    // What the command wrote is in the pipe by now; what others go on writing is not waited for.
    let rest = async {
        while let (true, Ok(count @ 1..)) = (is_open, reader.read(&mut buffer).await) {
            output.add(&buffer[..count]).await;
        }
    };
    let mut grace = pin!(tokio::time::sleep(GRACE));
    tokio::select! {
        () = rest => {}
        () = &mut grace => {}
    }
    Ok(result(output.text(), &ended, limit))
}

/// What the model reads: the output, and how the command ended if not well.
fn result(mut text: String, ended: &Ended, limit: Duration) -> Output {
    let how = match ended {
        Ended::ByItself(status) if status.success() => {
            return Output::ok(if text.is_empty() { "[no output]".to_owned() } else { text });
        }
        Ended::ByItself(status) => format!("[{status}]"),
        Ended::TimeIsUp => format!("[killed: it took longer than {} s]", limit.as_secs()),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Output::error(text + &how)
}
