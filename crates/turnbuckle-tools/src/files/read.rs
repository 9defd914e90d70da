//! `read_file`.

use std::io::{Read as _, Seek as _, SeekFrom};

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

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    offset: u64,
}

pub(super) fn spec() -> Spec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "The file, relative to the project's folder." },
            "offset": {
                "type": "integer", "minimum": 0,
                "description": "The byte to begin at, as the note at the end of a cut result says. Default 0.",
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let description = "Reads a text file. At most 64 KiB are returned at once; a longer file ends with a note that says \
                       with which offset to go on. The text is exactly what the file holds.";
    Spec::server("read_file", description, parameters, Effect::Pure)
}

pub(super) fn run(folder: &Folder, arguments: Value, _: &CancelFlag) -> Result<Done, Refusal> {
    let Arguments { path, offset } = serde_json::from_value(arguments)?;
    let path = folder.still_normal(&path)?;
    let failed = |source| Refusal::of("read", &path, source);
    let (mut file, metadata) = folder.read(&path)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than is shown tells whether there is more; the size may be out of date, or a lie (`/proc`).
    file.take(MOST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.is_empty() {
        return match offset {
            0 => Ok(Output::ok("[the file is empty]").into()),
            _ => Err(Refusal::BeyondTheEnd { path: shown(&path), size: metadata.len() }),
        };
    }
    if bytes.len() <= MOST {
        return Ok(Output::bytes(bytes).into());
    }
    bytes.truncate(cut(&bytes[..MOST]));
    let end = offset + bytes.len() as u64;
    let note = format!("\n[bytes {offset} to {end} of {}; to go on: offset {end}]", metadata.len());
    let mut output = Output::bytes(bytes);
    output.content = output.content.followed_by(&[Part::text(note)]);
    Ok(output.into())
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
}
