//! Reading a table key by key. What is asked for is known; what is left over at the end is an unknown key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use turnbuckle::OnBudget;

use super::Found;
use super::file::Source;
use super::nearest::{instead, nearest};
use super::options::{self, MOST_UNKNOWN, Options};
use super::shape::{Plural, Shape};
use crate::problem::{Place, Problem};

/// A table under way.
pub(super) struct Section<'s> {
    source: &'s Source,
    /// As a person would write it: `[agent]`.
    title: String,
    place: Place,
    /// Where it begins and ends in the text.
    span: Range<usize>,
    table: DeTable<'s>,
    known: Vec<&'static str>,
    /// Known keys that were there, whatever came of them.
    present: Vec<&'static str>,
    /// Notes what is asked for, instead of reading: see [`Shape`].
    noted: Option<Shape>,
}

impl<'s> Section<'s> {
    pub(super) fn root(source: &'s Source, table: DeTable<'s>) -> Self {
        source.note_secret_variables(&table);
        Self {
            source,
            title: String::new(),
            place: source.place(0),
            span: 0..0,
            table,
            known: Vec::new(),
            present: Vec::new(),
            noted: None,
        }
    }

    /// A table that is not there: whoever reads it has noted what it asks for.
    pub(super) fn describing(source: &'s Source, noted: &Shape) -> Self {
        Self { noted: Some(noted.clone()), ..Self::root(source, DeTable::default()) }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn source(&self) -> &'s Source {
        self.source
    }

    /// `max_tokens in [limits]`, or the key alone at the top.
    pub(super) fn named(&self, key: &str) -> String {
        match self.title.as_str() {
            "" => format!("`{key}`"),
            title => format!("`{key}` in {title}"),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Found<DeValue<'s>>> {
        self.known.push(key);
        let (name, value) = self.table.remove_entry(key)?;
        self.present.push(key);
        let place = self.source.place(name.span().start);
        Some(Found { value: value.into_inner(), place })
    }

    /// One value of a kind; another kind is a problem.
    fn typed<T>(
        &mut self,
        key: &'static str,
        kind: Kind,
        read: impl FnOnce(&DeValue<'s>) -> Option<T>,
    ) -> Option<Found<T>> {
        if let Some(noted) = &self.noted {
            noted.note(key, kind.schema());
        }
        let Found { value, place } = self.take(key)?;
        match read(&value) {
            Some(value) => Some(Found { value, place }),
            None => {
                let what = format!("{} must be {}, not {}", self.named(key), kind.name, shown(&value));
                self.source.tell(Problem::error(what).at(&place).hint(format!("write `{key} = {}`", kind.example)));
                None
            }
        }
    }

    pub(super) fn string(&mut self, key: &'static str) -> Option<Found<String>> {
        self.typed(key, STRING, |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Option<Found<bool>> {
        self.typed(key, BOOLEAN, DeValue::as_bool)
    }

    pub(super) fn whole(&mut self, key: &'static str) -> Option<Found<u64>> {
        self.typed(key, WHOLE, whole)
    }

    /// For limits that are kept in 32 bits.
    pub(super) fn small(&mut self, key: &'static str) -> Option<Found<u32>> {
        self.typed(key, SMALL, |value| whole(value).and_then(|number| u32::try_from(number).ok()))
    }

    /// Of either sign.
    pub(super) fn integer(&mut self, key: &'static str) -> Option<Found<i32>> {
        self.typed(key, INTEGER, |value| {
            let DeValue::Integer(number) = value else { return None };
            i32::from_str_radix(number.as_str(), number.radix()).ok()
        })
    }

    /// Not negative.
    pub(super) fn amount(&mut self, key: &'static str) -> Option<Found<f64>> {
        self.typed(key, AMOUNT, |value| {
            let number = match value {
                DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
                other => whole(other).map(|number| number as f64),
            };
            number.filter(|number| number.is_finite() && *number >= 0.0)
        })
    }

    pub(super) fn on_budget(&mut self, key: &'static str) -> Option<Found<OnBudget>> {
        self.typed(key, ON_BUDGET, |value| match value.as_str()? {
            "stop" => Some(OnBudget::Stop),
            "answer" => Some(OnBudget::Answer),
            _ => None,
        })
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Option<Found<Duration>> {
        self.typed(key, DURATION, |value| humantime::parse_duration(value.as_str()?).ok())
    }

    pub(super) fn strings(&mut self, key: &'static str) -> Option<Found<Vec<Found<String>>>> {
        let source = self.source;
        self.typed(key, STRINGS, |value| {
            let one = |item: &Spanned<DeValue<'s>>| {
                let place = source.place(item.span().start);
                Some(Found { value: item.get_ref().as_str()?.to_owned(), place })
            };
            value.as_array()?.iter().map(one).collect()
        })
    }

    /// A table of strings: `{ NAME = "value" }`.
    pub(super) fn string_map(&mut self, key: &'static str) -> Option<Found<BTreeMap<String, String>>> {
        self.typed(key, STRING_MAP, |value| {
            let one = |(key, value): (&Spanned<toml::de::DeString<'s>>, &Spanned<DeValue<'s>>)| {
                Some((key.get_ref().to_string(), value.get_ref().as_str()?.to_owned()))
            };
            value.as_table()?.iter().map(one).collect()
        })
    }

    /// Names of roles: none is empty, and none is there twice.
    pub(super) fn roles(&mut self, key: &'static str) -> Option<Found<Vec<Found<String>>>> {
        let roles = self.strings(key);
        let mut seen = BTreeSet::new();
        for role in roles.iter().flat_map(|roles| &roles.value) {
            let what = match role.value.trim().is_empty() {
                true => format!("{} has an empty role", self.named(key)),
                false if !seen.insert(&role.value) => format!("{} has {:?} twice", self.named(key), role.value),
                false => continue,
            };
            self.source.tell(Problem::error(what).at(&role.place).hint("take it out"));
        }
        roles
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<Found<T>> {
        let found = self.string(key);
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        if let Some(noted) = &self.noted {
            noted.note(key, json!({ "enum": names }));
        }
        let Found { value, place } = found?;
        match words.iter().find(|(name, _)| *name == value) {
            Some((_, meant)) => Some(Found { value: *meant, place }),
            None => {
                let what = format!("{} is {value:?}, which is none of: {}", self.named(key), names.join(", "));
                self.source.tell(Problem::error(what).at(&place).hint(instead(&value, &names)));
                None
            }
        }
    }

    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'s>> {
        let source = self.source;
        if let Some(noted) = &self.noted {
            return Some(Self::describing(source, &noted.inner(key, Plural::One)));
        }
        let found = self.typed(key, TABLE, |value| value.as_table().cloned())?;
        let title = match self.title.trim_matches(['[', ']']) {
            "" => format!("[{key}]"),
            above => format!("[{above}.{key}]"),
        };
        Some(Section {
            source,
            title,
            place: found.place,
            span: 0..0,
            table: found.value,
            known: Vec::new(),
            present: Vec::new(),
            noted: None,
        })
    }

    /// `[[key]]`, or a list of inline tables.
    pub(super) fn sections(&mut self, key: &'static str) -> Option<Vec<Section<'s>>> {
        let source = self.source;
        if let Some(noted) = &self.noted {
            return Some(vec![Self::describing(source, &noted.inner(key, Plural::Many))]);
        }
        let title = match self.title.trim_matches(['[', ']']) {
            "" => format!("[[{key}]]"),
            above => format!("[[{above}.{key}]]"),
        };
        let found = self.typed(key, TABLES, |value| {
            let one = |item: &Spanned<DeValue<'s>>| {
                let (place, table) = (source.place(item.span().start), item.get_ref().as_table()?.clone());
                Some(Section {
                    source,
                    title: title.clone(),
                    place,
                    span: item.span(),
                    table,
                    known: Vec::new(),
                    present: Vec::new(),
                    noted: None,
                })
            };
            value.as_array()?.iter().map(one).collect::<Option<Vec<_>>>()
        })?;
        Some(found.value)
    }

    /// A value that must be there.
    pub(super) fn required<T>(&self, key: &'static str, example: &str, found: Option<T>) -> Option<T> {
        if let Some(noted) = &self.noted {
            noted.require(key);
            return found;
        }
        // A value of the wrong kind was reported when it was read.
        if found.is_none() && !self.present.contains(&key) {
            let what = format!("{} is missing", self.named(key));
            self.source.tell(Problem::error(what).at(&self.place).hint(format!("write `{key} = {example}`")));
        }
        found
    }

    /// A table, as JSON.
    pub(super) fn json(&mut self, key: &'static str) -> Option<Found<Value>> {
        self.typed(key, TABLE, |value| value.is_table().then(|| options::json(value)))
    }

    /// All of it, as JSON.
    pub(super) fn into_json(self) -> Found<Value> {
        Found { value: options::json(&DeValue::Table(self.table)), place: self.place }
    }

    /// Passes on the keys that were not read, as options of a hook.
    pub(super) fn rest<T>(self, read: impl FnOnce(Options<'_>) -> T) -> T {
        let Self { source, title, table, known, span, .. } = self;
        read(Options { source, title: &title, table: Spanned::new(span, table), common: &known })
    }

    /// Reports the keys that were not read as unknown.
    pub(super) fn finish(self) {
        if let Some(noted) = &self.noted {
            noted.close();
        }
        for key in self.table.keys().take(MOST_UNKNOWN) {
            let place = self.source.place(key.span().start);
            let problem = Problem::error(format!("unknown key {}", self.named(key.get_ref()))).at(&place);
            self.source.tell(problem.hint(match belongs_in(key.get_ref()) {
                Some(section) if nearest(key.get_ref(), self.known.iter().copied()).is_none() => {
                    format!("`{}` belongs in {section}", key.get_ref())
                }
                _ => instead(key.get_ref(), &self.known),
            }));
        }
        if let Some(key) = self.table.keys().nth(MOST_UNKNOWN) {
            let more = self.table.len() - MOST_UNKNOWN;
            let place = self.source.place(key.span().start);
            self.source.tell(Problem::error(format!("and {more} more unknown keys")).at(&place));
        }
    }
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(number) = value else { return None };
    u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()).ok()
}

/// The one section that has this key, for keys that are easily put into another one.
fn belongs_in(key: &str) -> Option<&'static str> {
    Some(match key {
        "approve" | "builtin" | "mcp_json" => "[tools]",
        "sandbox" => "[tools.shell]",
        "user" | "roles" => "[scope]",
        "url" | "retain" | "audit" | "audit_ttl" | "audit_rows" | "audit_bytes" => "[store]",
        "context_tokens" | "max_model_calls" | "max_cost" | "on_budget" | "show_budget" | "turn_timeout"
        | "approval_timeout" => "[limits]",
        _ => return None,
    })
}

/// What a value is, to a person.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// What a value must be, for messages and for the schema.
struct Kind {
    name: &'static str,
    example: &'static str,
    schema: fn() -> Value,
}

impl Kind {
    fn schema(&self) -> Value {
        (self.schema)()
    }
}

const STRING: Kind = Kind { name: "a string", example: "\"…\"", schema: || json!({ "type": "string" }) };
const BOOLEAN: Kind = Kind { name: "true or false", example: "true", schema: || json!({ "type": "boolean" }) };
const WHOLE: Kind =
    Kind { name: "a whole number", example: "1000", schema: || json!({ "type": "integer", "minimum": 0 }) };
const SMALL: Kind = Kind {
    name: "a whole number below 2^32",
    example: "8",
    schema: || json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
};
const INTEGER: Kind = Kind {
    name: "a whole number of 32 bits",
    example: "-1",
    schema: || json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }),
};
const AMOUNT: Kind = Kind {
    name: "a number that is not negative",
    example: "0.5",
    schema: || json!({ "type": "number", "minimum": 0 }),
};
const DURATION: Kind = Kind {
    name: "a duration",
    example: "\"30m\"",
    schema: || json!({ "type": "string", "pattern": "^\\s*([0-9]+\\s*[a-zµ]+\\s*)+$", "examples": ["30s", "5m", "7d"] }),
};
const ON_BUDGET: Kind =
    Kind { name: "\"stop\" or \"answer\"", example: "\"answer\"", schema: || json!({ "enum": ["stop", "answer"] }) };
const STRINGS: Kind = Kind {
    name: "a list of strings",
    example: "[\"…\"]",
    schema: || json!({ "type": "array", "items": { "type": "string" } }),
};
const STRING_MAP: Kind = Kind {
    name: "a table of strings",
    example: "{ NAME = \"value\" }",
    schema: || json!({ "type": "object", "additionalProperties": { "type": "string" } }),
};
const TABLE: Kind = Kind { name: "a table", example: "{ … }", schema: || json!({ "type": "object" }) };
const TABLES: Kind = Kind {
    name: "a list of tables",
    example: "[{ … }]",
    schema: || json!({ "type": "array", "items": { "type": "object" } }),
};
