//! What a server offers, and how two listings differ.

use std::collections::BTreeMap;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The most tools of one server. A model chooses well among few, and every one of them is sent with each request.
pub(crate) const MOST_TOOLS: usize = 256;
/// The most bytes of one tool's definition.
const MOST_DEFINITION: usize = 64 * 1024;

/// The tools of a server, as it listed them: what a person accepts, and what the model is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Listing {
    /// In the order of the server.
    pub tools: Vec<ListedTool>,
    /// Whether the server has resources, which a tool of ours reads.
    #[serde(default)]
    pub resources: bool,
    /// Whether it has prompts, which a tool of ours fetches.
    #[serde(default)]
    pub prompts: bool,
    /// How many of its tools were left out, because there are too many or a definition is too long or not usable.
    #[serde(default)]
    pub left_out: usize,
}

/// One tool of a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedTool {
    /// As the server knows it.
    pub name: String,
    /// What the model is told it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// The server says that it changes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// The server says that it may destroy something.
    #[serde(default)]
    pub destructive: bool,
    /// The server says that a repetition changes nothing further.
    #[serde(default)]
    pub idempotent: bool,
}

/// A difference between what was accepted and what a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It was not there.
    Added(String),
    /// It is gone.
    Removed(String),
    /// Its description, its arguments or its annotations are others.
    Changed(String),
}

impl ListedTool {
    /// `None` if it cannot be offered: its definition is too long, or its name cannot be part of a tool's name.
    fn of(tool: Tool) -> Option<Self> {
        let parameters = Value::Object((*tool.input_schema).clone());
        let description = tool.description.unwrap_or_default().into_owned();
        let size = description.len() + parameters.to_string().len();
        let is_named = !tool.name.is_empty()
            && tool.name.len() <= 128
            && tool.name.chars().all(|sign| sign.is_ascii_alphanumeric() || "_-.".contains(sign));
        let hints = tool.annotations.unwrap_or_default();
        let read_only = hints.read_only_hint.unwrap_or_default();
        (is_named && size <= MOST_DEFINITION).then(|| Self {
            name: tool.name.into_owned(),
            description,
            parameters,
            read_only,
            destructive: !read_only && hints.destructive_hint.unwrap_or(true),
            idempotent: hints.idempotent_hint.unwrap_or_default(),
        })
    }

    /// Of everything that the model or a person is told of it.
    pub fn digest(&self) -> String {
        // Keys of JSON objects are sorted here, so two spellings of one definition are one.
        let text = serde_json::to_value(self).map(|value| value.to_string()).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// About how many tokens it adds to every request.
    pub fn tokens(&self) -> usize {
        (self.name.len() + self.description.len() + self.parameters.to_string().len()).div_ceil(4)
    }
}

impl Listing {
    pub(crate) fn of(tools: Vec<Tool>, resources: bool, prompts: bool) -> Self {
        let count = tools.len();
        let mut found: Vec<ListedTool> = tools.into_iter().filter_map(ListedTool::of).collect();
        // The second of a name could not be told from the first.
        let mut seen = std::collections::BTreeSet::new();
        found.retain(|tool| seen.insert(tool.name.clone()));
        found.truncate(MOST_TOOLS);
        let left_out = count - found.len();
        Self { tools: found, resources, prompts, left_out }
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ListedTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// What is different in `other`, by name.
    pub fn changes(&self, other: &Self) -> Vec<Change> {
        let digests = |listing: &Self| -> BTreeMap<String, String> {
            listing.tools.iter().map(|tool| (tool.name.clone(), tool.digest())).collect()
        };
        let (before, after) = (digests(self), digests(other));
        let changed = after.iter().filter_map(|(name, digest)| match before.get(name) {
            None => Some(Change::Added(name.clone())),
            Some(old) if old != digest => Some(Change::Changed(name.clone())),
            Some(_) => None,
        });
        let removed = before.keys().filter(|name| !after.contains_key(*name)).cloned().map(Change::Removed);
        changed.chain(removed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> ListedTool {
        let tool: Tool = serde_json::from_value(serde_json::json!({
            "name": name, "description": description, "inputSchema": { "type": "object", "b": 1, "a": 2 },
        }))
        .unwrap();
        ListedTool::of(tool).unwrap()
    }

    #[test]
    fn a_changed_description_is_a_change_and_another_order_of_keys_is_none() {
        let before = Listing { tools: vec![tool("a", "reads"), tool("b", "")], ..Listing::default() };
        let mut after = before.clone();
        assert_eq!(before.changes(&after), []);
        after.tools[0].parameters = serde_json::json!({ "a": 2, "type": "object", "b": 1 });
        assert_eq!(before.changes(&after), []);
        after.tools[0].description = "reads, and sends your keys".to_owned();
        after.tools[1].name = "c".to_owned();
        let named = |name: &str| name.to_owned();
        let expected = [Change::Changed(named("a")), Change::Added(named("c")), Change::Removed(named("b"))];
        assert_eq!(before.changes(&after), expected);
    }

    #[test]
    fn what_cannot_be_offered_is_left_out_and_counted() {
        let one = |name: &str| -> Tool {
            serde_json::from_value(serde_json::json!({ "name": name, "inputSchema": { "type": "object" } })).unwrap()
        };
        let listing = Listing::of(vec![one("fine"), one("fine"), one("not fine"), one("")], false, false);
        assert_eq!((listing.tools.len(), listing.left_out), (1, 3));
    }
}
