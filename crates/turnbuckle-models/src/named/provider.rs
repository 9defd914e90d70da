//! The table of providers, from which names, default models, keys and hints follow.

use std::sync::Arc;

use turnbuckle::model::Model;

use super::{Environment, Name, NameError};
use crate::client::{Client, Wire};
use crate::endpoint::SetupError;
use crate::options::{Api, ModelOptions};
use crate::prices::Prices;
use crate::{anthropic, openai};

/// All providers. Which key chooses a model if the caller names none follows their order.
///
/// A new provider is one line here and a folder with its client and its [`Provider`].
pub(super) static PROVIDERS: &[&Provider] =
    &[&anthropic::named::PROVIDER, &openai::named::OPENAI, &openai::named::AT_URL, &openai::ollama::OLLAMA];

/// What the names of models, and those who read them, know of a provider.
#[derive(Debug)]
pub struct Provider {
    pub(crate) title: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) form: Form,
    pub(crate) key_variables: &'static [&'static str],
    pub(crate) base_variable: Option<&'static str>,
    pub(crate) default: Option<DefaultModel>,
    pub(crate) open: Open,
    pub(crate) api: Api,
}

/// Makes the client of a name that has this provider.
type Open = fn(&Name, &Environment, &Settings) -> Result<Arc<dyn Model>, NameError>;

/// How a name of a provider's model is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Written as `PREFIX:MODEL`.
    Model {
        /// For hints.
        example: &'static str,
    },
    /// Written as `PREFIX@URL:MODEL`.
    UrlAndModel {
        /// For hints.
        shown: &'static str,
        /// For hints about a name that is not complete.
        example: &'static str,
    },
}

/// The model that is used if the caller names none and one of the provider's keys is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefaultModel {
    pub(crate) url: Option<&'static str>,
    pub(crate) model: &'static str,
}

/// What a caller of [`open`](super::open) sets on every client.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(super) prices: Arc<Prices>,
    pub(super) options: ModelOptions,
    /// How many tokens the model takes, if that was found out.
    pub(super) window: Option<u64>,
}

impl Settings {
    pub(crate) fn apply<W: Wire>(&self, client: Client<W>) -> Arc<dyn Model> {
        let client = client.prices(self.prices.clone());
        let client = match self.window {
            Some(window) => client.with_context_window(window),
            None => client,
        };
        let client = match self.options.max_output_tokens {
            Some(most) => client.max_tokens(most),
            None => client,
        };
        Arc::new(W::with_options(client, &self.options))
    }
}

impl Provider {
    /// What people call it: `Anthropic`.
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// What a name of one of its models begins with: `anthropic`.
    pub fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// How a name is written: `anthropic:MODEL`.
    pub fn form(&self) -> &'static str {
        match self.form {
            Form::Model { example } => example,
            Form::UrlAndModel { shown, .. } => shown,
        }
    }

    /// The environment variables in which a key is looked for.
    pub fn key_variables(&self) -> &'static [&'static str] {
        self.key_variables
    }

    /// The environment variable that says where the provider is, if there is one.
    pub fn base_variable(&self) -> Option<&'static str> {
        self.base_variable
    }

    pub(super) fn has_url(&self) -> bool {
        matches!(self.form, Form::UrlAndModel { .. })
    }

    /// A whole name, as a hint for one that is not complete.
    pub(super) fn example(&self) -> &'static str {
        match self.form {
            Form::Model { example } | Form::UrlAndModel { example, .. } => example,
        }
    }
}

impl PartialEq for Provider {
    /// Each provider has a form of its own.
    fn eq(&self, other: &Self) -> bool {
        self.form == other.form
    }
}

impl Eq for Provider {}

/// Names the variable that a client could not be made for: the one with the key, or the one with the address.
pub(crate) fn blame(
    cause: SetupError,
    key_variable: Option<&'static str>,
    base_variable: Option<&'static str>,
) -> NameError {
    match (&cause, key_variable, base_variable) {
        (SetupError::Key, Some(variable), _) => NameError::Key { variable, cause },
        (SetupError::BaseUrl, _, Some(variable)) => NameError::Variable { variable, cause },
        _ => NameError::Setup(cause),
    }
}
