//! Pictures that a message names by their path are sent with it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use turnbuckle::message::{Content, Image, Part};

/// The largest picture, and how many a message may have.
const LARGEST: u64 = 5 * 1024 * 1024;
const MOST: usize = 8;

/// The message, with the pictures that it names; and what is to be said about those that could not be sent.
pub(super) fn attach(text: &str, folder: &Path) -> (Content, Vec<String>) {
    let (mut parts, mut remarks) = (vec![Part::text(text)], Vec::new());
    for word in text.split_whitespace() {
        let name = word.trim_start_matches('@').trim_matches(['"', '\'', '`', ',', '(', ')']);
        let is_picture = Path::new(name).extension().and_then(|end| end.to_str()).is_some_and(|end| {
            ["png", "jpg", "jpeg", "gif", "webp"].iter().any(|known| end.eq_ignore_ascii_case(known))
        });
        if !is_picture || parts.len() > MOST {
            continue;
        }
        match read(&folder.join(name)) {
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

    #[test]
    fn pictures_are_sent_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.png"), b"\x89PNG\r\n\x1a\n123").unwrap();
        std::fs::write(folder.path().join("b.png"), "text").unwrap();
        let (content, remarks) = attach("compare @a.png, 'b.png' and c.png", folder.path());
        assert_eq!(content.parts().len(), 2);
        assert!(matches!(&content.parts()[1], Part::Image(image) if *image.media_type == *"image/png"));
        assert_eq!(remarks, ["b.png is not sent: it is no picture of a known kind"]);
        assert_eq!(content.text(), "compare @a.png, 'b.png' and c.png");
    }
}
