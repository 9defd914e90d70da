//! Models by name, with keys and addresses from the environment.

mod environment;
mod name;
mod provider;

use std::sync::Arc;

use turnbuckle::model::Model;

use crate::options::ModelOptions;
use crate::prices::Prices;
pub use environment::Environment;
pub use name::{Name, NameError};
pub use provider::Provider;
pub(crate) use provider::{DefaultModel, Form, Settings, blame};

/// All providers, in the order in which their keys choose a model.
pub fn providers() -> &'static [&'static Provider] {
    provider::PROVIDERS
}

/// The default model of the first provider of which a key is set; `None` if there is no key. For callers that name no model.
pub fn first_found(environment: &Environment) -> Option<Name> {
    let has_key = |provider: &&&Provider| provider.key_variables.iter().any(|name| environment.get(name).is_some());
    providers().iter().filter(has_key).find_map(|provider| Name::default_of(provider))
}

/// The client of the named model. `prices` say what it costs; `max_tokens` limits its replies, where the caller has another
/// limit than the client's own.
pub fn open(
    name: &Name,
    environment: &Environment,
    prices: &Arc<Prices>,
    max_tokens: Option<u32>,
) -> Result<Arc<dyn Model>, NameError> {
    let options = ModelOptions { max_output_tokens: max_tokens, ..ModelOptions::default() };
    open_with(name, environment, prices, &options, None)
}

/// Like [`open`], for a model that answers by `options`, and of which the caller may know how many tokens it takes. Options that the
/// provider refuses are sent all the same: [`ModelOptions::refused_by`] says which those are.
pub fn open_with(
    name: &Name,
    environment: &Environment,
    prices: &Arc<Prices>,
    options: &ModelOptions,
    window: Option<u64>,
) -> Result<Arc<dyn Model>, NameError> {
    let settings = Settings { prices: prices.clone(), options: options.clone(), window };
    (name.provider().open)(name, environment, &settings)
}

/// Where to ask how many tokens the named model takes: the base URL of a server that may say so. `None` for providers whose
/// models are known or who do not say.
pub fn window_source(name: &Name, environment: &Environment) -> Option<String> {
    match name.url() {
        Some(url) => Some(url.to_owned()),
        None if name.provider().prefix() == "ollama" => {
            Some(format!("{}/v1", environment.ollama().trim_end_matches('/')))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_has_a_name_that_is_understood_a_price_and_a_place_in_the_guide() {
        let guide = include_str!("../../../../docs/models.md");
        let defaults: Vec<Name> = providers().iter().filter_map(|provider| Name::default_of(provider)).collect();
        assert!(defaults.len() >= 3);
        for name in defaults {
            let model = name.model();
            assert_eq!(Name::parse(&name.to_string()).unwrap(), name);
            assert!(name.url().is_some() || Prices::builtin().of(model).is_some(), "{model} has no price");
            assert!(guide.contains(&format!("(`{model}`)")), "the guide does not say that {model} is a default");
        }
    }

    #[test]
    fn every_provider_has_a_form_of_its_own_which_is_parsed_and_opened_and_stands_in_the_guide() {
        let guide = include_str!("../../../../docs/models.md");
        let environment = Environment::of(|name| name.ends_with("_KEY").then(|| "k".to_owned()));
        for provider in providers() {
            assert!(guide.contains(&format!("| `{}` |", provider.form())), "{} is not in the guide", provider.form());
            let name = Name::parse(&provider.form().replace("URL", "http://127.0.0.1:1/v1")).unwrap();
            assert_eq!((name.provider(), name.model()), (*provider, "MODEL"));
            let model = open(&name, &environment, &Prices::builtin(), None).unwrap();
            assert_eq!(model.name(), format!("{}:MODEL", provider.prefix()));
        }
    }

    #[test]
    fn the_first_key_decides_and_without_one_there_is_no_model() {
        let with = |variable: &'static str| {
            first_found(&Environment::of(move |name| (name == variable).then(|| "k".to_owned())))
        };
        let form = |variable| with(variable).map(|name| name.provider().form());
        assert_eq!(form("ANTHROPIC_API_KEY"), Some("anthropic:MODEL"));
        assert_eq!(form("OPENAI_API_KEY"), Some("openai:MODEL"));
        assert_eq!(form("OPENROUTER_API_KEY"), Some("openai@URL:MODEL"));
        assert_eq!(with("OTHER"), None);
        assert_eq!(with("ANTHROPIC_AUTH_TOKEN"), with("ANTHROPIC_API_KEY"));
        assert_eq!(first_found(&Environment::of(|_| Some("  ".to_owned()))), None);
    }

    #[test]
    fn the_variable_that_is_wrong_is_the_one_that_is_named() {
        let refused = |model: &str, variables: &'static [(&str, &str)]| {
            let environment = Environment::of(move |name| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            });
            open(&Name::parse(model).unwrap(), &environment, &Prices::builtin(), None).err().unwrap()
        };
        let error = refused("openai:m", &[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_API_KEY", "a\nb")]);
        assert!(matches!(error, NameError::Key { variable: "OPENAI_API_KEY", .. }), "{error}");
        let error = refused("anthropic:m", &[("ANTHROPIC_AUTH_TOKEN", "a\nb")]);
        assert!(matches!(error, NameError::Key { variable: "ANTHROPIC_AUTH_TOKEN", .. }), "{error}");
        let error = refused("openai:m", &[("OPENAI_BASE_URL", "nonsense"), ("OPENAI_API_KEY", "k")]);
        assert!(matches!(error, NameError::Variable { variable: "OPENAI_BASE_URL", .. }), "{error}");
        let error = refused("ollama:m", &[("OLLAMA_HOST", "http://")]);
        assert!(matches!(error, NameError::Variable { variable: "OLLAMA_HOST", .. }), "{error}");
        assert!(matches!(refused("openai:m", &[]), NameError::NoKey { variable: "OPENAI_API_KEY", .. }));
        assert!(matches!(refused("anthropic:m", &[]), NameError::NoKey { variable: "ANTHROPIC_API_KEY", .. }));
    }
}
