//! `search_files`, with ripgrep's searcher.

use std::io::{self, Read};
use std::path::Path;

use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Effect, Output, Spec};

use super::Done;
use super::blocking::CancelFlag;
use super::closed::Closed;
use super::folder::Folder;
use super::ignored::Chosen;
use super::list::{glob, notes, start};
use super::refusal::{Refusal, shown};
use super::walk::{Kind, Walk};

const MOST_MATCHES: usize = 200;
/// Of memory for one file, which is read piece by piece. A line must fit.
const LONGEST_LINE: usize = 16 * 1024 * 1024;
/// Of a matching line, that is shown; minified code is one line.
const WIDTH: usize = 300;
/// Of a compiled pattern, and of its automaton: the pattern comes from a model.
const PATTERN_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default)]
    path: String,
    glob: Option<String>,
}

pub(super) fn spec() -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string", "minLength": 1,
                "description": "A regular expression that is tried on each line; (?i) at its beginning ignores case. No \
                                look-around, no back-references.",
            },
            "path": {
                "type": "string",
                "description": "The folder or file to search, relative to the project's folder. Default: all.",
            },
            "glob": glob(),
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let description = "Searches text files line by line for a regular expression, also in subfolders. Each match is \
                       `path:line: text`. At most 200 matches. What `.gitignore` names, `.git`, `node_modules`, caches and \
                       binary files are left out.";
    Spec::server("search_files", description, parameters, Effect::Pure)
}

/// What was found so far.
#[derive(Default)]
struct Search {
    lines: Vec<String>,
    files: usize,
    unread: usize,
    cut: bool,
}

pub(super) fn run(folder: &Folder, arguments: Value, cancel: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { pattern, path, glob } = serde_json::from_value(arguments)?;
    let pattern = compiled(&pattern)?;
    let chosen = Chosen::by(glob.as_deref())?;
    let start = start(folder, &path)?;
    let closed = folder.closed_now();
    let mut searcher = searcher();
    let mut search = Search::default();
    let left_out = match Walk::from(folder, &start, &chosen, cancel) {
        Ok(mut walk) => {
            while let Some(entry) = walk.next()?.filter(|_| !search.cut) {
                if entry.kind != Kind::File {
                    continue;
                }
                match search.file(&mut searcher, folder, &closed, &entry.path, &pattern, cancel) {
                    Err(Refusal::Cancelled) => return Err(Refusal::Cancelled),
                    Err(_) => search.unread += 1,
                    Ok(()) => {}
                }
            }
            notes(&walk)
        }
        Err(Refusal::NotFolder { .. }) => {
            search.file(&mut searcher, folder, &closed, &start, &pattern, cancel)?;
            Vec::new()
        }
        Err(refusal) => return Err(refusal),
    };
    Ok(Output::ok(search.report(left_out)).into())
}

fn compiled(pattern: &str) -> Result<RegexMatcher, Refusal> {
    let mut builder = RegexMatcherBuilder::new();
    // `$` stands before `\r\n`, too.
    builder.multi_line(true).crlf(true).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
    builder.build(pattern).map_err(|error| Refusal::Pattern(Box::new(error)))
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .heap_limit(Some(LONGEST_LINE))
        .binary_detection(BinaryDetection::quit(0))
        .build()
}

/// A file that is read until the call is cancelled.
struct Cancellable<'a, R>(R, &'a CancelFlag);

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Not `Interrupted`: readers try again after that.
        self.1.check().map_err(io::Error::other)?;
        self.0.read(into)
    }
}

/// The matches of one file on their way into the result.
struct Matches<'a> {
    search: &'a mut Search,
    path: &'a Path,
    pattern: &'a RegexMatcher,
}

impl Sink for Matches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.search.lines.len() == MOST_MATCHES {
            self.search.cut = true;
            return Ok(false);
        }
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let at = self.pattern.find(line)?.map_or(0, |found| found.start());
        let number = found.line_number().unwrap_or_default();
        self.search.lines.push(format!("{}:{number}: {}", shown(self.path), window(line, at)));
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        // A zero byte: this is not text.
        let is_text = finish.binary_byte_offset().is_none() && finish.byte_count() > 0;
        self.search.files += usize::from(is_text);
        Ok(())
    }
}

impl Search {
    fn file(
        &mut self,
        searcher: &mut Searcher,
        folder: &Folder,
        closed: &Closed,
        path: &Path,
        pattern: &RegexMatcher,
        cancel: &CancelFlag,
    ) -> Result<(), Refusal> {
        let (file, _) = folder.read_unless(closed, path)?;
        let matches = Matches { search: self, path, pattern };
        let searched = searcher.search_reader(pattern, Cancellable(file, cancel), matches);
        cancel.check()?;
        searched.map_err(|source| Refusal::of("search", path, source))
    }

    fn report(self, left_out: Vec<String>) -> String {
        let mut lines = self.lines;
        if lines.is_empty() {
            lines.push(format!("[no match in {} files]", self.files));
        }
        if self.cut {
            lines.push(format!("[cut at {MOST_MATCHES} matches; narrow the pattern or give a path]"));
        }
        if self.unread > 0 {
            lines.push(format!("[{} files could not be read, or have lines that are too long]", self.unread));
        }
        lines.extend(left_out);
        lines.join("\n")
    }
}

/// The line, or the part of a long one that has the match.
fn window(line: &[u8], at: usize) -> String {
    if line.len() <= WIDTH {
        return String::from_utf8_lossy(line).into_owned();
    }
    let start = at.saturating_sub(WIDTH / 3).min(line.len() - WIDTH);
    let part = String::from_utf8_lossy(&line[start..start + WIDTH]);
    // Half characters at the edges.
    format!("…{}…", part.trim_matches('\u{FFFD}'))
}
