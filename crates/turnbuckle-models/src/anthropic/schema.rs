//! Reduces a schema to the part of JSON Schema that `output_config.format` accepts: Anthropic refuses a request with more.
//!
//! Bounds are left out, and objects are closed. A reply may then be outside the bounds; the runtime validates it against the whole
//! schema in any case.

use serde_json::{Map, Value};

/// Keywords that Anthropic refuses. They only narrow a schema, so a schema without them still describes the object.
const LEFT_OUT: &[&str] = &[
    "$id",
    "$schema",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "if",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "uniqueItems",
];
/// Formats of strings that Anthropic accepts.
const FORMATS: &[&str] = &["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// The reduced schema. `None` if it cannot be reduced: an object has names that are not known beforehand, or the schema contains
/// itself.
pub(super) fn narrowed(schema: &Value) -> Option<Value> {
    let fields = schema.as_object()?;
    let mut narrow = Map::new();
    for (key, value) in fields {
        match key.as_str() {
            "additionalProperties" => {}
            key if LEFT_OUT.contains(&key) => {}
            "format" if !value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {}
            "minItems" if value.as_u64() > Some(1) => {}
            "$ref" if value.as_str() == Some("#") => return None,
            "items" => drop(narrow.insert(key.clone(), narrowed(value)?)),
            "anyOf" | "oneOf" => drop(narrow.insert("anyOf".to_owned(), each(value)?)),
            "allOf" => drop(narrow.insert(key.clone(), each(value)?)),
            "properties" | "$defs" | "definitions" => drop(narrow.insert(key.clone(), named(value)?)),
            _ => drop(narrow.insert(key.clone(), value.clone())),
        }
    }
    if is_object(fields) {
        let open = fields.get("additionalProperties");
        let is_known = fields.contains_key("properties") || open == Some(&Value::Bool(false));
        if !is_known || open.is_some_and(Value::is_object) {
            return None;
        }
        narrow.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Some(Value::Object(narrow))
}

fn is_object(fields: &Map<String, Value>) -> bool {
    let says = |kind: &Value| kind.as_str() == Some("object");
    let by_type =
        fields.get("type").is_some_and(|kind| says(kind) || kind.as_array().is_some_and(|all| all.iter().any(says)));
    by_type || fields.contains_key("properties")
}

fn each(schemas: &Value) -> Option<Value> {
    schemas.as_array()?.iter().map(narrowed).collect::<Option<Vec<_>>>().map(Value::Array)
}

fn named(schemas: &Value) -> Option<Value> {
    let schemas = schemas.as_object()?.iter();
    schemas
        .map(|(name, schema)| Some((name.clone(), narrowed(schema)?)))
        .collect::<Option<Map<_, _>>>()
        .map(Value::Object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_closed_and_bounds_left_out_at_every_depth() {
        let schema = json!({ "$schema": "x", "type": "object", "required": ["minimum"], "properties": {
            "minimum": { "type": "integer", "minimum": 1, "description": "a name like a bound" },
            "list": { "type": "array", "minItems": 3, "items": { "type": "object", "properties": { "s": { "type": "string", "maxLength": 3 } } } },
            "when": { "oneOf": [{ "type": "string", "format": "date" }, { "type": ["object", "null"], "properties": {} }] },
            "odd": { "type": "string", "format": "regex" } } });
        let expected = json!({ "type": "object", "required": ["minimum"], "additionalProperties": false, "properties": {
            "minimum": { "type": "integer", "description": "a name like a bound" },
            "list": { "type": "array", "items": { "type": "object", "properties": { "s": { "type": "string" } }, "additionalProperties": false } },
            "when": { "anyOf": [{ "type": "string", "format": "date" }, { "type": ["object", "null"], "properties": {}, "additionalProperties": false }] },
            "odd": { "type": "string" } } });
        assert_eq!(narrowed(&schema), Some(expected));
    }

    #[test]
    fn what_cannot_be_said_there_is_not() {
        for schema in [
            json!({ "type": "object" }),
            json!({ "type": "object", "properties": {}, "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "properties": { "child": { "$ref": "#" } } }),
            json!({ "type": "array", "items": { "type": "object" } }),
            json!({ "type": "object", "properties": { "any": true } }),
            json!(true),
        ] {
            assert_eq!(narrowed(&schema), None, "{schema}");
        }
    }
}
