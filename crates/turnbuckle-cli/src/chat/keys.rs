//! Bytes of a terminal into keys.

/// The most that is taken of one paste.
pub(super) const LONGEST_PASTE: usize = 16 << 20;
/// The longest escape sequence of a key, behind its first two bytes.
const LONGEST_SEQUENCE: usize = 64;
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// What a person pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// Many letters at once; a line end among them sends nothing.
    Paste(String),
    /// The paste before it was longer than is taken: so many bytes of its end are missing.
    PasteCut(usize),
    Enter,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Home,
    End,
    Up,
    Down,
    /// Ctrl-U: everything before the cursor.
    EraseBefore,
    /// Ctrl-K: everything behind it.
    EraseBehind,
    /// Ctrl-W: the word before it.
    EraseWord,
    /// Ctrl-D: the end of the input.
    EndOfInput,
    /// Ctrl-L: draws the screen again.
    Redraw,
    /// Esc by itself.
    Escape,
    Tab,
    BackTab,
    /// Ctrl-R: looks for a line of before.
    Search,
    /// Ctrl-S: the line is for the turn that runs.
    Steer,
    /// Ctrl-O: shows what was folded.
    Unfold,
    /// The terminal has got the focus.
    FocusIn,
    /// The terminal has lost it.
    FocusOut,
}

/// Keeps what may be the beginning of a key.
#[derive(Debug, Default)]
pub(super) struct Keys {
    rest: Vec<u8>,
    paste: Option<Paste>,
}

/// A paste whose end has not come. Nothing in it is a key, however long it is: what is pasted must not be typed.
#[derive(Debug, Default)]
struct Paste {
    text: Vec<u8>,
    /// How many bytes came after there was no more room.
    dropped: usize,
}

impl Keys {
    /// Whether an escape came alone so far: it is a key of its own if nothing follows it soon.
    pub(super) fn is_escape_pending(&self) -> bool {
        self.paste.is_none() && self.rest == b"\x1b"
    }

    /// Nothing followed.
    pub(super) fn end_escape(&mut self) -> Option<Key> {
        let pending = self.is_escape_pending();
        if pending {
            self.rest.clear();
        }
        pending.then_some(Key::Escape)
    }

    /// Keys that are complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend_from_slice(bytes);
        let (mut keys, mut taken) = (Vec::new(), 0);
        loop {
            let rest = &self.rest[taken..];
            if let Some(paste) = &mut self.paste {
                let (length, is_over) = paste.take(rest);
                taken += length;
                if !is_over {
                    break;
                }
                keys.extend(self.paste.take().into_iter().flat_map(Paste::keys));
            } else if rest.starts_with(PASTE_BEGINS) {
                taken += PASTE_BEGINS.len();
                self.paste = Some(Paste::default());
            } else {
                let Some((key, length)) = next(rest) else { break };
                taken += length;
                keys.extend(key);
            }
        }
        self.rest.drain(..taken);
        keys
    }
}

impl Paste {
    /// How many of these bytes belong to the paste, and whether it is over. What may be the beginning of its end is left.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        let end = bytes.windows(PASTE_ENDS.len()).position(|window| window == PASTE_ENDS);
        let length = end.unwrap_or((bytes.len() + 1).saturating_sub(PASTE_ENDS.len()));
        let kept = length.min(LONGEST_PASTE - self.text.len());
        self.text.extend_from_slice(&bytes[..kept]);
        self.dropped += length - kept;
        (length + end.map_or(0, |_| PASTE_ENDS.len()), end.is_some())
    }

    fn keys(self) -> impl Iterator<Item = Key> {
        let text = String::from_utf8_lossy(&self.text).replace("\r\n", "\n").replace('\r', "\n");
        let cut = (self.dropped > 0).then_some(Key::PasteCut(self.dropped));
        [Key::Paste(text)].into_iter().chain(cut)
    }
}

/// The first key and how long it is; `None` while it is not complete.
fn next(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match *bytes.first()? {
        b'\x1b' => escape(bytes),
        byte @ (0..=0x1f | 0x7f) => Some((control(byte), 1)),
        _ => ch(bytes),
    }
}

fn control(byte: u8) -> Option<Key> {
    Some(match byte {
        b'\r' | b'\n' => Key::Enter,
        0x7f | 0x08 => Key::Backspace,
        0x01 => Key::Home,
        0x02 => Key::Left,
        0x04 => Key::EndOfInput,
        0x05 => Key::End,
        0x06 => Key::Right,
        0x0b => Key::EraseBehind,
        0x0c => Key::Redraw,
        0x0e => Key::Down,
        0x10 => Key::Up,
        0x15 => Key::EraseBefore,
        0x17 => Key::EraseWord,
        0x0f => Key::Unfold,
        0x12 => Key::Search,
        0x13 => Key::Steer,
        b'\t' => Key::Tab,
        _ => return None,
    })
}

/// One letter of UTF-8. What is none is passed over, byte by byte.
fn ch(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let head = &bytes[..bytes.len().min(4)];
    let valid = match str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        Err(error) if error.error_len().is_none() => return None,
        Err(_) => return Some((None, 1)),
    };
    let ch = valid.chars().next()?;
    Some((Some(Key::Char(ch)), ch.len_utf8()))
}

fn escape(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes.get(1)? {
        b'[' | b'O' => sequence(bytes),
        b'\r' | b'\n' => Some((Some(Key::Char('\n')), 2)),
        b'b' => Some((Some(Key::WordLeft), 2)),
        b'f' => Some((Some(Key::WordRight), 2)),
        0x7f | 0x08 => Some((Some(Key::EraseWord), 2)),
        b'\x1b' => Some((Some(Key::Escape), 1)),
        _ => Some((None, 2)),
    }
}

/// `ESC [ … X`: ends with a letter or a tilde.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let end = bytes[2..].iter().take(LONGEST_SEQUENCE).position(|byte| matches!(byte, 0x40..=0x7e));
    let Some(end) = end.map(|end| 2 + end) else {
        // No key is that long: it is passed over.
        return (bytes.len() > LONGEST_SEQUENCE + 2).then_some((None, LONGEST_SEQUENCE + 2));
    };
    let key = match &bytes[2..=end] {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"C" => Some(Key::Right),
        b"D" => Some(Key::Left),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"3~" => Some(Key::Delete),
        b"Z" => Some(Key::BackTab),
        b"I" if bytes[1] == b'[' => Some(Key::FocusIn),
        b"O" if bytes[1] == b'[' => Some(Key::FocusOut),
        b"1;5C" | b"1;3C" => Some(Key::WordRight),
        b"1;5D" | b"1;3D" => Some(Key::WordLeft),
        _ => None,
    };
    Some((key, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_however_the_bytes_are_cut() {
        let bytes = "aä\x1b[A\x1b[1;5D\x1b[200~x\ny\x1b[201~\x7f\x1b\r\n".as_bytes();
        let expected = [
            Key::Char('a'),
            Key::Char('ä'),
            Key::Up,
            Key::WordLeft,
            Key::Paste("x\ny".to_owned()),
            Key::Backspace,
            Key::Char('\n'),
            Key::Enter,
        ];
        assert_eq!(Keys::default().feed(bytes), expected);
        let mut keys = Keys::default();
        let cut: Vec<Key> = bytes.chunks(1).flat_map(|byte| keys.feed(byte)).collect();
        assert_eq!(cut, expected);
    }

    #[test]
    fn a_long_paste_is_searched_once_for_its_end() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(PASTE_BEGINS), []);
        for read in 1..=200 {
            assert_eq!(keys.feed(&[b'x'; 1_000]), []);
            assert!(
                keys.rest.len() < PASTE_ENDS.len(),
                "only what is new is searched at the next read, not {read} reads"
            );
        }
        assert_eq!(keys.feed(b"\x1b[20"), []);
        let ended = keys.feed(b"1~a");
        assert!(matches!(&ended[..], [Key::Paste(text), Key::Char('a')] if text.len() == 200_000));
        assert_eq!(keys.feed(b"\x1b[200~y\x1b[201~"), [Key::Paste("y".to_owned())]);
    }

    #[test]
    fn the_terminal_says_whether_it_has_the_focus() {
        assert_eq!(Keys::default().feed(b"\x1b[Ia\x1b[O"), [Key::FocusIn, Key::Char('a'), Key::FocusOut]);
    }

    #[test]
    fn an_escape_is_a_key_if_nothing_follows_it() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\x1b"), []);
        assert!(keys.is_escape_pending());
        assert_eq!(keys.feed(b"[A"), [Key::Up]);
        assert_eq!(keys.end_escape(), None);
        assert_eq!(keys.feed(b"\x1b"), []);
        assert_eq!(keys.end_escape(), Some(Key::Escape));
        assert_eq!(keys.feed(b"a"), [Key::Char('a')]);
    }

    #[test]
    fn rubbish_is_passed_over() {
        assert_eq!(Keys::default().feed(b"\xff\x1b[99;99Xa\x00"), [Key::Char('a')]);
        let endless = [b"\x1b[".as_slice(), &[b'1'; 200], b"mb"].concat();
        assert_eq!(Keys::default().feed(&endless).last(), Some(&Key::Char('b')));
    }

    #[test]
    fn a_paste_ends_where_the_terminal_says_so_and_nothing_of_one_that_is_too_long_is_typed() {
        let too_long =
            [PASTE_BEGINS, &vec![b'x'; LONGEST_PASTE], b"\r!rm -rf .\r\x1b[A\x03", PASTE_ENDS, b"a"].concat();
        let dropped = b"\r!rm -rf .\r\x1b[A\x03".len();
        // However the reads cut it: 1024 bytes a read is what a terminal gives.
        for size in [1_024, 1_021, too_long.len()] {
            let mut keys = Keys::default();
            let pressed: Vec<Key> = too_long.chunks(size).flat_map(|read| keys.feed(read)).collect();
            let [Key::Paste(text), cut, behind] = &pressed[..] else { panic!("{} keys", pressed.len()) };
            assert_eq!(text.len(), LONGEST_PASTE);
            assert_eq!((cut, behind), (&Key::PasteCut(dropped), &Key::Char('a')));
        }
        let whole = [PASTE_BEGINS, &vec![b'x'; LONGEST_PASTE], PASTE_ENDS].concat();
        assert_eq!(Keys::default().feed(&whole).len(), 1, "one that just fits is not cut");
        // A terminal that never says so types nothing.
        let mut keys = Keys::default();
        assert_eq!(keys.feed(&[PASTE_BEGINS, b"!x\r\x1b"].concat()), []);
        assert!(!keys.is_escape_pending());
        assert_eq!(keys.feed(b"[201~"), [Key::Paste("!x\n".to_owned())]);
    }
}
