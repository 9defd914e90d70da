//! The unified format of `diff -u` and `git diff`.

use std::fmt;

use super::{Action, FilePatch, Hunk, Line, Mark, PatchError};

const NOTHING: &str = "/dev/null";

pub(super) fn parse(lines: &[&str]) -> Result<Vec<FilePatch>, PatchError> {
    let mut parser = Parser { lines, at: 0, files: Vec::new(), rename: (None, None), bodiless: None };
    while parser.at < lines.len() {
        parser.next()?;
    }
    parser.flush()?;
    Ok(parser.files)
}

struct Parser<'a> {
    lines: &'a [&'a str],
    at: usize,
    files: Vec<FilePatch>,
    /// `rename from` and `rename to` of a file whose `---` has not been met.
    rename: (Option<String>, Option<String>),
    /// The line of a `new file mode` or `deleted file mode` whose `---` has not been met.
    bodiless: Option<usize>,
}

impl Parser<'_> {
    fn line(&self, ahead: usize) -> &str {
        self.lines.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn unexpected(&self, expected: &'static str) -> PatchError {
        PatchError::at(self.at, self.line(0), expected)
    }

    /// Whether the lines from `ahead` on are the header of a file.
    fn is_header(&self, ahead: usize) -> bool {
        self.line(ahead).starts_with("--- ") && self.line(ahead + 1).starts_with("+++ ")
    }

    /// A line outside of hunks.
    fn next(&mut self) -> Result<(), PatchError> {
        if self.is_header(0) {
            return self.file();
        }
        let line = self.line(0);
        let is_other =
            ["index ", "similarity index ", "dissimilarity index "].iter().any(|start| line.starts_with(start));
        if line.starts_with("diff ") {
            self.flush()?;
        } else if let Some(from) = line.strip_prefix("rename from ") {
            let from = self.path(from)?;
            self.flush()?;
            self.rename.0 = Some(from);
        } else if let Some(to) = line.strip_prefix("rename to ") {
            self.rename.1 = Some(self.path(to)?);
        } else if line.starts_with("new file mode ") || line.starts_with("deleted file mode ") {
            self.bodiless = Some(self.at);
        } else if line.starts_with("@@") {
            return Err(self.unexpected("`--- a/FILE` and `+++ b/FILE` stand before the first hunk of a file"));
        } else if line.starts_with("old mode ") || line.starts_with("new mode ") {
            return Err(self.unexpected("a patch cannot change permissions here"));
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err(self.unexpected("a patch can change text only"));
        } else if !is_other && !line.trim().is_empty() {
            return Err(self.unexpected("`--- a/FILE` and `+++ b/FILE`, or `*** Begin Patch`, is expected"));
        }
        self.at += 1;
        Ok(())
    }

    /// A file that is only renamed has no `---`.
    fn flush(&mut self) -> Result<(), PatchError> {
        match std::mem::take(&mut self.rename) {
            (Some(path), Some(to)) => {
                self.files.push(FilePatch { action: Action::Update, path, to: Some(to), hunks: Vec::new() });
            }
            (None, None) => {}
            _ => return Err(self.unexpected("`rename from` and `rename to` stand together")),
        }
        match self.bodiless.take() {
            Some(index) => {
                Err(PatchError::at(index, self.lines[index], "an empty file cannot be added or deleted this way"))
            }
            None => Ok(()),
        }
    }

    fn path(&self, given: &str) -> Result<String, PatchError> {
        // A time may follow.
        let path = given.split('\t').next().unwrap_or_default().trim_end();
        match path.starts_with('"') {
            true => Err(self.unexpected("names in quotes are not understood")),
            false => Ok(path.to_owned()),
        }
    }

    fn file(&mut self) -> Result<(), PatchError> {
        let old = self.path(self.line(0).strip_prefix("--- ").unwrap_or_default())?;
        let new = self.path(self.line(1).strip_prefix("+++ ").unwrap_or_default())?;
        let (old, new) = without_prefixes(old, new);
        self.bodiless = None;
        let renamed = match &self.rename {
            (Some(from), Some(to)) if (from, to) == (&old, &new) => std::mem::take(&mut self.rename),
            // It belongs to a file before this one, which is only renamed.
            _ => {
                self.flush()?;
                (None, None)
            }
        };
        let (action, path, to) = match (old.as_str(), new.as_str()) {
            (NOTHING, NOTHING) => return Err(self.unexpected("one of the two names is a file")),
            (NOTHING, _) => (Action::Add, new, None),
            (_, NOTHING) => (Action::Delete, old, None),
            _ => match renamed {
                (Some(from), Some(to)) => (Action::Update, from, Some(to)),
                _ if old == new => (Action::Update, old, None),
                _ => (Action::Update, old, Some(new)),
            },
        };
        self.at += 2;
        let mut hunks = Vec::new();
        while self.line(0).starts_with("@@") {
            hunks.push(self.hunk()?);
        }
        if hunks.is_empty() {
            return Err(self.unexpected("a hunk that begins with `@@ -LINE,COUNT +LINE,COUNT @@` is expected"));
        }
        self.files.push(FilePatch { action, path, to, hunks });
        Ok(())
    }

    /// The counts say where a hunk ends, since a removed line `-- x` looks like a header. Models miscount, so lines that can
    /// only belong to the hunk are taken beyond the counts, and a hunk may be shorter.
    fn hunk(&mut self) -> Result<Hunk, PatchError> {
        let (at, mut old, mut new) = match ranges(self.line(0)) {
            Some([(old_at, old), (new_at, new)]) => (Some((old_at, new_at)), old, new),
            None => (None, 0, 0),
        };
        self.at += 1;
        let mut hunk = Hunk { at, ..Hunk::default() };
        while self.at < self.lines.len() {
            let line = self.line(0);
            let counted = old == 0 && new == 0;
            if line.starts_with('\\') {
                if let Some(last) = hunk.lines.last_mut() {
                    last.newline = false;
                }
                self.at += 1;
                continue;
            }
            let is_next_file = self.is_header(0) && (counted || self.line(2).starts_with("@@"));
            let is_end = counted && line.is_empty();
            let Some((mark, text)) = Mark::of(line).filter(|_| !is_next_file && !is_end) else { break };
            let text = text.to_owned();
            if mark != Mark::Added {
                old = old.saturating_sub(1);
            }
            if mark != Mark::Removed {
                new = new.saturating_sub(1);
            }
            hunk.lines.push(Line { mark, text, newline: true });
            self.at += 1;
        }
        match hunk.lines.is_empty() {
            true => Err(self.unexpected("the hunk has no lines")),
            false => Ok(hunk),
        }
    }
}

/// `a/` and `b/` are not part of the names, if both have them.
fn without_prefixes(old: String, new: String) -> (String, String) {
    let stripped = |name: &str, prefix: &str| match name {
        NOTHING => Some(NOTHING.to_owned()),
        name => name.strip_prefix(prefix).map(str::to_owned),
    };
    match (stripped(&old, "a/"), stripped(&new, "b/")) {
        (Some(old), Some(new)) => (old, new),
        _ => (old, new),
    }
}

/// First line and number of lines, in the old and in the new text: `@@ -1,2 +3,4 @@`.
fn ranges(line: &str) -> Option<[(usize, usize); 2]> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let mut range = |sign| {
        let range = words.next()?.strip_prefix(sign)?;
        let (first, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((first.parse().ok()?, count.parse().ok()?))
    };
    Some([range('-')?, range('+')?])
}

pub(super) fn write(f: &mut fmt::Formatter<'_>, file: &FilePatch) -> fmt::Result {
    let FilePatch { action, path, to, hunks } = file;
    if let Some(to) = to {
        writeln!(f, "rename from {path}\nrename to {to}")?;
    }
    if hunks.is_empty() {
        return Ok(());
    }
    let new = to.as_ref().unwrap_or(path);
    match action {
        Action::Add => writeln!(f, "--- {NOTHING}\n+++ b/{new}")?,
        Action::Delete => writeln!(f, "--- a/{path}\n+++ {NOTHING}")?,
        Action::Update => writeln!(f, "--- a/{path}\n+++ b/{new}")?,
    }
    for hunk in hunks {
        match hunk.at {
            Some((old, new)) => {
                writeln!(f, "@@ -{old},{} +{new},{} @@", hunk.old_lines().count(), hunk.new_lines().count())?
            }
            None => writeln!(f, "@@")?,
        }
        for line in &hunk.lines {
            writeln!(f, "{}{}", line.mark.char(), line.text)?;
            if !line.newline {
                writeln!(f, "\\ No newline at end of file")?;
            }
        }
    }
    Ok(())
}
