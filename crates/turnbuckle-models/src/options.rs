//! Options of a model that mean the same at every provider, and which of them a provider takes.

use serde_json::Value;

use crate::generation::generation;
use crate::named::Name;

/// How a model answers. What is not set is left to the provider.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelOptions {
    /// How freely tokens are chosen: 0 is the most likely one.
    pub temperature: Option<f64>,
    /// Only the most likely tokens that make up this share are chosen from.
    pub top_p: Option<f64>,
    /// The most tokens of a reply, thinking included.
    pub max_output_tokens: Option<u32>,
    /// Texts at which the reply ends.
    pub stop: Vec<String>,
    /// How many tokens the model may think with before it answers; 0: it does not think.
    pub thinking: Option<u32>,
    /// How much trouble it takes.
    pub effort: Option<Effort>,
    /// Tools that the provider runs itself, as its API describes them.
    pub provider_tools: Vec<Value>,
}

/// How much trouble a model takes. Providers take some of these each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// It answers at once.
    None,
    /// As little as possible.
    Minimal,
    /// Less than usual.
    Low,
    /// As usual.
    Medium,
    /// More than usual.
    High,
    /// More than `high`.
    Xhigh,
    /// As much as it can.
    Max,
}

impl Effort {
    /// All, with the names that configurations and APIs have for them.
    pub const ALL: [(&'static str, Self); 7] = [
        ("none", Self::None),
        ("minimal", Self::Minimal),
        ("low", Self::Low),
        ("medium", Self::Medium),
        ("high", Self::High),
        ("xhigh", Self::Xhigh),
        ("max", Self::Max),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, effort)| *effort == self).map_or("", |(name, _)| name)
    }
}

/// An option that a provider would refuse, or that would mean nothing there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedOption {
    /// The field of [`ModelOptions`].
    pub option: &'static str,
    /// What is wrong with it: goes on behind the name of the option.
    pub why: String,
    /// What to do.
    pub hint: String,
}

/// The API that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    ChatCompletions,
}

/// The least that Anthropic's models think with.
const LEAST_THINKING: u32 = 1024;
/// The most texts at which chat completions stop.
const MOST_STOPS: usize = 4;

impl ModelOptions {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What the provider of this model would not take. Judged by what the provider documents for the model's generation; a server at
    /// an address of its own may take less.
    pub fn refused_by(&self, name: &Name) -> Vec<RefusedOption> {
        let mut refused = self.out_of_range(name.provider().api);
        refused.extend(match name.provider().api {
            Api::Messages => self.refused_by_messages(name),
            Api::ChatCompletions => self.refused_by_chat_completions(name),
        });
        refused
    }

    fn out_of_range(&self, api: Api) -> Vec<RefusedOption> {
        let warmest = match api {
            Api::Messages => 1.0,
            Api::ChatCompletions => 2.0,
        };
        let mut refused = Vec::new();
        if let Some(warm) = self.temperature.filter(|warm| !(0.0..=warmest).contains(warm)) {
            let why = format!("is {warm}, and this provider takes 0 to {warmest}");
            refused.push(RefusedOption::new("temperature", why, "lower it"));
        }
        if let Some(share) = self.top_p.filter(|share| !(0.0..=1.0).contains(share)) {
            refused.push(RefusedOption::new("top_p", format!("is {share}, which is no share"), "write 0.0 to 1.0"));
        }
        if self.max_output_tokens == Some(0) {
            refused.push(RefusedOption::new("max_output_tokens", "is 0: there would be no reply", "take the line out"));
        }
        if self.stop.iter().any(|text| text.trim().is_empty()) {
            refused.push(RefusedOption::new("stop", "has an empty text", "take it out"));
        }
        refused
    }

    fn refused_by_messages(&self, name: &Name) -> Vec<RefusedOption> {
        let mut refused = Vec::new();
        let thinks_by_itself = generation("claude", name.model()) >= Some(crate::anthropic::BOUND_THINKING);
        match self.thinking {
            Some(tokens) if tokens > 0 && thinks_by_itself => refused.push(RefusedOption::new(
                "thinking",
                format!("is for older models: {} decides itself how much it thinks", name.model()),
                "write `effort = \"high\"`, for example",
            )),
            Some(tokens) if tokens > 0 && tokens < LEAST_THINKING => refused.push(RefusedOption::new(
                "thinking",
                format!("is {tokens}, and this provider takes {LEAST_THINKING} or more"),
                "raise it, or write 0",
            )),
            Some(tokens) if self.max_output_tokens.is_some_and(|most| tokens >= most) => {
                refused.push(RefusedOption::new(
                    "thinking",
                    "leaves no room for an answer: `max_output_tokens` counts both",
                    "lower it, or raise `max_output_tokens`",
                ));
            }
            Some(tokens) if tokens > 0 && (self.temperature.is_some() || self.top_p.is_some()) => {
                let option = if self.temperature.is_some() { "temperature" } else { "top_p" };
                let why = "cannot be set for a model that thinks";
                refused.push(RefusedOption::new(option, why, "take it out, or `thinking`"));
            }
            _ => {}
        }
        if self.temperature.is_some() && self.top_p.is_some() {
            let why = "cannot be set beside `temperature` at this provider";
            refused.push(RefusedOption::new("top_p", why, "keep one of the two"));
        }
        if let Some(effort) = self.effort.filter(|effort| matches!(effort, Effort::None | Effort::Minimal)) {
            let why = format!("is {:?}, which this provider does not have", effort.name());
            refused.push(RefusedOption::new("effort", why, "possible here: low, medium, high, xhigh, max"));
        }
        for tool in &self.provider_tools {
            if !tool.get("type").is_some_and(Value::is_string) || !tool.get("name").is_some_and(Value::is_string) {
                let why = "needs `type` and `name`, as the provider documents them";
                let hint = "write `type = \"web_search_20250305\"` and `name = \"web_search\"`, for example";
                refused.push(RefusedOption::new("provider_tools", why, hint));
            }
        }
        refused
    }

    fn refused_by_chat_completions(&self, name: &Name) -> Vec<RefusedOption> {
        let mut refused = Vec::new();
        if self.thinking.is_some() {
            let why = "is not an option of chat completions";
            refused.push(RefusedOption::new("thinking", why, "write `effort = \"high\"`, for example"));
        }
        if self.stop.len() > MOST_STOPS {
            let why = format!("has {} texts, and {MOST_STOPS} are the most", self.stop.len());
            refused.push(RefusedOption::new("stop", why, "keep the most likely ones"));
        }
        if self.effort == Some(Effort::Max) {
            let why = "is \"max\", which this provider does not have";
            refused.push(RefusedOption::new("effort", why, "possible here: none, minimal, low, medium, high, xhigh"));
        }
        if !self.provider_tools.is_empty() {
            let why = "are not taken over chat completions";
            let hint = "Anthropic's models have such tools; elsewhere an MCP server does it";
            refused.push(RefusedOption::new("provider_tools", why, hint));
        }
        // OpenAI's own models that reason choose their tokens themselves.
        let model = name.model();
        let reasons = name.url().is_none()
            && name.provider().prefix() == "openai"
            && self.effort != Some(Effort::None)
            && (generation("gpt", model) >= Some((5, 0)) || is_o_series(model));
        for (option, is_set) in [("temperature", self.temperature.is_some()), ("top_p", self.top_p.is_some())] {
            if reasons && is_set {
                let why = format!("cannot be set for {model}, which reasons");
                refused.push(RefusedOption::new(option, why, "take it out, or write `effort = \"none\"`"));
            }
        }
        refused
    }
}

impl RefusedOption {
    fn new(option: &'static str, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { option, why: why.into(), hint: hint.into() }
    }
}

/// `o3`, `o4-mini`.
fn is_o_series(model: &str) -> bool {
    let mut signs = model.chars();
    signs.next() == Some('o') && signs.next().is_some_and(|sign| sign.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(model: &str, options: &ModelOptions) -> Vec<&'static str> {
        options.refused_by(&Name::parse(model).unwrap()).iter().map(|refused| refused.option).collect()
    }

    #[test]
    fn what_a_provider_refuses_is_known_before_it_is_asked() {
        let none = ModelOptions::default();
        let warm = ModelOptions { temperature: Some(1.5), ..none.clone() };
        assert_eq!(refused("anthropic:claude-sonnet-4-5", &warm), ["temperature"]);
        assert_eq!(refused("openai:gpt-4o", &warm), [] as [&str; 0]);
        assert_eq!(refused("openai:gpt-5.6", &warm), ["temperature"]);
        assert_eq!(refused("openai:o3", &warm), ["temperature"]);
        assert_eq!(refused("openai@http://127.0.0.1:1/v1:gpt-5.6", &warm), [] as [&str; 0]);
        let cool = ModelOptions { effort: Some(Effort::None), ..warm };
        assert_eq!(refused("openai:gpt-5.6", &cool), [] as [&str; 0]);
        let thinking = |tokens| ModelOptions { thinking: Some(tokens), ..ModelOptions::default() };
        assert_eq!(refused("anthropic:claude-sonnet-4-5", &thinking(2000)), [] as [&str; 0]);
        assert_eq!(refused("anthropic:claude-sonnet-4-5", &thinking(100)), ["thinking"]);
        assert_eq!(refused("anthropic:claude-sonnet-5-5", &thinking(2000)), ["thinking"]);
        assert_eq!(refused("ollama:llama3", &thinking(2000)), ["thinking"]);
        let both = ModelOptions { max_output_tokens: Some(2000), temperature: Some(0.1), ..thinking(4000) };
        assert_eq!(refused("anthropic:claude-sonnet-4-5", &both), ["thinking"]);
        let stop = ModelOptions { stop: vec!["x".into(); 5], ..none.clone() };
        assert_eq!(refused("openai:gpt-4o", &stop), ["stop"]);
        assert_eq!(refused("anthropic:claude-sonnet-4-5", &stop), [] as [&str; 0]);
        let tools = ModelOptions { provider_tools: vec![serde_json::json!({"type": "web_search"})], ..none };
        assert_eq!(refused("openai:gpt-4o", &tools), ["provider_tools"]);
        assert_eq!(refused("anthropic:claude-sonnet-4-5", &tools), ["provider_tools"]);
    }
}
