//! Bodies as JSON. Whatever is written can be read again: that is checked before it is written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use turnbuckle::store::StoreError;

/// How deep a body may be nested. Reading needs stack for each level; models' JSON ends at 128.
const DEPTH: usize = 512;
/// Of the threads that read bodies: enough for [`DEPTH`] levels several times over, also without optimisation.
pub(super) const STACK: usize = 8 << 20;

/// As it is stored.
pub(super) fn json(thing: &impl Serialize, doing: &str) -> Result<String, StoreError> {
    let failed = |source| StoreError::Failed { doing: doing.to_owned(), source };
    let body = serde_json::to_string(thing).map_err(|error| failed(error.into()))?;
    if depth(body.as_bytes()) > DEPTH {
        return Err(failed(format!("it is nested more than {DEPTH} levels deep").into()));
    }
    Ok(body)
}

/// From what [`json`] made. Its own limit of 128 levels would refuse the deepest arguments once they stand in an event.
pub(super) fn parsed<T: DeserializeOwned>(body: &str) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(body);
    if depth(body.as_bytes()) <= DEPTH {
        reader.disable_recursion_limit();
    }
    let thing = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(thing)
}

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
