//! Calls of tools that Anthropic ran itself, as they are shown in the log.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use turnbuckle::ToolCall;
use turnbuckle::message::{Hosted, Part};

/// The longest result that is shown. It is for people only: the provider gets its own block back unchanged.
const SHOWN: usize = 4000;

/// Each `server_tool_use` with the block that answers it. A call without an answer is left out: the provider still runs it,
/// and its answer comes after a pause.
pub(super) fn hosted(content: &[Part]) -> Vec<Hosted> {
    let blocks = || {
        content.iter().filter_map(|part| match part {
            Part::Provider(own) => Some(&*own.block),
            _ => None,
        })
    };
    let mut answers: HashMap<&str, &Value> = HashMap::new();
    for block in blocks() {
        if let Some(call) = text(block, "tool_use_id") {
            answers.entry(call).or_insert(block);
        }
    }
    let calls = blocks().filter(|block| text(block, "type") == Some("server_tool_use"));
    calls
        .filter_map(|call| {
            let id = text(call, "id")?;
            let answer = answers.get(id)?.get("content")?;
            let arguments = Arc::new(call.get("input").cloned().unwrap_or_default());
            let call = ToolCall { call: id.into(), name: text(call, "name")?.into(), arguments };
            let ok = text(answer, "error_code").is_none();
            Some(Hosted { call, ok, content: shown(answer).into() })
        })
        .collect()
}

fn text<'b>(block: &'b Value, key: &str) -> Option<&'b str> {
    block.get(key)?.as_str()
}

/// The titles and URLs of search results; any other block as JSON.
fn shown(answer: &Value) -> String {
    let line = |page: &Value| Some(format!("{} {}\n", text(page, "title")?, text(page, "url")?));
    let pages: Option<String> =
        answer.as_array().filter(|pages| !pages.is_empty()).and_then(|pages| pages.iter().map(line).collect());
    let mut all = pages.unwrap_or_else(|| answer.to_string());
    if all.len() > SHOWN {
        all.truncate(all.floor_char_boundary(SHOWN));
        all.push('…');
    }
    all
}
