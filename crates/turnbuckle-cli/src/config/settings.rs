//! A file's settings as they are written, before anything is made of them: what acceptance is judged by.

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::Source;
use super::options::json;
use crate::problem::Place;

/// One key of a section, or one element of a list of sections.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) section: String,
    /// None for an element of a list such as `[[hooks]]`, for a value at the top, and for a section or list with nothing in it.
    pub(crate) key: Option<String>,
    /// Which element of the list it is.
    pub(crate) index: Option<usize>,
    pub(crate) value: Value,
    pub(crate) place: Place,
}

/// All of them, in the order of their lines.
pub(super) fn settings(source: &Source, root: &DeTable<'_>) -> Vec<Setting> {
    let mut all = Vec::new();
    for (section, value) in root.iter() {
        let name = section.get_ref().to_string();
        let one = |key: Option<String>, index, offset: usize, value: &DeValue<'_>| {
            let (section, place) = (name.clone(), source.place(offset));
            Setting { section, key, index, value: json(value), place }
        };
        let keyed = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &toml::de::DeString<'_> = key.get_ref();
            one(Some(name.to_string()), None, key.span().start, value.get_ref())
        };
        match value.get_ref() {
            DeValue::Table(table) if !table.is_empty() => {
                for (key, value) in table.iter() {
                    // `[[tools.mcp]]`: each server is accepted for itself.
                    match value.get_ref() {
                        DeValue::Array(items) if is_list_of_tables(items) => {
                            let list = format!("{name}.{}", key.get_ref());
                            all.extend(items.iter().enumerate().map(|(index, item)| Setting {
                                section: list.clone(),
                                key: None,
                                index: Some(index),
                                value: json(item.get_ref()),
                                place: source.place(item.span().start),
                            }));
                        }
                        _ => all.push(keyed((key, value))),
                    }
                }
            }
            DeValue::Array(items) if is_list_of_tables(items) => all.extend(
                items.iter().enumerate().map(|(index, item)| one(None, Some(index), item.span().start, item.get_ref())),
            ),
            other => all.push(one(None, None, section.span().start, other)),
        }
    }
    all.sort_by_key(|setting| setting.place.line);
    all
}

fn is_list_of_tables(items: &[Spanned<DeValue<'_>>]) -> bool {
    !items.is_empty() && items.iter().all(|item| item.get_ref().is_table())
}
