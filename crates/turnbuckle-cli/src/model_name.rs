//! Model names: what `--model` and `model` in `[agent]` may say, and the model behind the name.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Demo, OnExhausted, Script};
use turnbuckle::{Boxed, Reply};

use crate::config::nearest;
use crate::problem::{Place, Problem};

/// A name that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    Demo,
    Script(PathBuf),
    /// A provider: recognised, so that the person is told the truth about it.
    Hosted(&'static str),
}

const FORMS: &str = "script:FILE, demo, anthropic:MODEL, openai:MODEL, ollama:MODEL, openai@URL:MODEL";

impl ModelName {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let unfinished = |example: &str| Problem::error(format!("model {text:?} is not complete")).hint(example);
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        if let Some(address) = text.strip_prefix("openai@") {
            let complete = address.rsplit_once(':').is_some_and(|(url, model)| {
                url.contains("://") && !model.is_empty() && !model.starts_with("//") && !model.contains('/')
            });
            return if complete {
                Ok(Self::Hosted("openai@"))
            } else {
                Err(unfinished("openai@http://localhost:8000/v1:MODEL"))
            };
        }
        match (kind, rest) {
            ("demo", "") => Ok(Self::Demo),
            ("script", "") => Err(unfinished("script:FILE")),
            ("script", file) => Ok(Self::Script(file.into())),
            ("anthropic" | "openai" | "ollama", "") => Err(unfinished(&format!("{kind}:MODEL"))),
            ("anthropic", _) => Ok(Self::Hosted("anthropic")),
            ("openai", _) => Ok(Self::Hosted("openai")),
            ("ollama", _) => Ok(Self::Hosted("ollama")),
            _ => {
                let near = nearest(kind, ["script", "demo", "anthropic", "openai", "ollama"]);
                let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
                Err(Problem::error(format!("there is no model {text:?}")).hint(format!("{near}models: {FORMS}")))
            }
        }
    }

    /// The model. A script's path is relative to `folder`.
    pub(crate) fn open(&self, folder: &Path) -> Result<SharedModel, Problem> {
        match self {
            Self::Demo => Ok(SharedModel::Other(Arc::new(Demo::default()))),
            Self::Script(file) => Ok(SharedModel::Script(Arc::new(read_script(&folder.join(file))?))),
            Self::Hosted(provider) => {
                let what = format!("this version has no client for {} models", provider.trim_end_matches('@'));
                Err(Problem::error(what).hint("use --model script:FILE or --model demo"))
            }
        }
    }
}

fn read_script(path: &Path) -> Result<Script, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::error(format!("script {} cannot be read: {error}", path.display())).hint("is the path right?")
    })?;
    Script::from_json(&text).map_err(|error| {
        let line = error.source().and_then(|cause| cause.downcast_ref::<serde_json::Error>()).map(|cause| cause.line());
        let what = error.to_string();
        let hint = meant(&what).unwrap_or_else(|| "a script is { \"replies\": [ { \"text\": \"…\" } ] }".to_owned());
        let place = line.map(|line| Place { file: path.display().to_string().into(), line });
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
    pub(crate) fn is_mute(&self, sub_agent: &str) -> bool {
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
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> Boxed<'a, Result<Reply, ModelError>> {
        self.model().stream(request, out)
    }
    fn name(&self) -> &str {
        self.model().name()
    }
    fn price(&self, usage: &turnbuckle::message::Usage) -> Option<f64> {
        self.model().price(usage)
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
            assert!(matches!(ModelName::parse(hosted).unwrap(), ModelName::Hosted(_)), "{hosted}");
        }
        for bad in ["", "gpt", "script:", "openai:", "openai@", "openai@http://localhost:80/v1", "demo:x"] {
            assert!(ModelName::parse(bad).is_err(), "{bad}");
        }
        assert!(ModelName::parse("scirpt:x").unwrap_err().to_string().contains("did you mean `script`?"));
    }
}
