//! Redaction: takes secrets and personal data out of text: out of the model's reply while it is streamed, and optionally
//! out of user messages and tool results.
//!
//! # What it does
//!
//! Looks for e-mail addresses, payment cards, API keys and patterns of your own in streamed text, and puts something
//! else in their place. A match that is spread over chunks is found all the same; how the text was cut never changes
//! the result. Held back is what may be the beginning of a match, with the word it stands in: in prose, the current word.
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
//! `stream`; with [`on`](RedactBuilder::on) also `before_agent` (the user's message, also in the log) and `after_tool`
//! (results, also in the log). With `tool_arguments` also arguments of calls, wherever the log has them; `before_tool` denies
//! a call if the strategy is to block.
//!
//! Of arguments the log, every context (also that of the next call in the same turn), viewers and the person who is asked have
//! the redacted form. The tool gets the arguments themselves, also after a crash and after an approval; they are
//! kept in the scratch of the turn until the model calls again or the turn ends. The digest of an approval is of what runs. A call of
//! a client's tool that would need redaction is not run, because the client reads its arguments from the log.
//!
//! Records of what hooks changed hold no match, whatever `on` says: each of their texts is redacted, and of what this hook itself
//! changed only what became of it is kept.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | [`emails`](RedactBuilder::emails) | off; on in [`Redact::standard`] | e-mail addresses, as `[email]` |
//! | [`cards`](RedactBuilder::cards) | off; on in [`Redact::standard`] | payment card numbers, as `[card]` |
//! | [`keys`](RedactBuilder::keys) | off; on in [`Redact::standard`] | API keys and tokens, as `[key]`, and passwords in addresses, as `[password]` |
//! | [`pattern`](RedactBuilder::pattern) | none | a pattern of your own, as `[NAME]`; at most 4,096 bytes long |
//! | [`strategy`](RedactBuilder::strategy) | [`Strategy::Replace`] | what stands in the place of a match |
//! | [`salt`](RedactBuilder::salt) | none | for [`Strategy::Hash`]: a secret of at least 8 bytes |
//! | [`on`](RedactBuilder::on) | `stream` | all places where it works: `stream`, `before_agent`, `after_tool`, `tool_arguments` |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::Redact;
//!
//! let redact = Redact::builder().emails().cards().keys().pattern("ticket", "TCK-[0-9]{6}").build()?;
//! assert_eq!(redact.apply("TCK-123456 is from ann@example.com."), "[ticket] is from [email].");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
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
use serde_json::{Map, Value, json};
use turnbuckle::hook::{
    AfterTool, BeforeAgent, BeforeAgentContext, BeforeTool, Hook, Point, Points, Settings, TransformOutput, Transformer,
};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Content, Part, ToolCall, Turn};

pub use self::build::{RedactBuilder, RedactError};
use self::engine::{Caches, Engine};
use self::scan::{Scan, Tools};

/// From how many characters on [`Strategy::Mask`] shows the last four.
const SHOWN_FROM: usize = 8;

/// Takes secrets and personal data out of text. See the [module](self) for rules and options.
///
/// Cloning is cheap: the compiled patterns are shared.
#[derive(Clone)]
pub struct Redact {
    engine: Arc<Engine>,
    on: Points,
    /// Whether arguments of tool calls are redacted, too.
    arguments: bool,
}

impl Redact {
    /// Starts without any pattern.
    pub fn builder() -> RedactBuilder {
        RedactBuilder::default()
    }

    /// Replaces e-mail addresses, payment cards and API keys.
    pub fn standard() -> Result<Self, RedactError> {
        Self::builder().emails().cards().keys().build()
    }

    /// What is looked for, in the syntax of the `regex` crate. What may stand before a match, a card's check and how far a
    /// match goes on are not in it.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        self.engine.patterns.iter().map(|pattern| pattern.hir.to_string())
    }

    /// Starts the redaction of one stream of text.
    pub fn redactor(&self) -> Redactor {
        Redactor { caches: Some(self.engine.lend()), engine: Arc::clone(&self.engine), scan: Scan::default() }
    }

    /// Redacts a whole text; the result is the same as for a stream of it.
    ///
    /// Where the stream would be broken off, by [`Strategy::Block`] or because the automata fail (which they are built
    /// not to), nothing of the text is let through.
    pub fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.try_apply(text).unwrap_or(Cow::Borrowed("[redacted]"))
    }

    /// A whole text at once, or why it would be broken off.
    fn try_apply<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, BoxError> {
        let mut redactor = self.redactor();
        let (mut passed, mut annotations) = (String::with_capacity(text.len()), Map::new());
        let mut out = TransformOutput::new(&mut passed, &mut annotations);
        redactor.chunk(text, &mut out)?;
        redactor.finish(&mut out)?;
        Ok(if redactor.found() == 0 { Cow::Borrowed(text) } else { Cow::Owned(passed) })
    }

    /// The content with its texts redacted; none if there is nothing to redact.
    fn redacted(&self, content: &Content) -> Result<Option<Content>, BoxError> {
        let mut changed = false;
        let mut redact = |part: &Part| match part {
            Part::Text { text } => Ok(match self.try_apply(text)? {
                Cow::Borrowed(_) => part.clone(),
                Cow::Owned(redacted) => {
                    changed = true;
                    Part::text(redacted)
                }
            }),
            other => Ok(other.clone()),
        };
        let parts = content.parts().iter().map(&mut redact).collect::<Result<Vec<_>, BoxError>>()?;
        Ok(changed.then(|| parts.into()))
    }

    /// The value with its texts, numbers and keys redacted; none if there is nothing to redact.
    fn redacted_value(&self, value: &Value) -> Result<Option<Value>, BoxError> {
        let text = |text: &str| match self.try_apply(text)? {
            Cow::Borrowed(_) => Ok::<_, BoxError>(None),
            Cow::Owned(redacted) => Ok(Some(redacted)),
        };
        match value {
            Value::String(string) => Ok(text(string)?.map(Value::String)),
            // A card number may come as a number.
            Value::Number(number) => Ok(text(&number.to_string())?.map(Value::String)),
            Value::Array(items) => {
                let mut redacted = None;
                for (index, item) in items.iter().enumerate() {
                    if let Some(item) = self.redacted_value(item)? {
                        redacted.get_or_insert_with(|| items.clone())[index] = item;
                    }
                }
                Ok(redacted.map(Value::Array))
            }
            Value::Object(fields) => {
                let (mut redacted, mut changed) = (Map::new(), false);
                for (key, item) in fields {
                    let (key_form, item_form) = (text(key)?, self.redacted_value(item)?);
                    changed |= key_form.is_some() || item_form.is_some();
                    redacted.insert(key_form.unwrap_or_else(|| key.clone()), item_form.unwrap_or_else(|| item.clone()));
                }
                Ok(changed.then_some(Value::Object(redacted)))
            }
            Value::Null | Value::Bool(_) => Ok(None),
        }
    }

    fn blocks(&self) -> bool {
        self.engine.strategy == Strategy::Block
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.engine.patterns.iter().map(|pattern| &pattern.name).collect();
        names.dedup();
        f.debug_struct("Redact").field("patterns", &names).field("strategy", &self.engine.strategy).finish()
    }
}

/// What replaces a match.
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
    /// Its name and the beginning of a salted hash: `[email:1f0c6d2a9b3e]`. The same text has the same hash, so one can
    /// tell whether two are the same without knowing what they are.
    Hash,
    /// Nothing: a stream that holds a match is broken off and its turn fails, a user's message that holds one is not
    /// kept and its turn is halted, a tool's result is withheld.
    Block,
}

/// The redaction of one stream of text, with its state between chunks.
pub struct Redactor {
    engine: Arc<Engine>,
    /// `None` after a failure: from then on nothing is let through.
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
        out: &mut TransformOutput<'_>,
        step: impl FnOnce(&mut Scan, &mut Tools<'_, '_>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let Some(caches) = self.caches.as_mut() else { return Err("redaction failed earlier".into()) };
        let told = step(&mut self.scan, &mut Tools { engine: &self.engine, caches, out });
        if told.is_err() {
            self.caches = None;
        }
        told
    }
}

impl ConfigHook for Redact {
    const NAME: &'static str = "redact";
    const SUMMARY: &'static str = "takes secrets and personal data out of text";
    type Options = RedactOptions;

    fn from_options(options: RedactOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        if !options.salt.is_empty() && options.strategy != Strategy::Hash {
            return Err(OptionError::new("salt", "is for `strategy = \"hash\"`"));
        }
        let mut builder = Self::builder().strategy(options.strategy).salt(options.salt);
        builder = builder.on(options.on.iter().filter_map(RedactAt::point));
        if options.on.contains(&RedactAt::ToolArguments) {
            builder = builder.tool_arguments();
        }
        if options.on.is_empty() {
            return Err(OptionError::new("on", "must name at least one point"));
        }
        if options.emails {
            builder = builder.emails();
        }
        if options.cards {
            builder = builder.cards();
        }
        if options.keys {
            builder = builder.keys();
        }
        if !(options.emails || options.cards || options.keys) && options.patterns.is_empty() {
            return Err(OptionError::new("emails", "is off, and so is everything else: nothing would be looked for"));
        }
        for (item, RedactPattern { name, pattern }) in options.patterns.iter().enumerate() {
            if name.trim().is_empty() {
                return Err(OptionError::new("patterns", "has a pattern without a name").item(item));
            }
            // Alone first: so a refusal names its item.
            let alone = Self::builder().pattern(name, pattern).build();
            alone.map_err(|error| OptionError::new("patterns", "cannot be used").item(item).because(error))?;
            builder = builder.pattern(name, pattern);
        }
        builder.build().map_err(|error| match error {
            RedactError::Salt => OptionError::new("salt", "is too short, and \"hash\" needs one").because(error),
            error => OptionError::new("patterns", "cannot be used together").because(error),
        })
    }
}

/// The options of [`Redact`].
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactOptions {
    /// Whether e-mail addresses are redacted.
    pub emails: bool,
    /// Whether payment card numbers are redacted.
    pub cards: bool,
    /// Whether API keys and tokens are redacted.
    pub keys: bool,
    /// Further patterns.
    pub patterns: Vec<RedactPattern>,
    /// What replaces a match.
    pub strategy: Strategy,
    /// The secret for [`Strategy::Hash`].
    pub salt: String,
    /// The places at which text is redacted, all of them: without [`RedactAt::Stream`], what the model says is not.
    pub on: Vec<RedactAt>,
}

/// Leaves out the salt.
impl fmt::Debug for RedactOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactOptions").field("strategy", &self.strategy).field("on", &self.on).finish_non_exhaustive()
    }
}

/// A point at which [`Redact`] can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedactAt {
    /// User messages, before they are logged.
    BeforeAgent,
    /// The model's text and thinking, while they are streamed.
    Stream,
    /// Tool results, before they are logged.
    AfterTool,
    /// Arguments of tool calls, as the log has them.
    ToolArguments,
}

impl RedactAt {
    /// Arguments are redacted when they are written, which is no point of a turn.
    fn point(&self) -> Option<Point> {
        match self {
            Self::BeforeAgent => Some(Point::BeforeAgent),
            Self::Stream => Some(Point::Stream),
            Self::AfterTool => Some(Point::AfterTool),
            Self::ToolArguments => None,
        }
    }
}

/// A further pattern.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedactPattern {
    /// The name that replaces a match, in brackets.
    pub name: String,
    /// The pattern, in the syntax of the `regex` crate. Its matches must have a greatest length.
    pub pattern: String,
}

impl Default for RedactOptions {
    fn default() -> Self {
        Self {
            emails: true,
            cards: true,
            keys: true,
            patterns: Vec::new(),
            strategy: Strategy::default(),
            salt: String::new(),
            on: vec![RedactAt::Stream],
        }
    }
}

impl Hook for Redact {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.only = Some(self.on);
        settings.redacts_arguments = self.arguments;
        settings.hides_changes = true;
        settings
    }

    fn redact_text(&self, text: &str) -> Result<Option<String>, BoxError> {
        Ok(match self.try_apply(text)? {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        })
    }

    fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError> {
        match self.redacted_value(arguments) {
            Ok(redacted) => Ok(redacted),
            Err(why) if self.blocks() => Ok(Some(json!({ "redacted": why.to_string() }))),
            Err(failure) => Err(failure),
        }
    }

    async fn before_tool(&self, _: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        match self.redacted_value(&call.arguments) {
            Err(why) if self.blocks() => Ok(BeforeTool::Deny(format!("the arguments are not passed on: {why}").into())),
            Err(failure) => Err(failure),
            Ok(_) => Ok(BeforeTool::Continue),
        }
    }

    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        match self.redacted(turn.user_message()) {
            Ok(Some(content)) => turn.rewrite_input(content),
            Ok(None) => {}
            Err(why) if self.blocks() => {
                return Ok(BeforeAgent::Erase(format!("the message is not kept: {why}").into()));
            }
            Err(failure) => return Err(failure),
        }
        Ok(BeforeAgent::Continue)
    }

    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        Some(Box::new(self.redactor()))
    }

    async fn after_tool(&self, _: &Turn, _: &ToolCall, output: &Output) -> Result<AfterTool, BoxError> {
        Ok(match self.redacted(&output.content) {
            Ok(Some(content)) => AfterTool::Modify(output.clone().with_content(content)),
            Ok(None) => AfterTool::Continue,
            Err(why) if self.blocks() => AfterTool::Modify(Output::error(format!("[the result is withheld: {why}]"))),
            Err(failure) => return Err(failure),
        })
    }
}

impl Transformer for Redactor {
    fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
        self.with(out, |scan, tools| scan.feed(text, tools))
    }

    fn finish(&mut self, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
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

/// Shows how much text is held back, not the text.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("held", &self.scan.waiting()).field("found", &self.scan.found).finish()
    }
}
