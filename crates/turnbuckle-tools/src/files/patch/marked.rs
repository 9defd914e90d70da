//! The format that begins with `*** Begin Patch`.

use std::fmt;

use super::{Action, FilePatch, Hunk, Line, Mark, PatchError};

pub(super) const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";

pub(super) fn parse(lines: &[&str]) -> Result<Vec<FilePatch>, PatchError> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut ended = false;
    for (index, line) in lines.iter().enumerate() {
        // What models write before and after is not part of the patch, if it is blank.
        if line.trim_end() == BEGIN && files.is_empty() || (files.is_empty() || ended) && line.trim().is_empty() {
            continue;
        }
        if ended {
            return Err(PatchError::at(index, line, "nothing stands behind `*** End Patch`"));
        }
        if let Some(file) = header(line) {
            files.push(file);
            continue;
        }
        if line.trim_end() == END {
            ended = true;
            continue;
        }
        let Some(file) = files.last_mut() else {
            return Err(PatchError::at(
                index,
                line,
                "`*** Add File: `, `*** Update File: ` or `*** Delete File: ` is expected",
            ));
        };
        body(file, line).map_err(|expected| PatchError::at(index, line, expected))?;
    }
    match ended {
        true => Ok(files),
        false => Err(PatchError::at(lines.len(), "", "`*** End Patch` is missing: the patch may be cut off")),
    }
}

fn header(line: &str) -> Option<FilePatch> {
    let actions = [(ADD, Action::Add), (DELETE, Action::Delete), (UPDATE, Action::Update)];
    let (path, action) = actions.into_iter().find_map(|(start, action)| Some((line.strip_prefix(start)?, action)))?;
    Some(FilePatch { action, path: path.trim().to_owned(), to: None, hunks: Vec::new() })
}

/// One line below a file's header. The error is what was expected instead.
fn body(file: &mut FilePatch, line: &str) -> Result<(), &'static str> {
    if file.action == Action::Delete {
        return Err("a file that is deleted has no lines");
    }
    if file.action == Action::Add {
        let text = line.strip_prefix('+').ok_or("every line of a new file begins with `+`")?;
        if file.hunks.is_empty() {
            file.hunks.push(Hunk::default());
        }
        let line = Line { mark: Mark::Added, text: text.to_owned(), newline: true };
        file.hunks.iter_mut().for_each(|hunk| hunk.lines.push(line.clone()));
        return Ok(());
    }
    if let Some(to) = line.strip_prefix(MOVE) {
        if !file.hunks.is_empty() || file.to.is_some() {
            return Err("`*** Move to: ` stands once, right behind `*** Update File: `");
        }
        file.to = Some(to.trim().to_owned());
        return Ok(());
    }
    if line.trim_end() == END_OF_FILE {
        let hunk = file.hunks.last_mut().ok_or("`*** End of File` stands behind the lines of a hunk")?;
        hunk.at_end = true;
        return Ok(());
    }
    if let Some(section) = line.strip_prefix("@@") {
        // A section within a section: no line of the hunk was there yet.
        if file.hunks.last().is_none_or(|hunk| !hunk.lines.is_empty()) {
            file.hunks.push(Hunk::default());
        }
        let section = section.trim().trim_end_matches("@@").trim();
        if let (false, Some(hunk)) = (section.is_empty(), file.hunks.last_mut()) {
            hunk.sections.push(section.to_owned());
        }
        return Ok(());
    }
    let (mark, text) = Mark::of(line).ok_or("a line begins with a blank, `+`, `-` or `@@`")?;
    if file.hunks.last().is_none_or(|hunk| hunk.at_end) {
        file.hunks.push(Hunk::default());
    }
    let line = Line { mark, text: text.to_owned(), newline: true };
    if let Some(hunk) = file.hunks.last_mut() {
        hunk.lines.push(line);
    }
    Ok(())
}

pub(super) fn write(f: &mut fmt::Formatter<'_>, files: &[FilePatch]) -> fmt::Result {
    writeln!(f, "{BEGIN}")?;
    for FilePatch { action, path, to, hunks } in files {
        let start = match action {
            Action::Add => ADD,
            Action::Delete => DELETE,
            Action::Update => UPDATE,
        };
        writeln!(f, "{start}{path}")?;
        if let Some(to) = to {
            writeln!(f, "{MOVE}{to}")?;
        }
        for hunk in hunks {
            match &*hunk.sections {
                _ if *action == Action::Add => {}
                [] => writeln!(f, "@@")?,
                sections => sections.iter().try_for_each(|section| writeln!(f, "@@ {section}"))?,
            }
            for line in &hunk.lines {
                writeln!(f, "{}{}", line.mark.char(), line.text)?;
            }
            if hunk.at_end {
                writeln!(f, "{END_OF_FILE}")?;
            }
        }
    }
    writeln!(f, "{END}")
}
