//! `[[tools.client]]`, `[[tools.human]]` and `[[tools.provider]]`: tools that others than this program run.

use serde_json::{Value, json};

use super::Found;
use super::reader::Section;
use crate::problem::Problem;

/// The most of each kind in one file.
const MOST: usize = 64;

/// A tool that a client or a person runs.
#[derive(Debug)]
pub(crate) struct AskedTool {
    pub(crate) name: Found<String>,
    pub(crate) description: String,
    /// Of a client's tool: the JSON schema of its arguments. A person's tool has a fixed one.
    pub(crate) parameters: Option<Value>,
}

/// `[[tools.client]]`: an editor, a browser or whoever answers the call runs it.
pub(super) fn clients(sections: Vec<Section<'_>>) -> Vec<AskedTool> {
    few(sections, "client").into_iter().filter_map(|section| asked(section, true)).collect()
}

/// `[[tools.human]]`: the answer of a person is the result.
pub(super) fn humans(sections: Vec<Section<'_>>) -> Vec<AskedTool> {
    few(sections, "human").into_iter().filter_map(|section| asked(section, false)).collect()
}

/// `[[tools.provider]]`: what stands there goes to the model's provider as it is.
pub(super) fn provider(sections: Vec<Section<'_>>) -> Vec<Found<Value>> {
    few(sections, "provider").into_iter().map(Section::into_json).collect()
}

fn few<'s>(sections: Vec<Section<'s>>, kind: &str) -> Vec<Section<'s>> {
    if let Some(first) = sections.get(MOST) {
        let what = format!("there are {} [[tools.{kind}]], and {MOST} are the most", sections.len());
        first.source().tell(Problem::error(what).at(first.place()).hint("a model chooses well among few tools"));
        return Vec::new();
    }
    sections
}

fn asked(mut section: Section<'_>, is_client: bool) -> Option<AskedTool> {
    let (name, description) = (section.string("name"), section.string("description"));
    let name = section.required("name", "\"open_file\"", name);
    let description = section.required("description", "\"Shows a file in the editor.\"", description);
    let parameters = if is_client { section.json("parameters") } else { None };
    let parameters = parameters.map(|found| found.value);
    section.finish();
    let none = || json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let parameters = is_client.then(|| parameters.unwrap_or_else(none));
    Some(AskedTool { name: name?, description: description?.value, parameters })
}
