//! `turnbuckle hooks test EVENT`: the hooks of one point on an event from stdin, and what they make of it.
//!
//! The hooks are real, and so are their programs. Model, tools and store are not: a scripted turn leads to the point, every
//! other point is left out, and nothing is kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::feed::FeedItem;
use turnbuckle::hook::{HookEntry, HookExt as _, Point, Record};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, BoxError, ConversationId, Conversations, Limits, Scope};
use turnbuckle_tools::CommandPoint;
use wildmatch::WildMatch;

use crate::Stopped;
use crate::args::{Common, HooksTest};
use crate::assemble::prepare;
use crate::exit::Exit;
use crate::inspect;
use crate::problem::Problem;
use crate::read_file::{PIPED, text};
use crate::show::{clean, json_line};

/// What command hooks read on stdin; what a point does not need may be missing, and other keys are ignored.
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

/// Runs the hooks of the point and prints their decisions, then the turn that came of it.
pub(super) async fn test(args: &HooksTest, json: bool, common: &Common) -> Result<Exit, Stopped> {
    let event = read()?;
    let prepared = prepare(common);
    if prepared.has_errors() {
        return Err(Stopped { problems: prepared.problems, exit: Exit::Usage });
    }
    let point = point(args.event);
    let tool = event.tool_name.clone().unwrap_or_else(|| "tool".to_owned());
    let hooks = prepared.hooks.into_iter().filter(|hook| hook.points().contains(point) && minds(hook, point, &tool));
    let hooks: Vec<HookEntry> = hooks.map(|hook| hook.only_at([point])).collect();
    if hooks.is_empty() {
        return Err(Stopped::usage(
            Problem::error(format!("no hook runs at {point} for this event"))
                .hint("`turnbuckle hooks` shows which run where"),
        ));
    }
    let agent = prepared.agent.as_ref();
    let tools = agent.iter().flat_map(|agent| agent.tools().iter()).map(|tool| tool.name.to_string());
    // A hook may name tools in its settings, and an agent that lacks one of them is refused.
    let tools: BTreeSet<String> = tools.chain([tool.clone()]).collect();
    let (records, trace) = play(args.event, event, &tool, tools, hooks)
        .await
        .map_err(|failure| Stopped::failed(Problem::error(format!("the test turn could not be run: {failure}"))))?;
    super::print(&match json {
        true => records.iter().map(json_line).collect::<Result<String, _>>().map_err(inspect::unprintable)?,
        false => clean(&(records.iter().map(inspect::hook).collect::<String>() + &trace)),
    });
    Ok(Exit::Completed)
}

fn read() -> Result<Event, Stopped> {
    let text = text(std::io::stdin().lock(), PIPED)
        .map_err(|error| Stopped::failed(Problem::error(format!("reading the event from stdin: {error}"))))?;
    // As an object first: a list of values would fill the fields of the event in their order.
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(&text);
    object.and_then(|object| Event::deserialize(Value::Object(object))).map_err(|error| {
        let problem = Problem::error(format!("the event on stdin makes no sense: {error}"));
        Stopped::usage(
            problem.hint("it is the JSON object that a command hook reads: docs/program.md has one for each point"),
        )
    })
}

fn point(on: CommandPoint) -> Point {
    match on {
        CommandPoint::BeforeAgent => Point::BeforeAgent,
        CommandPoint::BeforeTool => Point::BeforeTool,
        CommandPoint::AfterTool => Point::AfterTool,
        CommandPoint::AfterModel => Point::AfterModel,
        CommandPoint::Stop => Point::OnStop,
        CommandPoint::Ended => Point::OnEnded,
    }
}

/// A hook for other tools would not be asked.
fn minds(hook: &HookEntry, point: Point, tool: &str) -> bool {
    let globs = &hook.settings().tools;
    let at_tools = matches!(point, Point::BeforeTool | Point::AfterTool);
    !at_tools || globs.is_empty() || globs.iter().any(|glob| WildMatch::new(glob).matches(tool))
}

/// One turn that leads to the point.
async fn play(
    on: CommandPoint,
    event: Event,
    tool: &str,
    tools: BTreeSet<String>,
    hooks: Vec<HookEntry>,
) -> Result<(Vec<Record>, String), BoxError> {
    let calls = matches!(on, CommandPoint::BeforeTool | CommandPoint::AfterTool) || !event.touched.is_empty();
    let input = event.tool_input.clone().unwrap_or_else(|| json!({}));
    let step = calls.then(|| ScriptReply::calls("c1", tool, input));
    let said = match on {
        CommandPoint::AfterModel => event.message.clone(),
        _ => event.last_assistant_message.clone(),
    };
    let script = Script::of(step.into_iter().chain([ScriptReply::says(said)])).when_exhausted(OnExhausted::Repeat);
    // The first refusal and the first critique are what is to be seen.
    let limits = Limits { max_regenerations: 0, max_stop_refusals: 1, ..Limits::default() };
    let message = event.prompt.clone().filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "(a test)".into());
    let builder = Agent::builder("hooks-test", script).limits(limits);
    let event = Arc::new(event);
    let builder = tools.iter().fold(builder, |builder, name| builder.tool(stand_in(name, event.clone())));
    let agent = hooks.into_iter().fold(builder, turnbuckle::AgentBuilder::hook).build()?;
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let id = ConversationId::from("hooks-test");
    let handle = conversations.send(&id, message, Scope::local()).await?;
    let turn = handle.turn().clone();
    handle.wait().await?;
    let mut records = conversations.records(&id, &turn, Scope::local()).await?;
    let mut seen = Vec::new();
    records.retain(|record| {
        !seen.contains(&record.hook) && {
            seen.push(record.hook.clone());
            true
        }
    });
    let log: Vec<FeedItem> =
        conversations.log(&id, Scope::local()).await?.iter().map(|event| FeedItem::Log(Arc::clone(event))).collect();
    Ok((records, turnbuckle::trace::trace(&log, 1)))
}

/// Answers in the place of a tool with what the event says: the script calls only the tool of the event.
fn stand_in(name: &str, event: Arc<Event>) -> FunctionTool {
    let schema = json!({"type": "object"});
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
