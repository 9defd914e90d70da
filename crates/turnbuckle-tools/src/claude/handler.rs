//! One handler: how its entry in a settings file is read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};

use super::event::ClaudeEvent;
use super::matcher::Matcher;
use super::plugin::LoadedPlugin;
use super::rule::Rule;
use crate::command::CommandLine;
use crate::http::{PostError, Poster};

/// One handler: what runs, when, and where it was written.
#[derive(Clone, Debug)]
pub struct ClaudeHandler {
    /// At which event.
    pub event: ClaudeEvent,
    /// The group's matcher as written; empty: for everything.
    pub matcher: String,
    /// The handler's `if` as written.
    pub condition: Option<String>,
    /// What it does.
    pub action: ClaudeAction,
    /// How long it may.
    pub timeout: Duration,
    /// Whether its own failure blocks (`"onFailure": "block"`); otherwise the turn goes on without it.
    pub blocks_on_failure: bool,
    /// Whether the turn waits for it.
    pub waiting: Waiting,
    /// What viewers are told while it runs.
    pub status_message: Option<String>,
    /// The file that it stands in.
    pub file: PathBuf,
    /// Its plugin, if it is one's.
    pub plugin: Option<Arc<LoadedPlugin>>,
    /// Whether its file is the machine's. Such a handler is no other's duplicate.
    pub(super) is_managed: bool,
    pub(super) fits: Matcher,
    pub(super) rule: Option<Rule>,
}

/// Whether a turn waits for a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It does, and the handler decides.
    ForIt,
    /// It does not (`"async": true`): nothing it says decides, and what it says for the model is told in the next turn.
    Not,
    /// Neither (`"asyncRewake": true`), but exit 2 tells the model at its next call.
    NotButWakes,
}

/// What a handler does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClaudeAction {
    /// Runs a program.
    Command(CommandLine),
    /// Posts the event to an address.
    Http(HttpAction),
    /// Asks a model.
    Prompt(PromptAction),
    /// Calls a tool of an MCP server.
    McpTool(McpToolAction),
}

/// `"type": "mcp_tool"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpToolAction {
    /// The server's name in the configuration.
    pub server: String,
    /// The tool's name on the server.
    pub tool: String,
    /// Its arguments. `${tool_input.file_path}` in a text stands for what the event has there.
    pub input: Map<String, Value>,
}

/// `"type": "http"`.
#[derive(Clone, Debug)]
pub struct HttpAction {
    /// The address.
    pub url: String,
    /// Headers, with their variables not yet replaced.
    pub headers: Vec<(String, String)>,
    /// The variables of the environment that headers may hold.
    pub allowed_env: Vec<String>,
    /// Whether the settings of the machine or the user do not allow the address (`allowedHttpHookUrls`).
    pub is_forbidden: bool,
    /// Made at the first post: setting TLS up reads the machine's certificates.
    poster: Arc<OnceLock<Result<Poster, String>>>,
}

/// `"type": "prompt"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptAction {
    /// The question. `$ARGUMENTS` stands for the event; without it the event follows.
    pub prompt: String,
    /// The model's name as written.
    pub model: Option<String>,
    /// A "no" does not end the turn, where it would.
    pub continue_on_block: bool,
}

impl HttpAction {
    pub(super) fn poster(&self) -> Result<&Poster, String> {
        let made = self.poster.get_or_init(|| Poster::new(&self.url).map_err(|error| format!("its `url` {error}")));
        made.as_ref().map_err(Clone::clone)
    }
}

impl ClaudeAction {
    /// The word that `type` has for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Http(_) => "http",
            Self::Prompt(_) => "prompt",
            Self::McpTool(_) => "mcp_tool",
        }
    }

    /// Whether it runs exactly this.
    pub fn is_command(&self, text: &str) -> bool {
        match self {
            Self::Command(CommandLine::Shell(line)) => line == text,
            Self::Command(CommandLine::Argv(words)) => words.join(" ") == text,
            _ => false,
        }
    }

    /// What makes two handlers the same.
    fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Command(one), Self::Command(other)) => one == other,
            (Self::Http(one), Self::Http(other)) => {
                (&one.url, &one.headers, &one.allowed_env) == (&other.url, &other.headers, &other.allowed_env)
            }
            (Self::Prompt(one), Self::Prompt(other)) => one == other,
            (Self::McpTool(one), Self::McpTool(other)) => one == other,
            _ => false,
        }
    }
}

/// One line, for messages: without the passwords and queries of addresses.
impl fmt::Display for ClaudeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(line) => line.fmt(f),
            Self::Http(http) => write!(f, "POST {}", CommandLine::Shell(http.url.clone())),
            Self::McpTool(call) => write!(f, "tool {} of the MCP server {}", call.tool, call.server),
            Self::Prompt(prompt) => {
                let text = prompt.prompt.split_whitespace().collect::<Vec<_>>().join(" ");
                match text.char_indices().nth(60) {
                    Some((end, _)) => write!(f, "prompt \"{}…\"", &text[..end]),
                    None => write!(f, "prompt \"{text}\""),
                }
            }
        }
    }
}

/// Where an entry stands.
pub(super) struct Place<'a> {
    pub(super) file: &'a Path,
    pub(super) plugin: Option<&'a Arc<LoadedPlugin>>,
    /// Whether its file is the machine's.
    pub(super) is_managed: bool,
    pub(super) event: ClaudeEvent,
    pub(super) matcher: &'a str,
    pub(super) project: &'a Path,
}

/// Why an entry makes no handler.
pub(super) enum NoHandler {
    /// Of a kind that is not run here.
    Kind(String),
    /// It makes no sense, as the rest of a sentence about the handler.
    Senseless(String),
    /// The protocol says that it never runs.
    Never(&'static str),
}

impl ClaudeHandler {
    pub(super) fn read(entry: &Value, place: &Place<'_>) -> Result<Self, NoHandler> {
        let senseless = |why: &str| NoHandler::Senseless(why.to_owned());
        let event = place.event;
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let is_set = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
        let is_there = |key: &str| entry.get(key).is_some_and(|value| !value.is_null());
        for key in ["type", "if", "statusMessage", "model", "shell"] {
            if is_there(key) && text(key).is_none() {
                return Err(NoHandler::Senseless(format!("has `{key}`, which is not a text")));
            }
        }
        for key in ["async", "asyncRewake", "continueOnBlock"] {
            if is_there(key) && entry.get(key).and_then(Value::as_bool).is_none() {
                return Err(NoHandler::Senseless(format!("has `{key}`, which is not true or false")));
            }
        }
        let kind = text("type").unwrap_or("command");
        if !matches!(kind, "command" | "http" | "prompt" | "mcp_tool" | "agent") {
            return Err(NoHandler::Senseless(format!("has the unknown type {kind:?}")));
        }
        if kind == "agent" {
            return Err(NoHandler::Kind(kind.to_owned()));
        }
        if !event.takes(kind) {
            return Err(NoHandler::Senseless(format!("is of the kind {kind:?}, which this event does not have")));
        }
        let waiting = match (is_set("asyncRewake"), is_set("async")) {
            (true, _) => Waiting::NotButWakes,
            (false, true) => Waiting::Not,
            (false, false) => Waiting::ForIt,
        };
        if waiting != Waiting::ForIt && kind != "command" {
            return Err(senseless("is `async`, which only commands can be"));
        }
        let action = match kind {
            "http" => ClaudeAction::Http(http(entry)?),
            "prompt" => {
                let Some(prompt) = text("prompt").filter(|prompt| !prompt.trim().is_empty()) else {
                    return Err(senseless("has no `prompt`"));
                };
                let (prompt, model) = (prompt.to_owned(), text("model").map(str::to_owned));
                ClaudeAction::Prompt(PromptAction { prompt, model, continue_on_block: is_set("continueOnBlock") })
            }
            "mcp_tool" => ClaudeAction::McpTool(mcp_tool(entry)?),
            _ => ClaudeAction::Command(command(entry, place)?),
        };
        let timeout = match entry.get("timeout") {
            None if kind == "prompt" => Duration::from_secs(30),
            None => event.default_timeout(),
            Some(given) => match given.as_f64().and_then(|given| Duration::try_from_secs_f64(given).ok()) {
                Some(time) if !time.is_zero() => time.min(Duration::from_secs(24 * 60 * 60)),
                _ => return Err(senseless("has a `timeout` that is no number of seconds above 0")),
            },
        };
        let given = |key: &str| entry.get(key).filter(|value| !value.is_null());
        let on_failure = given("onFailure").or_else(|| given("on_failure"));
        let blocks_on_failure = match on_failure.map(|value| (value.as_str(), value)) {
            None | Some((Some("ignore"), _)) => false,
            Some((Some("block"), _)) if waiting == Waiting::ForIt => true,
            Some((Some("block"), _)) => return Err(senseless("is `async`, so its failure cannot block")),
            Some((_, other)) => {
                return Err(NoHandler::Senseless(format!("has `onFailure` {other}: \"block\" or \"ignore\"")));
            }
        };
        let condition = text("if").map(str::to_owned);
        let rule = match &condition {
            None => None,
            Some(_) if !event.is_about_a_tool() => {
                return Err(NoHandler::Never("has an `if`, which only events of tools have: it never runs"));
            }
            Some(text) => match Rule::parse(text) {
                Some(rule) => Some(rule),
                None => return Err(NoHandler::Senseless(format!("has an `if` that is no rule: {text:?}"))),
            },
        };
        let fits = match event.has_matcher() {
            true => Matcher::parse(place.matcher, event.has_narrow_names()),
            false => Matcher::All,
        };
        Ok(Self {
            event,
            matcher: place.matcher.to_owned(),
            condition,
            action,
            timeout,
            blocks_on_failure,
            waiting,
            status_message: text("statusMessage").map(str::to_owned),
            file: place.file.to_owned(),
            plugin: place.plugin.cloned(),
            is_managed: place.is_managed,
            fits,
            rule,
        })
    }

    /// Why the group's matcher cannot be read, if it cannot. Then what it could have been for is blocked.
    pub fn unreadable_matcher(&self) -> Option<&str> {
        match &self.fits {
            Matcher::Bad(why) => Some(why),
            _ => None,
        }
    }

    /// Whether it is for calls of tools, and its matcher fits none of these names: then it never runs.
    pub fn fits_no_tool<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        // A matcher that cannot be read is told elsewhere.
        let is_for_some = self.event.is_about_a_tool() && !matches!(self.fits, Matcher::All);
        is_for_some && !names.any(|name| self.fits.fits(name).unwrap_or(true))
    }

    /// What the option `leave_out` calls handlers of its kind.
    pub(super) fn leave_out_name(&self) -> &'static str {
        if self.waiting == Waiting::ForIt { self.action.kind() } else { "async" }
    }

    /// Whether it is the same handler in another settings file. One of a plugin is never the same as another's, and one of the
    /// machine is only the same as another of the machine.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        self.plugin.is_none()
            && other.plugin.is_none()
            && self.is_managed == other.is_managed
            && self.file != other.file
            && (self.event, &self.matcher, &self.condition, self.waiting)
                == (other.event, &other.matcher, &other.condition, other.waiting)
            && self.action.same_as(&other.action)
    }
}

fn command(entry: &Value, place: &Place<'_>) -> Result<CommandLine, NoHandler> {
    let senseless = |why: &str| NoHandler::Senseless(why.to_owned());
    let Some(command) = entry.get("command").and_then(Value::as_str).filter(|command| !command.trim().is_empty())
    else {
        return Err(senseless("has no `command`"));
    };
    match entry.get("shell").and_then(Value::as_str) {
        None | Some("bash" | "sh") => {}
        Some(_) if entry.get("args").is_some() => {}
        Some(other) => return Err(NoHandler::Senseless(format!("wants the shell {other:?}, which is not used here"))),
    }
    match entry.get("args") {
        // The value of an option could be taken for shell code.
        None if command.contains("${user_config.") => {
            Err(senseless("has `${user_config.…}` in a shell command: `$CLAUDE_PLUGIN_OPTION_…` is the variable"))
        }
        // The protocol's shell is `sh`; one that asks for bash gets it.
        None if entry.get("shell").and_then(Value::as_str) == Some("bash") => {
            Ok(CommandLine::Argv(["bash", "-c", command].map(str::to_owned).to_vec()))
        }
        None => Ok(CommandLine::Shell(command.to_owned())),
        Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
            let words = std::iter::once(command).chain(words.iter().filter_map(Value::as_str));
            let words = words.map(|word| substituted(word, place)).collect::<Result<_, _>>()?;
            Ok(CommandLine::Argv(words))
        }
        Some(_) => Err(senseless("has `args` that are not a list of texts")),
    }
}

/// The placeholders of the exec form; a shell expands them itself. `${CLAUDE_PLUGIN_DATA}` is replaced when the program starts.
fn substituted(word: &str, place: &Place<'_>) -> Result<String, NoHandler> {
    let mut word = word.replace("${CLAUDE_PROJECT_DIR}", &place.project.to_string_lossy());
    if let Some(plugin) = place.plugin {
        word = word.replace("${CLAUDE_PLUGIN_ROOT}", &plugin.root.to_string_lossy());
        for (key, value) in &plugin.options {
            word = word.replace(&format!("${{user_config.{key}}}"), value);
        }
    }
    match word.split_once("${user_config.") {
        None => Ok(word),
        Some((_, rest)) => {
            let key = rest.split('}').next().unwrap_or_default();
            Err(NoHandler::Senseless(format!("needs the option {key:?} of its plugin, which is not set")))
        }
    }
}

fn http(entry: &Value) -> Result<HttpAction, NoHandler> {
    let senseless = |why: &str| NoHandler::Senseless(why.to_owned());
    let Some(url) = entry.get("url").and_then(Value::as_str) else { return Err(senseless("has no `url`")) };
    if !reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        return Err(NoHandler::Senseless(format!("has a `url` that {}", PostError::Address)));
    }
    let headers = match entry.get("headers") {
        None => Vec::new(),
        Some(Value::Object(fields)) if fields.values().all(Value::is_string) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            fields.iter().map(|(name, value)| (name.clone(), text(value))).collect()
        }
        Some(_) => return Err(senseless("has `headers` that are not texts")),
    };
    let allowed_env = match entry.get("allowedEnvVars") {
        None => Vec::new(),
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(_) => return Err(senseless("has `allowedEnvVars` that are not names")),
    };
    Ok(HttpAction { url: url.to_owned(), headers, allowed_env, is_forbidden: false, poster: Arc::default() })
}

fn mcp_tool(entry: &Value) -> Result<McpToolAction, NoHandler> {
    let named = |key: &str| {
        let name = entry.get(key).and_then(Value::as_str).filter(|name| !name.trim().is_empty());
        name.map(str::to_owned).ok_or_else(|| NoHandler::Senseless(format!("has no `{key}`")))
    };
    let input = match entry.get("input") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(input)) => input.clone(),
        Some(_) => return Err(NoHandler::Senseless("has an `input` that is not an object".to_owned())),
    };
    Ok(McpToolAction { server: named("server")?, tool: named("tool")?, input })
}
