//! How a model answers: keys of `[agent]` and `[[agents]]` that mean the same at every provider.

use serde_json::Value;
use turnbuckle_models::{Effort, ModelOptions};

use super::reader::Section;
use super::{Found, Over};
use crate::model_name::ModelName;
use crate::problem::{Place, Problem};

/// The options of one agent's model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelOptionsPart {
    temperature: Option<Found<f64>>,
    top_p: Option<Found<f64>>,
    max_output_tokens: Option<Found<u32>>,
    stop: Option<Found<Vec<Found<String>>>>,
    thinking: Option<Found<u32>>,
    effort: Option<Found<Effort>>,
}

impl ModelOptionsPart {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            temperature: section.amount("temperature"),
            top_p: section.amount("top_p"),
            max_output_tokens: section.small("max_output_tokens"),
            stop: section.strings("stop"),
            thinking: section.small("thinking"),
            effort: section.word("effort", &Effort::ALL),
        }
    }

    /// Whether any is given.
    pub(crate) fn is_given(&self) -> bool {
        self.first_place().is_some()
    }

    /// As a model takes them, with the tools that its provider runs.
    pub(crate) fn options(&self, provider_tools: &[Found<Value>]) -> ModelOptions {
        let mut options = ModelOptions::default();
        options.temperature = self.temperature.as_ref().map(|found| found.value);
        options.top_p = self.top_p.as_ref().map(|found| found.value);
        options.max_output_tokens = self.max_output_tokens.as_ref().map(|found| found.value);
        options.stop = self.stop.iter().flat_map(|found| &found.value).map(|text| text.value.clone()).collect();
        options.thinking = self.thinking.as_ref().map(|found| found.value);
        options.effort = self.effort.as_ref().map(|found| found.value);
        options.provider_tools = provider_tools.iter().map(|tool| tool.value.clone()).collect();
        options
    }

    /// What the model's provider would refuse, each at its line. `title`: of the section.
    pub(crate) fn problems(&self, title: &str, model: &str, provider_tools: &[Found<Value>]) -> Vec<Problem> {
        // A name that is not understood is a problem of its own.
        let Ok(ModelName::Provider(name)) = ModelName::parse(model) else { return Vec::new() };
        let refused = self.options(provider_tools).refused_by(&name);
        let problem = |refused: turnbuckle_models::RefusedOption| match refused.option {
            "provider_tools" => Problem::error(format!("[[tools.provider]] {}", refused.why))
                .at_if_known(provider_tools.first().map(|tool| &tool.place))
                .hint(refused.hint),
            option => Problem::error(format!("`{option}` in {title} {}", refused.why))
                .at_if_known(self.place(option))
                .hint(refused.hint),
        };
        refused.into_iter().map(problem).collect()
    }

    fn place(&self, option: &str) -> Option<&Place> {
        match option {
            "temperature" => self.temperature.as_ref().map(|found| &found.place),
            "top_p" => self.top_p.as_ref().map(|found| &found.place),
            "max_output_tokens" => self.max_output_tokens.as_ref().map(|found| &found.place),
            "stop" => self.stop.as_ref().map(|found| &found.place),
            "thinking" => self.thinking.as_ref().map(|found| &found.place),
            "effort" => self.effort.as_ref().map(|found| &found.place),
            _ => None,
        }
    }

    /// Where the first of them stands.
    pub(crate) fn first_place(&self) -> Option<&Place> {
        let options = ["temperature", "top_p", "max_output_tokens", "stop", "thinking", "effort"];
        options.iter().find_map(|option| self.place(option))
    }
}

impl Over for ModelOptionsPart {
    fn over(self, base: Self) -> Self {
        Self {
            temperature: self.temperature.over(base.temperature),
            top_p: self.top_p.over(base.top_p),
            max_output_tokens: self.max_output_tokens.over(base.max_output_tokens),
            stop: self.stop.over(base.stop),
            thinking: self.thinking.over(base.thinking),
            effort: self.effort.over(base.effort),
        }
    }
}
