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

/// Cuts bytes into events.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    buffer: Vec<u8>,
    /// Up to where lines have been taken.
    taken: usize,
    /// Up to where no line end was found.
    searched: usize,
    /// The data of the event under way, or of the one just given out.
    data: Vec<u8>,
    /// Whether the event under way has data; an event without is none.
    has_data: bool,
    /// Whether `data` was given out and the next line begins another event.
    given: bool,
    /// Whether the last line ended in a carriage return: a line feed behind it belongs to it.
    after_return: bool,
}

impl Parser {
    /// More bytes. All events of the bytes before should have been taken.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Goes on to the next event whose end is here; whether there was one.
    pub(crate) fn advance(&mut self) -> Result<bool, TooLong> {
        while let Some(line) = self.line()? {
            if std::mem::take(&mut self.given) {
                self.data.clear();
            }
            if line.is_empty() {
                if std::mem::take(&mut self.has_data) {
                    self.given = true;
                    return Ok(true);
                }
                continue;
            }
            self.field(line)?;
        }
        Ok(false)
    }

    /// The stream is over: an event that only lacks its empty line counts.
    pub(crate) fn finish(&mut self) -> bool {
        self.given = std::mem::take(&mut self.has_data);
        self.given
    }

    /// The data of the event just reached.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    fn line(&mut self) -> Result<Option<Range<usize>>, TooLong> {
        if self.after_return && self.taken < self.buffer.len() {
            self.after_return = false;
            if self.buffer[self.taken] == b'\n' {
                self.taken += 1;
                self.searched = self.searched.max(self.taken);
            }
        }
        match memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]) {
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
        let Some(value) = self.buffer[line].strip_prefix(b"data") else { return Ok(()) };
        let value = match value {
            [] => value,
            [b':', b' ', value @ ..] | [b':', value @ ..] => value,
            _ => return Ok(()),
        };
        if self.has_data {
            self.data.push(b'\n');
        }
        if self.data.len() + value.len() > LONGEST {
            return Err(TooLong);
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
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
        if parser.finish() {
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
