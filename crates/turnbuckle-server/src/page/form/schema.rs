//! What a JSON schema asks for, as far as a form can ask for it.

use serde_json::Value;

/// The most fields that a person is asked for one by one.
const MOST_FIELDS: usize = 30;

/// How an answer is asked for.
pub(super) enum Asked<'a> {
    /// With one field, whose value is the answer.
    One(Field<'a>),
    /// With a field for each property.
    Fields(Vec<Field<'a>>),
    /// As JSON.
    Json,
}

pub(super) struct Field<'a> {
    /// The name of the property; none for the answer itself.
    pub(super) key: Option<&'a str>,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
    /// Whether nothing is an answer, too.
    pub(super) takes_null: bool,
    /// Where the title, the description and the default stand.
    about: Option<&'a Value>,
    /// Where the limits stand.
    limits: Option<&'a Value>,
}

/// What is typed or chosen.
pub(super) enum Kind {
    Text,
    Number,
    Integer,
    Boolean,
    Choice(Vec<Choice>),
    Several(Vec<Choice>),
    /// Any number of these, each on a line.
    Lines(Scalar),
}

#[derive(Clone, Copy)]
pub(super) enum Scalar {
    Text,
    Number,
    Integer,
}

pub(super) struct Choice {
    pub(super) value: Value,
    pub(super) title: String,
}

impl<'a> Field<'a> {
    fn of(key: Option<&'a str>, schema: &'a Value, is_required: bool) -> Option<Self> {
        let (limits, takes_null) = without_null(schema);
        let found = kind(limits)?;
        let (kind, takes_null) = match found {
            // A box that is not ticked says no. Where that is not all that can be said, all of it is offered.
            (Kind::Boolean, _) if takes_null || key.is_none() => (Kind::Choice(yes_and_no()), takes_null),
            (kind, has_null) => (kind, takes_null || has_null),
        };
        Some(Self { key, kind, is_required, takes_null, about: Some(schema), limits: Some(limits) })
    }

    /// Any text.
    fn text() -> Self {
        Self { key: None, kind: Kind::Text, is_required: true, takes_null: false, about: None, limits: None }
    }

    /// What the field is called.
    pub(super) fn title(&self) -> &'a str {
        self.about_text("title").or(self.key).unwrap_or("Answer")
    }

    pub(super) fn about_text(&self, key: &str) -> Option<&'a str> {
        self.about?.get(key)?.as_str()
    }

    pub(super) fn default(&self) -> Option<&'a Value> {
        self.about?.get("default")
    }

    pub(super) fn limit(&self, key: &str) -> Option<&'a Value> {
        self.limits?.get(key)
    }
}

pub(super) fn asked(schema: Option<&Value>) -> Asked<'_> {
    let Some(schema) = schema else { return Asked::One(Field::text()) };
    if let Some(field) = Field::of(None, schema, true) {
        return Asked::One(field);
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Asked::Json };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = properties.iter().map(|(key, schema)| Field::of(Some(key), schema, required.contains(&key.as_str())));
    match fields.collect::<Option<Vec<_>>>() {
        Some(fields) if fields.len() <= MOST_FIELDS => Asked::Fields(fields),
        _ => Asked::Json,
    }
}

/// The schema of what is not null, and whether null is allowed beside it.
fn without_null(schema: &Value) -> (&Value, bool) {
    let is_null = |one: &Value| one.get("type").and_then(Value::as_str) == Some("null");
    let branches = ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
    if let Some(branches) = branches
        && let [only] = &branches.iter().filter(|one| !is_null(one)).collect::<Vec<_>>()[..]
        && branches.len() == 2
    {
        return (only, true);
    }
    let types = schema.get("type").and_then(Value::as_array);
    (schema, types.is_some_and(|types| types.iter().any(|one| one == "null")))
}

/// How it is asked for, and whether null is among the choices.
fn kind(schema: &Value) -> Option<(Kind, bool)> {
    if let Some((choices, has_null)) = choices(schema) {
        return Some((Kind::Choice(choices), has_null));
    }
    let kind = match type_of(schema)? {
        "string" => Kind::Text,
        "number" => Kind::Number,
        "integer" => Kind::Integer,
        "boolean" => Kind::Boolean,
        "array" => {
            let items = schema.get("items")?;
            match (choices(items), type_of(items)) {
                (Some((choices, false)), _) => Kind::Several(choices),
                (Some(_), _) => return None,
                (None, Some("string")) => Kind::Lines(Scalar::Text),
                (None, Some("number")) => Kind::Lines(Scalar::Number),
                (None, Some("integer")) => Kind::Lines(Scalar::Integer),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some((kind, false))
}

/// The one type that is not null.
fn type_of(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(names) => {
            let mut others = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            others.next().filter(|_| others.next().is_none())
        }
        _ => None,
    }
}

/// Values and what they are called, and whether null is one of them. `None` if these are not all.
fn choices(schema: &Value) -> Option<(Vec<Choice>, bool)> {
    let list = ["enum", "oneOf", "anyOf"].into_iter().find_map(|key| schema.get(key)?.as_array())?;
    let titles = schema.get("enumNames").and_then(Value::as_array);
    let mut all = Vec::with_capacity(list.len());
    let mut has_null = false;
    for (at, one) in list.iter().enumerate() {
        let value = if one.is_object() { one.get("const")? } else { one };
        if value.is_array() || value.is_object() {
            return None;
        }
        if value.is_null() {
            has_null = true;
            continue;
        }
        let named = titles.and_then(|titles| titles.get(at)?.as_str()).or_else(|| one.get("title")?.as_str());
        let title = named.or(value.as_str()).map_or_else(|| value.to_string(), str::to_owned);
        all.push(Choice { value: value.clone(), title });
    }
    (!all.is_empty()).then_some((all, has_null))
}

fn yes_and_no() -> Vec<Choice> {
    [(true, "Yes"), (false, "No")].map(|(value, title)| Choice { value: value.into(), title: title.to_owned() }).into()
}
