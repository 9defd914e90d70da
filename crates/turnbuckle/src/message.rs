//! What goes to a model and comes back: content, messages, replies.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::id::CallId;

/// Text that many places share: the log, the context, viewers.
pub type Text = Arc<str>;

/// One piece of content. What is not text stands behind a pointer: most parts are text, and each has room for the largest kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: Text,
    },
    /// What the model thought aloud before it answered.
    Thinking(Arc<Thought>),
    /// A picture, inline or by address.
    Image(Arc<Image>),
    /// A document, inline or by address.
    File(Arc<File>),
    /// Something only the provider reads: a sealed thought, a tool that its host ran and what came of it. Kept in its place
    /// and sent back to the same provider as it came; others never see it.
    Provider(Arc<ProviderBlock>),
}

/// What a model thought aloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thought {
    /// The thought.
    pub text: Text,
    /// The provider's proof that it is unchanged; sent back as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Text>,
}

/// A picture, inline or by address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// For example `image/png`.
    pub media_type: Text,
    /// Base64, if inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Text>,
    /// Where it is, if not inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Text>,
}

/// A document, inline or by address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// For example `application/pdf`.
    pub media_type: Text,
    /// The name that people see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// Base64, if inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Text>,
    /// Where it is, if not inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Text>,
}

/// Something only the provider reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProviderBlock {
    /// Whose it is: the wire it came over, for example `anthropic`.
    pub provider: Text,
    /// As it came.
    pub block: Arc<Value>,
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<Text>) -> Self {
        Self::Text { text: text.into() }
    }

    /// A thought that nobody signed.
    pub fn thinking(text: impl Into<Text>) -> Self {
        Thought { text: text.into(), signature: None }.into()
    }

    /// The text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }
}

impl From<Thought> for Part {
    fn from(thought: Thought) -> Self {
        Self::Thinking(Arc::new(thought))
    }
}
impl From<Image> for Part {
    fn from(image: Image) -> Self {
        Self::Image(Arc::new(image))
    }
}
impl From<File> for Part {
    fn from(file: File) -> Self {
        Self::File(Arc::new(file))
    }
}
impl From<ProviderBlock> for Part {
    fn from(block: ProviderBlock) -> Self {
        Self::Provider(Arc::new(block))
    }
}

/// Parts in order; immutable and cheap to clone.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(from = "Vec<Part>")]
pub struct Content(Parts);

/// A single part needs no list: most contents are one text.
#[derive(Clone, PartialEq)]
enum Parts {
    One(Part),
    /// None, or more than one. All that are empty share one allocation: a reply that only calls tools says nothing.
    Many(Arc<[Part]>),
}

impl Content {
    /// Its parts.
    pub fn parts(&self) -> &[Part] {
        match &self.0 {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// Whether there is nothing to say: no part, or only blank text.
    pub fn is_blank(&self) -> bool {
        self.parts().iter().all(|part| part.as_text().is_some_and(|text| text.trim().is_empty()))
    }

    /// All text parts, one after the other.
    pub fn text(&self) -> String {
        self.parts().iter().filter_map(Part::as_text).collect()
    }

    /// Both, in order.
    pub fn followed_by(&self, more: &[Part]) -> Self {
        self.parts().iter().chain(more).cloned().collect()
    }
}

impl Default for Content {
    fn default() -> Self {
        Self(Parts::Many(Arc::default()))
    }
}
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Content").field(&self.parts()).finish()
    }
}
impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parts().serialize(serializer)
    }
}
impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Part::text(text).into()
    }
}
impl From<String> for Content {
    fn from(text: String) -> Self {
        Part::text(text).into()
    }
}
impl From<Part> for Content {
    fn from(part: Part) -> Self {
        Self(Parts::One(part))
    }
}
impl From<Vec<Part>> for Content {
    fn from(mut parts: Vec<Part>) -> Self {
        match parts.len() {
            0 => Self::default(),
            1 => parts.pop().map_or_else(Self::default, Self::from),
            _ => Self(Parts::Many(parts.into())),
        }
    }
}
impl FromIterator<Part> for Content {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        parts.into_iter().collect::<Vec<_>>().into()
    }
}

/// A call of a tool that a model asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique in the conversation; a provider's id that repeats becomes `ID~2`.
    pub call: CallId,
    /// The tool's name.
    pub name: Text,
    /// A JSON object; a string holds what the model sent when that was not JSON.
    pub arguments: Arc<Value>,
}

/// What a model is sent, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// The user's words, with what hooks injected behind them.
    User(Content),
    /// The runtime's words at the user's trust level: a refused stop, a critique, `[interrupted]`.
    Note(Content),
    /// The model's words and the calls it asked for.
    Assistant {
        /// What it said.
        content: Content,
        /// What it called.
        calls: Vec<ToolCall>,
    },
    /// The result of one call.
    Result {
        /// The call's id.
        call: CallId,
        /// The tool's name.
        name: Text,
        /// Whether the tool did what it was asked.
        ok: bool,
        /// What the model reads.
        content: Content,
    },
}

impl Message {
    /// What it says, calls left out.
    pub fn content(&self) -> &Content {
        match self {
            Self::User(content) | Self::Note(content) => content,
            Self::Assistant { content, .. } | Self::Result { content, .. } => content,
        }
    }
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It said all it had to say.
    #[default]
    End,
    /// It wants tools to run.
    ToolCalls,
    /// It ran out of room.
    Length,
    /// It will not answer.
    Refusal,
    /// The turn was cancelled while it spoke.
    Cancelled,
}

/// Tokens, as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Read by the model.
    pub input: u64,
    /// Written by the model.
    pub output: u64,
    /// Of the input: served from the provider's cache.
    pub cache_read: u64,
    /// Of the input: stored in the provider's cache.
    pub cache_write: u64,
}

impl Usage {
    /// Read and written.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl Usage {
    /// What is in `self` and not in `other`.
    pub(crate) fn beyond(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            cache_read: self.cache_read.saturating_sub(other.cache_read),
            cache_write: self.cache_write.saturating_sub(other.cache_write),
        }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
        self.cache_read = self.cache_read.saturating_add(more.cache_read);
        self.cache_write = self.cache_write.saturating_add(more.cache_write);
    }
}

/// A call that the model's host ran by itself, before the reply came. The log tells of it; what the provider wants back of
/// it stands in the content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hosted {
    /// What was called.
    pub call: ToolCall,
    /// Whether it worked.
    pub ok: bool,
    /// What came of it, for people.
    pub content: Content,
}

/// A complete reply of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said.
    pub content: Content,
    /// What it called.
    #[serde(default)]
    pub calls: Vec<ToolCall>,
    /// What its host called and answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosted: Vec<Hosted>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
    /// The object, when a schema was asked for.
    #[serde(default)]
    pub object: Option<Arc<Value>>,
    /// The model that gave it, by the name it was chosen by. The runtime sets it when a model has answered, so a reply that a
    /// cache kept still names its model; a reply that a hook made by itself has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text>,
}

impl Reply {
    /// A reply that only says something.
    pub fn text(text: impl Into<Text>) -> Self {
        Self { content: Part::text(text).into(), ..Self::default() }
    }
}

/// Content that a hook added to a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// The name of the hook that added it.
    pub hook: Text,
    /// What it added.
    pub content: Content,
    /// Its size, estimated.
    pub tokens: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation in memory has a part for most of its events, and each has room for the largest kind.
    #[test]
    fn a_part_takes_little_room() {
        assert!(size_of::<Part>() <= 24, "{}", size_of::<Part>());
    }

    #[test]
    fn contents_of_the_same_parts_are_the_same_however_they_were_made() {
        let (a, b) = (Part::text("a"), Part::text("b"));
        let one = Content::from("a");
        assert_eq!([Content::from(vec![a.clone()]), [a.clone()].into_iter().collect()], [one.clone(), one.clone()]);
        assert_eq!(Content::default().followed_by(std::slice::from_ref(&a)), one);
        assert_eq!(one.followed_by(std::slice::from_ref(&b)), Content::from(vec![a.clone(), b]));
        assert_eq!((Content::from(Vec::new()), one.parts()), (Content::default(), &[a][..]));
        for json in
            [r#"[]"#, r#"[{"type":"text","text":"a"}]"#, r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#]
        {
            let content: Content = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&content).unwrap(), json);
        }
        assert!(size_of::<Content>() <= 24, "{}", size_of::<Content>());
    }

    #[test]
    fn a_part_is_one_object_whatever_it_holds() {
        for json in [
            r#"{"type":"text","text":"t"}"#,
            r#"{"type":"thinking","text":"t"}"#,
            r#"{"type":"thinking","text":"t","signature":"s"}"#,
            r#"{"type":"image","media_type":"image/png","data":"AA=="}"#,
            r#"{"type":"file","media_type":"a/b","name":"n","url":"u"}"#,
            r#"{"type":"provider","provider":"p","block":{"type":"sealed"}}"#,
        ] {
            let part: Part = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&part).unwrap(), json);
        }
    }
}
