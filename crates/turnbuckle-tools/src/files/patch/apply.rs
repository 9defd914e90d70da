//! The hunks of a patch, applied to a text.

use std::borrow::Cow;

use super::{Hunk, Mark};
use crate::files::edit::is_crlf;

/// Why a hunk cannot be applied; hunks and lines count from 1.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(in crate::files) enum HunkError {
    #[error("hunk {hunk}: there is no line {section:?} behind the hunk before it")]
    NoSection { hunk: usize, section: String },
    #[error(
        "hunk {hunk}: its lines are not there{place}; the first of them is {first:?}. Read the file, and copy them exactly"
    )]
    NotFound { hunk: usize, first: String, place: &'static str },
    #[error("hunk {hunk}: its lines are there more than once, at lines {one} and {other}; add lines around them")]
    NotUnique { hunk: usize, one: usize, other: usize },
}

/// The text that the hunks make of `text`. They must be in order and fit exactly: a hunk is applied at its line, or at the only
/// place behind the hunk before it where its lines are.
pub(in crate::files) fn applied(text: &str, hunks: &[Hunk]) -> Result<String, HunkError> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    // Behind the last newline there is no line.
    let mut newline = lines.pop_if(|last| last.is_empty()).is_some();
    let crlf = is_crlf(text);
    let mut made: Vec<Cow<'_, str>> = Vec::new();
    let mut cursor = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        // A patch that is written with `\n` for a file whose lines end in `\r\n`.
        let adapts = crlf && hunk.lines.iter().all(|line| !line.text.ends_with('\r'));
        let at = Place { lines: &lines, cursor, adapts, number: index + 1 }.of(hunk)?;
        made.extend(lines[cursor..at].iter().map(|line| Cow::Borrowed(*line)));
        cursor = at;
        for line in &hunk.lines {
            match line.mark {
                Mark::Context => made.extend(lines.get(cursor).map(|line| Cow::Borrowed(*line))),
                Mark::Added if adapts && line.newline => made.push(Cow::Owned(format!("{}\r", line.text))),
                Mark::Added => made.push(Cow::Owned(line.text.clone())),
                Mark::Removed => {}
            }
            cursor += usize::from(line.mark != Mark::Added);
        }
        if cursor == lines.len() {
            newline = ends_with_newline(hunk, newline, lines.is_empty());
        }
    }
    made.extend(lines[cursor..].iter().map(|line| Cow::Borrowed(*line)));
    let mut text = made.join("\n");
    if newline && !made.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// Whether a newline ends a text whose last lines are in the hunk. What the patch says counts; a patch that says nothing leaves
/// it as it was, unless lines were added behind the last one.
fn ends_with_newline(hunk: &Hunk, before: bool, was_empty: bool) -> bool {
    let says_so = hunk.lines.iter().any(|line| !line.newline);
    let removes_last = hunk.old_lines().last().is_some_and(|line| line.mark == Mark::Removed);
    match hunk.new_lines().last() {
        Some(last) if last.mark == Mark::Added && (says_so || was_empty || !removes_last) => last.newline,
        // The last line went, and one that had a newline is the last now.
        Some(last) if last.mark == Mark::Context && removes_last => last.newline,
        _ => before,
    }
}

/// Where a hunk may stand.
struct Place<'a> {
    lines: &'a [&'a str],
    /// Behind the hunk before.
    cursor: usize,
    adapts: bool,
    number: usize,
}

impl Place<'_> {
    fn of(mut self, hunk: &Hunk) -> Result<usize, HunkError> {
        for section in &hunk.sections {
            let found = self.lines[self.cursor..].iter().position(|line| line.trim() == section);
            let no_section = || HunkError::NoSection { hunk: self.number, section: section.clone() };
            self.cursor += found.ok_or_else(no_section)? + 1;
        }
        let old: Vec<&str> = hunk.old_lines().map(|line| line.text.as_str()).collect();
        let Some(first) = old.first() else { return Ok(self.insertion(hunk)) };
        let last = self.lines.len().checked_sub(old.len());
        let stated = hunk.at.and_then(|(line, _)| line.checked_sub(1));
        if let Some(at) = stated.filter(|at| *at >= self.cursor && Some(*at) <= last && self.fits(*at, &old)) {
            return Ok(at);
        }
        let start = if hunk.at_end { last.unwrap_or(self.cursor).max(self.cursor) } else { self.cursor };
        let mut places = (start..last.map_or(start, |last| last + 1)).filter(|at| self.fits(*at, &old));
        match (places.next(), places.next()) {
            (Some(at), None) => Ok(at),
            (Some(one), Some(other)) => Err(HunkError::NotUnique { hunk: self.number, one: one + 1, other: other + 1 }),
            (None, _) => {
                let place = match (hunk.at_end, self.cursor) {
                    (true, _) => " at the end of the file",
                    (false, 0) => "",
                    (false, _) => " behind what comes before them in the patch",
                };
                Err(HunkError::NotFound { hunk: self.number, first: (*first).to_owned(), place })
            }
        }
    }

    /// Lines that are added where nothing stands around them: at the line that the hunk names, behind its section, or at the end.
    fn insertion(&self, hunk: &Hunk) -> usize {
        match hunk.at {
            Some((line, _)) => line.clamp(self.cursor, self.lines.len()),
            None if !hunk.sections.is_empty() && !hunk.at_end => self.cursor,
            None => self.lines.len(),
        }
    }

    fn fits(&self, at: usize, old: &[&str]) -> bool {
        let same = |line: &str, old: &str| line == old || self.adapts && line.strip_suffix('\r') == Some(old);
        self.lines[at..].len() >= old.len() && self.lines[at..].iter().zip(old).all(|(line, old)| same(line, old))
    }
}
