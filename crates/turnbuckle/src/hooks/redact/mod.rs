//! Redaction: secrets and personal data, taken out of what a model says while it is being said.
//!
//! # What it does
//!
//! Looks for e-mail addresses, payment cards, API keys and patterns of your own in streamed text, and puts something
//! else in their place. A match that is spread over chunks is found all the same; how the text was cut never changes
//! the result. Only what may be the beginning of a match is held back: in prose, the current word.
//!
//! - The leftmost match counts; of those that begin at the same place the longest; of those the pattern that was
//!   declared first. What was replaced is not looked at again.
//! - No end of a secret leaks. A pattern has a longest match, a secret may be longer: so characters right after a match
//!   that its last repetition could have taken are taken as well, however many there are. `TCK-[0-9]{6}` takes all of
//!   `TCK-12345678`; end it in `\b` and that is no match at all. E-mail addresses and JSON web tokens go on over a dot
//!   when another label follows it, and a private key's header over the lines of the key.
//! - A card must check out (Luhn) and not be part of a longer number. A key must not follow a letter or a digit.
//! - A local part longer than 64 characters is replaced from its 64th last character on: no more than the longest match
//!   is ever held back.
//! - `\b` and its like know ASCII words only.
//!
//! Time is linear in the text: about one table lookup for a byte, and where the text is made to look like matches at
//! worst as many as the longest match has bytes. Memory is bounded by the patterns, not by the text.
//!
//! # Points
//!
//! `stream`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | [`emails`](RedactBuilder::emails) | off; on in [`Redact::standard`] | e-mail addresses, as `[email]` |
//! | [`cards`](RedactBuilder::cards) | off; on in [`Redact::standard`] | payment card numbers, as `[card]` |
//! | [`keys`](RedactBuilder::keys) | off; on in [`Redact::standard`] | API keys and tokens, as `[key]` |
//! | [`pattern`](RedactBuilder::pattern) | none | a pattern of your own, as `[NAME]`; at most 4,096 bytes long |
//! | [`strategy`](RedactBuilder::strategy) | [`Strategy::Replace`] | what stands in the place of a match |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::Redact;
//!
//! let redact = Redact::builder().emails().cards().keys().pattern("ticket", "TCK-[0-9]{6}").build()?;
//! assert_eq!(redact.apply("TCK-123456 is from ann@example.com."), "[ticket] is from [email].");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod oracle;
mod patterns;
mod scan;
mod shape;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Map;

use self::engine::{Caches, Engine};
use self::patterns::Pattern;
use self::scan::{Scan, Tools};
use super::{OptionError, ReadyMade, Surroundings};
use crate::Failure;
use crate::hook::{Hook, Passed, Transformer};

/// From how many characters on [`Strategy::Mask`] shows the last four.
const SHOWN_FROM: usize = 8;

/// Takes secrets and personal data out of text. The rules are at the top of its source file.
///
/// Cloning is cheap: the compiled patterns are shared.
#[derive(Clone)]
pub struct Redact {
    engine: Arc<Engine>,
}

impl Redact {
    /// Nothing is looked for until it is told what.
    pub fn builder() -> RedactBuilder {
        RedactBuilder::default()
    }

    /// E-mail addresses, payment cards and API keys, replaced.
    pub fn standard() -> Result<Self, RedactError> {
        Self::builder().emails().cards().keys().build()
    }

    /// For one stream of text.
    pub fn redactor(&self) -> Redactor {
        Redactor { caches: Some(self.engine.lend()), engine: Arc::clone(&self.engine), scan: Scan::default() }
    }

    /// A whole text at once: what a stream of it would come to.
    ///
    /// Should the automata fail, which they are built not to, nothing of the text is let through.
    pub fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut redactor = self.redactor();
        let (mut passed, mut annotations) = (String::with_capacity(text.len()), Map::new());
        let mut out = Passed::new(&mut passed, &mut annotations);
        match redactor.chunk(text, &mut out).and_then(|()| redactor.finish(&mut out)) {
            Ok(()) if redactor.found() == 0 => Cow::Borrowed(text),
            Ok(()) => Cow::Owned(passed),
            Err(_) => Cow::Borrowed("[redacted]"),
        }
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.engine.patterns.iter().map(|pattern| &pattern.name).collect();
        names.dedup();
        f.debug_struct("Redact").field("patterns", &names).field("strategy", &self.engine.strategy).finish()
    }
}

/// What stands in the place of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// The pattern's name in brackets: `[email]`.
    #[default]
    Replace,
    /// As many `*` as the match has characters, but for the last four, which are kept: `************1111`. Of a match
    /// with fewer than eight characters none is kept.
    Mask,
}

/// What is looked for, and what is put in its place. Made by [`Redact::builder`].
#[derive(Default)]
#[must_use]
pub struct RedactBuilder {
    patterns: Vec<Pattern>,
    strategy: Strategy,
    refused: Option<RedactError>,
}

impl RedactBuilder {
    /// E-mail addresses.
    pub fn emails(self) -> Self {
        self.with(patterns::emails())
    }

    /// Payment card numbers: 13 to 19 digits that check out, with single spaces or dashes between them or without.
    pub fn cards(self) -> Self {
        self.with(patterns::cards())
    }

    /// API keys and tokens of OpenAI, Anthropic, GitHub, AWS, Slack, Stripe and Google, JSON web tokens, and private
    /// keys in PEM.
    pub fn keys(self) -> Self {
        self.with(patterns::keys())
    }

    /// A pattern of your own, in the syntax of the `regex` crate, replaced by its name in brackets.
    ///
    /// It must have a longest match, of at most 4,096 bytes: `[0-9]{1,20}`, not `[0-9]+`. Unicode classes repeated
    /// often make it slow to begin with; `(?-u)` keeps them ASCII.
    pub fn pattern(self, name: &str, pattern: &str) -> Self {
        self.with(Pattern::new(name, pattern).map(|pattern| vec![pattern]))
    }

    /// What stands in the place of a match.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Compiles the patterns, or tells the first that was refused.
    pub fn build(self) -> Result<Redact, RedactError> {
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok(Redact { engine: Arc::new(Engine::new(self.patterns, self.strategy)?) }),
        }
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
        /// What is wrong with it.
        source: Box<regex_syntax::Error>,
    },
    /// The pattern has no longest match: all that is said would have to be held back.
    #[error("pattern `{name}` has no longest match; give `{pattern}` bounds, as in `[0-9]{{1,20}}`")]
    Unbounded {
        /// The pattern's name.
        name: String,
        /// The pattern.
        pattern: String,
    },
    /// The pattern matches the empty text, or no text whatever.
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
        /// The most a match may have, in bytes.
        limit: usize,
    },
    /// The patterns make too large an automaton: most often a Unicode class that is repeated hundreds of times.
    #[error("the patterns are too complex; lower their bounds, or keep their classes ASCII with `(?-u)`")]
    TooComplex {
        /// What could not be built.
        source: Failure,
    },
}

/// One stream of text on its way through a [`Redact`]: what the chunks before left under way.
pub struct Redactor {
    engine: Arc<Engine>,
    /// Gone after a failure: from then on nothing is let through.
    caches: Option<Caches>,
    scan: Scan,
}

impl Redactor {
    /// How many matches were replaced so far.
    pub fn found(&self) -> u64 {
        self.scan.found
    }

    fn with(
        &mut self,
        out: &mut Passed<'_>,
        step: impl FnOnce(&mut Scan, &mut Tools<'_, '_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(caches) = self.caches.as_mut() else { return Err("redaction failed earlier".into()) };
        let told = step(&mut self.scan, &mut Tools { engine: &self.engine, caches, out });
        if told.is_err() {
            self.caches = None;
        }
        told
    }
}

impl ReadyMade for Redact {
    const USE: &'static str = "redact";
    const DOES: &'static str = "takes secrets and personal data out of text";
    type Options = RedactOptions;

    fn from_options(options: RedactOptions, _: &Surroundings<'_>) -> Result<Self, OptionError> {
        let mut builder = Self::builder().strategy(options.strategy);
        if options.emails {
            builder = builder.emails();
        }
        if options.cards {
            builder = builder.cards();
        }
        if options.keys {
            builder = builder.keys();
        }
        for (item, RedactPattern { name, pattern }) in options.patterns.iter().enumerate() {
            // Alone first: so a refusal names its item.
            let alone = Self::builder().pattern(name, pattern).build();
            alone.map_err(|error| OptionError::new("patterns", "cannot be used").item(item).because(error))?;
            builder = builder.pattern(name, pattern);
        }
        builder.build().map_err(|error| OptionError::new("patterns", "cannot be used together").because(error))
    }
}

/// Options of [`Redact`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactOptions {
    /// E-mail addresses.
    pub emails: bool,
    /// Payment card numbers.
    pub cards: bool,
    /// API keys and tokens.
    pub keys: bool,
    /// Patterns of your own.
    pub patterns: Vec<RedactPattern>,
    /// What stands in the place of a match.
    pub strategy: Strategy,
}

/// A pattern of your own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedactPattern {
    /// What stands in brackets in the place of a match.
    pub name: String,
    /// In the syntax of the `regex` crate, with a longest match.
    pub pattern: String,
}

impl Default for RedactOptions {
    fn default() -> Self {
        Self { emails: true, cards: true, keys: true, patterns: Vec::new(), strategy: Strategy::default() }
    }
}

impl Hook for Redact {
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        Some(Box::new(self.redactor()))
    }
}

impl Transformer for Redactor {
    fn chunk(&mut self, text: &str, out: &mut Passed<'_>) -> Result<(), Failure> {
        self.with(out, |scan, tools| scan.feed(text, tools))
    }

    fn finish(&mut self, out: &mut Passed<'_>) -> Result<(), Failure> {
        self.with(out, Scan::finish)
    }
}

impl Drop for Redactor {
    fn drop(&mut self) {
        if let Some(caches) = self.caches.take() {
            self.engine.take_back(caches);
        }
    }
}

/// Tells how much is held back, not what.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("held", &self.scan.held.len()).field("found", &self.scan.found).finish()
    }
}
