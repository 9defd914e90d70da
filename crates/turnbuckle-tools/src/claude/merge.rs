//! What the answers of all handlers of an event say together, in the order of the configuration.

use serde_json::{Map, Value};

use super::answer::{Answer, Permission};

/// A handler's answer, with the name that people know the handler by.
pub(super) struct Given {
    pub(super) handler: String,
    pub(super) answer: Answer,
}

/// What they say together.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// The run is to end, and why.
    pub(super) stop: Option<String>,
    /// The reasons of all that block.
    pub(super) blocks: Vec<String>,
    /// The most restrictive decision, with the reasons of those that gave it.
    pub(super) permission: Option<(Permission, String)>,
    pub(super) updated_input: Option<Map<String, Value>>,
    pub(super) updated_output: Option<Value>,
    pub(super) context: Vec<String>,
    /// Lines of shell for the environment of later commands.
    pub(super) env: Vec<String>,
    /// For the user, each with its handler.
    pub(super) messages: Vec<String>,
}

pub(super) fn merge(given: Vec<Given>) -> Merged {
    let mut merged = Merged::default();
    let (mut rewriter, mut output_rewriter) = (None::<String>, None::<String>);
    let mut reasons: Vec<String> = Vec::new();
    // The model reads these, and a command line may hold what it must not know. Records say which handler it was.
    let no_reason = || "the hook gave no reason".to_owned();
    for Given { handler, answer } in given {
        if let (Some(reason), None) = (answer.stop, &merged.stop) {
            merged.stop = Some(reason.unwrap_or_else(|| "a hook ended the turn, and gave no reason".to_owned()));
        }
        if let Some(reason) = answer.block {
            merged.blocks.push(reason.unwrap_or_else(no_reason));
        }
        if let Some((permission, reason)) = answer.permission {
            let so_far = merged.permission.as_ref().map(|(permission, _)| *permission);
            if so_far.is_none_or(|so_far| permission > so_far) {
                reasons.clear();
                merged.permission = Some((permission, String::new()));
            }
            if so_far.is_none_or(|so_far| permission >= so_far) {
                reasons.push(reason.unwrap_or_else(no_reason));
            }
        }
        if let Some(input) = answer.updated_input {
            if let Some(first) = rewriter.replace(handler.clone()) {
                merged
                    .messages
                    .push(format!("{first} and {handler} both changed the input; that of {handler} is used"));
            }
            merged.updated_input = Some(input);
        }
        if let Some(output) = answer.updated_output {
            if let Some(first) = output_rewriter.replace(handler.clone()) {
                merged
                    .messages
                    .push(format!("{first} and {handler} both changed the result; that of {handler} is used"));
            }
            merged.updated_output = Some(output);
        }
        merged.context.extend(answer.context);
        merged.env.extend(answer.env);
        merged.messages.extend(answer.message.map(|message| format!("{handler}: {message}")));
        merged.messages.extend(answer.warnings.into_iter().map(|warning| format!("{handler}: {warning}")));
    }
    if let Some((_, reason)) = &mut merged.permission {
        *reason = reasons.join("; ");
    }
    merged
}

impl Merged {
    /// Why something is not to happen: all reasons, with a blank line between.
    pub(super) fn blocked(&self) -> Option<String> {
        (!self.blocks.is_empty()).then(|| self.blocks.join("\n\n"))
    }
}
