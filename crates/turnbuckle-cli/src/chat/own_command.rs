//! `!command`: a command that the person runs, in the project's folder. The next message has its output.

use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};

/// How much of its output is kept for the model.
const KEPT: usize = 16 * 1024;
/// How many lines may wait to be shown; a command that prints faster waits.
const WAITING: usize = 256;
/// The longest line.
const LONGEST: usize = 4 * 1024;

/// A command that runs.
pub(super) struct OwnCommand {
    pub(super) command: String,
    /// Its output, line by line; closed when it is over.
    pub(super) lines: mpsc::Receiver<String>,
    /// What the model is to be told.
    output: String,
    left_out: usize,
    /// Dropped to end it.
    _stop: oneshot::Sender<()>,
}

impl OwnCommand {
    /// Starts it. It has no terminal and no input, and is killed as a group.
    pub(super) fn start(command: &str, folder: PathBuf) -> std::io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (tell, lines) = mpsc::channel(WAITING);
        let (stop, mut stopped) = oneshot::channel::<()>();
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let mut stdout = child.stdout.take();
        tokio::spawn(async move {
            let (mut room, mut line) = ([0_u8; 4096], Vec::new());
            let mut gone = false;
            while let Some(out) = stdout.as_mut() {
                let read = tokio::select! {
                    biased;
                    _ = &mut stopped => {
                        gone = true;
                        break;
                    }
                    read = out.read(&mut room) => read,
                };
                let Ok(length @ 1..) = read else { break };
                for byte in &room[..length] {
                    match byte {
                        b'\n' => {
                            let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                            if tell.send(text).await.is_err() {
                                gone = true;
                                break;
                            }
                        }
                        _ if line.len() < LONGEST => line.push(*byte),
                        _ => {}
                    }
                }
                if gone {
                    break;
                }
            }
            if let (true, Some(group)) = (gone, group) {
                // It may have ended meanwhile.
                let _ = kill_process_group(group, Signal::KILL);
            }
            if !line.is_empty() {
                drop(tell.send(String::from_utf8_lossy(&line).into_owned()).await);
            }
            match child.wait().await {
                Ok(status) if status.success() => {}
                Ok(status) => drop(tell.send(format!("[{status}]")).await),
                Err(error) => drop(tell.send(format!("[{error}]")).await),
            }
        });
        let (command, output) = (command.to_owned(), String::new());
        Ok(Self { command, lines, output, left_out: 0, _stop: stop })
    }

    /// Keeps a line for the model.
    pub(super) fn keep(&mut self, line: &str) {
        match self.output.len() + line.len() < KEPT {
            true => {
                self.output.push_str(line);
                self.output.push('\n');
            }
            false => self.left_out += 1,
        }
    }

    /// What the next message begins with.
    pub(super) fn told(self) -> String {
        let more = if self.left_out > 0 { format!("[{} more lines]\n", self.left_out) } else { String::new() };
        // A longer fence than any in the output, so that the output cannot end it.
        let longest = self.output.lines().map(|line| line.chars().take_while(|ch| *ch == '`').count()).max();
        let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
        format!("I ran `{}`:\n{fence}\n{}{more}{fence}\n\n", self.command, self.output)
    }
}
