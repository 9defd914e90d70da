//! Models behind chat completions by name: OpenAI's own, and those at an address.

use std::sync::Arc;

use turnbuckle::model::Model;

use super::{BASE, OpenAi};
use crate::key::Key;
use crate::named::{DefaultModel, Environment, Form, Name, NameError, Provider, Settings, blame};
use crate::options::Api;

const KEY: &str = "OPENAI_API_KEY";
const BASE_URL: &str = "OPENAI_BASE_URL";
const OPENROUTER_KEY: &str = "OPENROUTER_API_KEY";

pub(crate) static OPENAI: Provider = Provider {
    title: "OpenAI",
    prefix: "openai",
    form: Form::Model { example: "openai:MODEL" },
    key_variables: &[KEY],
    base_variable: Some(BASE_URL),
    // Looked up on 16 November 2026: developers.openai.com, "Models". One that takes tools over chat completions.
    default: Some(DefaultModel { url: None, model: "gpt-6.1-terra" }),
    open,
    api: Api::ChatCompletions,
};

/// Any server of chat completions. OpenRouter is one of them, and its key chooses a model of its own.
pub(crate) static AT_URL: Provider = Provider {
    title: "a server of chat completions",
    prefix: "openai",
    form: Form::UrlAndModel { shown: "openai@URL:MODEL", example: "openai@http://localhost:8000/v1:MODEL" },
    key_variables: &[OPENROUTER_KEY],
    base_variable: None,
    default: Some(DefaultModel { url: Some("https://openrouter.ai/api/v1"), model: "openrouter/auto" }),
    open: open_at_url,
    api: Api::ChatCompletions,
};

fn open(name: &Name, environment: &Environment, settings: &Settings) -> Result<Arc<dyn Model>, NameError> {
    let (base, key) = (environment.get(BASE_URL), environment.key(KEY));
    // Another server than OpenAI's may work without a key.
    if base.is_none() && key.is_none() {
        return Err(NameError::NoKey { provider: OPENAI.title, variable: KEY });
    }
    let base_variable = base.as_ref().map(|_| BASE_URL);
    let client = OpenAi::at(base.as_deref().unwrap_or(BASE), name.model(), key);
    Ok(settings.apply(client.map_err(|cause| blame(cause, Some(KEY), base_variable))?))
}

fn open_at_url(name: &Name, environment: &Environment, settings: &Settings) -> Result<Arc<dyn Model>, NameError> {
    let url = name.url().unwrap_or(BASE);
    let variable = key_variable(url);
    let key: Option<Key> = variable.and_then(|variable| environment.key(variable));
    let client = OpenAi::at(url, name.model(), key).map_err(|cause| blame(cause, variable, None))?;
    Ok(settings.apply(client))
}

/// The variable whose key may be sent to `url`. A key goes only to the host that it was made for, over TLS: the address may
/// come from a project's configuration file, which must not decide where keys go. To send a key to another server, the user
/// sets `OPENAI_BASE_URL`.
fn key_variable(url: &str) -> Option<&'static str> {
    // An address that cannot be parsed gets no key here, and is refused when the client is made.
    let url = reqwest::Url::parse(url).ok().filter(|url| url.scheme() == "https")?;
    match url.host_str()? {
        "api.openai.com" => Some(KEY),
        "openrouter.ai" => Some(OPENROUTER_KEY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_only_to_the_host_it_was_made_for() {
        assert_eq!(key_variable("https://api.openai.com/v1"), Some("OPENAI_API_KEY"));
        assert_eq!(key_variable("https://openrouter.ai/api/v1"), Some("OPENROUTER_API_KEY"));
        for other in [
            "http://api.openai.com/v1",
            "https://evil.example/v1",
            "https://openrouter.ai.evil.example/v1",
            "https://api.openai.com@evil.example/v1",
            "http://localhost:8000/v1",
            "nonsense",
        ] {
            assert_eq!(key_variable(other), None, "{other}");
        }
    }
}
