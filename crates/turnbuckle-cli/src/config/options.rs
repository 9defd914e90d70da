//! A ready-made hook's own options: read by serde, and every refusal put back to its line with the nearest right name.

use std::error::Error as _;
use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};
use turnbuckle::hooks::{HookBuildContext, OptionError};

use super::Found;
use super::file::Source;
use super::nearest::instead;
use crate::catalogue::{KeptBeside, Maker, Refused, Row};
use crate::problem::{Problem, followed_by_causes};

/// How many unknown keys of one section are told.
pub(super) const MOST_UNKNOWN: usize = 16;

/// What is left of a section when the keys that every hook has are taken out.
pub(super) struct Options<'s> {
    pub(super) source: &'s Source,
    /// As a person would write it: `[[hooks]]`.
    pub(super) title: &'s str,
    pub(super) table: Spanned<DeTable<'s>>,
    /// The keys that every hook has: a slip may have meant one of them.
    pub(super) common: &'s [&'static str],
}

impl Options<'_> {
    /// The options as given, for people to read.
    pub(super) fn shown(&self) -> Vec<(String, Found<Value>)> {
        let one = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let place = self.source.place(key.span().start);
            let name: &toml::de::DeString<'_> = key.get_ref();
            (name.to_string(), Found { value: json(value.get_ref()), place })
        };
        self.table.get_ref().iter().map(one).collect()
    }

    /// The hook, or what is wrong with its options.
    pub(super) fn read(self, row: &Row, context: &HookBuildContext<'_>) -> Option<Maker> {
        self.read_as(row, |options| row.read(options, context))
    }

    /// What the hook keeps, if its options have the right shape.
    pub(super) fn side_store(self, row: &Row, context: &HookBuildContext<'_>) -> Option<KeptBeside> {
        self.read_as(row, |options| row.side_store(options, context))
    }

    /// An unknown key does not hide what else is wrong; but the options are read again for each, so after a few of them the
    /// rest is not looked at.
    fn read_as<T>(mut self, row: &Row, read: impl Fn(Spanned<DeTable<'_>>) -> Result<T, Refused>) -> Option<T> {
        let mut sound = true;
        for _ in 0..MOST_UNKNOWN {
            match read(self.table.clone()) {
                Ok(found) => return sound.then_some(found),
                Err(Refused::Option(error)) => {
                    self.tell_option(row, &error);
                    return None;
                }
                Err(Refused::Shape(error)) => {
                    sound = false;
                    match self.tell_shape(row, &error) {
                        Some(unknown) => drop(self.table.get_mut().remove(unknown.as_str())),
                        None => return None,
                    }
                }
            }
        }
        None
    }

    fn tell_option(&self, row: &Row, error: &OptionError) {
        let found = self.table.get_ref().get_key_value(error.option);
        let item = found.zip(error.item).and_then(|((_, value), item)| value.get_ref().as_array()?.get(item));
        let at = item.map_or_else(|| found.map(|(key, _)| key.span()), |item| Some(item.span()));
        let why = followed_by_causes(error.why.clone(), error.source());
        let (problem, hint) = match error.option {
            // Only Claude-style settings lead to other files.
            "" => (
                why,
                "bringing-your-hooks in the documentation says what such files may have, and what does not run"
                    .to_owned(),
            ),
            option => (
                format!("`{option}` in {} {why}", self.title),
                format!("`turnbuckle schema` lists the options of `{}`", row.name),
            ),
        };
        let problem = Problem::error(problem);
        self.source.tell(problem.at(&self.source.place(at.unwrap_or(self.table.span()).start)).hint(hint));
    }

    /// Reports the error. Returns the unknown top-level key if that was the error.
    fn tell_shape(&self, row: &Row, error: &Error) -> Option<String> {
        let span = error.span().unwrap_or(self.table.span());
        let message = error.message();
        let (what, hint, unknown) = if let Some((name, known)) = named(message, "unknown field ") {
            let top = self.is_top(&span);
            let common: &[&str] = if top { self.common } else { &[] };
            let known: Vec<&str> = known.iter().chain(common).copied().collect();
            let what = format!("unknown key `{name}` in {}", self.title);
            let renamed = row.renamed.iter().find(|(old, _)| top && *old == name);
            let hint = renamed.map_or_else(|| instead(name, &known), |(_, now)| format!("write {now}"));
            (what, hint, top.then(|| name.to_owned()))
        } else if let Some((name, known)) = named(message, "unknown variant ") {
            let what = format!("{} is {name:?}, which is none of: {}", self.named(&span), known.join(", "));
            (what, instead(name, &known), None)
        } else if let Some((name, _)) = named(message, "missing field ") {
            (format!("`{name}` in {} is missing", self.title), format!("write `{name} = …`"), None)
        } else {
            let hint = format!("`turnbuckle schema` lists the options of `{}`", row.name);
            (format!("{} {}", self.named(&span), complaint(message)), hint, None)
        };
        self.source.tell(Problem::error(what).at(&self.source.place(span.start)).hint(hint));
        unknown
    }

    fn is_top(&self, span: &Range<usize>) -> bool {
        self.table.get_ref().keys().any(|key| key.span() == *span)
    }

    /// The option that a value in it belongs to.
    fn named(&self, span: &Range<usize>) -> String {
        let holds = |(_, value): &(_, &Spanned<DeValue<'_>>)| {
            value.span().start <= span.start && span.start <= value.span().end
        };
        match self.table.get_ref().iter().find(holds) {
            Some((key, _)) => format!("`{}` in {}", key.get_ref(), self.title),
            None => self.title.to_owned(),
        }
    }
}

/// Serde says what is wrong, the name in backticks, and behind it the names it knows.
fn named<'m>(message: &'m str, what: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let mut names = message.strip_prefix(what)?.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// `invalid type: string "x", expected u32` is `must be a whole number, not string "x"`.
fn complaint(message: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let parts =
        kinds.iter().find_map(|kind| message.strip_prefix(kind)).and_then(|rest| rest.split_once(", expected "));
    let Some((found, expected)) = parts else {
        return if message.starts_with("must ") { message.to_owned() } else { format!("makes no sense: {message}") };
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other => other,
    };
    let found = found.strip_suffix(" as i128").unwrap_or(found);
    let found = ["string ", "integer ", "floating point ", "boolean "]
        .iter()
        .find_map(|kind| found.strip_prefix(kind))
        .unwrap_or(found);
    format!("must be {expected}, not {found}")
}

/// The names of a hook's own options, as serde tells them when it meets one that it does not know. `None` if it does not say.
pub(super) fn names_of(row: &Row) -> Option<Vec<String>> {
    const NOBODYS: &str = "no hook has this option";
    let mut table = DeTable::default();
    let key = Spanned::new(0..0, std::borrow::Cow::Borrowed(NOBODYS));
    table.insert(key, Spanned::new(0..0, DeValue::Boolean(true)));
    let refused = row.shape_error(Spanned::new(0..0, table))?;
    let (_, known) = named(refused.message(), "unknown field ")?;
    Some(known.into_iter().map(str::to_owned).collect())
}

/// A value as JSON. A number that JSON cannot have is its text, so that no two different ones become the same.
pub(super) fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| number.to_string().into(), Value::from)
        }
        DeValue::Float(number) => {
            let finite = number.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            finite.map_or_else(|| number.as_str().into(), Value::from)
        }
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
        }
    }
}
