//! The lines of a conversation in one open file.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use serde::Deserialize;
use turnbuckle::ConversationId;

/// What a line becomes. Spaces fill it up to its length.
const ERASED: &[u8] = b"{\"type\":\"erased\"}";
/// How much of a line is in memory at most. A longer one is judged by its text, piece by piece.
const PIECE: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Count,
    Erase,
}

/// What came of looking through a file.
pub(super) struct Scanned {
    /// How many lines of the conversation there were.
    pub(super) found: u64,
    /// Up to where it was read.
    pub(super) end: u64,
}

/// Looks for the lines of a conversation, and erases them if asked.
pub(super) fn scan(file: &File, conversation: &ConversationId, mode: Mode) -> io::Result<Scanned> {
    let mut reader = BufReader::with_capacity(64 << 10, file);
    reader.seek(SeekFrom::Start(0))?;
    let (mut scanned, mut changed) = (Scanned { found: 0, end: 0 }, false);
    let mut text = Vec::new();
    while let Some(line) = next_line(&mut reader, &mut text, conversation)? {
        let at = scanned.end;
        scanned.end += line.length;
        if !line.is_of {
            continue;
        }
        scanned.found += 1;
        if mode == Mode::Erase {
            // Of a line that is not in memory as a whole, the last piece is compared.
            let known = at + line.length - text.len() as u64;
            if holds(file, known, &text)? {
                overwrite(file, at, line)?;
                changed = true;
            }
            reader.seek(SeekFrom::Start(scanned.end))?;
        }
    }
    if changed {
        file.sync_data()?;
    }
    Ok(scanned)
}

#[derive(Clone, Copy)]
struct Line {
    /// With its end.
    length: u64,
    is_ended: bool,
    is_of: bool,
}

/// Reads a line; `None` at the end of the file. `text` becomes the line, or the last piece of one that is long.
fn next_line(
    reader: &mut BufReader<&File>,
    text: &mut Vec<u8>,
    conversation: &ConversationId,
) -> io::Result<Option<Line>> {
    text.clear();
    let mut read = |text: &mut Vec<u8>| reader.take(PIECE as u64).read_until(b'\n', text);
    let mut count = read(text)?;
    let mut line = Line { length: count as u64, is_ended: text.ends_with(b"\n"), is_of: false };
    if count < PIECE || line.is_ended {
        line.is_of = is_of(text, conversation);
        return Ok((count > 0).then_some(line));
    }
    let names = names(conversation);
    let longest = names.iter().map(Vec::len).max().unwrap_or(0);
    line.is_of = names.iter().any(|name| contains(text, name));
    while count == PIECE && !line.is_ended {
        // A name may begin in one piece and end in the next.
        text.drain(..text.len().saturating_sub(longest));
        count = read(text)?;
        line.length += count as u64;
        line.is_ended = text.ends_with(b"\n");
        line.is_of |= names.iter().any(|name| contains(text, name));
    }
    Ok(Some(line))
}

/// Whether the line is about this conversation or a sub-agent's of it. A line that a crash cut off is judged by its text.
fn is_of(line: &[u8], conversation: &ConversationId) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, default)]
        conversation: Option<Cow<'a, str>>,
    }
    if !contains(line, conversation.as_str().as_bytes()) {
        return false;
    }
    match serde_json::from_slice::<Head<'_>>(line) {
        Ok(head) => head.conversation.is_some_and(|of| ConversationId::from(&*of).is_within(conversation)),
        Err(_) => names(conversation).iter().any(|name| contains(line, name)),
    }
}

/// How a line names the conversation, or one of a sub-agent of it.
fn names(conversation: &ConversationId) -> [Vec<u8>; 2] {
    ['"', '/'].map(|end| format!("\"conversation\":\"{conversation}{end}").into_bytes())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    let Some(first) = part.first() else { return true };
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(part) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Whether these bytes still stand there: another process may erase the same line.
fn holds(mut file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    file.seek(SeekFrom::Start(at))?;
    let mut now = Vec::with_capacity(bytes.len());
    file.take(bytes.len() as u64).read_to_end(&mut now)?;
    Ok(now == bytes)
}

/// Puts a line of the same length there that says nothing.
fn overwrite(mut file: &File, at: u64, line: Line) -> io::Result<()> {
    let text = line.length - u64::from(line.is_ended);
    let (said, spaces) = match text.checked_sub(ERASED.len() as u64) {
        Some(spaces) => (ERASED, spaces),
        None => (&b""[..], text),
    };
    file.seek(SeekFrom::Start(at))?;
    file.write_all(said)?;
    io::copy(&mut io::repeat(b' ').take(spaces), &mut file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::path::Path;

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn a_file_that_is_rotated_meanwhile_is_erased_and_not_the_one_that_has_its_name_now() {
        let folder = tempfile::tempdir().unwrap();
        let (name, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
        std::fs::write(&name, "{\"conversation\":\"fix\",\"n\":1}\n").unwrap();
        let file = open(&name);
        std::fs::rename(&name, &rotated).unwrap();
        let other = "{\"conversation\":\"other\",\"n\":1}\n";
        std::fs::write(&name, other).unwrap();
        assert_eq!(scan(&file, &"fix".into(), Mode::Erase).unwrap().found, 1);
        assert_eq!(std::fs::read_to_string(&name).unwrap(), other);
        assert!(!std::fs::read_to_string(&rotated).unwrap().contains("fix"));
    }

    #[test]
    fn a_line_that_is_too_long_for_memory_is_read_in_pieces_and_erased() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("audit.jsonl");
        let (first, last) = ("{\"conversation\":\"a\"}\n", "{\"conversation\":\"b\"}\n");
        // The name of the conversation begins in one piece and ends in the next.
        let long = format!("{}\"conversation\":\"fix\"{}\n", " ".repeat(PIECE - 9), " ".repeat(PIECE));
        std::fs::write(&name, format!("{first}{long}{last}")).unwrap();
        let file = open(&name);
        let (mut reader, mut text) = (BufReader::new(&file), Vec::new());
        while next_line(&mut reader, &mut text, &"fix".into()).unwrap().is_some() {
            assert!(text.len() <= PIECE + 100, "{}", text.len());
        }
        assert_eq!(scan(&file, &"other".into(), Mode::Erase).unwrap().found, 0);
        let scanned = scan(&file, &"fix".into(), Mode::Erase).unwrap();
        let now = std::fs::read_to_string(&name).unwrap();
        assert_eq!((scanned.found, scanned.end), (1, now.len() as u64));
        let lines: Vec<&str> = now.lines().map(str::trim_end).collect();
        assert_eq!(lines, [first.trim_end(), "{\"type\":\"erased\"}", last.trim_end()]);
        assert_eq!(now.len(), first.len() + long.len() + last.len());
    }

    #[test]
    fn a_line_that_was_cut_off_within_a_letter_is_erased() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("audit.jsonl");
        std::fs::write(&name, b"{\"conversation\":\"fix\",\"content\":\"\xc3").unwrap();
        let file = open(&name);
        assert_eq!(scan(&file, &"fix".into(), Mode::Erase).unwrap().found, 1);
        assert!(!std::fs::read_to_string(&name).unwrap().contains("fix"));
    }
}
