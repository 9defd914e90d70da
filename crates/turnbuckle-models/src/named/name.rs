//! Names of models, and what can be wrong with one.

use std::fmt;

use crate::endpoint::SetupError;

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
}
