//! Model names: what `--model` and `model` in `[agent]` may say, and the model behind the name.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Demo, OnExhausted, Script};
use turnbuckle::{BoxFuture, Reply};
use turnbuckle_models::{Environment, ModelOptions, Name, NameError, Prices, SetupError, providers};

use crate::config::nearest;
use crate::logging::CLI;
use crate::problem::{Place, Problem};
use crate::read_file::{CONFIGURATION, SCRIPT, read_file};
use crate::trust::Gate;

/// A name that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    Demo,
    Script(PathBuf),
    /// At a provider, or at a server that speaks like one.
    Provider(Name),
}

/// How the models are named that need no provider.
const OWN_FORMS: [&str; 2] = ["script:FILE", "demo"];

/// Every form that a name may have, for hints.
fn forms() -> String {
    let forms: Vec<&str> = providers().iter().map(|provider| provider.form()).chain(OWN_FORMS).collect();
    forms.join(", ")
}

/// The help of `--model`.
pub(crate) fn help() -> String {
    format!(
        "Which model answers: {} [default: `model` in [agent], else one by the first key found, else demo]",
        forms()
    )
}

/// The variables of which one is enough to choose a model by its key, one for each provider that has a key.
pub(crate) fn first_key_variables() -> String {
    let variables: Vec<&str> =
        providers().iter().filter_map(|provider| provider.key_variables().first().copied()).collect();
    match variables.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The variables that are read for the providers: keys, and addresses, which may have a password. Programs of hooks do not get
/// them.
pub(crate) fn provider_variables() -> Vec<&'static str> {
    let all = providers()
        .iter()
        .flat_map(|provider| provider.key_variables().iter().copied().chain(provider.base_variable()));
    all.collect()
}

impl ModelName {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("demo", "") => Ok(Self::Demo),
            ("script", "") => Err(unfinished(text, "script:FILE")),
            ("script", file) => Ok(Self::Script(file.into())),
            _ => Name::parse(text).map(Self::Provider).map_err(|error| not_understood(&error, text, kind)),
        }
    }

    /// The default model: that of the first key in the environment, else the demo.
    pub(crate) fn first_found() -> String {
        turnbuckle_models::first_found(&Environment::process())
            .map_or_else(|| "demo".to_owned(), |name| name.to_string())
    }

    /// The model. A script's path is relative to `folder`.
    pub(crate) fn open(&self, folder: &Path) -> Result<SharedModel, Problem> {
        self.open_with(folder, &ModelOptions::default())
    }

    /// The model, answering by these options, which a script and the demo ignore.
    pub(crate) fn open_with(&self, folder: &Path, options: &ModelOptions) -> Result<SharedModel, Problem> {
        match self {
            Self::Demo => Ok(SharedModel::Other(Arc::new(Demo::default()))),
            Self::Script(file) => Ok(SharedModel::Script(Arc::new(read_script(&folder.join(file))?))),
            Self::Provider(name) => open_with_window(name, options, None).map(SharedModel::Other),
        }
    }

    /// The model as a command of this gate needs it: only one that is going to ask models connects to their servers.
    pub(crate) fn open_for(&self, gate: Gate, folder: &Path, options: &ModelOptions) -> Result<SharedModel, Problem> {
        match gate {
            Gate::Needed(_) => self.open_at_server(folder, options),
            Gate::Judged | Gate::LeftOut => self.open_with(folder, options),
        }
    }

    /// Like [`open_with`](Self::open_with), after asking the model's server how many tokens it takes, if it is one that may say so.
    fn open_at_server(&self, folder: &Path, options: &ModelOptions) -> Result<SharedModel, Problem> {
        match self {
            Self::Provider(name) => open_with_window(name, options, window_at_server(name)).map(SharedModel::Other),
            _ => self.open(folder),
        }
    }
}

/// How long a server may take to say how many tokens its model takes.
const WINDOW_TIMEOUT: Duration = Duration::from_secs(2);

/// How long what a server said holds. A configuration often names one server several times: for the agent, sub-agents and hooks.
const WINDOW_KNOWN: Duration = Duration::from_secs(30);

/// What a server said.
struct SaidWindow {
    base: String,
    model: String,
    at: Instant,
    /// `None` if it did not say how many tokens the model takes.
    window: Option<u64>,
}

static WINDOWS: Mutex<Vec<SaidWindow>> = Mutex::new(Vec::new());

/// How many tokens the model takes, if its server says so in time.
fn window_at_server(name: &Name) -> Option<u64> {
    let base = turnbuckle_models::window_source(name, &Environment::process())?;
    let model = name.model();
    let windows = || WINDOWS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known = windows();
    known.retain(|said| said.at.elapsed() < WINDOW_KNOWN);
    if let Some(said) = known.iter().find(|said| said.base == base && said.model == model) {
        return said.window;
    }
    drop(known);
    let window = asked_window(base.clone(), model.to_owned());
    windows().push(SaidWindow { base, model: model.to_owned(), at: Instant::now(), window });
    window
}

/// Asks the server, in a thread of its own: the caller may run in a runtime.
fn asked_window(base: String, model: String) -> Option<u64> {
    let ask = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(turnbuckle_models::window_at(&base, &model, WINDOW_TIMEOUT))
    };
    // A thread that cannot be started finds nothing out, and the default holds.
    let window = std::thread::Builder::new().spawn(ask).ok()?.join().ok().flatten();
    tracing::info!(target: CLI, window, "asked the server how many tokens its model takes");
    window
}

/// A provider's model; `max_tokens`: how long its replies may be, if not as long as usual.
pub(crate) fn open_provider(name: &Name, max_tokens: Option<u32>) -> Result<Arc<dyn Model>, Problem> {
    let mut options = ModelOptions::default();
    options.max_output_tokens = max_tokens;
    open_with_window(name, &options, None)
}

fn open_with_window(name: &Name, options: &ModelOptions, window: Option<u64>) -> Result<Arc<dyn Model>, Problem> {
    let environment = Environment::process();
    let prices = prices(&environment)?;
    turnbuckle_models::open_with(name, &environment, &prices, options, window).map_err(|error| match &error {
        NameError::NoKey { variable, .. } => {
            Problem::error(error.to_string()).hint(format!(
                "export {variable}=…, or use another model: {}; `turnbuckle doctor` says which keys and servers are there",
                forms()
            ))
        }
        NameError::Key { variable, .. } => Problem::error(error.to_string()).hint(format!(
            "a key is one line of letters, digits and signs: was something copied along with it? export {variable}=… again"
        )),
        NameError::Variable { .. } | NameError::Setup(SetupError::BaseUrl) => {
            Problem::error(error.to_string()).hint("for example https://api.example.com/v1")
        }
        NameError::Setup(SetupError::Tls(_)) => Problem::error(error.to_string())
            .hint("install the machine's certificates: apt-get install ca-certificates"),
        _ => Problem::error(error.to_string()),
    })
}

/// Those that come along, with those of `TURNBUCKLE_PRICES` on top.
fn prices(environment: &Environment) -> Result<Arc<Prices>, Problem> {
    let Some(path) = environment.get("TURNBUCKLE_PRICES") else { return Ok(Prices::builtin()) };
    let refused = |why: String| Problem::error(format!("TURNBUCKLE_PRICES: {path}: {why}"));
    let text = read_file(Path::new(&path), CONFIGURATION)
        .map_err(|error| refused(error.to_string()).hint(error.hint("is the path right?")))?;
    let own = Prices::parse(&text).map_err(|error| {
        refused(error.to_string())
            .hint("[models]\nMODEL = { input = 3.0, output = 15.0 }   # dollars for a million tokens")
    })?;
    Ok(Arc::new(own.over(&Prices::builtin())))
}

fn unfinished(text: &str, form: &str) -> Problem {
    Problem::error(format!("model {text:?} is not complete")).hint(form)
}

/// How names of well-known models begin, and the provider that has them or the server that mostly runs them.
const FAMILIES: [(&str, &str); 12] = [
    ("gpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude", "anthropic"),
    ("llama", "ollama"),
    ("qwen", "ollama"),
    ("mistral", "ollama"),
    ("mixtral", "ollama"),
    ("gemma", "ollama"),
    ("deepseek", "ollama"),
    ("phi", "ollama"),
];

/// The whole name of a model that was named without its provider.
fn of_family(text: &str) -> Option<String> {
    // An address, which may have a password, is not repeated.
    let is_plain = text.len() <= 64 && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "-._:".contains(sign));
    let lower = text.to_ascii_lowercase();
    let (_, provider) = FAMILIES.iter().find(|(family, _)| is_plain && lower.starts_with(family))?;
    Some(match text {
        // The name of the family is no model.
        "claude" => "anthropic:claude-sonnet-5-5".to_owned(),
        _ => format!("{provider}:{text}"),
    })
}

fn not_understood(error: &NameError, text: &str, kind: &str) -> Problem {
    match error {
        NameError::Incomplete { name, form } => unfinished(name, form),
        _ => {
            let prefixes = providers().iter().map(|provider| provider.prefix());
            let near = || nearest(kind, prefixes.chain(["script", "demo"])).map(str::to_owned);
            let near = of_family(text).or_else(near);
            let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            Problem::error(error.to_string()).hint(format!("{near}models: {}", forms()))
        }
    }
}

fn read_script(path: &Path) -> Result<Script, Problem> {
    let text = read_file(path, SCRIPT).map_err(|error| {
        Problem::error(format!("script {} cannot be read: {error}", path.display()))
            .hint(error.hint("is the path right?"))
    })?;
    Script::from_json(&text).map_err(|error| {
        let line = error.source().and_then(|cause| cause.downcast_ref::<serde_json::Error>()).map(|cause| cause.line());
        let what = error.to_string();
        let hint = meant(&what).unwrap_or_else(|| "a script is { \"replies\": [ { \"text\": \"…\" } ] }".to_owned());
        let place = line.map(|line| Place { file: path.display().to_string().into(), line, at: None });
        Problem::error(what).at_if_known(place.as_ref()).hint(hint)
    })
}

/// Serde names the unknown key first and then those it knows, in backticks.
fn meant(message: &str) -> Option<String> {
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next().filter(|_| message.contains("unknown field"))?;
    let known: Vec<&str> = names.collect();
    Some(match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("possible here: {}", known.join(", ")),
    })
}

/// One model for an agent and its sub-agents.
#[derive(Clone)]
pub(crate) enum SharedModel {
    /// Has replies of its own for each sub-agent.
    Script(Arc<Script>),
    Other(Arc<dyn Model>),
}

impl SharedModel {
    /// A sub-agent never says what the main agent would have said.
    pub(crate) fn for_sub_agent(&self, name: &str) -> Self {
        match self {
            Self::Script(script) => Self::Script(Arc::new(script.for_sub_agent(name))),
            other => other.clone(),
        }
    }

    /// Whether a sub-agent's first model call would fail.
    pub(crate) fn lacks_replies_for(&self, sub_agent: &str) -> bool {
        let Self::Script(script) = self else { return false };
        script.on_exhausted != OnExhausted::Echo && script.for_sub_agent(sub_agent).replies.is_empty()
    }

    fn model(&self) -> &dyn Model {
        match self {
            Self::Script(script) => &**script,
            Self::Other(model) => &**model,
        }
    }
}

impl Model for SharedModel {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.model().stream(request, out)
    }
    fn name(&self) -> &str {
        self.model().name()
    }
    fn price(&self, usage: &turnbuckle::message::Usage) -> Option<f64> {
        self.model().price(usage)
    }
    fn summarises(&self) -> bool {
        self.model().summarises()
    }
    fn context_window(&self) -> Option<u64> {
        self.model().context_window()
    }
    fn effort(&self) -> Option<&str> {
        self.model().effort()
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.model().count_tokens(text)
    }
    fn body_fields(&self, request: &Request) -> Option<Value> {
        self.model().body_fields(request)
    }
}

/// A model under the name that a file chose it by.
pub(crate) struct NamedModel {
    pub(crate) name: String,
    pub(crate) model: SharedModel,
}

impl Model for NamedModel {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.model.stream(request, out)
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn price(&self, usage: &turnbuckle::message::Usage) -> Option<f64> {
        self.model.price(usage)
    }
    fn summarises(&self) -> bool {
        self.model.summarises()
    }
    fn context_window(&self) -> Option<u64> {
        self.model.context_window()
    }
    fn effort(&self) -> Option<&str> {
        self.model.effort()
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.model.count_tokens(text)
    }
    fn body_fields(&self, request: &Request) -> Option<Value> {
        self.model.body_fields(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_or_refused_with_a_hint() {
        assert_eq!(ModelName::parse("demo").unwrap(), ModelName::Demo);
        assert_eq!(ModelName::parse("script:a:b.json").unwrap(), ModelName::Script("a:b.json".into()));
        for hosted in ["anthropic:claude", "openai:gpt", "ollama:llama3:8b", "openai@http://localhost:8000/v1:m"] {
            assert!(matches!(ModelName::parse(hosted).unwrap(), ModelName::Provider(_)), "{hosted}");
        }
        for bad in ["", "gpt", "script:", "openai:", "openai@", "openai@http://localhost:80/v1", "demo:x"] {
            assert!(ModelName::parse(bad).is_err(), "{bad}");
        }
        assert!(ModelName::parse("scirpt:x").unwrap_err().to_string().contains("did you mean `script`?"));
    }

    #[test]
    fn a_model_without_its_provider_is_named_with_it_and_what_is_suggested_is_a_name() {
        for (given, meant) in [
            ("gpt-4", "openai:gpt-4"),
            ("o3-mini", "openai:o3-mini"),
            ("claude", "anthropic:claude-sonnet-5-5"),
            ("claude-opus-5", "anthropic:claude-opus-5"),
            ("llama3:8b", "ollama:llama3:8b"),
        ] {
            let told = ModelName::parse(given).unwrap_err().to_string();
            assert!(told.contains(&format!("did you mean `{meant}`?")), "{told}");
            assert!(ModelName::parse(meant).is_ok(), "{meant}");
        }
        let secret = ModelName::parse("gpt-x@http://me:secret@host/v1:m").unwrap_err().to_string();
        assert!(!secret.contains("secret"), "{secret}");
    }
}
