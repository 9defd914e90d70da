//! Ctrl-R: the texts of before that hold some words, the last one first.

use super::super::keys::Key;
use super::{Draft, Typed, letters};

/// A search that is under way.
#[derive(Debug, Default)]
pub(super) struct Search {
    query: String,
    /// The place in the history of the text that was found.
    found: Option<usize>,
    /// What had been typed before.
    before: Vec<char>,
}

impl Draft {
    pub(super) fn begin_search(&mut self) {
        if self.aside.is_none() {
            let before = std::mem::take(&mut self.chars);
            self.cursor = 0;
            self.search = Some(Search { before, ..Search::default() });
        }
    }

    /// What is looked for, while something is.
    pub(in super::super) fn searches_for(&self) -> Option<&str> {
        self.search.as_ref().map(|search| search.query.as_str())
    }

    /// A key while a search is under way. `None`: the search is over, and the key is for the text that was found.
    pub(super) fn press_in_search(&mut self, key: &Key) -> Option<Typed> {
        let search = self.search.as_mut()?;
        let below = match key {
            Key::Char(ch) if *ch != '\n' => {
                search.query.push(*ch);
                self.history.len()
            }
            Key::Backspace => {
                search.query.pop();
                self.history.len()
            }
            Key::Search => search.found.unwrap_or(self.history.len()),
            Key::Escape | Key::EndOfInput => {
                let before = std::mem::take(&mut search.before);
                self.search = None;
                (self.cursor, self.chars) = (before.len(), before);
                return Some(Typed::Nothing);
            }
            Key::Enter => {
                // It is taken over, to be looked at before it is sent.
                self.search = None;
                return Some(Typed::Nothing);
            }
            _ => {
                self.search = None;
                return None;
            }
        };
        let query = search.query.to_lowercase();
        let matches = |text: &String| !query.is_empty() && text.to_lowercase().contains(&query);
        search.found = self.history[..below].iter().rposition(matches).or(search.found.filter(|_| *key == Key::Search));
        self.chars = search.found.map_or_else(Vec::new, |place| letters(&self.history[place]).collect());
        self.cursor = self.chars.len();
        Some(Typed::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_before_are_found_by_their_words() {
        let texts = ["fix the parser", "run the tests", "fix the lexer"].map(str::to_owned);
        let mut draft = Draft::with_history(texts.to_vec());
        draft.press(Key::Char('x'));
        draft.press(Key::Search);
        for ch in "FIX".chars() {
            draft.press(Key::Char(ch));
        }
        assert_eq!((draft.text().as_str(), draft.searches_for()), ("fix the lexer", Some("FIX")));
        draft.press(Key::Search);
        assert_eq!(draft.text(), "fix the parser");
        draft.press(Key::Search);
        assert_eq!(draft.text(), "fix the parser", "there is none before it");
        draft.press(Key::Escape);
        assert_eq!((draft.text().as_str(), draft.searches_for()), ("x", None));
        draft.press(Key::Search);
        draft.press(Key::Char('t'));
        draft.press(Key::Enter);
        assert_eq!(draft.text(), "fix the lexer");
        assert_eq!(draft.press(Key::Enter), Typed::Line("fix the lexer".to_owned()));
    }
}
