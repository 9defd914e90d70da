//! The text that is being typed, in rows.

use super::Draft;
use crate::show::columns;

/// The rows of a text, and where the cursor is in them.
pub(in super::super) struct DraftRows {
    pub(in super::super) rows: Vec<String>,
    pub(in super::super) row: usize,
    pub(in super::super) column: usize,
}

impl Draft {
    /// The text in rows of `room` columns, at most `most` of them: those around the cursor.
    pub(in super::super) fn rows(&self, room: usize, most: usize) -> DraftRows {
        let room = room.max(4);
        let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
        let (mut cursor_row, mut cursor_column) = (0, 0);
        for (place, ch) in self.chars.iter().enumerate() {
            if place == self.cursor {
                (cursor_row, cursor_column) = (rows.len(), used);
            }
            if *ch == '\n' {
                rows.push(std::mem::take(&mut row));
                used = 0;
                continue;
            }
            let shown = self.shown(*ch);
            let width: usize = shown.chars().map(columns).sum();
            if used + width > room && used > 0 {
                rows.push(std::mem::take(&mut row));
                used = 0;
                if place == self.cursor {
                    (cursor_row, cursor_column) = (rows.len(), 0);
                }
            }
            row.push_str(&shown);
            used += width;
        }
        if self.cursor == self.chars.len() {
            if used >= room {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
            (cursor_row, cursor_column) = (rows.len(), used);
        }
        rows.push(row);
        let first = (cursor_row + 1).saturating_sub(most.max(1));
        let rows: Vec<String> = rows.into_iter().skip(first).take(most.max(1)).collect();
        DraftRows { rows, row: cursor_row - first, column: cursor_column }
    }

    fn shown(&self, ch: char) -> String {
        match self.paste_of(ch) {
            Some(paste) => paste.word.clone(),
            // As everywhere on the screen.
            None if ch == '\t' => "    ".to_owned(),
            None => ch.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::Key;
    use super::super::tests::typed;

    #[test]
    fn a_long_text_shows_where_the_cursor_is() {
        let mut draft = typed("abcdefgh");
        let shown = draft.rows(4, 8);
        assert_eq!((shown.rows, shown.row, shown.column), (vec!["abcd".into(), "efgh".into(), String::new()], 2, 0));
        draft.press(Key::Home);
        let shown = draft.rows(5, 1);
        assert_eq!((shown.rows, shown.row, shown.column), (vec!["abcde".into()], 0, 0));
        assert_eq!(typed("日本語").rows(4, 8).rows, ["日本", "語"]);
        let shown = typed("a\nb\nc").rows(9, 2);
        assert_eq!((shown.rows, shown.row), (vec!["b".into(), "c".into()], 1));
    }

    #[test]
    fn pastes_are_shown_as_what_they_are() {
        let mut draft = typed("x");
        draft.press(Key::Paste("line\n".repeat(10_000)));
        assert_eq!(draft.rows(80, 4).rows, ["x[10000 pasted lines]"]);
    }
}
