//! Names of models, and what can be wrong with one.

use std::fmt;

use super::Provider;
use super::provider::PROVIDERS;
use crate::address::without_password;
use crate::endpoint::SetupError;

/// The name of a provider's model: `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL`, `openai@URL:MODEL`. [`Name::parse`]
/// makes one.
#[derive(Clone, PartialEq, Eq)]
pub struct Name {
    provider: &'static Provider,
    /// `Some` exactly where the provider's form has a URL.
    url: Option<String>,
    model: String,
}

/// Why a name leads to no model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No provider has names of this form. Holds the name without the password of its address.
    #[error("there is no model {0:?}")]
    Unknown(String),
    /// The name lacks its model or its URL.
    #[error("model {name:?} is not complete")]
    Incomplete {
        /// The name as it was given, without the password of its address.
        name: String,
        /// A complete name of the same form.
        form: &'static str,
    },
    /// The provider wants a key, and there is none.
    #[error("{provider} wants a key, and {variable} is not set")]
    NoKey {
        /// The provider's title.
        provider: &'static str,
        /// The environment variable in which the key was looked for.
        variable: &'static str,
    },
    /// An environment variable holds a key that cannot be sent.
    #[error("{variable}: {cause}")]
    Key {
        /// The name of the variable.
        variable: &'static str,
        /// Why the key cannot be sent.
        #[source]
        cause: SetupError,
    },
    /// An environment variable holds an address that is none.
    #[error("{variable}: {cause}")]
    Variable {
        /// The name of the variable.
        variable: &'static str,
        /// What is wrong with its value.
        #[source]
        cause: SetupError,
    },
    /// The client cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Name {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (prefix, separator, rest) = match text.find([':', '@']) {
            Some(at) => (&text[..at], text.as_bytes()[at], &text[at + 1..]),
            None => (text, b':', ""),
        };
        let is_meant = |provider: &&&Provider| provider.prefix == prefix && provider.has_url() == (separator == b'@');
        let Some(provider) = PROVIDERS.iter().find(is_meant) else {
            return Err(NameError::Unknown(without_password(text).into_owned()));
        };
        let parts = match provider.has_url() {
            true => split_address(rest).map(|(url, model)| (Some(url.to_owned()), model)),
            false => Some((None, rest)).filter(|(_, model)| !model.is_empty()),
        };
        match parts {
            Some((url, model)) => Ok(Self { provider, url, model: model.to_owned() }),
            None => Err(NameError::Incomplete { name: without_password(text).into_owned(), form: provider.example() }),
        }
    }

    pub(super) fn default_of(provider: &'static Provider) -> Option<Self> {
        let default = provider.default?;
        Some(Self { provider, url: default.url.map(str::to_owned), model: default.model.to_owned() })
    }

    /// The provider that the name begins with.
    pub fn provider(&self) -> &'static Provider {
        self.provider
    }

    /// The address, in a name that has one.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The model, as its provider calls it.
    pub fn model(&self) -> &str {
        &self.model
    }
}

/// Without the password of the address.
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", without_password(&self.to_string()))
    }
}

/// As [`Name::parse`] reads it: with the password of the address, if there is one. [`without_password`] is for people.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, model) = (self.provider.prefix, &self.model);
        match &self.url {
            Some(url) => write!(f, "{prefix}@{url}:{model}"),
            None => write!(f, "{prefix}:{model}"),
        }
    }
}

/// Splits `http://host:8000/v1:org/model:tag` into URL and model. The model begins after the first colon of the path or, where
/// there is no path, after the last colon of the host.
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
            Ok(Name { url: Some(url), model, .. }) => Some((url, model)),
            _ => None,
        }
    }

    #[test]
    fn an_address_and_its_model_are_split_where_a_person_would() {
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
    fn a_name_without_a_model_is_incomplete_and_one_of_no_provider_is_unknown() {
        for incomplete in ["anthropic", "anthropic:", "openai", "openai:", "ollama:", "openai@", "openai@http://h/v1"] {
            let refused = Name::parse(incomplete);
            assert!(matches!(refused, Err(NameError::Incomplete { .. })), "{incomplete}: {refused:?}");
        }
        for unknown in ["", ":", "gemini:m", "anthropic@http://h/v1:m", "openaix:m", "gpt-5"] {
            assert!(matches!(Name::parse(unknown), Err(NameError::Unknown(_))), "{unknown}");
        }
        assert_eq!(Name::parse("ollama:llama3:8b@x").unwrap().model(), "llama3:8b@x");
    }
}
