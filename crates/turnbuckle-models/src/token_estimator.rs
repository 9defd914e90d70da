//! How many tokens a text has: counted where the model's tokenizer is public, else estimated from what the provider counted in
//! earlier requests.

use std::sync::atomic::{AtomicU64, Ordering};

use turnbuckle::Part;
use turnbuckle::model::Request;

/// A request with fewer input tokens is mostly overhead, and says little about the tokens of a text.
const FEWEST: u64 = 100;
/// What is added to an estimate, in percent.
const MARGIN: u64 = 10;
/// The most tokens in a million bytes: no tokenizer makes more tokens than there are bytes.
const MOST: u64 = 1_000_000;

/// Counts or estimates the tokens of texts for one model. Clones of a client share it.
#[derive(Debug, Default)]
pub(crate) struct TokenEstimator {
    /// Tokens in a million bytes, averaged over the provider's counts; 0 before the first one.
    learned: AtomicU64,
    tokenizer: Tokenizer,
}

/// A public tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tokenizer {
    #[default]
    Unknown,
    /// Of GPT-4o and OpenAI's models since.
    O200k,
    /// Of GPT-4 and 3.5.
    Cl100k,
}

impl TokenEstimator {
    /// For a model by OpenAI's name for it. Gateways put `openai/` in front.
    pub(crate) fn for_openai(model: &str) -> Self {
        let model = model.strip_prefix("openai/").unwrap_or(model);
        let begins = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
        let tokenizer = if begins(&["gpt-4o", "gpt-4.1", "gpt-5", "gpt-oss", "chatgpt-4o", "o1", "o3", "o4"]) {
            Tokenizer::O200k
        } else if begins(&["gpt-4", "gpt-3.5"]) {
            Tokenizer::Cl100k
        } else {
            Tokenizer::Unknown
        };
        Self { learned: AtomicU64::new(0), tokenizer }
    }

    /// The tokens of `text`; `None` before the provider has counted anything.
    pub(crate) fn count(&self, text: &str) -> Option<u64> {
        self.tokenizer.count(text).or_else(|| {
            let learned = Some(self.learned.load(Ordering::Relaxed)).filter(|learned| *learned > 0)?;
            let estimate = (text.len() as u64).saturating_mul(learned).div_ceil(1_000_000);
            Some(estimate.saturating_add(estimate * MARGIN / 100))
        })
    }

    /// Learns from the provider's count: `input` tokens in a request of this many bytes. A request with attachments teaches
    /// nothing, since their tokens do not follow from their bytes.
    pub(crate) fn learn(&self, request: &Request, bytes: usize, input: u64) {
        let attached = |part: &Part| matches!(part, Part::Image { .. } | Part::File { .. } | Part::Provider { .. });
        let has_attachments = request.messages.iter().any(|message| message.content().parts().iter().any(attached));
        if self.tokenizer.is_public() || input < FEWEST || bytes == 0 || has_attachments {
            return;
        }
        let now = input.saturating_mul(1_000_000).div_ceil(bytes as u64).clamp(1, MOST);
        // The latest count weighs a quarter: the language of a conversation changes slowly.
        let average = |before: u64| if before == 0 { now } else { (3 * before + now) / 4 };
        // Requests that end at the same time both count. The update fails only if the closure returns `None`.
        let _previous = self.learned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(average(before)));
    }
}

#[cfg(feature = "tokenizer")]
impl Tokenizer {
    fn is_public(self) -> bool {
        self != Self::Unknown
    }

    fn count(self, text: &str) -> Option<u64> {
        let vocabulary = match self {
            Self::Unknown => return None,
            Self::O200k => tiktoken_rs::o200k_base_singleton(),
            Self::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        };
        Some(vocabulary.encode_ordinary(text).len() as u64)
    }
}

#[cfg(not(feature = "tokenizer"))]
impl Tokenizer {
    fn is_public(self) -> bool {
        false
    }

    fn count(self, _: &str) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle::Message;

    fn request(content: turnbuckle::Content) -> Request {
        Request::of("a", vec![Message::User(content)], [])
    }

    #[test]
    fn what_the_provider_counted_corrects_the_estimate() {
        let estimator = TokenEstimator::default();
        assert_eq!(estimator.count("12345678"), None);
        estimator.learn(&request("x".into()), 2000, 1000);
        assert_eq!(estimator.count(&"x".repeat(1000)), Some(550));
        estimator.learn(&request("x".into()), 2000, 2000);
        assert_eq!(estimator.count(&"x".repeat(1000)), Some(687));
    }

    #[test]
    fn what_says_nothing_about_text_teaches_nothing() {
        let estimator = TokenEstimator::default();
        estimator.learn(&request("x".into()), 2000, 5);
        estimator.learn(&request("x".into()), 0, 5000);
        let picture = Part::Image { media_type: "image/png".into(), data: Some("A".repeat(5000).into()), url: None };
        estimator.learn(&request(picture.into()), 9000, 1500);
        assert_eq!(estimator.count("hello"), None);
        estimator.learn(&request("x".into()), 1, u64::MAX);
        assert_eq!(estimator.count("hello"), Some(5));
    }

    #[cfg(feature = "tokenizer")]
    #[test]
    fn where_the_tokenizer_is_public_it_counts() {
        assert_eq!(TokenEstimator::for_openai("gpt-5-mini").count("hello world"), Some(2));
        assert_eq!(TokenEstimator::for_openai("openai/gpt-4o").count("你好,世界"), Some(3));
        assert_eq!(TokenEstimator::for_openai("gpt-4").count("hello world"), Some(2));
        assert_eq!(TokenEstimator::for_openai("llama3").count("hello"), None);
    }
}
