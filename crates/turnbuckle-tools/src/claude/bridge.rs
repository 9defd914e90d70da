//! Tool names and arguments: ours, and those that scripts expect.

use std::path::Path;

use serde_json::{Map, Value, json};
use turnbuckle::Turn;
use turnbuckle::message::ToolCall;
use turnbuckle::tool::Output;

use super::patched::APPLY_PATCH;
use crate::shell::exit_code_in;

/// A tool of ours under the name that scripts expect, and its arguments: ours, theirs.
struct Row {
    ours: &'static str,
    theirs: &'static str,
    fields: &'static [(&'static str, &'static str)],
}

const TABLE: &[Row] = &[
    Row { ours: "shell", theirs: "Bash", fields: &[("command", "command"), ("timeout", "timeout")] },
    Row {
        ours: "read_file",
        theirs: "Read",
        fields: &[("path", "file_path"), ("offset", "offset"), ("limit", "limit")],
    },
    Row { ours: "write_file", theirs: "Write", fields: &[("path", "file_path"), ("content", "content")] },
    Row {
        ours: "edit_file",
        theirs: "Edit",
        fields: &[("path", "file_path"), ("old", "old_string"), ("new", "new_string"), ("all", "replace_all")],
    },
    Row { ours: "list_files", theirs: "Glob", fields: &[("path", "path"), ("glob", "pattern")] },
    Row { ours: "search_files", theirs: "Grep", fields: &[("pattern", "pattern"), ("path", "path"), ("glob", "glob")] },
    Row { ours: "fetch", theirs: "WebFetch", fields: &[("url", "url")] },
];

/// What scripts call every sub-agent.
pub(super) const SUB_AGENT: &str = "Agent";

/// The pattern of their tool, which must have one, where ours has none.
const ALL_FILES: &str = "*";

/// What only their tools have: it is dropped on the way back.
const THEIRS_ALONE: &[&str] = &["description", "run_in_background", "output_mode", "-i", "multiline", "prompt"];

/// The name that scripts expect for a tool of ours; others keep theirs.
pub(super) fn name_of<'a>(tool: &'a str, arguments: &Value) -> &'a str {
    match row(tool) {
        Some(row) if row.theirs == "Edit" && arguments.get("edits").is_some() => "MultiEdit",
        Some(row) => row.theirs,
        None => tool,
    }
}

/// The names by which matchers and rules know a tool, its own first. A gate for `Edit|Write` was written before there were tools that
/// change several places or files at once, and must hold for them as well; so must one for `Task`, which is the old name of `Agent`.
pub(super) fn names_for_matchers(name: &str) -> Vec<&str> {
    match name {
        "MultiEdit" => vec![name, "Edit"],
        // One that could not be read as the files that it changes.
        APPLY_PATCH => vec![name, "Edit", "MultiEdit", "Write"],
        SUB_AGENT => vec![name, "Task"],
        _ => vec![name],
    }
}

/// The names by which matchers may mean a tool, the one that scripts expect first.
pub fn names_in_scripts(tool: &str, is_sub_agent: bool) -> Vec<&str> {
    if is_sub_agent {
        return names_for_matchers(SUB_AGENT);
    }
    let mut names = names_for_matchers(name_of(tool, &Value::Null));
    if names == ["Edit"] {
        names.push("MultiEdit");
    }
    names
}

/// The tool of ours that scripts know by this name.
pub fn tool_named(theirs: &str) -> Option<&'static str> {
    if theirs == "MultiEdit" {
        return Some("edit_file");
    }
    TABLE.iter().find(|row| row.theirs == theirs).map(|row| row.ours)
}

fn row(tool: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.ours == tool)
}

/// A call in the protocol's words.
pub(super) fn outward(turn: &Turn, call: &ToolCall, project: &Path) -> (String, Value) {
    if turn.agent().spec(&call.name).is_some_and(|spec| spec.sub_agent.is_some()) {
        let prompt = call.arguments.get("task").cloned();
        let input = json!({ "prompt": prompt, "description": &*call.name, "subagent_type": &*call.name });
        return (SUB_AGENT.to_owned(), input);
    }
    (name_of(&call.name, &call.arguments).to_owned(), input_of(&call.name, &call.arguments, project))
}

/// Arguments in the protocol's words.
pub(super) fn input_of(tool: &str, arguments: &Value, project: &Path) -> Value {
    let (Some(row), Some(given)) = (row(tool), arguments.as_object()) else { return arguments.clone() };
    let edit = |edit: &Value| renamed(edit, &[("old", "old_string"), ("new", "new_string"), ("all", "replace_all")]);
    let field = |(key, value): (&String, &Value)| {
        let theirs = row.fields.iter().find(|(ours, _)| ours == key).map_or(&**key, |(_, theirs)| theirs);
        let value = match (theirs, value) {
            ("file_path", Value::String(path)) => json!(project.join(path)),
            ("path", Value::String(path)) => json!(project.join(path)),
            ("timeout", Value::Number(seconds)) => json!(seconds.as_f64().map(milliseconds)),
            ("edits", Value::Array(edits)) => edits.iter().map(edit).collect(),
            _ => value.clone(),
        };
        (theirs.to_owned(), value)
    };
    let mut fields: Map<String, Value> = given.iter().map(field).collect();
    if row.theirs == "Glob" {
        fields.entry("pattern").or_insert_with(|| json!(ALL_FILES));
    }
    Value::Object(fields)
}

/// A whole number, as scripts expect it: `[ 3000.0 -gt 1000 ]` is an error of the shell. What no number of seconds can be becomes the
/// nearest that can.
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

fn renamed(value: &Value, names: &[(&str, &str)]) -> Value {
    let Some(fields) = value.as_object() else { return value.clone() };
    let name =
        |key: &String| names.iter().find(|(from, _)| from == key).map_or(key.clone(), |(_, to)| (*to).to_owned());
    Value::Object(fields.iter().map(|(key, value)| (name(key), value.clone())).collect())
}

/// Arguments that a script gave, in ours. What our tool does not know stays, so that its schema refuses it.
pub(super) fn inward(turn: &Turn, call: &ToolCall, given: Map<String, Value>, project: &Path) -> Value {
    if turn.agent().spec(&call.name).is_some_and(|spec| spec.sub_agent.is_some()) {
        let mut arguments = (*call.arguments).clone();
        if let (Some(prompt), Some(fields)) = (given.get("prompt"), arguments.as_object_mut()) {
            fields.insert("task".to_owned(), prompt.clone());
        }
        return arguments;
    }
    arguments_of(&call.name, given, project)
}

fn arguments_of(tool: &str, given: Map<String, Value>, project: &Path) -> Value {
    let Some(row) = row(tool) else { return Value::Object(given) };
    let back = [("old_string", "old"), ("new_string", "new"), ("replace_all", "all")];
    let field = |(key, value): (String, Value)| {
        let ours = row.fields.iter().find(|(_, theirs)| *theirs == key).map(|(ours, _)| *ours);
        if ours.is_none() && THEIRS_ALONE.contains(&&*key) {
            return None;
        }
        let value = match (&*key, value) {
            ("file_path" | "path", Value::String(path)) => json!(below(&path, project)),
            ("timeout", Value::Number(milliseconds)) => {
                json!(milliseconds.as_f64().map(|milliseconds| (milliseconds / 1000.0).ceil() as u64))
            }
            ("edits", Value::Array(edits)) => edits.iter().map(|edit| renamed(edit, &back)).collect(),
            (_, value) => value,
        };
        Some((ours.map_or(key, str::to_owned), value))
    };
    let mut fields: Map<String, Value> = given.into_iter().filter_map(field).collect();
    if row.theirs == "Glob" && fields.get("glob").is_some_and(|glob| glob == ALL_FILES) {
        fields.remove("glob");
    }
    Value::Object(fields)
}

/// Our tools take paths from the project's folder on.
fn below(path: &str, project: &Path) -> String {
    match Path::new(path).strip_prefix(project) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
        Ok(inside) => inside.to_string_lossy().into_owned(),
        Err(_) => path.to_owned(),
    }
}

/// A result in the shape that scripts expect of their tool.
pub(super) fn response(name: &str, input: &Value, output: &Output) -> Value {
    let text = output.content.text();
    let path = input.get("file_path").cloned().unwrap_or_default();
    match name {
        "Bash" => json!({ "stdout": text, "stderr": "", "interrupted": false, "isImage": false }),
        "Read" => json!({ "type": "text", "file": { "filePath": path, "content": text } }),
        "Write" | "Edit" | "MultiEdit" => json!({ "filePath": path, "success": output.ok }),
        "Glob" => {
            let names: Vec<&str> = text.lines().collect();
            json!({ "numFiles": names.len(), "filenames": names })
        }
        "Grep" => json!({ "mode": "content", "content": text }),
        name if name.starts_with("mcp__") => json!([{ "type": "text", "text": text }]),
        _ => json!(text),
    }
}

/// What scripts read of a call that failed: that of a command begins with its exit code.
pub(super) fn error_of(name: &str, output: &Output) -> String {
    let text = output.content.text();
    match exit_code_in(&text).filter(|_| name == "Bash") {
        Some(code) => format!("Exit code {code}\n{text}"),
        None => text,
    }
}

/// What is told of a result that a script gave and that cannot be used.
pub(super) const NOT_ITS_SHAPE: &str =
    "`updatedToolOutput` does not have the shape of the tool's result, and is not used";

/// What a script gave in the place of a result.
#[derive(Debug, PartialEq)]
pub(super) enum Replaced {
    Text(String),
    /// It is the shape that was given to the script, which does not hold the text: there is nothing to change.
    Unchanged,
    /// It does not have the tool's shape.
    Misshapen,
}

/// The result that a script gave in the place of the tool's: in the shape of [`response`], or as a text.
pub(super) fn replaced_response(name: &str, input: &Value, output: &Output, given: &Value) -> Replaced {
    if *given == response(name, input, output) {
        return Replaced::Unchanged;
    }
    text_of_response(name, given).map_or(Replaced::Misshapen, Replaced::Text)
}

/// The text of a result that a script gave; `None` if it does not have the tool's shape.
pub(super) fn text_of_response(name: &str, given: &Value) -> Option<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let lines = |value: Option<&Value>| -> Option<String> {
        let lines = value?.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
        Some(lines.join("\n"))
    };
    match given {
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) => match name {
            "Bash" => {
                let (out, err) = (text(fields.get("stdout"))?, text(fields.get("stderr")).unwrap_or_default());
                Some(if err.is_empty() { out } else { format!("{out}\n{err}") })
            }
            "Read" => text(fields.get("file")?.get("content")),
            "Glob" => lines(fields.get("filenames")).or_else(|| text(fields.get("content"))),
            // The shape of these says little, so a changed one is what the model reads.
            "Write" | "Edit" | "MultiEdit" => match text(fields.get("content")) {
                Some(content) => Some(content),
                None => fields.contains_key("filePath").then(|| given.to_string()),
            },
            _ => text(fields.get("content")),
        },
        Value::Array(parts) => {
            parts.iter().map(|part| text(part.get("text"))).collect::<Option<Vec<_>>>().map(|parts| parts.join("\n"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_in_the_shape_in_which_it_was_given() {
        let input = json!({"file_path": "/p/a"});
        let output = Output::ok("one\ntwo");
        for name in ["Bash", "Read", "Write", "Edit", "MultiEdit", "Glob", "Grep", "WebFetch", "mcp__s__t"] {
            let given = response(name, &input, &output);
            assert_eq!(replaced_response(name, &input, &output, &given), Replaced::Unchanged, "{name}");
            let other = response(name, &json!({"file_path": "/p/b"}), &Output::ok("three\nfour"));
            match replaced_response(name, &input, &output, &other) {
                Replaced::Text(text) if matches!(name, "Write" | "Edit" | "MultiEdit") => {
                    assert!(text.contains("/p/b"), "{name}: {text}");
                }
                replaced => assert_eq!(replaced, Replaced::Text("three\nfour".to_owned()), "{name}"),
            }
            assert_eq!(replaced_response(name, &input, &output, &json!(7)), Replaced::Misshapen, "{name}");
        }
    }

    #[test]
    fn arguments_go_out_and_come_back() {
        let project = Path::new("/p");
        for (tool, ours, theirs) in [
            ("shell", json!({"command": "ls", "timeout": 3}), json!({"command": "ls", "timeout": 3000})),
            ("shell", json!({"command": "ls"}), json!({"command": "ls"})),
            ("read_file", json!({"path": "a/b", "offset": 2}), json!({"file_path": "/p/a/b", "offset": 2})),
            ("write_file", json!({"path": "a", "content": "x"}), json!({"file_path": "/p/a", "content": "x"})),
            (
                "edit_file",
                json!({"path": "a", "old": "x", "new": "y", "all": true}),
                json!({"file_path": "/p/a", "old_string": "x", "new_string": "y", "replace_all": true}),
            ),
            (
                "edit_file",
                json!({"path": "a", "edits": [{"old": "x", "new": "y"}]}),
                json!({"file_path": "/p/a", "edits": [{"old_string": "x", "new_string": "y"}]}),
            ),
            ("search_files", json!({"pattern": "x", "path": "a"}), json!({"pattern": "x", "path": "/p/a"})),
            ("list_files", json!({"path": "a"}), json!({"pattern": "*", "path": "/p/a"})),
            ("list_files", json!({"glob": "*.rs"}), json!({"pattern": "*.rs"})),
            ("mcp__s__t", json!({"path": "a"}), json!({"path": "a"})),
        ] {
            assert_eq!(input_of(tool, &ours, project), theirs);
            assert_eq!(arguments_of(tool, theirs.as_object().unwrap().clone(), project), ours);
        }
        let input = input_of("shell", &json!({"command": "ls", "timeout": 1.5}), project);
        assert_eq!(input.to_string(), r#"{"command":"ls","timeout":1500}"#, "scripts compare it as a whole number");
        assert_eq!(name_of("edit_file", &json!({"edits": []})), "MultiEdit");
        for tool in [name_of("edit_file", &json!({"edits": []})), name_of("apply_patch", &json!({}))] {
            assert!(names_for_matchers(tool).contains(&"Edit"), "a gate for Edit must hold for {tool}");
        }
        assert_eq!(tool_named("Write"), Some("write_file"));
    }
}
