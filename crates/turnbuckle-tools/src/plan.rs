//! `todo`: the model's plan, which viewers show while it works.

use serde::Deserialize;
use serde_json::json;
use turnbuckle::tool::{Effect, Retention};
use turnbuckle::tools::{FunctionTool, function_with_schema};

/// The name of the tool.
pub const PLAN_TOOL: &str = "todo";

const DESCRIPTION: &str = "Shows the person your plan for this task, and how far you are. Give all steps each time, in order; the \
                           last call is the plan. Use it for work of three steps or more, and again when a step is done or the \
                           plan changes.";

#[derive(Deserialize)]
struct Plan {
    items: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    text: String,
    done: bool,
}

/// A tool that changes nothing: its last call in a conversation is the plan, and viewers read it from there.
pub fn plan_tool() -> FunctionTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "maxItems": 50,
                "items": {
                    "type": "object",
                    "properties": {
                        "text": { "type": "string", "minLength": 1, "maxLength": 300, "description": "The step, in a few words." },
                        "done": { "type": "boolean" },
                    },
                    "required": ["text", "done"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["items"],
        "additionalProperties": false,
    });
    function_with_schema(PLAN_TOOL, DESCRIPTION, schema, Effect::Pure, |_turn, arguments| async move {
        let Plan { items } = serde_json::from_value(arguments)?;
        let done = items.iter().filter(|step| step.done).count();
        Ok(match items.iter().find(|step| !step.done) {
            Some(next) => format!("{done} of {} done. Next: {}", items.len(), next.text),
            None => format!("all {} done", items.len()),
        })
    })
    // The last one is the plan: it stays while older steps of a long turn go.
    .retention(Retention::Last(1))
}
