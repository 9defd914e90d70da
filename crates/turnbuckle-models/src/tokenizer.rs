//! How many tokens a text has, counted where the model's tokenizer is public. Elsewhere the core estimates, and corrects its
//! estimates by what the provider counts.

/// A public tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tokenizer {
    #[default]
    Unknown,
    /// Of GPT-4o and OpenAI's models since.
    O200k,
    /// Of GPT-4 and 3.5.
    Cl100k,
}

impl Tokenizer {
    /// For a model by OpenAI's name for it. Gateways put `openai/` in front.
    pub(crate) fn for_openai(model: &str) -> Self {
        let model = model.strip_prefix("openai/").unwrap_or(model);
        let begins = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
        if begins(&["gpt-4o", "gpt-4.1", "gpt-5", "gpt-oss", "chatgpt-4o", "o1", "o3", "o4"]) {
            Self::O200k
        } else if begins(&["gpt-4", "gpt-3.5"]) {
            Self::Cl100k
        } else {
            Self::Unknown
        }
    }

    /// The tokens of `text`; `None` without the feature `tokenizer`.
    #[cfg(feature = "tokenizer")]
    pub(crate) fn count(self, text: &str) -> Option<u64> {
        let vocabulary = match self {
            Self::Unknown => return None,
            Self::O200k => tiktoken_rs::o200k_base_singleton(),
            Self::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        };
        Some(vocabulary.encode_ordinary(text).len() as u64)
    }

    #[cfg(not(feature = "tokenizer"))]
    pub(crate) fn count(self, _: &str) -> Option<u64> {
        None
    }
}

#[cfg(all(test, feature = "tokenizer"))]
mod tests {
    use super::*;

    #[test]
    fn where_the_tokenizer_is_public_it_counts() {
        assert_eq!(Tokenizer::for_openai("gpt-5-mini").count("hello world"), Some(2));
        assert_eq!(Tokenizer::for_openai("openai/gpt-4o").count("你好,世界"), Some(3));
        assert_eq!(Tokenizer::for_openai("gpt-4").count("hello world"), Some(2));
        assert_eq!(Tokenizer::for_openai("llama3").count("hello"), None);
    }
}
