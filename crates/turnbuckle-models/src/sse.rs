//! A parser of server-sent events. Both wires use the `data` field only.
//!
//! Bytes may be cut anywhere: in a character, a line or a line end. The parser works on bytes and does not decode them, so half a
//! character in the buffer does no harm.

use std::ops::Range;

/// The longest line and the longest event. The encrypted search results of a provider come in one line.
pub(crate) const LONGEST: usize = 8 * 1024 * 1024;

/// A line or an event is longer than [`LONGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// A stream may begin with it; it is skipped.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Splits bytes into events. Each byte is searched for a line end once, and moved in the buffer a bounded number of times.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    buffer: Vec<u8>,
    /// Lines before this position were taken.
    taken: usize,
    /// There is no line end between `taken` and this position.
    searched: usize,
    /// The data of the present event, which `advance` has reached or which is still being received.
    data: Data,
    /// Whether `advance` has reached the event of `data`: the next line begins another one.
    given: bool,
    /// Whether the last line ended in a carriage return. A line feed behind it belongs to the same line end.
    after_return: bool,
    /// Whether the stream was searched for a byte order mark.
    begun: bool,
    /// Whether no more bytes will come.
    ended: bool,
}

/// The data of an event. Nearly all events have one line of it, which is not copied.
#[derive(Debug, Default)]
enum Data {
    /// There is no data yet. An event that ends without any is ignored.
    #[default]
    Nothing,
    /// One line: its place in the buffer.
    Line(Range<usize>),
    /// Several lines, joined by line feeds.
    Lines(Vec<u8>),
}

impl Parser {
    /// Adds bytes. All events of the bytes before must have been taken with `advance`.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut done = self.taken;
        if let Data::Line(line) = &mut self.data {
            match self.given {
                true => *line = 0..0,
                // Its event has not ended, so the line is kept.
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

    /// Advances to the next event that was received whole. `false` if there is none.
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
        // At the end of the stream an event counts even without the empty line that should end it.
        self.given = self.ended && self.has_data();
        Ok(self.given)
    }

    /// No more bytes will come.
    pub(crate) fn finish(&mut self) {
        (self.begun, self.ended) = (true, true);
    }

    /// The data of the event that `advance` has reached.
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

    /// Skips a byte order mark. `false` if too few bytes were received to know.
    fn begin(&mut self) -> bool {
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            (self.taken, self.searched) = (BYTE_ORDER_MARK.len(), BYTE_ORDER_MARK.len());
        } else if BYTE_ORDER_MARK.starts_with(&self.buffer) {
            return false;
        }
        self.begun = true;
        true
    }

    /// Takes the next whole line.
    fn line(&mut self) -> Result<Option<Range<usize>>, TooLong> {
        if self.after_return && self.taken < self.buffer.len() {
            self.after_return = false;
            if self.buffer[self.taken] == b'\n' {
                self.taken += 1;
                self.searched = self.searched.max(self.taken);
            }
        }
        // Every other line of a stream is empty, so a line feed is looked for at once before `memchr` is set up.
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

    /// Keeps the value of a `data` field. Comments and all other fields are ignored.
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
