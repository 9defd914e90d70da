//! `read_file`.

use std::io::{BufRead as _, BufReader, Read, Seek as _, SeekFrom};

use memchr::memchr_iter;
use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::message::Part;
use turnbuckle::tool::{Effect, Output, Spec};

use super::Done;
use super::blocking::CancelFlag;
use super::folder::Folder;
use super::refusal::{Refusal, shown};

/// Half of the default context (32,000 tokens of about four bytes), so that one file leaves room for work on it.
const MOST: usize = 64 * 1024;
/// How much is read at once while lines are skipped; between two reads the call can be cancelled.
const SKIPPED_AT_ONCE: usize = 256 * 1024;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
    byte_offset: Option<u64>,
}

pub(super) fn spec() -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "The file, relative to the project's folder." },
            "offset": {
                "type": "integer", "minimum": 1,
                "description": "The line to begin at; the first line is 1, which is the default.",
            },
            "limit": { "type": "integer", "minimum": 1, "description": "How many lines to read. Default: as many as fit." },
            "byte_offset": {
                "type": "integer", "minimum": 0,
                "description": "The byte to begin at, instead of `offset`: for lines that are too long to be read at once.",
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let description = "Reads a text file. At most 64 KiB are returned at once; if there is more, a note at the end says \
                       with which offset to go on. The text is exactly what the file holds.";
    Spec::server("read_file", description, parameters, Effect::Pure)
}

/// What the caller counts in: the note about how to go on counts the same.
enum Start {
    Line(u64),
    Byte,
}

pub(super) fn run(folder: &Folder, arguments: Value, cancel: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { path, offset, limit, byte_offset } = serde_json::from_value(arguments)?;
    let path = folder.still_normal(&path)?;
    let failed = |source| Refusal::of("read", &path, source);
    let (file, metadata) = folder.read(&path)?;
    let mut file = BufReader::with_capacity(SKIPPED_AT_ONCE, file);
    let (start, first_byte) = match (offset, byte_offset) {
        (Some(_), Some(_)) => return Err(Refusal::TwoOffsets),
        (None, Some(byte)) => {
            file.seek(SeekFrom::Start(byte)).map_err(failed)?;
            (Start::Byte, byte)
        }
        (line, None) => {
            let line = line.unwrap_or(1).max(1);
            let skipped = skip_lines(&mut file, line - 1, cancel, &failed)?;
            if skipped.lines < line - 1 {
                return Err(Refusal::BeyondTheLastLine { path: shown(&path), lines: skipped.all_lines() });
            }
            (Start::Line(line), skipped.bytes)
        }
    };
    let mut bytes = Vec::new();
    // One byte more than is shown tells whether there is more; the size may be out of date, or a lie (`/proc`).
    file.take(MOST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.is_empty() {
        return match start {
            _ if first_byte == 0 => Ok(Output::ok("[the file is empty]").into()),
            Start::Line(line) => Err(Refusal::BeyondTheLastLine { path: shown(&path), lines: line - 1 }),
            Start::Byte => Err(Refusal::BeyondTheEnd { path: shown(&path), size: metadata.len() }),
        };
    }
    let whole = bytes.len();
    if whole > MOST {
        bytes.truncate(cut(&bytes[..MOST]));
    }
    if let Some(end) = limit.and_then(|limit| end_of_line(&bytes, limit)) {
        bytes.truncate(end);
    }
    if bytes.len() == whole {
        return Ok(Output::bytes(bytes).into());
    }
    let note = note(&start, &bytes, first_byte, metadata.len());
    let mut output = Output::bytes(bytes);
    output.content = output.content.followed_by(&[Part::text(note)]);
    Ok(output.into())
}

/// What was passed over.
struct Skipped {
    lines: u64,
    bytes: u64,
    /// Whether text follows the last line end.
    rest: bool,
}

impl Skipped {
    fn all_lines(&self) -> u64 {
        self.lines + u64::from(self.rest)
    }
}

/// Passes over `count` lines, or all there are. Memory does not grow with the file or with its longest line.
fn skip_lines<R: Read>(
    file: &mut BufReader<R>,
    count: u64,
    cancel: &CancelFlag,
    failed: &impl Fn(std::io::Error) -> Refusal,
) -> Result<Skipped, Refusal> {
    let mut skipped = Skipped { lines: 0, bytes: 0, rest: false };
    while skipped.lines < count {
        cancel.check()?;
        let piece = file.fill_buf().map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        let mut used = piece.len();
        for end in memchr_iter(b'\n', piece) {
            skipped.lines += 1;
            if skipped.lines == count {
                used = end + 1;
                break;
            }
        }
        skipped.rest = piece[used - 1] != b'\n';
        skipped.bytes += used as u64;
        file.consume(used);
    }
    Ok(skipped)
}

/// Behind the `count`-th line end; `None` if there are fewer.
fn end_of_line(bytes: &[u8], count: u64) -> Option<usize> {
    let nth = usize::try_from(count).ok()?.checked_sub(1)?;
    memchr_iter(b'\n', bytes).nth(nth).map(|at| at + 1)
}

/// What was read, and how to go on.
fn note(start: &Start, read: &[u8], first_byte: u64, size: u64) -> String {
    let end = first_byte + read.len() as u64;
    match start {
        Start::Line(first) if read.ends_with(b"\n") => {
            let next = first + memchr_iter(b'\n', read).count() as u64;
            format!("\n[lines {first} to {}, {} of {size} bytes; to go on: offset {next}]", next - 1, read.len())
        }
        // In the middle of a line that is too long.
        _ => format!("\n[bytes {first_byte} to {end} of {size}; to go on: byte_offset {end}]"),
    }
}

/// Where to cut: behind the last line, if that does not lose half; else not inside a character.
fn cut(bytes: &[u8]) -> usize {
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) if end >= bytes.len() / 2 => end + 1,
        _ => match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_behind_a_line_or_at_least_a_character() {
        assert_eq!(cut(b"one\ntwo\nthr"), 8);
        assert_eq!(cut(b"a\nlong long line"), 16);
        assert_eq!(cut(&"aé".as_bytes()[..2]), 1);
        assert_eq!(cut(&[0xff, 0xfe]), 2);
    }

    #[test]
    fn the_end_of_a_line_is_behind_its_newline() {
        assert_eq!(end_of_line(b"a\nb\nc", 2), Some(4));
        assert_eq!(end_of_line(b"a\nb\nc", 3), None);
        assert_eq!(end_of_line(b"a\n", 0), None);
    }
}
