//! Bodies as JSON. A body that could not be parsed again is refused before it is written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use turnbuckle::store::StoreError;

/// The deepest nesting of a body. Parsing needs stack for each level. The JSON of models ends at 128 levels, and an event adds
/// a few of its own.
const DEPTH: usize = 512;
/// The stack of the threads that parse bodies: enough for [`DEPTH`] levels several times over, also in a debug build.
pub(crate) const STACK: usize = 8 << 20;

/// Writes a body. `doing` is named in the error.
pub(crate) fn json(thing: &impl Serialize, doing: &str) -> Result<String, StoreError> {
    let body = serde_json::to_string(thing).map_err(|error| StoreError::failed(doing, error))?;
    if depth(body.as_bytes()) > DEPTH {
        return Err(StoreError::failed(doing, format!("it is nested more than {DEPTH} levels deep")));
    }
    Ok(body)
}

/// Parses what [`json`] wrote. serde_json's own limit of 128 levels is lifted up to [`DEPTH`]: tool arguments that reach it are
/// stored inside an event.
pub(crate) fn parsed<T: DeserializeOwned>(body: &str) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(body);
    if depth(body.as_bytes()) <= DEPTH {
        reader.disable_recursion_limit();
    }
    let thing = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(thing)
}

/// How deep arrays and objects are nested. Brackets inside strings do not count.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted) = (0usize, 0, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => drop(bytes.next()),
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_text_are_not_depth() {
        for (json, expected) in [("1", 0), ("[]", 1), (r#"{"[":"{\\\"[{"}"#, 1), (r#"[{"a":[1]},[[]]]"#, 3)] {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let nested = |levels| (0..levels).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
        let deep = json(&nested(DEPTH), "testing").unwrap();
        assert_eq!(parsed::<serde_json::Value>(&deep).unwrap(), nested(DEPTH));
        assert!(json(&nested(DEPTH + 1), "testing").is_err());
    }
}
