//! Models by name, with keys and addresses from the environment.

mod environment;
mod name;

use std::sync::Arc;

use serde::Deserialize;
use turnbuckle::model::Model;

use crate::client::{Client, Wire};
use crate::key::Key;
use crate::prices::Prices;
use crate::{Anthropic, OpenAi, anthropic, openai};
pub use environment::Environment;
pub use name::{Name, NameError};

/// Which model a key chooses if nobody does.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    variables: Vec<String>,
    model: String,
}

/// The choices that come along. A test holds them to be readable.
fn choices() -> Vec<Choice> {
    #[derive(Deserialize)]
    struct Defaults {
        choices: Vec<Choice>,
    }
    toml::from_str(include_str!("defaults.toml")).map_or_else(|_| Vec::new(), |defaults: Defaults| defaults.choices)
}

/// The model that the first key found gives, for people who name none.
pub fn first_found(environment: &Environment) -> Option<Name> {
    let is_set = |variable: &String| environment.get(variable).is_some();
    let choice = choices().into_iter().find(|choice| choice.variables.iter().any(is_set))?;
    Name::parse(&choice.model).ok()
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
        Name::Anthropic(model) => Ok(ready(open_anthropic(model, environment)?, prices, max_tokens)),
        other => Ok(ready(open_openai(other, environment)?, prices, max_tokens)),
    }
}

fn ready<W: Wire>(client: Client<W>, prices: &Arc<Prices>, max_tokens: Option<u32>) -> Arc<dyn Model> {
    let client = client.prices(prices.clone());
    Arc::new(match max_tokens {
        Some(most) => client.max_tokens(most),
        None => client,
    })
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
    fn every_default_has_a_name_that_is_understood_a_price_and_a_place_in_the_guide() {
        let guide = include_str!("../../../../docs/models.md");
        assert!(choices().len() >= 3);
        for Choice { model, .. } in choices() {
            let model = match Name::parse(&model).unwrap() {
                Name::Anthropic(model) | Name::OpenAi(model) => {
                    assert!(Prices::builtin().of(&model).is_some(), "{model} has no price");
                    model
                }
                Name::Ollama(model) | Name::At { model, .. } => model,
            };
            assert!(guide.contains(&format!("(`{model}`)")), "the guide does not say that {model} is a default");
        }
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
        assert_eq!(with("ANTHROPIC_AUTH_TOKEN"), with("ANTHROPIC_API_KEY"));
        assert_eq!(first_found(&Environment::of(|_| Some("  ".to_owned()))), None);
    }
}
