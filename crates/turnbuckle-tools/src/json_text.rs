//! JSON as other programs write it.

use serde::de::DeserializeOwned;

/// Reads JSON, also if half of a pair of `\u` escapes stands alone. A program that cuts a text by UTF-16 units, as JavaScript does,
/// writes `\ud83d` where it cuts a sign in two. Such text is often the model's, so a decision beside it must not be lost for it.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text).or_else(|error| match mended(text) {
        Some(mended) => serde_json::from_slice(&mended),
        None => Err(error),
    })
}

/// With U+FFFD in the place of each such half; `None` if there is none.
fn mended(text: &[u8]) -> Option<Vec<u8>> {
    let mut mended = Vec::new();
    let (mut kept, mut at) = (0, 0);
    // In JSON a backslash stands in strings alone.
    while let Some(found) = memchr::memchr(b'\\', &text[at..]) {
        let escape = at + found;
        at = match (unit(text, escape), unit(text, escape + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => escape + 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.extend_from_slice(&text[kept..escape]);
                mended.extend_from_slice(b"\\ufffd");
                kept = escape + 6;
                kept
            }
            (Some(_), _) => escape + 6,
            (None, _) => (escape + 2).min(text.len()),
        };
    }
    (kept > 0).then(|| {
        mended.extend_from_slice(&text[kept..]);
        mended
    })
}

/// The value of the escape `\uXXXX` that begins here.
fn unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then(|| std::str::from_utf8(digits).ok())??;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_pair_of_escapes_is_replaced_and_nothing_else_is_touched() {
        for (text, said) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\udd27 cut""#, "\u{fffd} cut"),
            (r#""\ud83d\ud83d\udd27\udd27""#, "\u{fffd}\u{1f527}\u{fffd}"),
            (r#""\ud83dx\u0041""#, "\u{fffd}xA"),
            (r#""\\ud83d \ud83d\\""#, "\\ud83d \u{fffd}\\"),
            (r#""\ud83d\udd27""#, "\u{1f527}"),
        ] {
            assert_eq!(read::<String>(text.as_bytes()).unwrap(), said, "{text}");
        }
        for text in [r#""\ud83"#, r#""\ud83d"#, r#""\u"#, "\"\\", "\\", r#"{"a": \ud83d}"#, r#""\uzzzz""#, ""] {
            assert!(read::<serde_json::Value>(text.as_bytes()).is_err(), "{text}");
        }
    }
}
