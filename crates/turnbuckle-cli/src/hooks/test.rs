//! `turnbuckle hooks test EVENT`: the hooks of one point on an event from stdin, and what they make of it.
//!
//! The hooks are real, and so are their programs. Model, tools and store are not: a scripted turn leads to the point, every
//! other point is left out, and nothing is kept. An event that no run could have is refused, and the exit code is 1 where a
//! run would fail because of a hook; what a hook decides is no failure.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::event::EventKind;
use turnbuckle::feed::FeedItem;
use turnbuckle::hook::{Decision, HookEntry, HookExt as _, Point, Record};
use turnbuckle::json_schema::JsonSchema;
use turnbuckle::model::Definition;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, BoxError, ConversationId, Conversations, Limits, Scope};
use wildmatch::WildMatch;

use crate::Stopped;
use crate::args::{Common, HooksTest, TestedEvent};
use crate::assemble::prepare;
use crate::config::nearest;
use crate::exit::Exit;
use crate::inspect;
use crate::problem::Problem;
use crate::read_file::{PIPED, text};
use crate::show::{clean, json_line};
use crate::trust::Gate;

/// Every key that a command hook reads on stdin at some point.
const KEYS: &[&str] = &[
    "conversation",
    "turn",
    "cwd",
    "hook_event_name",
    "agent",
    "permission_mode",
    "budget",
    "prompt",
    "tool_name",
    "tool_input",
    "tool_use_id",
    "tool_response",
    "ok",
    "message",
    "stop_active",
    "last_assistant_message",
    "tools_used",
    "touched",
    "outcome",
    "usage",
];

/// What is used of the event; what a point does not need may be missing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    prompt: Option<String>,
    tool_name: Option<String>,
    tool_input: Option<Value>,
    tool_response: String,
    ok: Option<bool>,
    message: String,
    last_assistant_message: String,
    touched: Vec<String>,
}

/// The tool that touched the files of a `stop` event.
const STAND_IN: &str = "tool";

/// How long hooks behind the turn may take; the limits of hooks are shorter.
const LONGEST_DRAIN: Duration = Duration::from_secs(600);

/// Runs the hooks of the point and prints their decisions, then the turn that came of it.
pub(super) async fn test(args: &HooksTest, json: bool, common: &Common) -> Result<Exit, Stopped> {
    // Asked before the event is read: both come from stdin.
    let prepared = prepare(common, Gate::Needed(args.trust));
    if prepared.has_errors() {
        return Err(Stopped { problems: prepared.problems, exit: Exit::Usage });
    }
    let point = match args.event {
        TestedEvent::Point(point) => point,
        TestedEvent::Claude(event) => return super::try_event::try_event(event, prepared, json).await,
    };
    let event = read()?;
    let definitions = prepared.agent.as_ref().map(|agent| agent.tools().clone()).unwrap_or_default();
    let tool = match is_at_tools(point) {
        true => tool_of(&event, &definitions)?,
        false => STAND_IN.to_owned(),
    };
    let hooks = prepared.hooks.into_iter().filter(|hook| hook.points().contains(point) && minds(hook, point, &tool));
    let hooks: Vec<HookEntry> = hooks.map(|hook| hook.only_at([point])).collect();
    if hooks.is_empty() {
        return Err(Stopped::usage(
            Problem::error(format!("no hook runs at {point} for this event"))
                .hint("`turnbuckle hooks` shows which run where"),
        ));
    }
    let played = play(point, event, &tool, &definitions, hooks)
        .await
        .map_err(|failure| Stopped::failed(Problem::error(format!("the test turn could not be run: {failure}"))))?;
    let records = &played.records;
    super::print(&match json {
        true => records.iter().map(json_line).collect::<Result<String, _>>().map_err(inspect::unprintable)?,
        false => clean(&(records.iter().map(inspect::hook).collect::<String>() + &played.trace)),
    });
    match played.failure() {
        Some(what) => Err(Stopped::failed(Problem::error(what))),
        None => Ok(Exit::Completed),
    }
}

/// The tool that the event is about. A run calls only tools that the agent has.
fn tool_of(event: &Event, definitions: &[Definition]) -> Result<String, Stopped> {
    let names = || definitions.iter().map(|definition| &*definition.name);
    let Some(name) = &event.tool_name else {
        let problem = Problem::error("the event names no tool");
        return Err(Stopped::usage(
            problem.hint(format!("\"tool_name\" is one of: {}", names().collect::<Vec<_>>().join(", "))),
        ));
    };
    let Some(definition) = definitions.iter().find(|definition| *definition.name == **name) else {
        let hint = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it has: {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Err(Stopped::usage(Problem::error(format!("the agent has no tool {name:?}")).hint(hint)));
    };
    if let Some(complaint) = complaint(definition, event.tool_input.as_ref().unwrap_or(&json!({}))) {
        let what = format!("`tool_input` does not fit the schema of {name}: {complaint}");
        let hint = "in a run such a call is refused before any hook sees it";
        crate::output::report(&[Problem::warning(what).hint(hint)]);
    }
    Ok(name.clone())
}

/// What is wrong with the arguments of a call.
fn complaint(definition: &Definition, arguments: &Value) -> Option<String> {
    JsonSchema::compile(&definition.parameters).ok()?.complaint(arguments)
}

/// What stands on stdin.
const WHAT_IS_READ: &str = "it is the JSON object that a command hook reads: docs/program.md has one for each point";

fn read() -> Result<Event, Stopped> {
    let text = text(std::io::stdin().lock(), PIPED)
        .map_err(|error| Stopped::failed(Problem::error(format!("reading the event from stdin: {error}"))))?;
    let senseless = |error: serde_json::Error| {
        let problem = Problem::error(format!("the event on stdin makes no sense: {error}"));
        Stopped::usage(problem.hint(WHAT_IS_READ))
    };
    if text.trim().is_empty() {
        let problem = Problem::error("stdin was empty, and the event is read from there");
        return Err(Stopped::usage(problem.hint(WHAT_IS_READ)));
    }
    // As an object first: a list of values would fill the fields of the event in their order.
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(&text).map_err(senseless)?;
    if let Some(unknown) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let hint = match nearest(unknown, KEYS.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("an event has: {}", KEYS.join(", ")),
        };
        return Err(Stopped::usage(Problem::error(format!("unknown key `{unknown}` in the event")).hint(hint)));
    }
    Event::deserialize(Value::Object(object)).map_err(senseless)
}

/// Whether a call of a tool leads to the point.
fn is_at_tools(point: Point) -> bool {
    matches!(point, Point::BeforeTool | Point::WrapToolCall | Point::AfterTool)
}

/// A hook for other tools would not be asked.
fn minds(hook: &HookEntry, point: Point, tool: &str) -> bool {
    let globs = &hook.settings().tools;
    !is_at_tools(point) || globs.is_empty() || globs.iter().any(|glob| WildMatch::new(glob).matches(tool))
}

/// What came of the test turn.
struct Played {
    /// The first run of each hook.
    records: Vec<Record>,
    trace: String,
    /// The result of a call that never started.
    refused: Option<String>,
}

impl Played {
    /// What would fail in a run because of a hook.
    fn failure(&self) -> Option<String> {
        let failed = |record: &&Record| record.decision == Decision::Failed;
        if let Some(record) = self.records.iter().find(failed) {
            let why = record.failure.as_deref().unwrap_or("no reason was given");
            return Some(format!("hook {} failed at {}: {why}", record.hook, record.point));
        }
        // A hook that rewrites well is followed by the call, or by the next hook.
        let rewritten = self.records.last().is_some_and(|record| record.decision == Decision::Rewrite);
        self.refused.clone().filter(|_| rewritten)
    }
}

/// One turn that leads to the point.
async fn play(
    point: Point,
    event: Event,
    tool: &str,
    definitions: &[Definition],
    hooks: Vec<HookEntry>,
) -> Result<Played, BoxError> {
    let calls = is_at_tools(point) || !event.touched.is_empty();
    let input = event.tool_input.clone().unwrap_or_else(|| json!({}));
    let step = calls.then(|| ScriptReply::calls("c1", tool, input.clone()));
    let said = match point {
        Point::AfterModel => event.message.clone(),
        _ => event.last_assistant_message.clone(),
    };
    let script = Script::of(step.into_iter().chain([ScriptReply::says(said)])).when_exhausted(OnExhausted::Repeat);
    // The first refusal and the first critique are what is to be seen.
    let limits = Limits { max_regenerations: 0, max_stop_refusals: 1, ..Limits::default() };
    let message = event.prompt.clone().filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "(a test)".into());
    let builder = Agent::builder("hooks-test", script).limits(limits);
    let event = Arc::new(event);
    // A hook may name any tool in its settings, and an agent that lacks one of them is refused.
    let mut builder = definitions.iter().fold(builder, |builder, definition| {
        // What hooks rewrite is judged by the tool's own schema, unless the event itself does not fit it.
        let fits = *definition.name == *tool && complaint(definition, &input).is_none();
        let schema = if fits { (*definition.parameters).clone() } else { json!({"type": "object"}) };
        builder.tool(stand_in(&definition.name, schema, event.clone()))
    });
    if tool == STAND_IN && !definitions.iter().any(|definition| *definition.name == *STAND_IN) {
        builder = builder.tool(stand_in(STAND_IN, json!({"type": "object"}), event.clone()));
    }
    let agent = hooks.into_iter().fold(builder, turnbuckle::AgentBuilder::hook).build()?;
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let id = ConversationId::from("hooks-test");
    let handle = conversations.send(&id, message, Scope::local()).await?;
    let turn = handle.turn().clone();
    handle.wait().await?;
    conversations.drain(LONGEST_DRAIN).await;
    let mut records = conversations.records(&id, &turn, Scope::local()).await?;
    let mut seen = Vec::new();
    records.retain(|record| {
        !seen.contains(&record.hook) && {
            seen.push(record.hook.clone());
            true
        }
    });
    let log = conversations.log(&id, Scope::local()).await?;
    let started = log.iter().any(|event| matches!(event.kind, EventKind::ToolStarted { .. }));
    let refused = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult { ok: false, content, .. } if !started => Some(content.text()),
        _ => None,
    });
    let told: Vec<FeedItem> = log.into_iter().map(FeedItem::Log).collect();
    Ok(Played { records, trace: turnbuckle::trace::trace(&told, 1), refused })
}

/// Answers in the place of a tool with what the event says: the script calls only the tool of the event.
fn stand_in(name: &str, schema: Value, event: Arc<Event>) -> FunctionTool {
    // Of its effects nothing is known here: the worst is assumed.
    function_with_schema(name, "Stands in for the tool of the event.", schema, Effect::Never, move |turn, _| {
        let event = event.clone();
        async move {
            event.touched.iter().for_each(|path| turn.touch(path.clone()));
            let content = event.tool_response.clone();
            Ok::<_, BoxError>(if event.ok.unwrap_or(true) { Output::ok(content) } else { Output::error(content) })
        }
    })
}
