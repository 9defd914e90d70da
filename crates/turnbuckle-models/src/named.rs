//! Models by name, with keys and addresses from the environment.

use std::fmt;
use std::sync::Arc;

use turnbuckle::model::Model;

use crate::endpoint::SetupError;
use crate::key::Key;
use crate::prices::Prices;
use crate::{Anthropic, OpenAi, anthropic, openai};

const OPENROUTER: &str = "https://openrouter.ai/api/v1";
const OLLAMA: &str = "http://127.0.0.1:11434";

/// What a provider's model is called: `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL`, `openai@URL:MODEL`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Name {
    /// At Anthropic, or where `ANTHROPIC_BASE_URL` says.
    Anthropic(String),
    /// At OpenAI, or where `OPENAI_BASE_URL` says.
    OpenAi(String),
    /// At this machine's Ollama, or where `OLLAMA_HOST` says.
    Ollama(String),
    /// At an address.
    At {
        /// Which.
        url: String,
        /// The model there.
        model: String,
    },
}

/// A name that leads to no model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is no provider's.
    #[error("there is no model {0:?}")]
    Unknown(String),
    /// A part of it is missing.
    #[error("model {name:?} is not complete")]
    Incomplete {
        /// As given.
        name: String,
        /// What a whole one looks like.
        form: &'static str,
    },
    /// The provider wants a key.
    #[error("{provider} wants a key, and {variable} is not set")]
    NoKey {
        /// Who.
        provider: &'static str,
        /// Where it was looked for.
        variable: &'static str,
    },
    /// A variable that does not hold what it should.
    #[error("{variable}: {cause}")]
    Variable {
        /// Which.
        variable: &'static str,
        /// Why.
        #[source]
        cause: SetupError,
    },
    /// The client cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Name {
    /// Understands a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let incomplete = |form| NameError::Incomplete { name: text.to_owned(), form };
        if let Some(address) = text.strip_prefix("openai@") {
            let parted = split_address(address).ok_or_else(|| incomplete("openai@http://localhost:8000/v1:MODEL"))?;
            return Ok(Self::At { url: parted.0.to_owned(), model: parted.1.to_owned() });
        }
        let (kind, model) = text.split_once(':').unwrap_or((text, ""));
        let (make, form): (fn(String) -> Self, _) = match kind {
            "anthropic" => (Self::Anthropic, "anthropic:MODEL"),
            "openai" => (Self::OpenAi, "openai:MODEL"),
            "ollama" => (Self::Ollama, "ollama:MODEL"),
            _ => return Err(NameError::Unknown(text.to_owned())),
        };
        if model.is_empty() { Err(incomplete(form)) } else { Ok(make(model.to_owned())) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anthropic(model) => write!(f, "anthropic:{model}"),
            Self::OpenAi(model) => write!(f, "openai:{model}"),
            Self::Ollama(model) => write!(f, "ollama:{model}"),
            Self::At { url, model } => write!(f, "openai@{url}:{model}"),
        }
    }
}

/// Parts `http://host:8000/v1:org/model:tag`: the model begins behind the first colon of the path, or where there is no path
/// behind the last colon of the host.
fn split_address(address: &str) -> Option<(&str, &str)> {
    let host = address.find("://")? + 3;
    let path = address[host..].find('/').map_or(address.len(), |at| host + at);
    let colon = match address[path..].find(':') {
        Some(at) => path + at,
        None => host + address[host..path].rfind(':').filter(|at| *at > 0)?,
    };
    let (url, model) = (&address[..colon], &address[colon + 1..]);
    // A port is no model: `http://localhost:8000`.
    let is_port = colon < path && model.split('/').next().is_some_and(|first| first.parse::<u16>().is_ok());
    let ends_in_bracket = model.contains(']');
    (!model.is_empty() && !is_port && !ends_in_bracket && url.len() > host).then_some((url, model))
}

/// Where keys and addresses come from.
#[derive(Clone)]
pub struct Environment(Arc<Look>);

type Look = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Environment {
    /// The process's own.
    pub fn process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Another.
    pub fn of(look: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    /// A variable; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn key(&self, name: &str) -> Option<Key> {
        self.get(name).map(Key::new)
    }

    /// Where Ollama is: `OLLAMA_HOST` may be a URL, a host, a host with a port, and the address it listens on everywhere.
    pub fn ollama(&self) -> String {
        let Some(given) = self.get("OLLAMA_HOST") else { return OLLAMA.to_owned() };
        let (scheme, rest) = given.split_once("://").unwrap_or(("http", &given));
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_prefix("0.0.0.0").map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1{port}"));
        let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest };
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port || scheme == "https" { format!("{scheme}://{rest}") } else { format!("{scheme}://{rest}:11434") }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// The model that the first key found gives, for people who name none.
pub fn first_found(environment: &Environment) -> Option<Name> {
    let has = |variable: &str| environment.get(variable).is_some();
    if has("ANTHROPIC_API_KEY") || has("ANTHROPIC_AUTH_TOKEN") {
        Some(Name::Anthropic("claude-sonnet-4-5".to_owned()))
    } else if has("OPENAI_API_KEY") {
        Some(Name::OpenAi("gpt-5-mini".to_owned()))
    } else if has("OPENROUTER_API_KEY") {
        Some(Name::At { url: OPENROUTER.to_owned(), model: "openrouter/auto".to_owned() })
    } else {
        None
    }
}

/// The model of this name. `prices` are for those who have their own. `max_tokens`: how long a reply may be, if not as long as
/// usual.
pub fn open(
    name: &Name,
    environment: &Environment,
    prices: &Arc<Prices>,
    max_tokens: Option<u32>,
) -> Result<Arc<dyn Model>, NameError> {
    match name {
        Name::Anthropic(model) => {
            let opened = open_anthropic(model, environment)?.prices(prices.clone());
            Ok(Arc::new(match max_tokens {
                Some(most) => opened.max_tokens(most),
                None => opened,
            }))
        }
        other => {
            let opened = open_openai(other, environment)?.prices(prices.clone());
            Ok(Arc::new(match max_tokens {
                Some(most) => opened.max_tokens(most),
                None => opened,
            }))
        }
    }
}

fn open_anthropic(model: &str, environment: &Environment) -> Result<Anthropic, NameError> {
    let given = environment.get("ANTHROPIC_BASE_URL");
    let blame = |cause| match given {
        Some(_) => NameError::Variable { variable: "ANTHROPIC_BASE_URL", cause },
        None => NameError::Setup(cause),
    };
    let base = given.as_deref().unwrap_or(anthropic::BASE);
    let key = environment.key("ANTHROPIC_API_KEY");
    match (key, environment.key("ANTHROPIC_AUTH_TOKEN")) {
        (None, Some(token)) => Anthropic::with_token(base, model, token).map_err(blame),
        // Somebody else's server may want none.
        (None, None) if given.is_none() => {
            Err(NameError::NoKey { provider: "Anthropic", variable: "ANTHROPIC_API_KEY" })
        }
        (key, _) => Anthropic::at(base, model, key).map_err(blame),
    }
}

fn open_openai(name: &Name, environment: &Environment) -> Result<OpenAi, NameError> {
    match name {
        Name::Ollama(model) => OpenAi::ollama(&environment.ollama(), model.as_str())
            .map_err(|cause| NameError::Variable { variable: "OLLAMA_HOST", cause }),
        Name::At { url, model } => Ok(OpenAi::at(url, model.as_str(), key_for(url, environment))?),
        Name::OpenAi(model) | Name::Anthropic(model) => {
            let given = environment.get("OPENAI_BASE_URL");
            let key = environment.key("OPENAI_API_KEY");
            if given.is_none() && key.is_none() {
                return Err(NameError::NoKey { provider: "OpenAI", variable: "OPENAI_API_KEY" });
            }
            let base = given.as_deref().unwrap_or(openai::BASE);
            OpenAi::at(base, model.as_str(), key).map_err(|cause| match given {
                Some(_) => NameError::Variable { variable: "OPENAI_BASE_URL", cause },
                None => NameError::Setup(cause),
            })
        }
    }
}

/// A key goes only to the host it was made for: an address may come from a project's file, which is not to be trusted with it.
/// Whoever wants another server to have one says so with `OPENAI_BASE_URL`.
fn key_for(url: &str, environment: &Environment) -> Option<Key> {
    let url = reqwest::Url::parse(url).ok().filter(|url| url.scheme() == "https")?;
    match url.host_str()? {
        "api.openai.com" => environment.key("OPENAI_API_KEY"),
        "openrouter.ai" => environment.key("OPENROUTER_API_KEY"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<(String, String)> {
        match Name::parse(text) {
            Ok(Name::At { url, model }) => Some((url, model)),
            _ => None,
        }
    }

    #[test]
    fn an_address_and_its_model_are_parted_where_a_person_would() {
        let parted = |url: &str, model: &str| Some((url.to_owned(), model.to_owned()));
        assert_eq!(at("openai@http://localhost:8000/v1:m"), parted("http://localhost:8000/v1", "m"));
        assert_eq!(
            at("openai@https://openrouter.ai/api/v1:a/b:free"),
            parted("https://openrouter.ai/api/v1", "a/b:free")
        );
        assert_eq!(at("openai@http://h:80:llama"), parted("http://h:80", "llama"));
        assert_eq!(at("openai@http://h:80:org/m"), parted("http://h:80", "org/m"));
        assert_eq!(at("openai@http://[::1]:80/v1:m"), parted("http://[::1]:80/v1", "m"));
        for bad in [
            "openai@",
            "openai@http://localhost:8000/v1",
            "openai@http://localhost:8000",
            "openai@localhost:m",
            "openai@http://h/v1:",
            "openai@http://:m",
            "openai@http://[::1]",
        ] {
            assert_eq!(at(bad), None, "{bad}");
            assert!(Name::parse(bad).is_err());
        }
    }

    #[test]
    fn a_key_goes_only_to_the_host_it_was_made_for() {
        let environment = Environment::of(|name| name.ends_with("_API_KEY").then(|| format!("k-{name}")));
        let key = |url: &str| key_for(url, &environment).map(|key| key.reveal().to_owned());
        assert_eq!(key("https://api.openai.com/v1").as_deref(), Some("k-OPENAI_API_KEY"));
        assert_eq!(key("https://openrouter.ai/api/v1").as_deref(), Some("k-OPENROUTER_API_KEY"));
        for other in [
            "http://api.openai.com/v1",
            "https://evil.example/v1",
            "https://openrouter.ai.evil.example/v1",
            "https://api.openai.com@evil.example/v1",
            "http://localhost:8000/v1",
            "nonsense",
        ] {
            assert_eq!(key(other), None, "{other}");
        }
    }

    #[test]
    fn ollamas_host_may_be_written_as_ollama_itself_takes_it() {
        let host = |value: &'static str| Environment::of(move |_| Some(value.to_owned())).ollama();
        assert_eq!(Environment::of(|_| None).ollama(), OLLAMA);
        assert_eq!(host("box"), "http://box:11434");
        assert_eq!(host("0.0.0.0:99"), "http://127.0.0.1:99");
        assert_eq!(host(":99"), "http://127.0.0.1:99");
        assert_eq!(host("http://box:1/"), "http://box:1");
        assert_eq!(host("https://box"), "https://box");
    }

    #[test]
    fn the_first_key_decides_and_without_one_there_is_no_model() {
        let with = |variable: &'static str| {
            first_found(&Environment::of(move |name| (name == variable).then(|| "k".to_owned())))
        };
        assert!(matches!(with("ANTHROPIC_API_KEY"), Some(Name::Anthropic(_))));
        assert!(matches!(with("OPENAI_API_KEY"), Some(Name::OpenAi(_))));
        assert!(matches!(with("OPENROUTER_API_KEY"), Some(Name::At { .. })));
        assert_eq!(with("OTHER"), None);
        assert_eq!(first_found(&Environment::of(|_| Some("  ".to_owned()))), None);
    }
}
