//! How large a schema is once every `$ref` is written out.
//!
//! A validator follows references, so definitions that name each other twice double its work with each level: two kilobytes
//! of schema can ask for more memory than a machine has. Only what stands in the document counts; a reference that leads back
//! to a schema it stands in counts once, because a value ends such a recursion.

use std::collections::HashMap;

use serde_json::Value;

use super::SchemaError;

/// How deeply schemas and references may be nested.
const MAX_DEPTH: usize = 512;

/// The number of objects in the schema, those behind references counted as often as they are named.
pub(super) fn of(schema: &Value) -> Result<u64, SchemaError> {
    let mut anchors = HashMap::new();
    collect_anchors(schema, &mut anchors, 0)?;
    let mut expansion = Expansion { root: schema, anchors, sizes: HashMap::new(), depth: 0 };
    expansion.size_of_target(schema)
}

/// Names given by `$anchor`, `$dynamicAnchor` and `$id`, and what they name.
type Anchors<'a> = HashMap<&'a str, &'a Value>;

struct Expansion<'a> {
    root: &'a Value,
    anchors: Anchors<'a>,
    /// What is known of the targets of references, by address. `None` while a target is being measured.
    sizes: HashMap<*const Value, Option<u64>>,
    depth: usize,
}

fn collect_anchors<'a>(value: &'a Value, anchors: &mut Anchors<'a>, depth: usize) -> Result<(), SchemaError> {
    check_depth(depth)?;
    match value {
        Value::Object(fields) => {
            for key in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                if let Some(name) = fields.get(key).and_then(Value::as_str) {
                    anchors.insert(name.trim_start_matches('#'), value);
                }
            }
            fields.values().try_for_each(|value| collect_anchors(value, anchors, depth + 1))
        }
        Value::Array(values) => values.iter().try_for_each(|value| collect_anchors(value, anchors, depth + 1)),
        _ => Ok(()),
    }
}

fn check_depth(depth: usize) -> Result<(), SchemaError> {
    match depth > MAX_DEPTH {
        true => Err(SchemaError::new(format!("it is nested more than {MAX_DEPTH} levels deep"))),
        false => Ok(()),
    }
}

impl<'a> Expansion<'a> {
    fn size(&mut self, value: &'a Value) -> Result<u64, SchemaError> {
        self.depth += 1;
        check_depth(self.depth)?;
        let mut size = 0_u64;
        match value {
            Value::Object(fields) => {
                size = 1;
                for (key, field) in fields {
                    // Definitions count where they are named.
                    if !matches!(key.as_str(), "definitions" | "$defs" | "enum" | "const" | "default" | "examples") {
                        size = size.saturating_add(self.size(field)?);
                    }
                    if matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef")
                        && let Some(target) = field.as_str().and_then(|reference| self.target(reference))
                    {
                        size = size.saturating_add(self.size_of_target(target)?);
                    }
                }
            }
            Value::Array(values) => {
                for value in values {
                    size = size.saturating_add(self.size(value)?);
                }
            }
            _ => {}
        }
        self.depth -= 1;
        Ok(size)
    }

    fn size_of_target(&mut self, target: &'a Value) -> Result<u64, SchemaError> {
        let address: *const Value = target;
        match self.sizes.get(&address) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return Ok(1),
            None => {}
        }
        self.sizes.insert(address, None);
        let size = self.size(target)?;
        self.sizes.insert(address, Some(size));
        Ok(size)
    }

    /// What a reference names: a JSON pointer, an anchor or an id. One that names nothing is an error of the compiler.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let document = match document.is_empty() {
            true => self.root,
            false => self.anchors.get(document).copied()?,
        };
        match fragment {
            "" => Some(document),
            pointer if pointer.starts_with('/') => document.pointer(&decoded(pointer)),
            anchor => self.anchors.get(anchor).copied(),
        }
    }
}

/// A fragment with its percent signs decoded.
fn decoded(fragment: &str) -> String {
    let bytes = fragment.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = fragment.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(escaped) => {
                decoded.push(escaped);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json_schema::JsonSchema;

    /// `levels` definitions of which each names the one before it twice, by a pointer or by an anchor.
    fn doubled(levels: usize, keyword: &str, by_anchor: bool) -> Value {
        let mut definitions = serde_json::Map::new();
        definitions.insert("d0".to_owned(), json!({"$anchor": "d0", "type": "string"}));
        let named = |level: usize| match by_anchor {
            true => json!({"$ref": format!("#d{level}")}),
            false => json!({"$ref": format!("#/definitions/d{level}")}),
        };
        for level in 1..=levels {
            let twice = json!([named(level - 1), named(level - 1)]);
            definitions.insert(format!("d{level}"), json!({"$anchor": format!("d{level}"), keyword: twice}));
        }
        json!({"type": "object", keyword: [named(levels)], "definitions": definitions})
    }

    #[test]
    fn a_schema_that_doubles_with_each_level_is_refused_however_it_names_them() {
        for keyword in ["anyOf", "allOf", "oneOf"] {
            for by_anchor in [false, true] {
                let schema = doubled(60, keyword, by_anchor);
                let refused = JsonSchema::compile(&schema).unwrap_err().to_string();
                assert!(refused.contains("written out"), "{refused}");
                let few = JsonSchema::compile(&doubled(5, keyword, by_anchor)).unwrap();
                assert!(few.complaint(&json!({})).unwrap().contains("(at"));
            }
        }
    }

    #[test]
    fn with_very_many_branches_a_complaint_has_no_details() {
        let many = JsonSchema::compile(&doubled(12, "anyOf", false)).unwrap();
        assert_eq!(many.complaint(&json!({})).unwrap(), "it does not fit the schema");
    }

    #[test]
    fn a_schema_that_names_itself_is_fine() {
        let tree = json!({
            "type": "object",
            "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "of": {"$ref": "#/$defs/list"}},
            "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}},
        });
        assert!(of(&tree).unwrap() < 20);
        assert!(JsonSchema::compile(&tree).unwrap().accepts(&json!({"left": {"right": {}}, "of": [[], [[]]]})));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
        let deep = (0..20_000).fold(json!({"type": "string"}), |inner, _| {
            Value::Object(serde_json::Map::from_iter([("not".to_owned(), inner)]))
        });
        assert!(of(&deep).is_err());
        // The value itself is dropped level by level as well.
        std::mem::forget(deep);
    }
}
