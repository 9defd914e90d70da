//! Tokens, bytes and hashes of the segments of a request, kept from call to call: what did not change is not looked at again.
//!
//! A message is a list of pieces: a head (its role and ids), its parts, its calls. A hash covers all pieces before a place, so two
//! requests that have the same hash at the same place begin alike. The hash is not cryptographic: it decides nothing but what is
//! told about the provider's prompt cache.

mod pieces;

use std::sync::Arc;

use self::pieces::{Piece, PieceSink, hash, mix, pieces_in, pieces_of};
use super::tokens;
use crate::cache_break::SegmentMark;
use crate::message::{Message, Text};
use crate::model::{Definition, SegmentEnd, Segments};

/// Segments that consist of messages and are compared: summary, history, user message, turn's injections, calls.
const COMPARED: usize = 5;
/// Where they begin among all segments: behind tools and system prompt.
const FIRST: usize = 2;
/// A segment end behind a whole message, however many pieces that has.
const WHOLE: u32 = u32::MAX;
/// Texts from this many bytes on are remembered within a turn, so that they are looked through once. Shorter ones are looked
/// through again, which costs less.
const LONG: usize = 128;

/// What the messages of a request come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeasuredMessages {
    /// Where summary, history, user message, turn's injections, calls and call's injections end. Counted from the first message.
    ends: [SegmentMark; COMPARED + 1],
    /// The hashes at the places where segments of the request before ended; `None` behind the last message.
    at_last: [Option<u64>; COMPARED],
}

impl MeasuredMessages {
    /// All of it.
    pub(crate) fn total(&self) -> SegmentMark {
        self.ends[COMPARED]
    }

    /// The ends of all segments of the request.
    pub(crate) fn with_fixed(&self, tools: SegmentMark, system: SegmentMark) -> [SegmentMark; 8] {
        let (bytes, tokens) = (tools.bytes + system.bytes, tools.tokens + system.tokens);
        let mut ends = [tools; 8];
        ends[1] = SegmentMark { bytes, tokens, ..system };
        for (end, measured) in ends[FIRST..].iter_mut().zip(self.ends) {
            *end = SegmentMark { bytes: measured.bytes + bytes, tokens: measured.tokens + tokens, ..measured };
        }
        ends
    }

    /// The first segment of messages that does not end as it did in the request before.
    pub(crate) fn first_change(&self, last: &[SegmentMark; 8]) -> Option<usize> {
        let is_same = |place: usize| self.at_last[place] == Some(last[FIRST + place].hash);
        (0..COMPARED).find(|place| !is_same(*place)).map(|place| FIRST + place)
    }
}

/// What is kept from call to call.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixMeasure {
    /// The first event that contexts show, and the version of the summary before it.
    front: (u64, u32),
    /// Behind the messages of ended turns that were measured.
    base: SegmentMark,
    /// Behind the first message.
    first: Option<SegmentMark>,
    /// The pieces behind `base`, as they were measured last.
    built: Pieces,
    /// The same of the request that was sent last.
    sent: Option<Pieces>,
}

#[derive(Clone, Debug, Default)]
struct Pieces {
    /// Where they begin.
    base: SegmentMark,
    list: Vec<Piece>,
    /// The [long](LONG) texts among them, each with its place in `list`. Kept while the turn runs.
    texts: Vec<(usize, Text)>,
}

impl Pieces {
    /// The piece that this text was, if it stood at the same place.
    fn known(&self, place: usize, text: &Text) -> Option<Piece> {
        let at = self.texts.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Arc::ptr_eq(&self.texts[at].1, text).then(|| self.list.get(place).copied())?
    }
}

impl PrefixMeasure {
    /// Forgets what was measured if contexts begin elsewhere by now.
    pub(crate) fn follow(&mut self, first_seq: u64, summary: u32) {
        if self.front != (first_seq, summary) {
            self.forget();
            self.front = (first_seq, summary);
        }
    }

    /// The front of the context has moved.
    pub(crate) fn forget(&mut self) {
        (self.base, self.first) = (SegmentMark::default(), None);
    }

    /// Keeps no more than the next turn needs.
    pub(crate) fn rest(&mut self) {
        self.built = Pieces::default();
        if let Some(sent) = &mut self.sent {
            sent.list.shrink_to_fit();
            sent.texts = Vec::new();
        }
    }

    /// What was measured last was sent.
    pub(crate) fn note_sent(&mut self) {
        let before = self.sent.take().unwrap_or_default();
        self.sent = Some(std::mem::replace(&mut self.built, before));
    }

    /// Other messages were sent than those that were measured last.
    pub(crate) fn note_other(&mut self) {
        self.sent = None;
    }

    /// Where the pieces that were measured last differ from those that were sent before, if both are known from the same place on.
    pub(crate) fn difference(&self) -> Option<SegmentMark> {
        let sent = self.sent.as_ref().filter(|sent| sent.base == self.built.base)?;
        let mut at = sent.base;
        for (new, old) in self.built.list.iter().zip(&sent.list) {
            if new != old {
                break;
            }
            at.bytes += u64::from(old.bytes);
            at.tokens += u64::from(old.tokens);
        }
        Some(at)
    }

    /// Measures messages of which the first `ended` belong to ended turns. `last` says where the segments of the request before
    /// ended.
    pub(crate) fn measure(
        &mut self,
        messages: &[Message],
        segments: &Segments,
        ended: usize,
        is_edited: bool,
        last: Option<&[SegmentMark; 8]>,
    ) -> MeasuredMessages {
        let places = last.map(|last| &last[FIRST..FIRST + COMPARED]);
        let base = match is_edited || !self.covers(places) {
            true => SegmentMark::default(),
            false => self.base,
        };
        let mut pieces = std::mem::take(&mut self.built);
        pieces.base = base;
        pieces.list.clear();
        pieces.texts.clear();
        let from = base.messages as usize;
        let measured = messages.get(from..).unwrap_or_default();
        // Exactly: what is sent is kept until the next turn.
        pieces.list.reserve_exact(measured.iter().map(pieces_in).sum());
        let known = self.sent.as_ref().filter(|sent| sent.base == base);
        let mut fold = Fold::new(base, self.first, segments, messages, places, (&mut pieces, known));
        let mut at_ended = base;
        for message in measured {
            fold.message(message);
            if fold.mark.messages as usize == ended {
                at_ended = fold.mark;
            }
        }
        let (measured, first) = fold.finish();
        self.built = pieces;
        if is_edited {
            // Those of ended turns are not what the log makes of them.
            return measured;
        }
        (self.base, self.first) = (at_ended, first);
        measured
    }

    /// Whether no place lies among the messages that are not looked at, except behind the first one.
    fn covers(&self, places: Option<&[SegmentMark]>) -> bool {
        let is_known = |place: &SegmentMark| place.messages <= 1 || place.messages >= self.base.messages;
        places.is_none_or(|places| places.iter().all(is_known))
    }
}

/// Goes through the pieces of messages and notes what lies before each place that matters.
struct Fold<'a> {
    mark: SegmentMark,
    first: Option<SegmentMark>,
    /// Segment ends that were not reached yet, as messages and pieces.
    own: [(u32, u32); COMPARED],
    own_at: usize,
    ends: [SegmentMark; COMPARED + 1],
    last: &'a [SegmentMark],
    last_at: usize,
    at_last: [Option<u64>; COMPARED],
    pieces: &'a mut Pieces,
    /// Those of the request before, if they begin at the same place.
    known: Option<&'a Pieces>,
    /// How many pieces the present message has.
    count: usize,
}

impl<'a> Fold<'a> {
    fn new(
        base: SegmentMark,
        first: Option<SegmentMark>,
        segments: &Segments,
        messages: &[Message],
        last: Option<&'a [SegmentMark]>,
        (pieces, known): (&'a mut Pieces, Option<&'a Pieces>),
    ) -> Self {
        let place = |end: SegmentEnd| {
            let parts =
                end.messages.checked_sub(1).and_then(|at| messages.get(at)).map_or(0, |m| m.content().parts().len());
            let pieces = if end.parts >= parts { WHOLE } else { end.parts as u32 + 1 };
            (end.messages as u32, pieces)
        };
        let Segments { summary, history, message, opening, calls } = *segments;
        let own = [summary, history, message, opening, calls].map(place);
        let ends = [SegmentMark::default(); COMPARED + 1];
        let last = last.unwrap_or_default();
        let at_last = [None; COMPARED];
        let mut fold =
            Self { mark: base, first, own, own_at: 0, ends, last, last_at: 0, at_last, pieces, known, count: 0 };
        // What lies before the base: nothing, or one message, or all of it.
        fold.reached(SegmentMark::default(), true);
        if let Some(first) = first.filter(|_| base.messages > 0) {
            fold.reached(first, true);
        }
        if base.messages > 0 {
            fold.reached(base, true);
        }
        fold
    }

    /// Notes the places that lie here.
    fn reached(&mut self, mark: SegmentMark, is_whole: bool) {
        while let Some((messages, pieces)) = self.own.get(self.own_at) {
            let is_here = *messages == mark.messages && (*pieces == mark.pieces || (*pieces == WHOLE && is_whole));
            if !is_here && *messages != 0 {
                break;
            }
            self.ends[self.own_at] = mark;
            self.own_at += 1;
        }
        while let Some(place) = self.last.get(self.last_at) {
            if place.messages != mark.messages || (place.pieces != mark.pieces && place.messages != 0) {
                break;
            }
            self.at_last[self.last_at] = Some(mark.hash);
            self.last_at += 1;
        }
    }

    fn message(&mut self, message: &Message) {
        (self.mark.messages, self.mark.pieces) = (self.mark.messages + 1, 0);
        self.count = pieces_in(message);
        pieces_of(message, self);
        if self.mark.messages == 1 {
            self.first = Some(self.mark);
        }
    }

    fn finish(&mut self) -> (MeasuredMessages, Option<SegmentMark>) {
        // An edit may have left an end behind the last message.
        for place in self.own_at..COMPARED {
            self.ends[place] = self.mark;
        }
        self.ends[COMPARED] = self.mark;
        (MeasuredMessages { ends: self.ends, at_last: self.at_last }, self.first)
    }
}

impl<'m> PieceSink<'m> for Fold<'_> {
    fn known(&mut self, text: &Text) -> Option<Piece> {
        if text.len() < LONG {
            return None;
        }
        let place = self.pieces.list.len();
        self.pieces.texts.push((place, text.clone()));
        self.known.and_then(|known| known.known(place, text))
    }

    fn add(&mut self, piece: Piece, _: Option<&'m str>) {
        let mark = &mut self.mark;
        mark.pieces += 1;
        mark.hash = mix(mark.hash, piece.hash);
        mark.bytes += u64::from(piece.bytes);
        mark.tokens += u64::from(piece.tokens);
        self.pieces.list.push(piece);
        self.reached(self.mark, self.mark.pieces as usize == self.count);
    }
}

/// Where two lists of messages differ: bytes and tokens before the first byte that is not the same.
pub(crate) fn difference(old: &[Message], new: &[Message]) -> SegmentMark {
    let mut at = SegmentMark::default();
    for (old, new) in old.iter().zip(new) {
        let (mut old_pieces, mut new_pieces) = (Vec::new(), Vec::new());
        pieces_of(old, &mut old_pieces);
        pieces_of(new, &mut new_pieces);
        for ((old, old_text), (new, new_text)) in old_pieces.iter().zip(&new_pieces) {
            if old != new {
                let same = same_bytes(old_text.unwrap_or_default(), new_text.unwrap_or_default());
                at.bytes += same.len() as u64;
                at.tokens += tokens::of_text(same);
                return at;
            }
            at.bytes += u64::from(old.bytes);
            at.tokens += u64::from(old.tokens);
        }
        if old_pieces.len() != new_pieces.len() {
            return at;
        }
    }
    at
}

/// The beginning that two texts share.
pub(crate) fn same_bytes<'t>(old: &'t str, new: &str) -> &'t str {
    let same = old.bytes().zip(new.bytes()).take_while(|(one, other)| one == other).count();
    &old[..old.floor_char_boundary(same)]
}

/// The mark of a system prompt.
pub(crate) fn of_system(system: &str) -> SegmentMark {
    let (hash, bytes) = (hash(system), system.len() as u64);
    SegmentMark { hash, bytes, tokens: tokens::of_text(system), ..SegmentMark::default() }
}

/// The mark of a list of tools.
pub(crate) fn of_tools(tools: &[Definition]) -> SegmentMark {
    let mut mark = SegmentMark::default();
    for tool in tools {
        let parameters = tool.parameters.to_string();
        for text in [&*tool.name, &*tool.description, &*parameters] {
            mark.hash = mix(mark.hash, hash(text));
            mark.bytes += text.len() as u64;
        }
        mark.tokens += tokens::of_definition(tool);
    }
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Part;

    #[test]
    fn the_first_byte_that_differs_is_found() {
        let old = [Message::User("hello".into()), Message::User("a summary of old".into())];
        let new = [Message::User("hello".into()), Message::User("a summary of new".into())];
        assert_eq!(difference(&old, &new).bytes, 5 + 13);
        assert_eq!(difference(&old, &old).bytes, 5 + 16);
        assert_eq!(same_bytes("äa", "äb"), "ä");
        assert_eq!(same_bytes("ä", "ö"), "");
    }

    /// A long text is looked through at the first call that shows it; what stands in its place later is not taken for it.
    #[test]
    fn a_text_that_was_measured_before_counts_as_it_did_and_another_one_does_not() {
        let (long, other): (Text, Text) = ("a b c d ".repeat(40).into(), "1 2 3 4 ".repeat(40).into());
        let user = |text: &Text| Message::User(Part::text(text.clone()).into());
        let said = |text: &str| Message::Assistant { content: text.into(), calls: Vec::new() };
        let requests = [
            vec![user(&long)],
            vec![user(&long), said("yes"), user(&other)],
            vec![user(&other), said("yes"), user(&long)],
            vec![said("no"), user(&other), user(&long), user(&long)],
        ];
        let (mut kept, segments) = (PrefixMeasure::default(), Segments::default());
        for request in &requests {
            let measured = kept.measure(request, &segments, 0, false, None);
            assert_eq!(measured, PrefixMeasure::default().measure(request, &segments, 0, false, None));
            assert_eq!(measured.total().tokens, tokens::of_messages(request));
            kept.note_sent();
        }
        kept.rest();
        assert!(kept.sent.is_some_and(|sent| sent.texts.is_empty()), "nothing is held beyond the turn");
    }
}
