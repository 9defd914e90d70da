//! `search_files`.

use std::io::Read as _;
use std::path::Path;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::tool::{Effect, Output, Spec};

use super::Done;
use super::blocking::CancelFlag;
use super::closed::Closed;
use super::folder::Folder;
use super::list::{notes, start};
use super::refusal::{Refusal, shown};
use super::walk::{Kind, Walk};

const MOST_MATCHES: usize = 200;
/// A file is searched in memory.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// Of a matching line; minified code is one line.
const WIDTH: usize = 300;
/// A file with a zero byte among these is not text.
const SNIFFED: usize = 8 * 1024;
/// Of a compiled pattern, and of its automaton: the pattern comes from a model.
const PATTERN_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default)]
    path: String,
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
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let description = "Searches text files line by line for a regular expression, also in subfolders. Each match is \
                       `path:line: text`. At most 200 matches. `.git`, `node_modules`, caches, binary files and files over \
                       16 MiB are left out.";
    Spec::server("search_files", description, parameters, Effect::Pure)
}

/// What was found so far.
#[derive(Default)]
struct Search {
    lines: Vec<String>,
    files: usize,
    too_large: usize,
    unread: usize,
    cut: bool,
}

pub(super) fn run(folder: &Folder, arguments: Value, cancel: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { pattern, path } = serde_json::from_value(arguments)?;
    let compiled = RegexBuilder::new(&pattern).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
    let pattern = compiled.map_err(|error| Refusal::Pattern(Box::new(error)))?;
    let start = start(folder, &path)?;
    let closed = folder.closed_now();
    let mut search = Search::default();
    let left_out = match Walk::from(folder, &start, cancel) {
        Ok(mut walk) => {
            while let Some(entry) = walk.next()?.filter(|_| !search.cut) {
                if entry.kind == Kind::File && search.file(folder, &closed, &entry.path, &pattern).is_err() {
                    search.unread += 1;
                }
            }
            notes(&walk)
        }
        Err(Refusal::NotFolder { .. }) => {
            search.file(folder, &closed, &start, &pattern)?;
            Vec::new()
        }
        Err(refusal) => return Err(refusal),
    };
    Ok(Output::ok(search.report(left_out)).into())
}

impl Search {
    fn file(&mut self, folder: &Folder, closed: &Closed, path: &Path, pattern: &Regex) -> Result<(), Refusal> {
        let (file, metadata) = folder.read_unless(closed, path)?;
        if metadata.len() > MOST_BYTES {
            self.too_large += 1;
            return Ok(());
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|source| Refusal::of("read", path, source))?;
        if bytes.is_empty() || bytes.iter().take(SNIFFED).any(|byte| *byte == 0) {
            return Ok(());
        }
        self.files += 1;
        // What follows the last line end is no line.
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(found) = pattern.find(line) else { continue };
            if self.lines.len() == MOST_MATCHES {
                self.cut = true;
                break;
            }
            self.lines.push(format!("{}:{}: {}", shown(path), index + 1, window(line, found.start())));
        }
        Ok(())
    }

    fn report(self, left_out: Vec<String>) -> String {
        let mut lines = self.lines;
        if lines.is_empty() {
            lines.push(format!("[no match in {} files]", self.files));
        }
        if self.cut {
            lines.push(format!("[cut at {MOST_MATCHES} matches; narrow the pattern or give a path]"));
        }
        if self.too_large > 0 {
            lines.push(format!("[{} files over {MOST_BYTES} bytes were not searched]", self.too_large));
        }
        if self.unread > 0 {
            lines.push(format!("[{} files could not be read]", self.unread));
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
