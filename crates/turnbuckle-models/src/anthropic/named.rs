//! Anthropic's models by name.

use std::sync::Arc;

use turnbuckle::model::Model;

use super::{Anthropic, BASE};
use crate::named::{DefaultModel, Environment, Form, Name, NameError, Provider, Settings, blame};
use crate::options::Api;

const KEY: &str = "ANTHROPIC_API_KEY";
const TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";
const BASE_URL: &str = "ANTHROPIC_BASE_URL";

pub(crate) static PROVIDER: Provider = Provider {
    title: "Anthropic",
    prefix: "anthropic",
    form: Form::Model { example: "anthropic:MODEL" },
    key_variables: &[KEY, TOKEN],
    base_variable: Some(BASE_URL),
    // Looked up on 16 November 2026: platform.claude.com, "Models overview".
    default: Some(DefaultModel { url: None, model: "claude-sonnet-5-5" }),
    open,
    api: Api::Messages,
};

fn open(name: &Name, environment: &Environment, settings: &Settings) -> Result<Arc<dyn Model>, NameError> {
    let base = environment.get(BASE_URL);
    let base_variable = base.as_ref().map(|_| BASE_URL);
    let base = base.as_deref().unwrap_or(BASE);
    let client = match (environment.key(KEY), environment.key(TOKEN)) {
        (Some(key), _) => {
            Anthropic::at(base, name.model(), Some(key)).map_err(|cause| blame(cause, Some(KEY), base_variable))?
        }
        (None, Some(token)) => Anthropic::with_token(base, name.model(), token)
            .map_err(|cause| blame(cause, Some(TOKEN), base_variable))?,
        // Another server than Anthropic's may work without a key.
        (None, None) if base_variable.is_some() => {
            Anthropic::at(base, name.model(), None).map_err(|cause| blame(cause, None, base_variable))?
        }
        (None, None) => return Err(NameError::NoKey { provider: PROVIDER.title, variable: KEY }),
    };
    Ok(settings.apply(client))
}
