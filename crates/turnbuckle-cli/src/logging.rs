//! `-v` and `TURNBUCKLE_LOG`: what the runtime does, for operators. Without them nothing is collected, unless the command is one
//! that runs by itself.
//!
//! Events go through a bounded queue to a thread that writes them: a full stderr pipe does not hold up a turn. When the
//! queue is full, lines are dropped and counted. Only events of Turnbuckle itself are shown, whatever is asked for: other
//! libraries may put a request, and the key in it, into theirs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::problem::Problem;
use crate::show::log_line;

/// The target of the program's own events. Those of the library begin with `turnbuckle::`, too.
pub(crate) const CLI: &str = "turnbuckle::cli";

/// The name that every target begins with.
const OWN: &str = "turnbuckle";
const VARIABLE: &str = "TURNBUCKLE_LOG";
const FILE_VARIABLE: &str = "TURNBUCKLE_LOG_FILE";
/// How many lines may wait to be written.
const QUEUE: usize = 1024;
/// How many lines may wait to be shown in a chat.
const CHAT_QUEUE: usize = 256;
/// How long the last lines may take to be written when the program ends.
const FLUSH: Duration = Duration::from_millis(250);
const LEVELS: &str = "off, error, warn, info, debug, trace";

static WRITER: OnceLock<SyncSender<Piece>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Piece {
    Line(String),
    /// From here on lines go to a chat, which shows them above the line that is being typed.
    ToChat(mpsc::Sender<String>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// What is logged if nobody says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    Nothing,
    /// Of a server: nobody watches it, and what it answers points to its log.
    Info,
}

/// Starts logging if `-v` was given (so many times), the environment asks for it, or the command does so `unasked`.
pub(crate) fn start(verbose: u8, unasked: Unasked) -> Result<(), Problem> {
    let Some(filter) = filter(verbose, std::env::var(VARIABLE).ok().as_deref(), unasked)? else { return Ok(()) };
    let file = match std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()) {
        None => None,
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
            let refused = |error: io::Error| {
                Problem::error(format!("{FILE_VARIABLE}: {}: {error}", path.display()))
                    .hint("lines are added to this file; without the variable they go to stderr")
            };
            Some(opened.map_err(refused)?)
        }
    };
    let failed = |error: String| Problem::error(format!("starting the log: {error}"));
    let (send, pieces) = sync_channel(QUEUE);
    let write = move || write_all(&pieces, file);
    thread::Builder::new().name("log".to_owned()).spawn(write).map_err(|error| failed(error.to_string()))?;
    WRITER.set(send).map_err(|_| failed("it runs already".to_owned()))?;
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Queue);
    let subscriber = tracing_subscriber::registry().with(lines).with(filter);
    tracing::subscriber::set_global_default(subscriber).map_err(|error| failed(error.to_string()))
}

/// What is shown; `None` for nothing. The option wins over the variable.
fn filter(verbose: u8, variable: Option<&str>, unasked: Unasked) -> Result<Option<Targets>, Problem> {
    let level = match verbose {
        0 => match (variable.map_or(Ok(None), parse)?, unasked) {
            (None, Unasked::Info) => LevelFilter::INFO,
            (asked, _) => return Ok(asked),
        },
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    Ok(Some(Targets::new().with_target(OWN, level)))
}

/// `info`, or `turnbuckle::store=debug,warn`.
fn parse(text: &str) -> Result<Option<Targets>, Problem> {
    let mut targets = Targets::new();
    let mut any = false;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (target, level) = part.split_once('=').unwrap_or((OWN, part));
        let refused = |why: String| Problem::error(format!("{VARIABLE}: {why}"));
        let known = LEVELS.split(", ").any(|known| known.eq_ignore_ascii_case(level.trim()));
        let level = level.trim().parse::<LevelFilter>().ok().filter(|_| known).ok_or_else(|| {
            let why = format!("{:?} is not a level", level.trim());
            refused(why).hint(format!("levels: {LEVELS}; `info`, or a list such as `turnbuckle::cli=debug,warn`"))
        })?;
        if !target.trim().starts_with(OWN) {
            let why = format!("{:?} is no target of Turnbuckle", target.trim());
            return Err(refused(why).hint("targets begin with `turnbuckle`: others might show keys"));
        }
        targets = targets.with_target(target.trim(), level);
        any = true;
    }
    Ok(any.then_some(targets))
}

/// Makes a writer for each event.
struct Queue;

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line
    }
}

/// One event, formatted: it is written in one piece.
struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = log_line(&String::from_utf8_lossy(bytes));
        if let Some(writer) = WRITER.get()
            && let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = writer.try_send(Piece::Line(line))
        {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(pieces: &Receiver<Piece>, mut file: Option<File>) {
    let mut chat: Option<mpsc::Sender<String>> = None;
    while let Ok(piece) = pieces.recv() {
        match piece {
            Piece::Line(line) => {
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    put(&format!("({dropped} lines of the log were dropped)\n"), &mut file, &mut chat);
                }
                put(&line, &mut file, &mut chat);
            }
            Piece::ToChat(sender) => chat = Some(sender),
            // Sending fails if `finish` has stopped waiting.
            Piece::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// Write errors are dropped: there is no place to report them, and no turn depends on the log.
fn put(line: &str, file: &mut Option<File>, chat: &mut Option<mpsc::Sender<String>>) {
    if let Some(file) = file {
        drop(file.write_all(line.as_bytes()));
        return;
    }
    if let Some(sender) = chat {
        match sender.try_send(line.to_owned()) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(_)) => {
                DROPPED.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // The chat is over.
            Err(mpsc::error::TrySendError::Closed(_)) => *chat = None,
        }
    }
    drop(io::stderr().lock().write_all(line.as_bytes()));
}

/// Lines for a chat to show instead of stderr, until the receiver is dropped. There are none with a file, or without logging.
pub(crate) fn for_chat() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(CHAT_QUEUE);
    if let Some(writer) = WRITER.get() {
        // A full queue is a flood of lines: it goes to stderr, and the chat goes on.
        drop(writer.try_send(Piece::ToChat(send)));
    }
    lines
}

/// Waits a moment until everything is written.
pub(crate) fn finish() {
    let Some(writer) = WRITER.get() else { return };
    let (done, written) = sync_channel(1);
    if writer.try_send(Piece::Flush(done)).is_ok() {
        // Lines that are not written by then are lost.
        let _ = written.recv_timeout(FLUSH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn shows(filter: Result<Option<Targets>, Problem>, target: &str, level: Level) -> bool {
        filter.unwrap().is_some_and(|filter| filter.would_enable(target, &level))
    }

    #[test]
    fn each_v_shows_more() {
        assert!(filter(0, None, Unasked::Nothing).unwrap().is_none());
        assert!(
            shows(filter(1, None, Unasked::Nothing), CLI, Level::INFO)
                && !shows(filter(1, None, Unasked::Nothing), CLI, Level::DEBUG)
        );
        assert!(shows(filter(2, Some("off"), Unasked::Nothing), "turnbuckle::turn", Level::DEBUG), "the option wins");
        assert!(shows(filter(9, None, Unasked::Nothing), "turnbuckle_stores::sqlite", Level::TRACE));
        assert!(!shows(filter(9, None, Unasked::Nothing), "hyper::client", Level::ERROR));
    }

    #[test]
    fn the_variable_takes_a_level_or_a_list() {
        let of = |text: &'static str| filter(0, Some(text), Unasked::Nothing);
        assert!(of("").unwrap().is_none());
        assert!(shows(of("INFO"), CLI, Level::INFO));
        let list = "turnbuckle::cli=debug, warn";
        assert!(shows(of(list), CLI, Level::DEBUG) && !shows(of(list), "turnbuckle::turn", Level::INFO));
        for wrong in ["loud", "3", "turnbuckle=", "hyper=trace", "=info"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_logs_unless_it_is_told_not_to() {
        let of = |variable: Option<&'static str>| filter(0, variable, Unasked::Info);
        for unasked in [of(None), of(Some(""))] {
            let targets = unasked.unwrap().unwrap();
            assert!(targets.would_enable("turnbuckle_server::observe", &Level::INFO));
            assert!(!targets.would_enable("turnbuckle_server::observe", &Level::DEBUG));
        }
        assert!(!shows(of(Some("off")), CLI, Level::ERROR));
        assert!(shows(of(Some("warn")), CLI, Level::WARN) && !shows(of(Some("warn")), CLI, Level::INFO));
    }
}
