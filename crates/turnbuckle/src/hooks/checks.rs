//! Checks that several hooks share: regular expressions in linear time, and JSON schemas.

use std::path::Path;

use jsonschema::{PatternOptions, Validator};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

use super::OptionError;

/// The most memory that a compiled pattern may take.
const MOST_BYTES: usize = 1024 * 1024;

/// Compiles a pattern of the `regex` crate, whose matching time is linear in the text for every pattern.
pub(super) fn pattern(option: &'static str, pattern: &str) -> Result<Regex, OptionError> {
    let built = RegexBuilder::new(pattern).size_limit(MOST_BYTES).build();
    built.map_err(|error| OptionError::new(option, "is not a pattern that can be used").because(error))
}

/// A pattern that must not match. One that matches the empty text would match everywhere, and is refused.
pub(super) fn forbidden(option: &'static str, text: &str) -> Result<Regex, OptionError> {
    let pattern = pattern(option, text)?;
    if pattern.is_match("") {
        return Err(OptionError::new(
            option,
            format!("forbids `{text}`, which every text has: it matches the empty one"),
        ));
    }
    Ok(pattern)
}

/// A pattern that must match. One that matches every text is refused.
pub(super) fn demanded(option: &'static str, text: &str) -> Result<Regex, OptionError> {
    let pattern = pattern(option, text)?;
    // The second text is unlikely enough that only a pattern without requirements matches both.
    if pattern.is_match("") && pattern.is_match("\u{1}\n\u{10ffff}") {
        return Err(OptionError::new(option, format!("asks for `{text}`, which every text has")));
    }
    Ok(pattern)
}

/// Where the JSON schema in a hook's options comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be a table or the name of a file")]
pub enum SchemaSource {
    /// A JSON file, by its name.
    File(String),
    /// The schema itself.
    Inline(Value),
}

/// A compiled schema. Its patterns use the `regex` crate, so that matching takes linear time.
#[derive(Clone, Debug)]
pub(super) struct Schema(Validator);

impl Schema {
    /// Reads and compiles a schema; the name of a file is relative to `folder`.
    pub(super) fn load(option: &'static str, source: &SchemaSource, folder: &Path) -> Result<Self, OptionError> {
        let value = match source {
            SchemaSource::Inline(value) => value.clone(),
            SchemaSource::File(name) => {
                let unread = |why: &str| OptionError::new(option, format!("names {name:?}, which {why}"));
                let text = std::fs::read_to_string(folder.join(name))
                    .map_err(|error| unread("cannot be read").because(error))?;
                serde_json::from_str(&text).map_err(|error| unread("is not JSON").because(error))?
            }
        };
        let accepts_all = value.as_object().map_or(value == Value::Bool(true), serde_json::Map::is_empty);
        if accepts_all {
            return Err(OptionError::new(option, "is a JSON schema that accepts everything"));
        }
        let built = jsonschema::options().with_pattern_options(PatternOptions::regex()).build(&value);
        built.map(Self).map_err(|error| OptionError::new(option, format!("is not a JSON schema: {error}")))
    }

    /// The first complaints about a value, for a model or a person to read.
    pub(super) fn complaint(&self, value: &Value) -> Option<String> {
        if self.0.is_valid(value) {
            return None;
        }
        let errors = self.0.iter_errors(value).take(3);
        let lines: Vec<String> =
            errors.map(|error| format!("{} (at {:?})", error, error.instance_path().as_str())).collect();
        Some(lines.join("; "))
    }

    /// The first complaints about a text that should be JSON.
    pub(super) fn complaint_of_text(&self, text: &str) -> Option<String> {
        match serde_json::from_str(unfenced(text)) {
            Ok(value) => self.complaint(&value),
            Err(error) => Some(format!("it is not JSON: {error}")),
        }
    }
}

/// The text without a Markdown code fence around it, whatever the info string: models like to fence JSON.
pub(super) fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inner.split_once('\n').map_or(inner, |(_, body)| body).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pattern_that_explodes_elsewhere_is_linear_here() {
        let text = format!("{}!", "a".repeat(100_000));
        assert!(!pattern("pattern", "^(a+)+$").unwrap().is_match(&text));
        let schema = json!({"type": "string", "pattern": "^(a+)+$"});
        let schema = Schema::load("schema", &SchemaSource::Inline(schema), Path::new("")).unwrap();
        assert!(schema.complaint(&text.into()).is_some());
        assert!(pattern("pattern", "(").is_err() && pattern("pattern", r"(\w{1,500}){500}").is_err());
    }

    #[test]
    fn json_in_a_fence_is_json() {
        assert_eq!(unfenced("```json\n{\"a\": 1}\n```"), "{\"a\": 1}");
        assert_eq!(unfenced(" {} "), "{}");
    }
}
