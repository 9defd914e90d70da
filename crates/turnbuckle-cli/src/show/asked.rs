//! Lines of a question. What is asked about is chosen by a model: no part of it may look like another line of the question.

use super::safe::clean;
use super::wrap::{columns, rows};

/// Before every row but the first of a line. No line of a question begins with it: names of arguments that have such a sign are quoted.
pub(crate) const GUTTER: &str = "│ ";
const GUTTER_WIDTH: usize = 2;
/// So many columns of blanks in a row are shown as signs, unless a line is indented with them.
const MANY_BLANKS: usize = 4;

/// A row of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskedRow {
    pub(crate) text: String,
    /// Whether it is a part of the line above, and stands behind the [`GUTTER`].
    pub(crate) goes_on: bool,
}

/// The rows of a line of a question, broken between words. A line end in it begins no line of the question.
pub(crate) fn asked_rows(text: &str, room: usize) -> Vec<AskedRow> {
    let room = room.saturating_sub(GUTTER_WIDTH).max(2);
    marked(clean(text).split('\n').flat_map(|line| rows(&with_blanks_shown(line), room, columns)))
}

/// The rows of a line of a diff, cut where a row is full. Its sign stands before its first row only.
pub(crate) fn diff_rows(line: &str, room: usize) -> Vec<AskedRow> {
    let room = room.saturating_sub(GUTTER_WIDTH).max(2);
    let line = clean(line).replace('\n', " ");
    // Behind the sign a line is indented, and the blank before an unchanged line is a sign.
    let sign = line.chars().next().filter(|sign| matches!(sign, '+' | '-' | ' '));
    let text = with_blanks_shown(&line[sign.map_or(0, char::len_utf8)..]);
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    for ch in sign.into_iter().chain(text.chars()) {
        if used + columns(ch) > room && used > 0 {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        row.push(ch);
        used += columns(ch);
    }
    rows.push(row);
    marked(rows.into_iter())
}

/// A line of a question as text, for a screen that has so much room. Where it goes to no screen it stays as it is.
pub(crate) fn asked_text(text: &str, room: Option<usize>) -> String {
    room.map_or_else(|| text.to_owned(), |room| joined(asked_rows(text, room)))
}

/// A diff as text, for a screen that has so much room.
pub(crate) fn diff_text(diff: &str, room: Option<usize>) -> String {
    let Some(room) = room else { return diff.to_owned() };
    joined(diff.lines().flat_map(|line| diff_rows(line, room)))
}

fn joined(rows: impl IntoIterator<Item = AskedRow>) -> String {
    let shown = |row: AskedRow| if row.goes_on { format!("{GUTTER}{}", row.text) } else { row.text };
    rows.into_iter().map(shown).collect::<Vec<_>>().join("\n")
}

fn marked(rows: impl Iterator<Item = String>) -> Vec<AskedRow> {
    rows.enumerate().map(|(place, text)| AskedRow { text, goes_on: place > 0 }).collect()
}

/// How many columns a character leaves blank; `None` if it is seen.
fn blank_columns(ch: char) -> Option<usize> {
    match ch {
        '\t' => Some(4),
        // A braille pattern without dots is no white space to Unicode.
        '\u{2800}' => Some(1),
        ch if ch.is_whitespace() => Some(columns(ch).max(1)),
        _ => None,
    }
}

/// The same with long runs of blanks as signs: they could push what is behind them to where another line would begin, or out of
/// sight. Blanks and tabs that a line begins with are kept.
pub(super) fn with_blanks_shown(line: &str) -> String {
    let indented = line.len() - line.trim_start_matches([' ', '\t']).len();
    let mut shown = line[..indented].replace('\t', "    ");
    let mut blanks = 0;
    let end_run = |shown: &mut String, blanks: &mut usize| {
        shown.push_str(&if *blanks < MANY_BLANKS { " " } else { "·" }.repeat(*blanks));
        *blanks = 0;
    };
    for ch in line[indented..].chars() {
        match blank_columns(ch) {
            Some(columns) => blanks += columns,
            None => {
                end_run(&mut shown, &mut blanks);
                shown.push(ch);
            }
        }
    }
    end_run(&mut shown, &mut blanks);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_of_a_value_looks_like_another_field() {
        for room in [29, 89] {
            for filler in
                [" ".repeat(room), "x".repeat(room - 6), format!("{} ", "word ".repeat(room / 5)), "\n".to_owned()]
            {
                let rows = asked_rows(&format!("path: {filler}command: ls"), room);
                assert!(rows[0].text.starts_with("path:") && !rows[0].goes_on, "{rows:?}");
                assert!(rows.len() > 1 && rows[1..].iter().all(|row| row.goes_on), "{rows:?}");
                let text = asked_text(&format!("path: {filler}command: ls"), Some(room));
                assert!(text.lines().skip(1).all(|row| row.starts_with(GUTTER)), "{text}");
            }
        }
    }

    #[test]
    fn no_row_of_a_diff_looks_like_a_field_or_another_line_of_the_diff() {
        let room = 89;
        let lines = [
            format!("+x{}path: b.txt and more", " ".repeat(88)),
            format!("+{}- c", "z".repeat(88)),
            format!("+{}- c", "z".repeat(87)),
            format!("+{}path: b.txt", " ".repeat(88)),
            format!("+{}path: b.txt", "\t".repeat(22)),
        ];
        for line in &lines {
            let rows = diff_rows(line, room);
            assert!(rows[0].text.starts_with('+') && rows.len() > 1, "{rows:?}");
            assert!(rows[1..].iter().all(|row| row.goes_on), "{rows:?}");
            assert!(diff_text(line, Some(room)).lines().skip(1).all(|row| row.starts_with(GUTTER)));
        }
        assert!(diff_text(&lines[0], Some(room)).starts_with("+x····"));
        assert_eq!(diff_text("+    if x {", Some(room)), "+    if x {");
        assert_eq!(diff_text("     same", Some(room)), "     same");
        assert_eq!(diff_text(&lines[0], None), lines[0]);
    }

    #[test]
    fn no_row_is_wider_than_the_room() {
        for text in ["one two three four five", "abcdefghijklmnop qr", "日本語 日本語 日本", "x      y\t\tz", ""]
        {
            for room in 4..24 {
                for row in asked_rows(text, room).into_iter().chain(diff_rows(text, room)) {
                    assert!(row.text.chars().map(columns).sum::<usize>() + GUTTER_WIDTH <= room.max(4), "{row:?}");
                }
            }
        }
    }

    #[test]
    fn many_blanks_are_seen_and_indentation_stays() {
        assert_eq!(with_blanks_shown("      if x {"), "      if x {");
        assert_eq!(with_blanks_shown("\tif x {"), "    if x {");
        assert_eq!(with_blanks_shown("a b  c    d"), "a b  c····d");
        assert_eq!(with_blanks_shown("a     "), "a·····");
        assert_eq!(with_blanks_shown("a\t\tb"), "a········b");
    }

    #[test]
    fn blanks_of_all_kinds_are_seen() {
        for (blank, columns) in [('\u{a0}', 1), ('\u{2003}', 1), ('\u{2800}', 1), ('\u{3000}', 2), ('\u{205f}', 1)] {
            let shown = asked_text(&format!("a{}b", blank.to_string().repeat(8)), Some(80));
            assert_eq!(shown, format!("a{}b", "·".repeat(8 * columns)), "{blank:?}");
            assert!(with_blanks_shown(&format!("{}b", blank.to_string().repeat(8))).starts_with('·'), "{blank:?}");
        }
        for filler in ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'] {
            assert_eq!(asked_text(&format!("a{filler}b"), Some(80)), "a\u{fffd}b");
        }
        // One between words is an ordinary blank.
        assert_eq!(with_blanks_shown("quoi\u{a0}?"), "quoi ?");
    }
}
