//! MCP servers of the configuration: which tools they give the agent.

mod desk;
mod for_hooks;
mod login;
mod pins;
pub(crate) mod review;
mod serve;
mod variables;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnbuckle::tool::Tool;
use turnbuckle_mcp::{Endpoint, Listing, McpError, McpServer, ServerOptions};
use turnbuckle_tools::{CommandLine, ProgramOptions};

use crate::config::{McpEndpoint, McpPart};
use crate::model_name::provider_variables;
use crate::problem::{Problem, with_causes};
use crate::show::clean;
use crate::trust::Gate;
pub(crate) use desk::{Asked, Desk};
pub(crate) use for_hooks::hook_servers;
pub(crate) use login::login;
use pins::Pin;
pub(crate) use serve::serve;

/// How long all servers together may take to say what they offer, the first time.
const FIRST_LISTING: Duration = Duration::from_secs(30);

/// What the servers add to the agent.
#[derive(Default)]
pub(crate) struct Offered {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Each server, how many tools it offers, and about how many tokens they cost.
    pub(crate) servers: Vec<ServerLine>,
    /// Where the servers ask the person.
    pub(crate) desk: Desk,
    pub(crate) unlisted: Unlisted,
}

/// The servers of which nobody knows what they offer: they were never listed, or could not be.
#[derive(Default)]
pub(crate) struct Unlisted(Vec<String>);

impl Unlisted {
    /// The server that may offer this tool.
    pub(crate) fn server_of(&self, tool: &str) -> Option<&str> {
        let (server, _) = tool.strip_prefix("mcp__")?.split_once("__")?;
        self.0.iter().find(|name| *name == server).map(String::as_str)
    }

    /// What is said of a name that may be one of its tools: whether there is such a tool cannot be known, so it is no error.
    pub(crate) fn problem(&self, tool: &str) -> Option<Problem> {
        let server = self.server_of(tool)?;
        let what =
            format!("whether there is a tool {tool:?} is not known: the MCP server {server} has not been listed");
        Some(Problem::warning(what).hint("it is listed when the agent first runs; until then the name is passed over"))
    }
}

/// A server, for people.
#[derive(Clone)]
pub(crate) struct ServerLine {
    pub(crate) name: String,
    /// How many it offers; none if it has not been listed yet.
    pub(crate) tools: Option<usize>,
    pub(crate) tokens: usize,
}

impl ServerLine {
    /// What its tools cost.
    pub(crate) fn cost(&self) -> String {
        match self.tools {
            Some(tools) => {
                format!("{tools} tools, about {} tokens in every request, as of the last listing", self.tokens)
            }
            None => "not listed yet; it is when the agent first runs".to_owned(),
        }
    }
}

/// The tools that were accepted of each server. One that was never listed is listed now if `gate` lets programs start; a server that cannot be
/// used is a warning, and the agent goes without it.
pub(crate) fn offered(parts: &[McpPart], folder: &Path, gate: Gate, problems: &mut Vec<Problem>) -> Offered {
    let (mut offered, mut seen, mut known) = (Offered::default(), BTreeSet::new(), Vec::new());
    for part in parts {
        if !seen.insert(part.name.value.clone()) {
            let what = format!("two MCP servers are named {:?}", part.name.value);
            problems.push(Problem::error(what).at(&part.name.place).hint("give one of them another name"));
            continue;
        }
        match options(part, folder) {
            Ok(mut options) => {
                options.person = Some(Arc::new(offered.desk.clone()));
                known.push((Pin::of(part, folder), McpServer::new(options)));
            }
            Err(variables::Unset { name }) => {
                offered.unlisted.0.push(part.name.value.clone());
                let what = format!("MCP server {}: the variable {name} is not set", part.name.value);
                problems
                    .push(Problem::warning(what).at(&part.name.place).hint("its tools are left out; set the variable"));
            }
        }
    }
    // An error ends the command: one of them may be that the files were not accepted.
    let may_start = matches!(gate, Gate::Needed(_)) && !problems.iter().any(Problem::is_error);
    if may_start {
        list_new(&known, problems);
        review::ask_about_changes(known.iter().map(|(pin, _)| pin), problems);
    }
    let mut usable = Vec::new();
    for (pin, server) in known {
        let name = server.name().to_owned();
        let Some(listing) = pin.accepted() else {
            offered.unlisted.0.push(name.clone());
            offered.servers.push(ServerLine { name, tools: None, tokens: 0 });
            continue;
        };
        let server = server.pinned(listing).on_listed(move |now| pin.note_offer(now));
        let tools = server.tools();
        offered.servers.push(ServerLine { name, tools: Some(tools.len()), tokens: server.tokens() });
        offered.tools.extend(tools);
        usable.push(server);
    }
    hook_servers().set(usable);
    offered
}

fn options(part: &McpPart, folder: &Path) -> Result<ServerOptions, variables::Unset> {
    let endpoint = match &part.endpoint {
        McpEndpoint::Program { command, env, pass_env } => Endpoint::Program(ProgramOptions {
            line: CommandLine::Argv(command.iter().map(|word| variables::put_in(word)).collect::<Result<_, _>>()?),
            folder: folder.to_path_buf(),
            withheld_env: provider_variables().into_iter().map(str::to_owned).collect(),
            pass_env: pass_env.clone(),
            env: env
                .iter()
                .map(|(name, value)| Ok((name.clone(), variables::put_in(value)?)))
                .collect::<Result<_, _>>()?,
            check: part.check.clone(),
        }),
        McpEndpoint::Http { url, headers } => Endpoint::Http {
            tokens: login::tokens(&variables::put_in(url)?),
            url: variables::put_in(url)?,
            headers: headers
                .iter()
                .map(|(name, value)| Ok((name.clone(), variables::put_in(value)?)))
                .collect::<Result<_, _>>()?,
        },
    };
    let mut options = ServerOptions::at(part.name.value.as_str(), endpoint);
    (options.allow, options.deny) = (part.allow.clone(), part.deny.clone());
    if let Some(approve) = &part.approve {
        options.approve = approve.clone();
    }
    options.hints = part.hints;
    options.timeout = part.timeout.unwrap_or(options.timeout);
    options.start_timeout = part.start_timeout.unwrap_or(options.start_timeout);
    Ok(options)
}

/// What a server is, as the file says it: another command or address is another server, whose tools are accepted anew.
pub(crate) fn definition(part: &McpPart) -> serde_json::Value {
    match &part.endpoint {
        McpEndpoint::Program { command, env, .. } => {
            json!({ "command": command, "env": env.keys().collect::<Vec<_>>() })
        }
        McpEndpoint::Http { url, .. } => json!({ "url": url }),
    }
}

/// Lists the servers that nobody has listed yet, all at once. They are ended again, and started with the first call.
fn list_new(known: &[(Pin, McpServer)], problems: &mut Vec<Problem>) {
    let new: Vec<&(Pin, McpServer)> = known.iter().filter(|(pin, _)| pin.accepted().is_none()).collect();
    if new.is_empty() {
        return;
    }
    let servers: Vec<McpServer> = new.iter().map(|(_, server)| server.clone()).collect();
    for ((pin, server), listed) in new.into_iter().zip(list(servers)) {
        let noted = match listed {
            Ok(listing) => pin.accept(&listing).map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            let what = format!("MCP server {}: {}", server.name(), clean(&error));
            let hint = match server.is_remote() {
                true => format!(
                    "its tools are left out; if it wants you to log in: `turnbuckle mcp login {}`",
                    server.name()
                ),
                false => "its tools are left out".to_owned(),
            };
            problems.push(Problem::warning(what).hint(hint));
        }
    }
}

/// In a thread with a runtime of its own: the configuration is read outside of any, or inside one that must not be blocked.
fn list(servers: Vec<McpServer>) -> Vec<Result<Listing, String>> {
    let count = servers.len();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let told = |error: McpError| with_causes(&error);
        let one = |server: McpServer| async move {
            match tokio::time::timeout(FIRST_LISTING, server.list()).await {
                Ok(listed) => listed.map_err(told),
                Err(_) => Err(format!("it did not say what it offers within {} s", FIRST_LISTING.as_secs())),
            }
        };
        let all = futures_util::future::join_all(servers.into_iter().map(one));
        Ok::<_, std::io::Error>(runtime.block_on(all))
    });
    match thread.join() {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => vec![Err(error.to_string()); count],
        Err(_) => vec![Err("listing it failed".to_owned()); count],
    }
}
