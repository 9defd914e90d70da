//! A chat line by line, each when the turn before it rests: from a pipe, or in a terminal on which nothing can be drawn, for those who listen to it.
//! It ends with the input.

mod answers;
mod slash;

use std::io::{self, BufRead as _, Read as _};
use std::thread;
use std::time::Instant;

use tokio::sync::mpsc::{Receiver, channel};
use turnbuckle::conversation::{SendError, TakenUp};
use turnbuckle::projection::Pending;
use turnbuckle::{ConversationId, Outcome, TurnStatus};

use self::answers::Mode;
use super::command_queue::preview;
use super::commands::{self, Input};
use super::question::Beside;
use super::session::Leave;
use super::{ToldTakenUp, is_watched, left_elsewhere, pictures, question, taken_up, with_model};
use crate::Stopped;
use crate::args::{CarryOn, Common};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::run::{DisplayOptions, Expected, Ready, Watch, refused};
use crate::show::{INDENT, asked_text, clean, diff_text, terminal_width};
use crate::signals::Heard;
use crate::trust::TrustOptions;

/// How many lines of a person wait to be taken. They are read when they are typed, so that it is known when that was.
const TYPED_AHEAD: usize = 1024;

/// The longest line.
const LONGEST: u64 = 1 << 20;

/// One conversation after the other. The exit code is that of the last turn, and a failure if a line was refused.
pub(super) async fn chat(
    ready: Ready,
    id: ConversationId,
    carry_on: CarryOn,
    common: &Common,
    trust: TrustOptions,
) -> Result<Exit, Stopped> {
    let (mut ready, mut id, mut carry_on, mut common) = (ready, id, carry_on, common.clone());
    let (mut lines, mut kept) = (lines(is_watched()), Kept { exit: Exit::Completed, lost_line: false });
    loop {
        match talk(&ready, id, carry_on, &common, (&mut lines, &mut kept)).await? {
            Leave::Exit(exit) => return Ok(exit),
            Leave::Again { id: next, model } => {
                (id, carry_on) = (next, CarryOn::default());
                let Some(model) = model else { continue };
                match with_model(model, &common, trust) {
                    Ok(with_model) => (ready, common) = with_model,
                    Err(stopped) => {
                        crate::output::report(&stopped.problems);
                        kept = Kept { exit: Exit::Failed, lost_line: true };
                    }
                }
            }
        }
    }
}

/// One conversation, until the input ends or the person leaves it.
async fn talk(
    ready: &Ready,
    id: ConversationId,
    carry_on: CarryOn,
    common: &Common,
    (lines, kept): (&mut Receiver<io::Result<Typed>>, &mut Kept),
) -> Result<Leave, Stopped> {
    let display = DisplayOptions::default();
    let (told, mut others) = taken_up();
    let watch =
        Watch::begin(ready.conversations()?.on_taken_up(told), id, display, ready, common, Expected::MaybeNew).await?;
    watch.accept_changes(carry_on, common).await?;
    if let Some(text) = left_elsewhere(&watch.conversations, &watch.id, &watch.scope, &watch.hints).await {
        watch.output.err(format!("note: {text}\n"));
    }
    if let Some(text) = ready.erasure.retention() {
        watch.output.err(format!("note: {text}\n"));
    }
    let conversations = watch.conversations.clone();
    // Store errors are not reported here: the turns report them.
    let maintenance = tokio::spawn(async move { conversations.run_maintenance().await });
    let mut piped = Piped {
        watch,
        ready,
        is_watched: is_watched(),
        exit: kept.exit,
        lost_line: kept.lost_line,
        pending: Vec::new(),
        asked_at: None,
        mode: Mode::Plain,
        ran: String::new(),
        over: false,
        again: None,
        interrupted: false,
        known: ToldTakenUp::default(),
    };
    piped.welcome();
    let open = piped.watch.conversations.resume(&piped.watch.id, piped.watch.scope.clone()).await;
    if let Some(handle) = open.map_err(|error| refused(error, common))? {
        piped.follow(handle).await;
    }
    while !piped.over && piped.again.is_none() {
        let line = tokio::select! {
            biased;
            heard = piped.watch.signals.next() => {
                if piped.stays_after(heard) {
                    continue;
                }
                piped.exit = Exit::Cancelled;
                break;
            }
            Some(taken) = others.recv() => {
                piped.tell_taken_up(taken);
                continue;
            }
            line = lines.recv() => line,
        };
        match line {
            Some(Ok(line)) => piped.line(&line).await,
            Some(Err(error)) => {
                piped.watch.output.problem(&Problem::error(format!("reading stdin: {error}")));
                piped.exit = Exit::Failed;
                break;
            }
            None => break,
        }
    }
    while let Ok(taken) = others.try_recv() {
        piped.tell_taken_up(taken);
    }
    piped.watch.wait_for_leftovers().await;
    maintenance.abort();
    *kept = Kept { exit: piped.exit, lost_line: piped.lost_line };
    let exit = if piped.lost_line && piped.exit == Exit::Completed { Exit::Failed } else { piped.exit };
    let Some(again) = piped.again else { return Ok(Leave::Exit(piped.watch.finish(exit).await)) };
    // What is written now may fail, or be cut off by a signal. The last turn may have been cancelled long ago, and does not count here.
    Ok(match piped.watch.finish(Exit::Completed).await {
        Exit::Completed => again,
        Exit::Cancelled => Leave::Exit(Exit::Cancelled),
        failed => {
            *kept = Kept { exit: failed, lost_line: true };
            again
        }
    })
}

/// What one conversation of a chat leaves to the next one.
struct Kept {
    /// That of the last turn.
    exit: Exit,
    /// A line came to nothing.
    lost_line: bool,
}

struct Piped<'a> {
    watch: Watch,
    ready: &'a Ready,
    /// Whether a person types, and no program.
    is_watched: bool,
    exit: Exit,
    /// A line came to nothing: no turn has it, and no call.
    lost_line: bool,
    /// What the turn asks the person who types; the next line answers the first of them. What others must answer is not here.
    pending: Vec<Pending>,
    /// When what the next line answers was shown last.
    asked_at: Option<Instant>,
    /// What the next line is, if not a plain answer.
    mode: Mode,
    /// What commands of the person's own said since the last message.
    ran: String,
    /// Nothing more is read.
    over: bool,
    /// The chat goes on with another conversation or model.
    again: Option<Leave>,
    /// Whether Ctrl-C was the last thing that was pressed.
    interrupted: bool,
    /// Turns of other conversations that go on here.
    known: ToldTakenUp,
}

impl Piped<'_> {
    /// Tells a person what this is; a program that pipes lines in knows.
    fn welcome(&self) {
        if self.is_watched {
            let (name, model) = (self.watch.conversations.agent().name(), self.model());
            let text =
                format!("{name} ({model}), conversation {}. A line is a message, /help says more.\n", self.watch.id);
            self.watch.output.err(clean(&text));
        }
    }

    /// What a signal means while nothing is under way: a person is told that the next Ctrl-C leaves.
    fn stays_after(&mut self, heard: Heard) -> bool {
        let stays = self.is_watched && heard == Heard::Stop && !std::mem::replace(&mut self.interrupted, true);
        if stays {
            self.watch.signals.begin_anew();
            self.watch.output.err("\nCtrl-C again leaves\n");
        }
        stays
    }

    async fn line(&mut self, Typed { text: line, at }: &Typed) {
        self.interrupted = false;
        let (id, scope) = (self.watch.id.clone(), self.watch.scope.clone());
        let asked = self.pending.first().cloned();
        let is_plain = matches!(self.mode, Mode::Plain);
        match (Input::of(line), asked) {
            (Input::Slash("exit", _), _) => self.over = true,
            // A line of a program that begins like a command is an answer where one is wanted.
            (Input::Slash(name, rest), asked) if is_plain && (self.is_watched || asked.is_none() || name == "help") => {
                self.slash(name, rest).await;
            }
            (_, _) if matches!(self.mode, Mode::Pick(_)) => self.picked(line.trim()),
            (Input::Nothing, Some(_)) if self.is_too_early(*at) => {}
            (_, Some(asked)) if self.is_too_early(*at) => self.tell_too_early(&asked, line),
            (_, Some(asked)) => self.answer(&asked, line).await,
            (Input::Nothing, None) => {}
            (Input::Unknown(command), None) => self.watch.output.err(format!("{}\n", commands::unknown(command))),
            (Input::Slash(command, _), None) => {
                self.watch.output.err(format!("{}\n", commands::unknown(&format!("/{command}"))));
            }
            (Input::Run(command), None) => self.run_own(command).await,
            (Input::Words(words), None) => {
                let text = std::mem::take(&mut self.ran) + words;
                // A program that names a picture may mean its name.
                let names = if self.is_watched { words } else { "" };
                let (content, remarks) = pictures::attach(&text, names, &self.ready.folder);
                remarks.iter().for_each(|remark| self.watch.output.err(format!("warning: {}\n", clean(remark))));
                match self.watch.conversations.send(&id, content, scope).await {
                    Ok(handle) => self.follow(handle).await,
                    Err(SendError::Busy { pending, .. }) if !pending.is_empty() => {
                        if let Some(open) = self.look_what_is_asked().await {
                            self.refused(&self.watch.busy(&open));
                        }
                    }
                    Err(error) => self.refused(&Problem::error(error.to_string())),
                }
            }
        }
    }

    /// Keeps what the person who types is asked. Questions for others are left out, and so is what the same person has
    /// approved: otherwise the next line, which is meant as a message, would be taken as another answer.
    fn note_asked(&mut self, pending: Vec<Pending>) {
        self.pending = pending;
        self.pending.retain(|pending| self.watch.hints.who_else(pending).is_none());
    }

    fn tell_taken_up(&mut self, taken: TakenUp) {
        if let Some(text) = self.known.words(&self.watch.id, taken, &self.ready.model) {
            self.watch.output.err(format!("note: {text}\n"));
        }
    }

    fn refused(&mut self, problem: &Problem) {
        self.watch.output.problem(problem);
        self.exit = Exit::Failed;
        self.lost_line = true;
    }

    /// Another process may have answered what was asked here: the next line must not answer it again.
    /// Returns everything that is open; `None` if it could not be read, which is reported.
    async fn look_what_is_asked(&mut self) -> Option<Vec<Pending>> {
        match self.watch.conversations.snapshot(&self.watch.id, self.watch.scope.clone()).await {
            Ok(view) => {
                let open: Vec<Pending> = view.pending.values().cloned().collect();
                self.note_asked(open.clone());
                Some(open)
            }
            Err(error) => {
                self.refused(&Problem::error(error.to_string()));
                None
            }
        }
    }

    async fn follow(&mut self, handle: turnbuckle::conversation::TurnHandle) {
        let rest = self.watch.follow(handle).await;
        self.watch.catch_up().await;
        if let Ok(TurnStatus::Waiting(pending)) = &rest {
            self.note_asked(pending.clone());
            // The question before what to do about it, and what can be typed last.
            let label = self.show_asked().await;
            self.exit = self.watch.tell(&rest);
            label.iter().for_each(|label| self.watch.output.err(label.clone()));
            self.asked_at = Some(Instant::now());
            return self.heed_signals(false);
        }
        self.exit = self.watch.tell(&rest);
        self.pending.clear();
        let is_cancelled = matches!(&rest, Ok(TurnStatus::Ended(ended)) if ended.outcome == Outcome::Cancelled);
        self.heed_signals(is_cancelled);
    }

    /// What signals that came during a turn mean for the chat. One that came too late to cancel the turn must not make the next
    /// Ctrl-C end the program at once, with a turn of it open.
    fn heed_signals(&mut self, is_cancelled: bool) {
        // Once a signal came, the rest of the input is not read, unless a person types it and nothing asked the program to end.
        self.over = if self.is_watched { !self.watch.goes_on() } else { self.watch.is_leaving() };
        if self.over {
            self.exit = Exit::Cancelled;
        }
        // A closed stdout cancels as well.
        self.over |= is_cancelled && !self.is_watched;
    }

    /// Shows what the next line answers: all of it, since nothing can be drawn again, with what the call would change. Returns what
    /// can be typed.
    async fn show_asked(&self) -> Option<String> {
        let asked = self.pending.first()?;
        let preview = preview(&self.watch.conversations, asked).await;
        let beside = if matches!(preview, Some(Ok(_))) { Beside::Diff } else { Beside::Nothing };
        let room = terminal_width(&io::stderr()).map(|width| width - INDENT);
        let mut text = String::new();
        for line in question::whole(asked, beside) {
            text += &laid_out(line.label, &asked_text(&line.text, room));
        }
        text += &match &preview {
            Some(Ok(diff)) if diff.is_empty() => laid_out("", question::NO_CHANGE),
            Some(Ok(diff)) => laid_out("", &diff_text(diff, room)),
            Some(Err(why)) => laid_out("", &format!("it would be refused now: {why}")),
            None => String::new(),
        };
        self.watch.output.err(clean(&text));
        Some(clean(&laid_out("", &self.label(asked))))
    }
}

/// A text beside its label, as everything else in a chat.
fn laid_out(label: &str, text: &str) -> String {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(text.lines()).map(|(label, line)| format!("{label:<INDENT$}{line}\n")).collect()
}

/// A line, and when it was read.
struct Typed {
    text: String,
    at: Instant,
}

/// Lines of stdin, read by a thread. It ends with the program, because a blocking read cannot be interrupted.
fn lines(is_watched: bool) -> Receiver<io::Result<Typed>> {
    // A terminal gives short lines; those of a program may be long, and wait where they come from.
    let (send, lines) = channel(if is_watched { TYPED_AHEAD } else { 1 });
    let read = move || {
        loop {
            let line = next_line();
            let last = !matches!(line, Ok(Some(_)));
            let sent = match line.transpose() {
                Some(line) => send.blocking_send(line.map(|text| Typed { text, at: Instant::now() })).is_ok(),
                None => false,
            };
            if last || !sent {
                return;
            }
        }
    };
    // Without a thread there is no line, and the chat ends at once.
    let _ = thread::Builder::new().name("lines".to_owned()).spawn(read);
    lines
}

/// `None` at the end.
fn next_line() -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(LONGEST + 1).read_until(b'\n', &mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other("a line is longer than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("a line is not UTF-8"))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}
