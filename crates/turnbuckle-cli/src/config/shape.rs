//! What a configuration may look like, noted by the reader itself: it reads a file that is not there and writes down what it asks
//! for. So the JSON schema for editors cannot differ from what is read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::file::Source;
use super::load::understand_section;
use super::options;
use super::reader::Section;
use crate::catalogue::CATALOGUE;
use crate::trust::TrustOptions;

/// One table under way. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape(Rc<RefCell<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    keys: BTreeMap<&'static str, Key>,
    required: Vec<&'static str>,
    /// Whether other keys are errors.
    closed: bool,
}

#[derive(Debug)]
enum Key {
    Value(Value),
    Table(Shape, Plural),
}

/// `[table]` or `[[table]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plural {
    One,
    Many,
}

impl Shape {
    pub(super) fn note(&self, key: &'static str, schema: Value) {
        self.0.borrow_mut().keys.insert(key, Key::Value(schema));
    }

    pub(super) fn inner(&self, key: &'static str, plural: Plural) -> Self {
        let inner = Self::default();
        self.0.borrow_mut().keys.insert(key, Key::Table(inner.clone(), plural));
        inner
    }

    pub(super) fn require(&self, key: &'static str) {
        self.0.borrow_mut().required.push(key);
    }

    pub(super) fn close(&self) {
        self.0.borrow_mut().closed = true;
    }

    fn schema(&self) -> Value {
        let noted = self.0.borrow();
        let property = |(key, value): (&&'static str, &Key)| {
            let schema = match value {
                Key::Value(schema) => schema.clone(),
                Key::Table(inner, Plural::One) => inner.schema(),
                Key::Table(inner, Plural::Many) => json!({ "type": "array", "items": inner.schema() }),
            };
            ((*key).to_owned(), schema)
        };
        let properties: Map<String, Value> = noted.keys.iter().map(property).collect();
        let is_hook = !noted.closed && noted.keys.contains_key("use");
        let known: Vec<&str> = noted.keys.keys().copied().collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !noted.required.is_empty() {
            schema["required"] = json!(noted.required);
        }
        if noted.closed {
            schema["additionalProperties"] = json!(false);
        }
        if is_hook {
            schema["allOf"] = CATALOGUE.iter().filter_map(|row| options_of(row, &known)).collect();
        }
        schema
    }
}

/// Which keys a hook of this `use` has beside those of every hook.
fn options_of(row: &crate::catalogue::Row, common: &[&str]) -> Option<Value> {
    let own = options::names_of(row)?;
    let names: Vec<&str> = common.iter().copied().chain(own.iter().map(String::as_str)).collect();
    Some(json!({
        "if": { "properties": { "use": { "const": row.name } }, "required": ["use"] },
        "then": { "propertyNames": { "enum": names } }
    }))
}

/// The JSON schema of `turnbuckle.toml`.
pub(crate) fn json_schema() -> Value {
    let nowhere = Path::new("turnbuckle.toml");
    let source = Source::new(nowhere, Path::new("."), String::new(), TrustOptions::default());
    let root = Shape::default();
    understand_section(Section::describing(&source, &root));
    let mut schema = root.schema();
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("turnbuckle.toml");
    schema["description"] = json!("The configuration of Turnbuckle, as docs/program.md describes it.");
    schema
}
