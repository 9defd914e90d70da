//! Lines that cannot be sent now: they come faster than they are stored, as from a paste that the terminal does not mark as one, or
//! the conversation has no room for more. They stay in the line being typed, and the person is told once.

use std::time::{Duration, Instant};

use super::super::keys::Key;
use super::Session;
use crate::show::{Tone, count};

/// What comes so soon after a line that was not sent belongs to it.
const BURST: Duration = Duration::from_millis(500);

/// How many messages may be on their way into the store. If it refuses one, those behind it may find room and come before it.
const MOST_ON_THEIR_WAY: usize = 8;

/// Lines that were not sent.
#[derive(Debug)]
pub(super) struct Held {
    lines: usize,
    /// Where in the line being typed those end that the store refused: they were sent before the others.
    refused: usize,
    /// Why, if it is not that there were too many.
    why: Option<String>,
    /// Until when more of them are expected.
    until: Instant,
}

impl Session {
    /// Whether a message can be added to the queue. Nothing else adds to it, so it will be taken.
    pub(super) fn has_room(&self) -> bool {
        let on_their_way = self.view.sent.iter().filter(|sent| sent.turn.is_none()).count();
        on_their_way < MOST_ON_THEIR_WAY && self.queue.commands.capacity() > 0
    }

    /// Keeps a message in the line being typed.
    pub(super) fn hold(&mut self, text: &str) {
        self.view.draft.keep(text, usize::MAX);
        self.held().lines += text.lines().count();
    }

    /// Keeps a message that the store refused in front of those that came later.
    pub(super) fn hold_refused(&mut self, text: &str, why: String) {
        let refused = self.held().refused;
        let refused = self.view.draft.keep(text, refused);
        let held = self.held();
        held.lines += text.lines().count();
        (held.refused, held.why) = (refused, held.why.take().or(Some(why)));
    }

    fn held(&mut self) -> &mut Held {
        let until = Instant::now() + BURST;
        let held = self.held.get_or_insert(Held { lines: 0, refused: 0, why: None, until });
        held.until = until;
        held
    }

    /// A key as it is meant: the end of a line ends none as long as lines cannot be sent, so that none of them is lost.
    pub(super) fn held_key(&mut self, key: Key) -> Key {
        if self.held.is_none() || key != Key::Enter {
            return key;
        }
        self.held().lines += 1;
        Key::Char('\n')
    }

    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Says how many lines were not sent.
    pub(super) fn tell_held(&mut self) {
        let Some(Held { lines, why, .. }) = self.held.take() else { return };
        let why = why.unwrap_or_else(|| "too much waits to be taken up".to_owned());
        let (lines, them) = (count(lines, "line"), if lines == 1 { "it" } else { "them" });
        self.view.say("warning", Tone::Bad, &format!("{why}\n{lines} not sent: Enter sends {them} as one message"));
        self.view.redraw();
    }
}
