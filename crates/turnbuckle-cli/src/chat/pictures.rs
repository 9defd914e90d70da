//! Pictures that a message names by their path are sent with it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use turnbuckle::message::{Content, Image, Part};

/// The largest picture, and how many a message may have.
const LARGEST: u64 = 5 * 1024 * 1024;
const MOST: usize = 8;
/// How many names of a message are looked at: a pasted log may have thousands.
const MOST_NAMES: usize = 64;

/// Ends of the names of pictures.
const ENDS: [&str; 5] = ["png", "jpg", "jpeg", "gif", "webp"];

/// A message, with the pictures that the person's words in it name; and what is to be said about those that could not be sent.
pub(super) fn attach(message: &str, words: &str, folder: &Path) -> (Content, Vec<String>) {
    let (mut parts, mut remarks, mut seen) = (vec![Part::text(message)], Vec::new(), BTreeSet::new());
    for name in names(words).into_iter().take(MOST_NAMES) {
        let path = path_of(&name, folder);
        if parts.len() > MOST || !seen.insert(path.clone()) {
            continue;
        }
        match read(&path) {
            Ok(Some((media_type, data))) => {
                parts.push(Image { media_type: media_type.into(), data: Some(data.into()), url: None }.into());
            }
            // Words about a picture that is not there are words.
            Ok(None) => {}
            Err(why) => remarks.push(format!("{name} is not sent: {why}")),
        }
    }
    (parts.into(), remarks)
}

/// What may be the name of a picture, in the order in which it is named: a word, also with blanks that stand behind a backslash, as terminals give
/// the name of a file that is dropped on them; what stands in quotes; a whole line.
fn names(words: &str) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut line_begins = 0;
    for line in words.split('\n') {
        let mut add = |at: usize, name: &str| {
            if is_picture(name) {
                found.push((line_begins + at, name.to_owned()));
            }
        };
        for (at, word) in escaped_words(line) {
            add(
                at,
                word.trim_start_matches('@').trim_matches(['"', '\'', '`', ',', '(', ')', ';', ':', '.', '!', '?']),
            );
        }
        for quote in ['"', '\'', '`'] {
            let mut at = 0;
            for (place, piece) in line.split(quote).enumerate() {
                // Any piece may be the quoted one: an apostrophe before it is no quote.
                if place > 0 && piece.contains(' ') {
                    add(at, piece);
                }
                at += piece.len() + quote.len_utf8();
            }
        }
        if line.contains(' ') {
            add(0, line.trim().trim_start_matches('@'));
        }
        line_begins += line.len() + 1;
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, name)| name).collect()
}

/// The words of a line and where they begin. A backslash before a blank, or another sign that means something to a shell, takes its meaning away.
fn escaped_words(line: &str) -> Vec<(usize, String)> {
    let (mut words, mut word, mut begins) = (Vec::new(), String::new(), None);
    let mut signs = line.char_indices().peekable();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' if signs.peek().is_some_and(|(_, next)| !next.is_alphanumeric()) => {
                begins.get_or_insert(at);
                word.extend(signs.next().map(|(_, escaped)| escaped));
            }
            sign if sign.is_whitespace() => words.extend(begins.take().map(|at| (at, std::mem::take(&mut word)))),
            sign => {
                begins.get_or_insert(at);
                word.push(sign);
            }
        }
    }
    words.extend(begins.map(|at| (at, word)));
    words
}

fn is_picture(name: &str) -> bool {
    let end = Path::new(name).extension().and_then(|end| end.to_str());
    end.is_some_and(|end| ENDS.iter().any(|known| end.eq_ignore_ascii_case(known)))
}

/// Where it is: below the project, `~/…`, or an address as file managers give it.
fn path_of(name: &str, folder: &Path) -> PathBuf {
    if let Some(rest) = name.strip_prefix("~/")
        && let Some(home) = std::env::var_os("HOME")
    {
        return Path::new(&home).join(rest);
    }
    match name.strip_prefix("file://") {
        Some(address) => PathBuf::from(percent_decoded(address.strip_prefix("localhost").unwrap_or(address))),
        None => folder.join(name),
    }
}

fn percent_decoded(text: &str) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let digits = behind.first_chunk::<2>().filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    OsString::from_vec(bytes)
}

fn read(path: &Path) -> Result<Option<(&'static str, String)>, String> {
    let Ok(about) = std::fs::metadata(path) else { return Ok(None) };
    if !about.is_file() {
        return Ok(None);
    }
    if about.len() > LARGEST {
        return Err(format!("it has {} bytes, and {LARGEST} is the most", about.len()));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    let media_type = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => return Err("it is no picture of a known kind".to_owned()),
    };
    Ok(Some((media_type, base64::engine::general_purpose::STANDARD.encode(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n123";

    #[test]
    fn pictures_are_sent_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.png"), PNG).unwrap();
        std::fs::write(folder.path().join("b.png"), "text").unwrap();
        let words = "compare @a.png, 'b.png' and c.png";
        let (content, remarks) = attach(words, words, folder.path());
        assert_eq!(content.parts().len(), 2);
        assert!(matches!(&content.parts()[1], Part::Image(image) if *image.media_type == *"image/png"));
        assert_eq!(remarks, ["b.png is not sent: it is no picture of a known kind"]);
        assert_eq!(content.text(), words);
    }

    #[test]
    fn names_with_blanks_are_found_however_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my shot (1).png");
        std::fs::write(&path, PNG).unwrap();
        let path = path.display();
        for words in [
            // As terminals give a file that is dropped on them.
            format!("what is {} about?", path.to_string().replace(' ', "\\ ").replace('(', "\\(").replace(')', "\\)")),
            format!("what's in '{path}'?"),
            format!("don't you see \"{path}\" and `{path}`?"),
            "here:\nmy shot (1).png\nthat one".to_owned(),
            "@my\\ shot\\ (1).png".to_owned(),
            "@\"my shot (1).png\" is wrong".to_owned(),
            format!("file://{}", path.to_string().replace(' ', "%20")),
        ] {
            let (content, remarks) = attach(&words, &words, folder.path());
            assert_eq!((content.parts().len(), remarks.len()), (2, 0), "{words}");
        }
        for words in ["my shot", "shot (1).png", "a 'my' shot (1).png"] {
            assert_eq!(attach(words, words, folder.path()).0.parts().len(), 1, "{words}");
        }
    }

    #[test]
    fn what_a_command_printed_names_no_picture() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.png"), PNG).unwrap();
        let (content, _) = attach("I ran `ls`:\n```\na.png\n```\n\nhello", "hello", folder.path());
        assert_eq!(content.parts().len(), 1);
    }
}
