//! The text that a person is typing: letters, a cursor, folded pastes, and the texts before it.

mod layout;
mod search;

use self::search::Search;
use super::keys::Key;

/// How many texts are remembered.
pub(super) const REMEMBERED: usize = 500;
/// A longer text is not remembered.
const LONGEST_REMEMBERED: usize = 16 * 1024;
/// A paste of more lines or letters is folded into a word.
const FOLDED_LINES: usize = 8;
const FOLDED_LETTERS: usize = 1_000;
/// Letters that stand for folded pastes. They are private to a program, so nobody types them; what is pasted loses them.
const FIRST_PASTE: u32 = 0x0010_0000;
const MOST_PASTES: usize = 256;

/// What a key made of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// It changed, or nothing did.
    Nothing,
    /// A whole text, ended with Enter.
    Line(String),
    /// A whole text for the turn that runs.
    Steer(String),
    /// Ctrl-D on an empty line.
    End,
    /// A key that is not for the text.
    Other(Key),
}

/// A paste that is folded.
#[derive(Debug)]
struct Pasted {
    text: String,
    /// What stands for it. It is made once: the text is drawn again with every key, and a paste may be long.
    word: String,
}

/// Kept as letters: the cursor stands before one of them, or at the end.
#[derive(Debug, Default)]
pub(super) struct Draft {
    chars: Vec<char>,
    cursor: usize,
    pastes: Vec<Pasted>,
    history: Vec<String>,
    /// Where in the history the person is; at its end, `unsent` is what they had typed.
    place: usize,
    unsent: Vec<char>,
    search: Option<Search>,
    /// Set aside while a question is answered.
    aside: Option<Vec<char>>,
}

impl Draft {
    /// With what was typed in earlier sessions, oldest first.
    pub(super) fn with_history(history: Vec<String>) -> Self {
        Self { place: history.len(), history, ..Self::default() }
    }

    pub(super) fn press(&mut self, key: Key) -> Typed {
        if self.search.is_some()
            && let Some(typed) = self.press_in_search(&key)
        {
            return typed;
        }
        match key {
            Key::Enter if self.chars.last() == Some(&'\\') && self.cursor == self.chars.len() => {
                self.chars.pop();
                self.cursor -= 1;
                self.insert(&['\n']);
            }
            Key::Enter => return Typed::Line(self.enter()),
            Key::Steer => return Typed::Steer(self.enter()),
            Key::EndOfInput if self.chars.is_empty() => return Typed::End,
            Key::EndOfInput | Key::Delete => self.erase(self.cursor, (self.cursor + 1).min(self.chars.len())),
            Key::Backspace => self.erase(self.cursor.saturating_sub(1), self.cursor),
            Key::EraseBefore => self.erase(self.line_begin(), self.cursor),
            Key::EraseBehind => self.erase(self.cursor, self.line_end()),
            Key::EraseWord => self.erase(self.word_before(), self.cursor),
            Key::Char(ch) => self.insert(&[ch]),
            Key::Paste(text) => self.paste(&text),
            Key::Left => self.cursor = self.cursor.saturating_sub(1),
            Key::Right => self.cursor = (self.cursor + 1).min(self.chars.len()),
            Key::WordLeft => self.cursor = self.word_before(),
            Key::WordRight => self.cursor = self.word_behind(),
            Key::Home => self.cursor = self.line_begin(),
            Key::End => self.cursor = self.line_end(),
            Key::Up if self.line_begin() > 0 => self.move_up(),
            Key::Down if self.line_end() < self.chars.len() => self.move_down(),
            Key::Up => self.recall(self.place.saturating_sub(1)),
            Key::Down => self.recall((self.place + 1).min(self.history.len())),
            Key::Search => self.begin_search(),
            other @ (Key::Redraw
            | Key::Escape
            | Key::Tab
            | Key::BackTab
            | Key::Unfold
            | Key::PasteCut(_)
            | Key::FocusIn
            | Key::FocusOut) => return Typed::Other(other),
        }
        Typed::Nothing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chars.is_empty() && self.search.is_none()
    }

    /// The text, with all that was pasted.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for ch in &self.chars {
            match self.paste_of(*ch) {
                Some(paste) => text.push_str(&paste.text),
                None => text.push(*ch),
            }
        }
        text
    }

    /// The text before the cursor, as it is shown.
    pub(super) fn before_cursor(&self) -> String {
        self.chars[..self.cursor].iter().collect()
    }

    /// Puts another text in the place of what was typed.
    pub(super) fn replace(&mut self, text: &str) {
        self.clear();
        self.chars = letters(text).collect();
        self.cursor = self.chars.len();
    }

    /// Adds lines to what was typed, at this letter or at its end, also while an answer is being typed. Returns the place behind
    /// them.
    pub(super) fn keep(&mut self, text: &str, at: usize) -> usize {
        let letters = self.folded(text);
        let chars = self.aside.as_mut().unwrap_or(&mut self.chars);
        let at = at.min(chars.len());
        let begins_a_line = at == 0 || chars[at - 1] == '\n';
        let line_end = (!begins_a_line).then_some('\n');
        let added: Vec<char> = line_end.into_iter().chain(letters).chain(['\n']).collect();
        let behind = at + added.len();
        chars.splice(at..at, added);
        if self.aside.is_none() && self.cursor >= at {
            self.cursor += behind - at;
        }
        behind
    }

    /// Puts other letters in the place of the last `count` before the cursor.
    pub(super) fn complete(&mut self, count: usize, text: &str) {
        self.erase(self.cursor - count.min(self.cursor), self.cursor);
        self.insert(&letters(text).collect::<Vec<_>>());
    }

    /// Throws it away.
    pub(super) fn clear(&mut self) {
        self.chars.clear();
        self.search = None;
        (self.cursor, self.place) = (0, self.history.len());
        if self.aside.is_none() {
            self.pastes.clear();
        }
    }

    /// Makes room for an answer: what was typed for something else must not become one.
    pub(super) fn set_aside(&mut self) {
        if self.aside.is_none() {
            self.search = None;
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

    /// Whether an answer is being typed, and not a message.
    pub(super) fn is_aside(&self) -> bool {
        self.aside.is_some()
    }

    fn enter(&mut self) -> String {
        let text = self.text();
        // Answers are not worth remembering.
        if self.aside.is_none()
            && !text.trim().is_empty()
            && text.len() <= LONGEST_REMEMBERED
            && self.history.last() != Some(&text)
        {
            self.history.push(text.clone());
            if self.history.len() > REMEMBERED {
                self.history.remove(0);
            }
        }
        self.clear();
        text
    }

    fn paste_of(&self, ch: char) -> Option<&Pasted> {
        let place = (ch as u32).checked_sub(FIRST_PASTE)?;
        self.pastes.get(place as usize)
    }

    fn paste(&mut self, text: &str) {
        let letters = self.folded(text);
        self.insert(&letters);
    }

    /// The letters of a text, or one that stands for all of it if it is long.
    fn folded(&mut self, text: &str) -> Vec<char> {
        let chars: Vec<char> = letters(text).collect();
        let lines = chars.iter().filter(|ch| **ch == '\n').count() + 1;
        let is_long = lines > FOLDED_LINES || chars.len() > FOLDED_LETTERS;
        let stand_in = u32::try_from(self.pastes.len()).ok().and_then(|place| char::from_u32(FIRST_PASTE + place));
        match stand_in.filter(|_| is_long && self.pastes.len() < MOST_PASTES) {
            Some(stand_in) => {
                self.pastes.push(Pasted::of(chars.into_iter().collect()));
                vec![stand_in]
            }
            None => chars,
        }
    }

    fn insert(&mut self, chars: &[char]) {
        self.chars.splice(self.cursor..self.cursor, chars.iter().copied());
        self.cursor += chars.len();
    }

    fn erase(&mut self, from: usize, to: usize) {
        self.chars.drain(from..to);
        self.cursor = from;
    }

    fn line_begin(&self) -> usize {
        self.chars[..self.cursor].iter().rposition(|ch| *ch == '\n').map_or(0, |end| end + 1)
    }

    fn line_end(&self) -> usize {
        let behind = self.chars[self.cursor..].iter().position(|ch| *ch == '\n');
        behind.map_or(self.chars.len(), |length| self.cursor + length)
    }

    fn move_up(&mut self) {
        let (begin, column) = (self.line_begin(), self.cursor - self.line_begin());
        self.cursor = begin - 1;
        self.cursor = (self.line_begin() + column).min(begin - 1);
    }

    fn move_down(&mut self) {
        let column = self.cursor - self.line_begin();
        self.cursor = self.line_end() + 1;
        self.cursor = (self.cursor + column).min(self.line_end());
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
            Some(line) => letters(line).collect(),
            None => std::mem::take(&mut self.unsent),
        };
        (self.place, self.cursor) = (place, self.chars.len());
    }
}

impl Pasted {
    fn of(text: String) -> Self {
        let word = match text.lines().count() {
            lines @ 2.. => format!("[{lines} pasted lines]"),
            _ => format!("[{} pasted letters]", text.chars().count()),
        };
        Self { text, word }
    }
}

/// What may be typed: no control characters but line ends and tabs, and nothing that stands for a paste.
fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|ch| (!ch.is_control() || matches!(ch, '\n' | '\t')) && (*ch as u32) < FIRST_PASTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn typed(text: &str) -> Draft {
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
        assert_eq!(draft.text(), "one two  ");
        draft.press(Key::WordLeft);
        draft.press(Key::Char('x'));
        assert_eq!(draft.text(), "one xtwo  ");
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
        assert_eq!(draft.text(), "first");
        draft.press(Key::Down);
        assert_eq!(draft.text(), "n");
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
    fn lines_are_added_and_the_cursor_moves_between_them() {
        let mut draft = typed("one\\");
        draft.press(Key::Enter);
        for ch in "second".chars() {
            draft.press(Key::Char(ch));
        }
        assert_eq!(draft.text(), "one\nsecond");
        draft.press(Key::Up);
        draft.press(Key::Char('!'));
        assert_eq!(draft.text(), "one!\nsecond");
        draft.press(Key::Down);
        draft.press(Key::EraseBefore);
        assert_eq!(draft.text(), "one!\nnd");
    }

    #[test]
    fn lines_that_were_not_sent_are_added_in_order_and_are_no_answer() {
        let mut draft = typed("two");
        let behind = draft.keep("zero", 0);
        draft.keep("three", usize::MAX);
        draft.set_aside();
        draft.keep("one", behind);
        assert_eq!(draft.press(Key::Enter), Typed::Line(String::new()));
        draft.take_up();
        assert_eq!(draft.press(Key::Enter), Typed::Line("zero\none\ntwo\nthree\n".to_owned()));
    }

    #[test]
    fn tabs_of_a_paste_stay_tabs() {
        let mut draft = Draft::default();
        let (short, long) = ("all:\n\tcc a.c\n", "\tx := 1\n".repeat(100));
        draft.press(Key::Paste(short.to_owned()));
        draft.press(Key::Paste(long.clone()));
        assert_eq!(draft.text(), format!("{short}{long}"));
        assert_eq!(draft.rows(40, 4).rows, ["all:", "    cc a.c", "[100 pasted lines]"]);
    }

    #[test]
    fn a_long_paste_is_one_letter_until_it_is_sent() {
        let mut draft = typed("look: ");
        let paste = "a line\n".repeat(10_000);
        draft.press(Key::Paste(paste.clone()));
        draft.press(Key::Char('!'));
        assert_eq!(draft.chars.len(), 8);
        draft.press(Key::Left);
        draft.press(Key::Left);
        draft.press(Key::Char('>'));
        assert_eq!(draft.press(Key::Enter), Typed::Line(format!("look: >{paste}!")));
        assert!(draft.pastes.is_empty());
        draft.press(Key::Paste("\u{100000}short".to_owned()));
        assert_eq!(draft.text(), "short", "nothing that is pasted stands for a paste");
    }
}
