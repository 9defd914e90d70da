//! A server's tools as tools of an agent, and two of ours for its resources and prompts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use turnbuckle::feed::Level;
use turnbuckle::message::{Text, ToolCall};
use turnbuckle::models::Script;
use turnbuckle::tool::{Approval, Effect, Output, Spec, Tool};
use turnbuckle::{Agent, BoxError, BoxFuture, Turn};

use crate::client::{Asked, Caller};
use crate::connection::{Connection, McpError};
use crate::elicitation::Elicitation;
use crate::listing::{ListedTool, Listing};
use crate::options::Hints;
use crate::result;
use crate::server::McpServer;

/// What stands in front of the name of every tool.
const PREFIX: &str = "mcp__";

/// What a server has to answer when its time is up and it waited for a person.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The tool of ours that reads resources, by its name behind the server's.
const READ_RESOURCE: &str = "read_resource";
/// The one that fetches prompts.
const GET_PROMPT: &str = "get_prompt";

/// The tools of an accepted listing.
pub(crate) fn all(server: &McpServer, listing: &Listing) -> Vec<Arc<dyn Tool>> {
    let options = server.options();
    let offered = listing.tools.iter().filter(|tool| options.offers(&tool.name));
    let mut tools: Vec<Arc<dyn Tool>> =
        offered.map(|tool| Arc::new(McpTool::of(server, tool)) as Arc<dyn Tool>).collect();
    let ours = [(listing.resources, READ_RESOURCE, Ours::Resource), (listing.prompts, GET_PROMPT, Ours::Prompt)];
    for (is_there, name, what) in ours {
        // A tool of the server's own wins.
        if is_there && options.offers(name) && listing.tool(name).is_none() {
            tools.push(Arc::new(OwnTool::of(server, name, what)));
        }
    }
    // One whose schema no agent would take, or whose name is taken, must not keep the agent from being built.
    let mut seen = BTreeSet::new();
    tools.retain(|tool| {
        let agent = Agent::builder("probe", Script::says(["-"])).shared_tool(tool.clone()).build();
        if let Err(error) = &agent {
            tracing::warn!(server = %options.name, %error, "a tool of an MCP server cannot be used");
        }
        agent.is_ok() && seen.insert(tool.spec().definition.name.clone())
    });
    tools
}

/// The longest name that every provider takes.
const LONGEST_NAME: usize = 64;

/// `mcp__SERVER__TOOL`, in the letters and the length that every provider takes.
fn name_of(server: &str, tool: &str) -> String {
    let name = format!("{PREFIX}{server}__{}", tool.replace('.', "_"));
    if name.len() <= LONGEST_NAME {
        return name;
    }
    // Two long names stay two.
    let digest = Sha256::digest(tool.as_bytes());
    let end: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}_{end}", &name[..LONGEST_NAME - end.len() - 1])
}

fn spec(server: &McpServer, tool: &str, description: String, parameters: Value, effect: Effect) -> Spec {
    let options = server.options();
    let mut spec = Spec::server(name_of(&options.name, tool), description, parameters, effect);
    // The call itself is timed where it is made; this is for a server that must be started first, and for one that ignores its end.
    spec.timeout = options.start_timeout + options.timeout + LAST_WORDS * 2;
    spec.origin = Some(options.name.as_str().into());
    if options.asks_about(tool) {
        spec.approval = Approval::Required;
    }
    spec
}

/// A tool of the server.
struct McpTool {
    server: McpServer,
    name: String,
    spec: Spec,
}

impl McpTool {
    fn of(server: &McpServer, tool: &ListedTool) -> Self {
        let trusts = server.options().hints == Hints::Trusted;
        let effect = match tool {
            _ if !trusts => Effect::Never,
            tool if tool.read_only => Effect::Pure,
            tool if tool.idempotent => Effect::Idempotent,
            _ => Effect::Never,
        };
        let mut spec = spec(server, &tool.name, tool.description.clone(), tool.parameters.clone(), effect);
        if trusts && tool.read_only {
            spec.approval = Approval::NotRequired;
        }
        spec.approval_note = Some(said(server, tool));
        Self { server: server.clone(), name: tool.name.clone(), spec }
    }
}

/// Whose tool it is, and what its server says about it: people should not take that for more than it is.
fn said(server: &McpServer, tool: &ListedTool) -> Text {
    let hint = match tool {
        tool if tool.read_only => "which says that it only reads",
        tool if tool.destructive => "which says that it may destroy something, or does not say",
        _ => "which says that it destroys nothing",
    };
    format!("a tool of the MCP server {}, {hint}", server.name()).into()
}

impl Tool for McpTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let name = self.server.name();
            let connection = match self.server.connection().await {
                Ok(connection) => connection,
                Err(error) => return Ok(unusable(&self.server, &error)),
            };
            let arguments = match &*call.arguments {
                Value::Object(arguments) => arguments.clone(),
                _ => Map::new(),
            };
            let listing = match connection.listing().await {
                Ok(listing) => listing,
                Err(error) => return Ok(self.failed(error, &connection, &[])),
            };
            if !self.server.is_as_accepted(&listing, &self.name) {
                let text = format!("MCP server {name}: {} is not the tool that was accepted", self.name);
                let told = format!("{text}; `turnbuckle trust` shows the change and asks");
                turn.notice(Level::Warning, &name.into(), told);
                return Ok(Output::error(format!(
                    "[not run] {text}: its definition has changed since. A person must accept it first"
                )));
            }
            let limit = self.server.options().timeout;
            let asked = self.server.options().person.clone().map(|person| {
                let about = Elicitation {
                    server: name.to_owned(),
                    conversation: turn.conversation().clone(),
                    call: call.call.clone(),
                    tool: self.spec.definition.name.clone(),
                    agent: turn.agent().name().into(),
                    requester: turn.scope().by(),
                    expires: turn.clock().now().after(limit),
                    message: String::new(),
                    schema: Value::Null,
                };
                Asked { person, about }
            });
            let caller = Caller { conversation: turn.conversation().clone(), asked };
            let mut pending = match connection.call(&self.name, arguments, caller).await {
                Ok(pending) => pending,
                Err(error) => return Ok(self.failed(error, &connection, &[])),
            };
            let in_time = tokio::select! {
                answer = pending.answer(|text| turn.report_progress(text)) => Some(answer),
                () = turn.clock().sleep(limit) => None,
            };
            let answer = match in_time {
                Some(answer) => Some(answer),
                None => {
                    // A server that waits for a person is told that nobody answers, and has a moment to say what comes of it.
                    pending.stop_asking();
                    tokio::time::timeout(LAST_WORDS, pending.answer(|_| {})).await.ok()
                }
            };
            let declined = pending.take_declined();
            Ok(match answer {
                Some(Ok(answer)) => {
                    self.server.succeeded();
                    result::of_call(name, answer, &declined)
                }
                Some(Err(error)) => self.failed(error, &connection, &declined),
                None => result::too_slow(name, limit, &declined),
            })
        })
    }
}

impl McpTool {
    fn failed(&self, error: McpError, connection: &Arc<Connection>, declined: &[String]) -> Output {
        let name = self.server.name();
        if !connection.is_closed() {
            return result::of_error(name, format!("the MCP server {name} refused the call"), &error, declined);
        }
        let error = self.server.lost(connection, error);
        let what = format!("the MCP server {name} was lost in the middle of the call; whether it happened is unknown");
        result::of_error(name, what, &error, declined)
    }
}

fn unusable(server: &McpServer, error: &McpError) -> Output {
    let name = server.name();
    let what = match error.wants_login() {
        true => format!("[not run] the MCP server {name} wants somebody to log in: `turnbuckle mcp login {name}`"),
        false => format!("[not run] the MCP server {name} cannot be used"),
    };
    result::of_error(name, what, error, &[])
}

/// A tool of ours, for what a server has besides tools.
struct OwnTool {
    server: McpServer,
    what: Ours,
    spec: Spec,
}

#[derive(Clone, Copy)]
enum Ours {
    Resource,
    Prompt,
}

impl OwnTool {
    fn of(server: &McpServer, name: &str, what: Ours) -> Self {
        let (description, parameters) = match what {
            Ours::Resource => (
                format!("Reads a resource of the MCP server {}. Without `uri` it lists them.", server.name()),
                json!({ "type": "object", "properties": { "uri": { "type": "string" } }, "additionalProperties": false }),
            ),
            Ours::Prompt => (
                format!("Fetches a prompt of the MCP server {}. Without `name` it lists them.", server.name()),
                json!({ "type": "object", "properties": {
                            "name": { "type": "string" },
                            "arguments": { "type": "object", "additionalProperties": { "type": "string" } } },
                        "additionalProperties": false }),
            ),
        };
        Self { server: server.clone(), what, spec: spec(server, name, description, parameters, Effect::Pure) }
    }

    async fn answer(&self, arguments: &Value) -> Result<Output, McpError> {
        let connection = self.server.connection().await?;
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        let name = self.server.name();
        Ok(match (self.what, text("uri"), text("name")) {
            (Ours::Resource, Some(uri), _) => result::of_resource(name, connection.read_resource(uri).await?),
            (Ours::Resource, None, _) => result::of_lines(name, &connection.resources().await?),
            (Ours::Prompt, _, Some(prompt)) => {
                let given = arguments.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
                result::of_prompt(name, connection.prompt(prompt, given).await?)
            }
            (Ours::Prompt, _, None) => result::of_lines(name, &connection.prompts().await?),
        })
    }
}

impl Tool for OwnTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn call<'a>(&'a self, _: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move {
            let answer = self.answer(&call.arguments).await;
            Ok(answer.unwrap_or_else(|error| unusable(&self.server, &error)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_letters_and_a_length_that_every_provider_takes() {
        assert_eq!(name_of("time", "get.current_time"), "mcp__time__get_current_time");
        let (a, b) = (name_of("s", &"x".repeat(100)), name_of("s", &format!("{}y", "x".repeat(99))));
        assert!(a.len() == 64 && b.len() == 64 && a != b, "{a} {b}");
    }
}
