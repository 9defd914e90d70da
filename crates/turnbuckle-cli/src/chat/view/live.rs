//! The live part of the screen, from top to bottom.

use super::super::screen::Live;
use super::super::styled::Row;
use super::{View, WIDEST, labelled};
use std::time::Instant;

use crate::show::{INDENT, Palette, Tone, clean};
use unicode_width::UnicodeWidthStr as _;

/// How much of the screen the text that is being typed may take, and what is queued.
const MOST_TYPED: usize = 10;
const MOST_QUEUED: usize = 4;

impl View {
    /// Lays the live part out. What does not fit goes up into the scrollback, as far as it does not change any more.
    pub(super) fn live_part(&mut self, width: usize, height: usize) -> Live {
        let (mut typed, cursor_row, cursor_column) = self.typed(width, height);
        let mut middle = self.below.clone();
        middle.extend(self.cards.rows(width.min(WIDEST)));
        if !self.thinking.trim().is_empty() {
            let last: String =
                self.thinking.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().into();
            middle.extend(labelled("thinking", vec![Row::dim(last.trim())], false));
        }
        middle.extend(self.waiting());
        let status = self.status.row(self.cards.running_hooks(), width.saturating_sub(1), Instant::now());
        let fixed = typed.len() + 1;
        // One row stays free, so that the terminal never scrolls by itself. What keys do is seen, however much is at work.
        let room = height.saturating_sub(fixed + 2);
        middle.truncate(room.saturating_sub(self.hint.len()));
        middle.extend(self.hint.iter().cloned());
        middle.truncate(room);
        let room = height.saturating_sub(fixed + middle.len() + 1).max(1);
        let mut rows = self.spoken(room);
        let above = rows.len() + middle.len();
        rows.extend(middle);
        rows.append(&mut typed);
        rows.push(status);
        let rows = rows.into_iter().map(|row| row.cut(width.saturating_sub(1))).collect();
        Live { rows, cursor_row: above + cursor_row, cursor_column }
    }

    /// The reply as far as there is room for it.
    fn spoken(&mut self, room: usize) -> Vec<Row> {
        if let Some((struck, _)) = &self.struck {
            return struck[struck.len().saturating_sub(room)..].to_vec();
        }
        let Some(reply) = &mut self.reply else { return Vec::new() };
        let rows = reply.rows();
        let Some(too_many) = rows.len().checked_sub(room).filter(|too_many| *too_many > 0) else { return rows };
        self.above.extend(reply.take(too_many));
        let rows = reply.rows();
        // A block that is larger than the screen and not complete.
        rows[rows.len().saturating_sub(room)..].to_vec()
    }

    /// Messages that wait.
    fn waiting(&self) -> Vec<Row> {
        let queued = self.sent.iter().filter(|sent| sent.is_queued).map(|sent| ("queued", sent.text.as_str()));
        let all: Vec<(&str, &str)> =
            self.steering.iter().map(|steering| ("steering", steering.text.as_str())).chain(queued).collect();
        let mut rows: Vec<Row> = Vec::new();
        for (label, text) in all.iter().take(MOST_QUEUED) {
            let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            rows.extend(labelled(label, vec![Row::dim(&line)], false));
        }
        if all.len() > MOST_QUEUED {
            rows.extend(labelled("", vec![Row::dim(&format!("… {} more", all.len() - MOST_QUEUED))], true));
        }
        rows
    }

    /// The line being typed behind its label, and the place of the cursor.
    fn typed(&self, width: usize, height: usize) -> (Vec<Row>, usize, usize) {
        let palette: Palette = self.screen.palette();
        let label = match self.draft.searches_for() {
            Some(query) => format!("search {query:?} › "),
            None => self.label.0.clone(),
        };
        let label = Row::of(&label, palette.style(self.label.1));
        let indent = label.width().min(width / 2);
        let shown = self.draft.rows(width.saturating_sub(indent + 1), MOST_TYPED.min(height / 3).max(1));
        let mut label = Some(label);
        let rows = shown.rows.iter().map(|text| {
            let row = Row::plain(&clean(text));
            match label.take() {
                Some(label) => row.behind(label.cut(indent.max(1))),
                None => row.behind(Row::plain(&" ".repeat(indent))),
            }
        });
        (rows.collect(), shown.row, indent + shown.column)
    }

    /// Keys and what they do: as many beside each other as fit, so that none is cut off.
    pub(in super::super) fn set_keys(&mut self, keys: &[&str]) {
        let lines = beside_each_other(keys, self.text_width());
        self.set_hint(&lines);
    }

    /// Keys and completions stand below what happens.
    pub(in super::super) fn set_hint(&mut self, lines: &[String]) {
        let style = self.screen.palette().style(Tone::Dim);
        let rows = lines.iter().map(|line| Row::of(line, style).behind(Row::plain(&" ".repeat(INDENT)))).collect();
        if self.hint != rows {
            self.hint = rows;
            self.changed = true;
        }
    }
}

fn beside_each_other(keys: &[&str], room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for key in keys {
        match lines.last_mut() {
            Some(line) if line.width() + 3 + key.width() <= room => line.push_str(&format!(" · {key}")),
            _ => lines.push((*key).to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_below_each_other_where_there_is_no_room() {
        let keys = ["a approves", "d denies", "e edits", "A always"];
        assert_eq!(beside_each_other(&keys, 60), ["a approves · d denies · e edits · A always"]);
        assert_eq!(beside_each_other(&keys, 29), ["a approves · d denies", "e edits · A always"]);
        assert_eq!(beside_each_other(&keys, 5), keys);
        assert!(beside_each_other(&[], 5).is_empty());
    }
}
