//! Building a [`Redact`]: what it looks for, and why it could not be built.

use std::fmt;
use std::sync::Arc;

use turnbuckle::BoxError;
use turnbuckle::hook::{Point, Points};

use super::engine::Engine;
use super::patterns::{self, Pattern};
use super::{Redact, Strategy};

/// Shorter salts can be found by brute force.
const LEAST_SALT: usize = 8;

/// Builds a [`Redact`]. Made by [`Redact::builder`].
#[derive(Default)]
#[must_use]
pub struct RedactBuilder {
    patterns: Vec<Pattern>,
    strategy: Strategy,
    salt: String,
    on: Option<Points>,
    arguments: bool,
    refused: Option<RedactError>,
}

impl RedactBuilder {
    /// Redacts e-mail addresses.
    pub fn emails(self) -> Self {
        self.with(patterns::emails())
    }

    /// Redacts payment card numbers: 13 to 19 digits with a valid check digit, with single spaces or dashes between them or without.
    pub fn cards(self) -> Self {
        self.with(patterns::cards())
    }

    /// Redacts API keys and tokens by the forms that their issuers gave them (OpenAI, Anthropic, GitHub, GitLab, AWS, Slack, Stripe,
    /// Google, Hugging Face, npm, PyPI, Docker and others), JSON web tokens, private keys in PEM, what follows `Bearer` and
    /// `Authorization:`, and, as `[password]`, user and password in an address (`scheme://user:password@host`).
    pub fn keys(self) -> Self {
        self.with(patterns::keys())
    }

    /// Redacts matches of a pattern, in the syntax of the `regex` crate, replaced by its name in brackets.
    ///
    /// It must have a longest match, of at most 4,096 bytes: `[0-9]{1,20}`, not `[0-9]+`. Unicode classes repeated
    /// often make it slow to begin with; `(?-u)` keeps them ASCII.
    pub fn pattern(self, name: &str, pattern: &str) -> Self {
        self.with(Pattern::new(name, pattern).map(|pattern| vec![pattern]))
    }

    /// Sets what replaces a match.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets a secret of at least 8 bytes for [`Strategy::Hash`]: without one, a card number can be found from its hash.
    pub fn salt(mut self, salt: impl Into<String>) -> Self {
        self.salt = salt.into();
        self
    }

    /// Sets the points at which text is redacted: [`Point::Stream`], [`Point::BeforeAgent`], [`Point::AfterTool`].
    pub fn on(mut self, points: impl IntoIterator<Item = Point>) -> Self {
        self.on = Some(points.into_iter().collect());
        self
    }

    /// Redacts arguments of tool calls, too: in the log, in contexts, and where a person is asked. The tool gets them as they
    /// are.
    pub fn tool_arguments(mut self) -> Self {
        self.arguments = true;
        self
    }

    /// Says in the place of a match that something was redacted: `[redacted: key]` instead of `[key]`. For records that people must
    /// be able to tell from what was said.
    pub fn marked(mut self) -> Self {
        for pattern in &mut self.patterns {
            pattern.label = format!("[redacted: {}]", pattern.name);
        }
        self
    }

    /// Compiles the patterns. The error names the first that is refused.
    pub fn build(self) -> Result<Redact, RedactError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if self.strategy == Strategy::Hash && self.salt.len() < LEAST_SALT {
            return Err(RedactError::Salt);
        }
        let on = self.on.unwrap_or_else(|| Points::from_iter([Point::Stream]));
        let on = if self.arguments { on.iter().chain([Point::BeforeTool]).collect() } else { on };
        let engine = Arc::new(Engine::new(self.patterns, self.strategy, self.salt)?);
        Ok(Redact { engine, on, arguments: self.arguments })
    }

    fn with(mut self, patterns: Result<Vec<Pattern>, RedactError>) -> Self {
        match patterns {
            Ok(patterns) => self.patterns.extend(patterns),
            Err(refused) => self.refused = self.refused.or(Some(refused)),
        }
        self
    }
}

impl fmt::Debug for RedactBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.patterns.iter().map(|pattern| &pattern.name).collect();
        names.dedup();
        f.debug_struct("RedactBuilder").field("patterns", &names).field("strategy", &self.strategy).finish()
    }
}

/// Why a [`Redact`] could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedactError {
    /// The pattern is not a regular expression.
    #[error("pattern `{name}` is not a regular expression")]
    Syntax {
        /// The pattern's name.
        name: String,
        /// The error of the parser.
        source: Box<regex_syntax::Error>,
    },
    /// The pattern has no longest match: the whole stream would have to be held back.
    #[error("pattern `{name}` has no longest match; give `{pattern}` bounds, as in `[0-9]{{1,20}}`")]
    Unbounded {
        /// The pattern's name.
        name: String,
        /// The pattern.
        pattern: String,
    },
    /// The pattern matches the empty text, or no text at all.
    #[error("pattern `{name}` matches nothing: `{pattern}` must match at least one character")]
    MatchesNothing {
        /// The pattern's name.
        name: String,
        /// The pattern.
        pattern: String,
    },
    /// The pattern's longest match is too long to hold back.
    #[error("pattern `{name}` can match {longest} bytes, and {limit} is the most; lower the bounds of `{pattern}`")]
    TooLong {
        /// The pattern's name.
        name: String,
        /// The pattern.
        pattern: String,
        /// Its longest match, in bytes.
        longest: usize,
        /// The longest match that is allowed, in bytes.
        limit: usize,
    },
    /// Hashing needs a secret.
    #[error("hashing needs a salt of at least {LEAST_SALT} bytes")]
    Salt,
    /// The patterns make too large an automaton: most often a Unicode class that is repeated hundreds of times.
    #[error("the patterns are too complex; lower their bounds, or keep their classes ASCII with `(?-u)`")]
    TooComplex {
        /// The error of the compiler.
        source: BoxError,
    },
}
