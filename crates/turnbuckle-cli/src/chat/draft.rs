//! The line that a person is typing: letters, a cursor, and the lines before it.

use unicode_width::UnicodeWidthChar as _;

use super::keys::Key;

/// How many lines are remembered.
const REMEMBERED: usize = 200;

/// What a key made of the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// It changed, or nothing did.
    Nothing,
    /// A whole line, ended with Enter.
    Line(String),
    /// Ctrl-D on an empty line.
    End,
}

/// Kept as letters: the cursor stands before one of them, or at the end.
#[derive(Debug, Default)]
pub(super) struct Draft {
    chars: Vec<char>,
    cursor: usize,
    history: Vec<String>,
    /// Where in the history the person is; at its end, `unsent` is what they had typed.
    place: usize,
    unsent: Vec<char>,
    /// Set aside while a question is answered.
    aside: Option<Vec<char>>,
}

impl Draft {
    pub(super) fn press(&mut self, key: Key) -> Typed {
        match key {
            Key::Enter => return self.enter(),
            Key::EndOfInput if self.chars.is_empty() => return Typed::End,
            Key::EndOfInput | Key::Delete => self.erase(self.cursor, (self.cursor + 1).min(self.chars.len())),
            Key::Backspace => self.erase(self.cursor.saturating_sub(1), self.cursor),
            Key::EraseBefore => self.erase(0, self.cursor),
            Key::EraseBehind => self.chars.truncate(self.cursor),
            Key::EraseWord => self.erase(self.word_before(), self.cursor),
            Key::Char(ch) => self.insert(&[ch]),
            Key::Paste(text) => {
                let whole: Vec<char> = text.chars().filter(|ch| !ch.is_control() || *ch == '\n').collect();
                self.insert(&whole);
            }
            Key::Left => self.cursor = self.cursor.saturating_sub(1),
            Key::Right => self.cursor = (self.cursor + 1).min(self.chars.len()),
            Key::WordLeft => self.cursor = self.word_before(),
            Key::WordRight => self.cursor = self.word_behind(),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = self.chars.len(),
            Key::Up => self.recall(self.place.saturating_sub(1)),
            Key::Down => self.recall((self.place + 1).min(self.history.len())),
            Key::Redraw => {}
        }
        Typed::Nothing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chars.is_empty()
    }

    /// Throws it away.
    pub(super) fn clear(&mut self) {
        self.chars.clear();
        (self.cursor, self.place) = (0, self.history.len());
    }

    /// Makes room for an answer: what was typed for something else must not become one.
    pub(super) fn set_aside(&mut self) {
        if self.aside.is_none() {
            self.aside = Some(std::mem::take(&mut self.chars));
        }
        self.clear();
    }

    /// Brings back what was set aside.
    pub(super) fn take_up(&mut self) {
        if let Some(chars) = self.aside.take() {
            (self.cursor, self.chars) = (chars.len(), chars);
        }
    }

    fn enter(&mut self) -> Typed {
        let line: String = self.chars.iter().collect();
        // Answers are not worth remembering.
        if self.aside.is_none() && !line.trim().is_empty() && self.history.last() != Some(&line) {
            self.history.push(line.clone());
            if self.history.len() > REMEMBERED {
                self.history.remove(0);
            }
        }
        self.clear();
        Typed::Line(line)
    }

    fn insert(&mut self, chars: &[char]) {
        self.chars.splice(self.cursor..self.cursor, chars.iter().copied());
        self.cursor += chars.len();
    }

    fn erase(&mut self, from: usize, to: usize) {
        self.chars.drain(from..to);
        self.cursor = from;
    }

    fn word_before(&self) -> usize {
        let before = &self.chars[..self.cursor];
        let end = before.iter().rposition(|ch| !ch.is_whitespace()).map_or(0, |last| last + 1);
        before[..end].iter().rposition(|ch| ch.is_whitespace()).map_or(0, |space| space + 1)
    }

    fn word_behind(&self) -> usize {
        let behind = &self.chars[self.cursor..];
        let begin = behind.iter().position(|ch| !ch.is_whitespace()).unwrap_or(behind.len());
        let length = behind[begin..].iter().position(|ch| ch.is_whitespace());
        self.cursor + begin + length.unwrap_or(behind.len() - begin)
    }

    fn recall(&mut self, place: usize) {
        if self.aside.is_some() || place == self.place {
            return;
        }
        if self.place == self.history.len() {
            self.unsent = std::mem::take(&mut self.chars);
        }
        self.chars = match self.history.get(place) {
            Some(line) => line.chars().collect(),
            None => std::mem::take(&mut self.unsent),
        };
        (self.place, self.cursor) = (place, self.chars.len());
    }

    /// What fits into so many columns with the cursor in sight, and the cursor's column in it.
    pub(super) fn window(&self, room: usize) -> (String, usize) {
        let shown = |ch: &char| if *ch == '\n' { '⏎' } else { *ch };
        let width = |ch: &char| shown(ch).width().unwrap_or(0);
        let (mut first, mut column) = (self.cursor, 0);
        for ch in self.chars[..self.cursor].iter().rev() {
            if column + width(ch) >= room {
                break;
            }
            column += width(ch);
            first -= 1;
        }
        let (mut text, mut used) = (String::new(), 0);
        for ch in &self.chars[first..] {
            used += width(ch);
            if used > room {
                break;
            }
            text.push(shown(ch));
        }
        (text, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Draft {
        let mut draft = Draft::default();
        for ch in text.chars() {
            draft.press(Key::Char(ch));
        }
        draft
    }

    #[test]
    fn words_and_ends_are_found() {
        let mut draft = typed("one two  three");
        draft.press(Key::EraseWord);
        assert_eq!(draft.window(80), ("one two  ".to_owned(), 9));
        draft.press(Key::WordLeft);
        draft.press(Key::Char('x'));
        assert_eq!(draft.window(80).0, "one xtwo  ");
        draft.press(Key::Home);
        draft.press(Key::WordRight);
        draft.press(Key::EraseBehind);
        assert_eq!(draft.press(Key::Enter), Typed::Line("one".to_owned()));
        assert_eq!(draft.press(Key::EndOfInput), Typed::End);
    }

    #[test]
    fn the_lines_before_come_back_and_so_does_the_one_begun() {
        let mut draft = typed("first");
        draft.press(Key::Enter);
        draft.press(Key::Char('n'));
        draft.press(Key::Up);
        assert_eq!(draft.window(80).0, "first");
        draft.press(Key::Down);
        assert_eq!(draft.window(80).0, "n");
    }

    #[test]
    fn what_was_typed_for_something_else_is_no_answer() {
        let mut draft = typed("y");
        draft.set_aside();
        assert_eq!(draft.press(Key::Enter), Typed::Line(String::new()));
        draft.take_up();
        assert_eq!(draft.press(Key::Enter), Typed::Line("y".to_owned()));
    }

    #[test]
    fn a_long_line_shows_where_the_cursor_is() {
        let mut draft = typed("abcdefgh");
        assert_eq!(draft.window(5), ("efgh".to_owned(), 4));
        draft.press(Key::Home);
        assert_eq!(draft.window(5), ("abcde".to_owned(), 0));
        assert_eq!(typed("日本").window(4).0, "本");
    }
}
