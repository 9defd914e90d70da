//! The sections `[[tools.mcp]]`, and the servers of `.mcp.json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use turnbuckle::hooks::ProgramCheck;
use turnbuckle_mcp::Hints;

use super::reader::Section;
use super::{Found, Source};
use crate::problem::{Place, Problem};
use crate::read_file::{CONFIGURATION, read_file};

/// The file of other programs that names servers.
pub(crate) const MCP_JSON: &str = ".mcp.json";

/// The most servers of one file.
const MOST_SERVERS: usize = 64;

/// A server of the configuration.
pub(crate) struct McpPart {
    pub(crate) name: Found<String>,
    pub(crate) endpoint: McpEndpoint,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    /// Absent: every tool is asked about.
    pub(crate) approve: Option<Vec<String>>,
    pub(crate) hints: Hints,
    pub(crate) timeout: Option<Duration>,
    pub(crate) start_timeout: Option<Duration>,
    /// Asked before each start.
    pub(crate) check: Option<ProgramCheck>,
}

/// Where it is, as the file says it: variables of the environment are not put in yet.
pub(crate) enum McpEndpoint {
    Program { command: Vec<String>, env: BTreeMap<String, String>, pass_env: Vec<String> },
    Http { url: String, headers: BTreeMap<String, String> },
}

impl std::fmt::Debug for McpPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest may hold secrets.
        f.debug_struct("McpPart").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The sections of a file. `mcp_json`: those of `.mcp.json` beside the project's file as well.
pub(super) fn read(sections: Vec<Section<'_>>) -> Vec<McpPart> {
    if let Some(first) = sections.get(MOST_SERVERS) {
        let what = format!("there are {} [[tools.mcp]], and {MOST_SERVERS} are the most", sections.len());
        first.source().tell(Problem::error(what).at(first.place()).hint("take out what is not needed"));
        return Vec::new();
    }
    sections.into_iter().enumerate().filter_map(server).collect()
}

fn server((index, mut section): (usize, Section<'_>)) -> Option<McpPart> {
    let source = section.source();
    let name = section.string("name");
    let name = section.required("name", "\"time\"", name);
    let (command, url) = (section.strings("command"), section.string("url"));
    let (env, headers) = (section.string_map("env"), section.string_map("headers"));
    let texts = |found: Option<Found<Vec<Found<String>>>>| -> Option<Vec<String>> {
        found.map(|found| found.value.into_iter().map(|one| one.value).collect())
    };
    let pass_env = texts(section.strings("pass_env")).unwrap_or_default();
    let (allow, deny, approve) = (section.strings("allow"), section.strings("deny"), section.strings("approve"));
    let hints = section.word("hints", &[("ignore", Hints::Ignored), ("trust", Hints::Trusted)]);
    let (timeout, start_timeout) = (section.duration("timeout"), section.duration("start_timeout"));
    let place = section.place().clone();
    section.finish();
    let name = name.filter(|name| is_good(name, source))?;
    let tell = |what: &str, hint: &str| source.tell(Problem::error(what).at(&place).hint(hint));
    let endpoint = match (texts(command), url) {
        (Some(command), None) if command.first().is_some_and(|program| !program.is_empty()) => {
            if headers.is_some() {
                tell("`headers` in [[tools.mcp]] is for a server with a `url`", "take it out, or name the `url`");
            }
            McpEndpoint::Program { command, env: env.map(|found| found.value).unwrap_or_default(), pass_env }
        }
        (None, Some(url)) if url.value.starts_with("http://") || url.value.starts_with("https://") => {
            if env.is_some() || !pass_env.is_empty() {
                tell("`env` and `pass_env` in [[tools.mcp]] are for a server with a `command`", "take them out");
            }
            McpEndpoint::Http { url: url.value, headers: headers.map(|found| found.value).unwrap_or_default() }
        }
        (None, Some(url)) => {
            let problem = Problem::error("`url` in [[tools.mcp]] must begin with http:// or https://").at(&url.place);
            source.tell(problem.hint("write the whole address"));
            return None;
        }
        _ => {
            tell(
                "[[tools.mcp]] needs a `command` or a `url`, and not both",
                "write `command = [\"mcp-server-time\"]`, for example",
            );
            return None;
        }
    };
    Some(McpPart {
        name,
        endpoint,
        allow: texts(allow).unwrap_or_default(),
        deny: texts(deny).unwrap_or_default(),
        approve: texts(approve),
        hints: hints.map(|found| found.value).unwrap_or_default(),
        timeout: timeout.map(|found| found.value),
        start_timeout: start_timeout.map(|found| found.value),
        check: source.check_of("tools.mcp", index),
    })
}

/// It is part of the names of tools, which providers restrict.
fn is_good(name: &Found<String>, source: &Source) -> bool {
    let is_fit = is_fit(&name.value);
    if !is_fit {
        let what = format!("the name {:?} of an MCP server must be 1 to 24 of A-Z a-z 0-9 _ -, without __", name.value);
        source.tell(Problem::error(what).at(&name.place).hint("it is part of the names of its tools: mcp__NAME__TOOL"));
    }
    is_fit
}

fn is_fit(name: &str) -> bool {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "_-".contains(sign);
    (1..=24).contains(&name.len()) && name.chars().all(is_plain) && !name.contains("__")
}

/// What other programs write there.
#[derive(Deserialize)]
struct McpJson {
    #[serde(default, rename = "mcpServers")]
    servers: BTreeMap<String, JsonServer>,
}

#[derive(Deserialize)]
struct JsonServer {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// The commands that the file names, for acceptance.
pub(crate) fn commands_of_json(text: &str) -> Vec<Value> {
    let Ok(file) = serde_json::from_str::<McpJson>(text) else { return Vec::new() };
    let command = |server: JsonServer| {
        let words: Vec<String> = server.command.into_iter().chain(server.args).collect();
        (!words.is_empty()).then(|| Value::from(words))
    };
    file.servers.into_values().filter_map(command).collect()
}

/// The servers of `.mcp.json` in the project's folder, because the file `source` says so.
pub(super) fn read_json(source: &Source, place: &Place) -> Vec<McpPart> {
    let path = source.project().join(MCP_JSON);
    let tell = |what: String, hint: &str| source.tell(Problem::error(what).at(place).hint(hint.to_owned()));
    let text = match read_file(&path, CONFIGURATION) {
        Ok(text) => text,
        Err(error) => {
            tell(
                format!("`mcp_json = true`, and {} cannot be read: {error}", path.display()),
                "make the file, or take the key out",
            );
            return Vec::new();
        }
    };
    let file: McpJson = match serde_json::from_str(&text) {
        Ok(file) => file,
        Err(error) => {
            tell(format!("{}: {error}", path.display()), "it has `{\"mcpServers\": {\"time\": {\"command\": \"…\"}}}`");
            return Vec::new();
        }
    };
    let check = source.check_of("tools.mcp_json", 0);
    file.servers
        .into_iter()
        .filter_map(|(name, server)| of_json(name, server, &path, place, check.clone(), source))
        .collect()
}

fn of_json(
    name: String,
    server: JsonServer,
    path: &Path,
    place: &Place,
    check: Option<ProgramCheck>,
    source: &Source,
) -> Option<McpPart> {
    let name = Found { value: name, place: place.clone() };
    if !is_good(&name, source) {
        return None;
    }
    let endpoint = match (server.command, server.url) {
        (Some(command), _) => McpEndpoint::Program {
            command: [command].into_iter().chain(server.args).collect(),
            env: server.env,
            pass_env: Vec::new(),
        },
        (None, Some(url)) => McpEndpoint::Http { url, headers: server.headers },
        (None, None) => {
            let what = format!("{}: the server {:?} has neither `command` nor `url`", path.display(), name.value);
            source.tell(Problem::error(what).at(place).hint("one of them says where it is"));
            return None;
        }
    };
    Some(McpPart {
        name,
        endpoint,
        allow: Vec::new(),
        deny: Vec::new(),
        approve: None,
        hints: Hints::default(),
        timeout: None,
        start_timeout: None,
        check,
    })
}
