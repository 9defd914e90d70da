//! JSON schemas: compiled in one place, with the same bounds everywhere.

mod expansion;

use serde_json::Value;

/// How many complaints about one value are told at once.
const MAX_COMPLAINTS: usize = 5;
/// The longest complaint, in bytes. It may quote the value.
const MAX_COMPLAINT: usize = 4 << 10;
/// How many subschemas a schema may have once every `$ref` is written out. Sixteen definitions that name each other twice
/// are 65,536: checking a value takes as many steps.
const MAX_EXPANDED: u64 = 100_000;
/// With more subschemas than this a complaint has no details: for `anyOf` they are collected for every branch.
const MAX_EXPLAINED: u64 = 4_096;

/// A compiled JSON schema.
///
/// Schemas come from configuration, from tools and from models, so their patterns are compiled with an engine that
/// takes linear time, `$ref` never leaves the document, and a schema that is small only because it repeats itself by `$ref`
/// is refused.
#[derive(Clone, Debug)]
pub struct JsonSchema {
    validator: jsonschema::Validator,
    /// How many subschemas it has once every `$ref` is written out.
    expanded: u64,
}

/// A value that is not a JSON schema.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this is not a JSON schema: {problem}")]
pub struct SchemaError {
    problem: String,
}

impl SchemaError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into() }
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl JsonSchema {
    /// Compiles a schema.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let expanded = expansion::of(schema)?;
        if expanded > MAX_EXPANDED {
            let problem = format!("with every $ref written out it has more than {MAX_EXPANDED} subschemas");
            return Err(SchemaError::new(problem));
        }
        let options = jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
        let validator = options.build(schema).map_err(|error| SchemaError::new(error.to_string()))?;
        Ok(Self { validator, expanded })
    }

    /// Compiles the schema of an object, such as the parameters of a tool.
    pub fn compile_object(schema: &Value) -> Result<Self, SchemaError> {
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError::new("its type is not \"object\""));
        }
        Self::compile(schema)
    }

    /// Whether the value fits.
    pub fn accepts(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// What is wrong with the value, in words for a model or a person; `None` if it fits.
    pub fn complaint(&self, value: &Value) -> Option<String> {
        if self.validator.is_valid(value) {
            return None;
        }
        if self.expanded > MAX_EXPLAINED {
            return Some("it does not fit the schema".to_owned());
        }
        let errors = self.validator.iter_errors(value).take(MAX_COMPLAINTS);
        let lines: Vec<String> =
            errors.map(|error| format!("{} (at {:?})", error, error.instance_path().as_str())).collect();
        let mut complaint = lines.join("; ");
        if complaint.len() > MAX_COMPLAINT {
            complaint.truncate(complaint.floor_char_boundary(MAX_COMPLAINT));
            complaint.push('…');
        }
        Some(complaint)
    }
}

/// The text without the Markdown fence that models like to put around JSON, whatever language the fence names.
pub fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(inner) = inner else { return text };
    // The language stands on the first line. Without a line break there is only JSON between the fences.
    match inner.split_once('\n') {
        Some((language, body)) if !language.trim_start().starts_with(['{', '[', '"']) => body.trim(),
        _ => inner.trim().strip_prefix("json").unwrap_or(inner.trim()).trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_complaint_about_a_long_value_is_short() {
        let schema = JsonSchema::compile(&json!({"type": "string"})).unwrap();
        let complaint = schema.complaint(&json!(["é".repeat(1 << 20)])).unwrap();
        assert!(complaint.len() < MAX_COMPLAINT + 10, "{}", complaint.len());
    }

    #[test]
    fn a_fence_of_any_language_is_taken_off() {
        for fenced in ["```json\n{}\n```", "```JSON\n{}\n```", "```\n{}\n```", "```json {} ```", "``` {} ```", " {} "] {
            assert_eq!(unfenced(fenced), "{}", "{fenced:?}");
        }
        assert_eq!(unfenced("```\n{\"a\": 1,\n\"b\": 2}```"), "{\"a\": 1,\n\"b\": 2}");
        assert_eq!(unfenced("no fence"), "no fence");
    }
}
