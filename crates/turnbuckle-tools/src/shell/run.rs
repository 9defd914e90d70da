//! One run of a command. Dropping the future kills it with its children.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use turnbuckle::Turn;
use turnbuckle::feed::Level;
use turnbuckle::message::ToolCall;
use turnbuckle::tool::Output;

use super::launched::{Launched, Spare};
use super::output::CommandOutput;
use super::sandbox::{Guarded, GuardedLook, OwnFolders, blame, make_missing};
use super::{Place, SandboxMode, Shell, ShellOptions};
use crate::command::process::GRACE;
use crate::session_env;
use crate::watcher::WatchError;

/// How often viewers are told the last line.
const PROGRESS: Duration = Duration::from_millis(200);

/// Why a command could not be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShellError {
    #[error("the command could not be started: {0}")]
    Start(#[source] io::Error),
    #[error("the command was not started: {0}")]
    Unwatched(#[from] WatchError),
    #[error("a temporary folder for the command could not be made: {0}")]
    Temporary(#[source] io::Error),
    #[error("the command was not started: a folder of Turnbuckle's own is missing, and could not be made: {0}")]
    OwnFolder(#[source] io::Error),
    #[error("waiting for the command: {0}")]
    Wait(#[source] io::Error),
}

/// How it ended.
enum Ended {
    ByItself(ExitStatus),
    TimeIsUp,
}

pub(super) async fn run(
    options: &Arc<ShellOptions>,
    spare: &Spare,
    turn: &Turn,
    call: &ToolCall,
    line: &str,
    place: Place,
    limit: Duration,
) -> Result<Output, ShellError> {
    let with_lines = session_env::with_lines(turn.conversation().as_str(), line);
    let line = with_lines.as_deref().unwrap_or(line);
    // First: while the shell that waits reads it, this process looks at all that it must know before the command may begin.
    let told = spare.tell(options, place, line).await;
    let reach = (place == Place::Sandbox).then(|| options.reach());
    if let (Some(reach), SandboxMode::Require) = (&reach, options.sandbox) {
        let not_enforced = reach.not_enforced();
        if !not_enforced.is_empty() {
            let why = not_enforced.join("; ");
            let text = format!("[not run] `sandbox = \"require\"`, and this cannot be enforced here: {why}");
            return Ok(Output::error(text));
        }
    }
    // Before the command can change anything: what came since the last one was not made by this one.
    let came = match options.sandbox {
        SandboxMode::Off => Vec::new(),
        SandboxMode::On | SandboxMode::Require => options.guarded.appeared(),
    };
    if let Some(reach) = &reach {
        // On a full disk commands run all the same: what one of them makes then is reported when it ends.
        if let Err(error) = make_missing(&options.folder) {
            tracing::warn!(%error, "missing hooks and settings of the repository could not be made, and are not guarded");
        }
        reach.make_missing().map_err(ShellError::OwnFolder)?;
    }
    let boxed = reach.map(|reach| (reach, GuardedLook::now(&options.folder)));
    let guarded = boxed.as_ref().map(|(_, look)| Guarded::note(look));
    let own_folders = boxed.as_ref().map(|_| OwnFolders::note(&options.policy.hidden));
    let mut launched = spare.run(told, options, boxed.as_ref(), line).await?;
    let Launched { group, child, output: reader, .. } = &mut launched;
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
            group.kill();
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
    let mut output = result(output.text(), &ended, limit);
    if guarded.is_some()
        && !output.ok
        && let Some(what) = blame(&output.content.text())
    {
        let hint = format!(
            "[the sandbox may have refused this: {what}. If the command must run outside it, call `shell` again with \
             `outside_sandbox`; a person is asked about that]"
        );
        output = append(output, &hint);
    }
    let after = (options.sandbox != SandboxMode::Off).then(|| GuardedLook::now(&options.folder));
    // In every case: a link, or a file that was not there, can be changed from within.
    let changed = guarded.zip(after.as_ref()).map(|(guarded, after)| guarded.changed(after)).unwrap_or_default();
    if !changed.is_empty() {
        let text = format!("changed while a command ran: {}", changed.join(", "));
        turn.notice(Level::Warning, &Shell::NAME.into(), text.clone());
        output = append(output, &format!("[{text}]"));
    }
    let replaced = own_folders.map(|folders| folders.changed()).unwrap_or_default();
    if !replaced.is_empty() {
        let text = format!(
            "made or replaced while a command ran, look at it before Turnbuckle reads it again: {}",
            replaced.join(", ")
        );
        turn.notice(Level::Warning, &Shell::NAME.into(), text.clone());
        output = append(output, &format!("[{text}]"));
    }
    if !came.is_empty() {
        let text = format!("made since the last command ended: {}", came.join(", "));
        turn.notice(Level::Warning, &Shell::NAME.into(), text.clone());
        output = append(output, &format!("[{text}]"));
    }
    if let Some(after) = &after {
        options.guarded.note(options.guarded.missing(after), &changed);
    }
    // Last: the start of the next launcher must not take time from this call.
    spare.ended(launched, options);
    Ok(output)
}

fn append(output: Output, line: &str) -> Output {
    let text = output.content.text();
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    output.with_content(format!("{text}{gap}{line}"))
}

/// What stands before the exit code of a command that failed.
const EXITED: &str = "[exit status: ";

/// The exit code in the result of a command that failed. Lines of ours may follow it.
pub(crate) fn exit_code_in(text: &str) -> Option<i32> {
    text.lines().rev().find_map(|line| line.strip_prefix(EXITED)?.strip_suffix(']')?.parse().ok())
}

/// What the model reads: the output, and how the command ended if not well.
fn result(mut text: String, ended: &Ended, limit: Duration) -> Output {
    let how = match ended {
        Ended::ByItself(status) if status.success() => {
            return Output::ok(if text.is_empty() { "[no output]".to_owned() } else { text });
        }
        Ended::ByItself(status) => match status.code() {
            Some(code) => format!("{EXITED}{code}]"),
            None => format!("[{status}]"),
        },
        Ended::TimeIsUp => format!("[killed: it took longer than {} s]", limit.as_secs()),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Output::error(text + &how)
}
