//! Breaks text into rows that fit a width, in time linear in the length of the text.
//!
//! A model may answer with one line of a megabyte, or one word of that size. Every character is measured at most twice,
//! whatever the text looks like: no row and no word is measured again from its beginning.

use unicode_width::UnicodeWidthChar as _;

/// How many columns a character takes at most. The second code point of an emoji sequence can widen the first one by a
/// column, depending on the terminal; counting it wraps such a line early instead of late.
pub(crate) fn columns(ch: char) -> usize {
    match ch {
        '\u{fe0f}' => 1,
        ch => ch.width().unwrap_or(0),
    }
}

/// The rows of one line, which has no line end in it. Rows break between words; a word that is wider than a row is cut.
/// Spaces at the beginning of the line are kept, because they may point at something; spaces at the end of a row are not.
/// `columns` measures a character.
pub(super) fn rows(line: &str, room: usize, mut columns: impl FnMut(char) -> usize) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = Row::default();
    for word in line.split_inclusive(' ') {
        let bare = word.trim_end_matches(' ');
        let width: usize = bare.chars().map(&mut columns).sum();
        if row.inked && row.width + width > room {
            rows.push(row.take());
        }
        if row.width + width <= room {
            row.text.push_str(bare);
            row.width += width;
        } else {
            for ch in bare.chars() {
                let width = columns(ch);
                if row.width + width > room && !row.text.is_empty() {
                    rows.push(row.take());
                }
                row.text.push(ch);
                row.width += width;
            }
        }
        row.inked |= !bare.is_empty();
        let spaces = &word[bare.len()..];
        row.text.push_str(spaces);
        row.width += spaces.len();
    }
    rows.push(row.take());
    rows
}

/// A row that is being filled.
#[derive(Default)]
struct Row {
    text: String,
    width: usize,
    /// Whether it holds anything but spaces.
    inked: bool,
}

impl Row {
    fn take(&mut self) -> String {
        let mut text = std::mem::take(self).text;
        text.truncate(text.trim_end_matches(' ').len());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a character was measured.
    fn measured(line: &str, room: usize) -> usize {
        let mut count = 0;
        let rows = rows(line, room, |ch| {
            count += 1;
            columns(ch)
        });
        let kept: String = rows.concat();
        assert!(kept.replace(' ', "") == line.replace(' ', ""), "nothing is lost but spaces");
        count
    }

    #[test]
    fn each_character_is_measured_at_most_twice() {
        let shapes = [
            "a ",
            "a",
            " ",
            "\u{301}",
            "日本 ",
            "word\u{2003}",
            "  x",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ",
        ];
        for shape in shapes {
            let line = shape.repeat(100_000 / shape.len());
            for room in [20, 100, usize::MAX] {
                assert!(measured(&line, room) <= 2 * line.chars().count(), "{shape:?} in {room} columns");
            }
        }
    }

    #[test]
    fn no_row_is_wider_than_the_room() {
        for line in
            ["one two three four", "abcdefghijkl mn", "          far too far to the right", "日本語 日本語", "x     y"]
        {
            for room in 4..20 {
                let wide = |row: &String| row.chars().map(columns).sum::<usize>() > room;
                assert_eq!(rows(line, room, columns).into_iter().find(wide), None, "{line:?} in {room} columns");
            }
        }
    }

    #[test]
    fn a_word_that_fills_a_row_keeps_no_space_for_the_next() {
        assert_eq!(rows("abcdeabcde x", 5, columns), ["abcde", "abcde", "x"]);
        assert_eq!(rows("  ab cd", 5, columns), ["  ab", "cd"]);
        assert_eq!(rows("", 5, columns), [""]);
    }
}
