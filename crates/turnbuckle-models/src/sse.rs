//! Server-sent events, of which both wires use the `data` only: bytes in, the data of one event after the other out.
//!
//! Bytes may be cut anywhere, in the middle of a character, a line or a line end. Nothing is decoded here, so half a
//! character is no problem: it waits for its other half.

use std::ops::Range;

/// The longest line and the longest event. A search result that the provider seals comes in one line.
pub(crate) const LONGEST: usize = 8 * 1024 * 1024;

/// A line or an event without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// What a stream may begin with, and means nothing.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Cuts bytes into events.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    buffer: Vec<u8>,
    /// Up to where lines have been taken.
    taken: usize,
    /// Up to where no line end was found.
    searched: usize,
    /// The data of the event under way, or of the one just given out.
    data: Data,
    /// Whether `data` was given out and the next line begins another event.
    given: bool,
    /// Whether the last line ended in a carriage return: a line feed behind it belongs to it.
    after_return: bool,
    /// Whether the first bytes were looked at.
    begun: bool,
    /// Whether no more will come.
    ended: bool,
}

/// An event's data. Nearly all events have one line of it, which stays where it is.
#[derive(Debug, Default)]
enum Data {
    /// An event without data is none.
    #[default]
    Nothing,
    /// In the buffer.
    Line(Range<usize>),
    Lines(Vec<u8>),
}

impl Parser {
    /// More bytes. All events of the bytes before should have been taken.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut done = self.taken;
        if let Data::Line(line) = &mut self.data {
            match self.given {
                true => *line = 0..0,
                // Its event has not ended yet.
                false => {
                    done = line.start;
                    *line = 0..line.len();
                }
            }
        }
        self.buffer.drain(..done);
        (self.taken, self.searched) = (self.taken - done, self.searched - done);
        self.buffer.extend_from_slice(bytes);
    }

    /// Goes on to the next event whose end is here; whether there was one.
    pub(crate) fn advance(&mut self) -> Result<bool, TooLong> {
        if std::mem::take(&mut self.given) {
            self.data = Data::Nothing;
        }
        if !self.begun && !self.begin() {
            return Ok(false);
        }
        while let Some(line) = self.line()? {
            if !line.is_empty() {
                self.field(line)?;
            } else if self.has_data() {
                self.given = true;
                return Ok(true);
            }
        }
        // Of a stream that is over an event counts that only lacks its empty line.
        self.given = self.ended && self.has_data();
        Ok(self.given)
    }

    /// The stream is over.
    pub(crate) fn finish(&mut self) {
        (self.begun, self.ended) = (true, true);
    }

    /// The data of the event just reached.
    pub(crate) fn data(&self) -> &[u8] {
        match &self.data {
            Data::Nothing => &[],
            Data::Line(line) => &self.buffer[line.clone()],
            Data::Lines(lines) => lines,
        }
    }

    fn has_data(&self) -> bool {
        !matches!(self.data, Data::Nothing)
    }

    /// Passes over a byte order mark; whether enough is here to know.
    fn begin(&mut self) -> bool {
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            (self.taken, self.searched) = (BYTE_ORDER_MARK.len(), BYTE_ORDER_MARK.len());
        } else if BYTE_ORDER_MARK.starts_with(&self.buffer) {
            return false;
        }
        self.begun = true;
        true
    }

    fn line(&mut self) -> Result<Option<Range<usize>>, TooLong> {
        if self.after_return && self.taken < self.buffer.len() {
            self.after_return = false;
            if self.buffer[self.taken] == b'\n' {
                self.taken += 1;
                self.searched = self.searched.max(self.taken);
            }
        }
        // Every other line is empty.
        let end = match self.buffer.get(self.searched) {
            Some(b'\n') => Some(0),
            _ => memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]),
        };
        match end {
            Some(length) => {
                let line = self.taken..self.searched + length;
                self.after_return = self.buffer[line.end] == b'\r';
                self.taken = line.end + 1;
                self.searched = self.taken;
                Ok(Some(line))
            }
            None => {
                self.searched = self.buffer.len();
                if self.searched - self.taken > LONGEST { Err(TooLong) } else { Ok(None) }
            }
        }
    }

    /// `data: …` is kept; comments and every other field say nothing to us.
    fn field(&mut self, line: Range<usize>) -> Result<(), TooLong> {
        let skipped = match &self.buffer[line.clone()] {
            [b'd', b'a', b't', b'a', b':', b' ', ..] => 6,
            [b'd', b'a', b't', b'a', b':', ..] => 5,
            b"data" => 4,
            _ => return Ok(()),
        };
        let value = line.start + skipped..line.end;
        if self.data().len() + value.len() > LONGEST {
            return Err(TooLong);
        }
        match std::mem::take(&mut self.data) {
            Data::Nothing => self.data = Data::Line(value),
            Data::Line(first) => {
                self.data = Data::Lines([&self.buffer[first], b"\n", &self.buffer[value]].concat());
            }
            Data::Lines(mut lines) => {
                lines.push(b'\n');
                lines.extend_from_slice(&self.buffer[value]);
                self.data = Data::Lines(lines);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.push(piece);
            while parser.advance().unwrap() {
                events.push(String::from_utf8(parser.data().to_vec()).unwrap());
            }
        }
        parser.finish();
        while parser.advance().unwrap() {
            events.push(String::from_utf8(parser.data().to_vec()).unwrap());
        }
        events
    }

    const STREAM: &str = ": hello\nevent: a\ndata: {\"t\":\"né\"}\n\ndata:two\r\ndata: lines\r\n\r\nid: 7\n\n\
                          data: cr\r\rdata\n\nretry: 3\ndata: last\n";

    #[test]
    fn an_event_is_the_same_wherever_the_bytes_are_cut() {
        let expected = ["{\"t\":\"né\"}", "two\nlines", "cr", "", "last"];
        assert_eq!(events(&[STREAM.as_bytes()]), expected);
        for cut in 0..STREAM.len() {
            let (before, after) = STREAM.as_bytes().split_at(cut);
            assert_eq!(events(&[before, after]), expected, "cut at {cut}");
        }
        let single: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(events(&single), expected);
    }

    #[test]
    fn a_byte_order_mark_in_front_hides_nothing() {
        let stream = "\u{feff}data: one\n\ndata: \u{feff}two\n\n".as_bytes();
        for cut in 0..stream.len() {
            let (before, after) = stream.split_at(cut);
            assert_eq!(events(&[before, after]), ["one", "\u{feff}two"], "cut at {cut}");
        }
        assert_eq!(events(&["\u{feff}".as_bytes()]), [""; 0]);
    }

    #[test]
    fn a_line_that_was_cut_off_is_no_event() {
        assert_eq!(events(&[b"data: whole\n\ndata: hal"]), ["whole"]);
    }

    #[test]
    fn a_line_and_an_event_without_end_are_refused() {
        let mut parser = Parser::default();
        parser.push(&vec![b'x'; LONGEST + 1]);
        assert_eq!(parser.advance(), Err(TooLong));
        let mut parser = Parser::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; LONGEST / 2], b"\n"].concat();
        let refused = (0..3).any(|_| {
            parser.push(&line);
            parser.advance().is_err()
        });
        assert!(refused);
    }
}
