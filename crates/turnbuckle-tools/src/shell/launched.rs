//! A launcher that was started and becomes the command when it is told to. One is kept waiting for the next call, as a shell: to start it, to
//! confine it and to start the shell takes several times as long as a short command.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{self, Child};
use tokio::runtime::{self, Handle};

use super::run::ShellError;
use super::sandbox::{Confinement, GuardedLook, PrivateTmp, Reach, Seen};
use super::{Place, ShellOptions, launcher, script};
use crate::command::process::Group;
use crate::watcher;

/// A launcher with its pipes. Dropping it kills it, or the command that it has become.
pub(super) struct Launched {
    /// Before `child`, so that it is dropped first: until the child is reaped, no other group can have its number.
    pub(super) group: Group,
    pub(super) child: Child,
    /// Both outputs.
    pub(super) output: Receiver,
    left: Left,
    token: Option<String>,
    /// What a shell that waits was given, except for what is its own: the temporary folder and the token.
    environment: Vec<(OsString, OsString)>,
    orders: Option<Confinement>,
    /// What the orders named when it started.
    seen: Seen,
    /// Its pipes belong to the reactor of this runtime.
    runtime: runtime::Id,
}

/// What is left of a command that has ended: deleting its temporary folder and ending its mounts need not be waited for.
struct Left {
    /// On which the launcher is told the command. It also holds the mount namespace, which the launcher sends.
    channel: Option<UnixStream>,
    tmp: Option<PrivateTmp>,
}

impl Launched {
    /// Starts a launcher, which confines itself and then executes the line.
    async fn for_line(options: &ShellOptions, place: Place, line: &str) -> Result<Self, ShellError> {
        Self::launcher(options, place, line, launcher::BEGIN).await
    }

    /// Starts a launcher, which confines itself and then becomes a shell that waits for its line.
    async fn waiting(options: &ShellOptions, place: Place) -> Result<Self, ShellError> {
        // Once in a process, and not while a call waits.
        if !script::is_shell_known() {
            let looked = tokio::task::spawn_blocking(script::look_at_shell).await;
            looked.map_err(|error| ShellError::Start(io::Error::other(error)))?;
        }
        Self::launcher(options, place, "", launcher::WAIT).await
    }

    async fn launcher(options: &ShellOptions, place: Place, line: &str, word: u8) -> Result<Self, ShellError> {
        let (channel, stdin) = StdUnixStream::pair().map_err(ShellError::Start)?;
        channel.set_nonblocking(true).map_err(ShellError::Start)?;
        let channel = UnixStream::from_std(channel).map_err(ShellError::Start)?;
        let mut launched = Self::start(options, place, Some(channel), |orders, _| {
            let mut command = launcher::command(orders)?;
            command.stdin(OwnedFd::from(stdin)).env_clear();
            Ok(command)
        })
        .await?;
        let tmp = launched.left.tmp.as_ref().zip(launched.orders.as_ref());
        let tmp = tmp.map(|(tmp, orders)| ("TMPDIR".into(), orders.sees_tmp_at(tmp.folder()).into()));
        let token = launched.token.as_ref().map(|token| (watcher::VARIABLE.into(), token.into()));
        let environment = launched.environment.iter().cloned().chain(tmp).chain(token);
        let mut message = launcher::message(line, environment).map_err(ShellError::Start)?;
        message.push(word);
        launched.write(&message).await.map_err(ShellError::Start)?;
        Ok(launched)
    }

    /// Where this executable cannot be started again, the line is executed at once, in a process group of its own.
    async fn without_launcher(options: &ShellOptions, place: Place, line: &str) -> Result<Self, ShellError> {
        Self::start(options, place, None, |_, tmp| {
            let mut command = process::Command::new("/bin/sh");
            command.arg("-c").arg(line).process_group(0).stdin(Stdio::null());
            command.env_clear().envs(options.environment()).envs(tmp.map(|tmp| ("TMPDIR", tmp.folder())));
            Ok(command)
        })
        .await
    }

    async fn start(
        options: &ShellOptions,
        place: Place,
        channel: Option<UnixStream>,
        command: impl FnOnce(Option<&Confinement>, Option<&PrivateTmp>) -> io::Result<process::Command>,
    ) -> Result<Self, ShellError> {
        let ticket = watcher::begin().await?;
        let tmp = match place {
            Place::Sandbox => Some(PrivateTmp::make().map_err(ShellError::Temporary)?),
            Place::Outside => None,
        };
        let orders = tmp.as_ref().map(|tmp| options.reach().confinement(tmp, &GuardedLook::now(&options.folder)));
        let seen = Seen::now(&options.folder, orders.as_ref());
        let mut command = command(orders.as_ref(), tmp.as_ref()).map_err(ShellError::Start)?;
        let token = ticket.as_ref().map(|ticket| ticket.token().to_owned());
        command.current_dir(&options.folder).envs(token.iter().map(|token| (watcher::VARIABLE, token)));
        // One pipe for both outputs, so that they come in the order in which they were written.
        let (reader, writer) = io::pipe().map_err(ShellError::Start)?;
        let second = writer.try_clone().map_err(ShellError::Start)?;
        command.stdout(writer).stderr(second).kill_on_drop(true);
        let child = command.spawn().map_err(ShellError::Start)?;
        // It holds the writing ends of the pipe, whose end would never come.
        drop(command);
        let group = Group::of(&child, ticket)?;
        let output = Receiver::from_owned_fd(reader.into()).map_err(ShellError::Start)?;
        let runtime = Handle::current().id();
        let (environment, left) = (options.environment().collect(), Left { channel, tmp });
        Ok(Self { group, child, output, left, token, environment, orders, seen, runtime })
    }

    /// Whether it lives, and is confined and has the environment that a launcher would have that started now.
    fn is_as_new(&mut self, options: &ShellOptions, reach: Option<&(Reach<'_>, GuardedLook)>) -> bool {
        let tmp = self.left.tmp.as_ref();
        let orders = reach.zip(tmp).map(|((reach, look), tmp)| reach.confinement(tmp, look));
        matches!(self.child.try_wait(), Ok(None))
            && orders == self.orders
            && options.environment().eq(self.environment.iter().cloned())
            && self.seen.holds(&options.folder, orders.as_ref())
    }

    /// Tells a shell that waits the line, which it does not run yet.
    async fn tell(&mut self, line: &str) -> io::Result<()> {
        self.write(script::opening(line)?.as_bytes()).await
    }

    /// Makes it run the line that it was told.
    async fn begin(&mut self) -> io::Result<()> {
        self.write(script::BEGIN.as_bytes()).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(channel) = &mut self.left.channel else { return Ok(()) };
        channel.write_all(bytes).await
    }

    /// To be called when the command has ended, or was killed.
    fn clean_up(self) {
        let Self { group, child, left, .. } = self;
        drop(group);
        drop(child);
        // If the runtime is about to end, the closure is dropped, with what it holds.
        tokio::task::spawn_blocking(move || drop(left));
    }
}

/// A shell that knows its line and waits for the word to begin. Dropping it kills it.
pub(super) struct Told(Box<Launched>);

/// The launcher that waits for the next call.
#[derive(Clone, Default)]
pub(super) struct Spare(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    None,
    /// A task is starting one.
    Starting,
    Waiting(Box<Launched>),
}

/// Until it is dropped, one is being started.
struct Starting(Spare);

impl Drop for Starting {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(*state, State::Starting) {
            *state = State::None;
        }
    }
}

impl Spare {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the launcher that waits the line, if there is one for such commands. It runs nothing until [`run`](Self::run) has found that it may; dropped
    /// before, it ends.
    pub(super) async fn tell(&self, options: &ShellOptions, place: Place, line: &str) -> Option<Told> {
        let mut waiting = self.take(options, place)?;
        match waiting.tell(line).await {
            Ok(()) => Some(Told(waiting)),
            // It has ended, or the line is none; the one that is started now finds out again.
            Err(error) => {
                tracing::debug!(%error, "the launcher that waited could not be told the command");
                None
            }
        }
    }

    /// A command that runs the line: by the launcher that was told, if it is as good as a new one, or else by one that is started now.
    pub(super) async fn run(
        &self,
        told: Option<Told>,
        options: &ShellOptions,
        reach: Option<&(Reach<'_>, GuardedLook)>,
        line: &str,
    ) -> Result<Launched, ShellError> {
        let place = if reach.is_some() { Place::Sandbox } else { Place::Outside };
        if !watcher::is_enabled() {
            return Launched::without_launcher(options, place, line).await;
        }
        let told = told.and_then(|Told(mut waiting)| waiting.is_as_new(options, reach).then_some(waiting));
        let Some(mut waiting) = told else { return Launched::for_line(options, place, line).await };
        // As before each start: programs of a process that died must not run beside this one.
        watcher::wait_for_the_dead().await?;
        waiting.begin().await.map_err(ShellError::Start)?;
        Ok(*waiting)
    }

    /// The one that waits, if it is for such commands.
    fn take(&self, options: &ShellOptions, place: Place) -> Option<Box<Launched>> {
        if place != Place::usual(options) {
            return None;
        }
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            // Its pipes belong to the reactor of the runtime that it was started in.
            State::Waiting(waiting) => (waiting.runtime == Handle::current().id()).then_some(waiting),
            other => {
                *state = other;
                None
            }
        }
    }

    /// The command has ended. Starts a launcher for the next one, unless one waits.
    pub(super) fn ended(&self, launched: Launched, options: &Arc<ShellOptions>) {
        let has_launcher = launched.left.channel.is_some();
        launched.clean_up();
        let mut state = self.state();
        if !has_launcher || !matches!(*state, State::None) {
            return;
        }
        *state = State::Starting;
        drop(state);
        let (starting, options) = (Starting(self.clone()), options.clone());
        tokio::spawn(async move {
            match Launched::waiting(&options, Place::usual(&options)).await {
                Ok(waiting) => *starting.0.state() = State::Waiting(Box::new(waiting)),
                // The next call tries again, and says why it failed.
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "no launcher for the next command")
                }
            }
        });
    }
}
