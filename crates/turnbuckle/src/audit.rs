//! The audit: exactly what models were sent, for those who must be able to show it. Off unless a program turns it on.
//!
//! What was sent is stored by its digest, once in a conversation. A request is the digest of its last message's link; each link
//! has the digest of the link before it and that of its message. So a further call of a conversation stores its new messages and
//! nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::clock::Timestamp;
use crate::id::TurnId;
use crate::message::{Message, Text, Usage};

/// Takes secrets out of a text; `None` if it has none. It must mark what it replaced.
pub type AuditRedaction = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A call is taken to be there as long as this process has recorded not more than this part of what may be kept behind it: a quarter.
/// That is a guess. Other processes record, too; and where calls go because of their bytes, more of them may go than were recorded,
/// since an old one frees little as long as a newer one shares its beginning. A request whose beginning has gone is
/// [incomplete](AuditedRequest::is_complete), and whoever shows it says so.
const FORGET_AFTER_PART: u64 = 4;

/// How an audit is kept.
#[derive(Clone)]
#[non_exhaustive]
pub struct AuditOptions {
    /// How long, and how much.
    pub limits: AuditLimits,
    /// What is taken out before anything is stored.
    pub redact: Arc<AuditRedaction>,
    /// What this process has recorded.
    recorded: Arc<Recorded>,
}

/// What a process has recorded so far, of all conversations.
#[derive(Debug, Default)]
struct Recorded {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl AuditOptions {
    /// An audit with these limits, from which `redact` takes secrets out.
    pub fn new(limits: AuditLimits, redact: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { limits, redact: Arc::new(redact), recorded: Arc::default() }
    }

    /// How many calls this process has recorded, and how many bytes of what they were sent.
    pub(crate) fn recorded(&self) -> (u64, u64) {
        (self.recorded.calls.load(Ordering::Relaxed), self.recorded.bytes.load(Ordering::Relaxed))
    }

    /// One more call was recorded, with so many bytes that were new.
    pub(crate) fn note_recorded(&self, bytes: u64) {
        self.recorded.calls.fetch_add(1, Ordering::Relaxed);
        self.recorded.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether so much was recorded since `before` that a call of then may have gone, and with it what it was sent.
    pub(crate) fn may_have_dropped(&self, before: (u64, u64)) -> bool {
        let (calls, bytes) = self.recorded();
        calls.saturating_sub(before.0) > self.limits.calls / FORGET_AFTER_PART
            || bytes.saturating_sub(before.1) > self.limits.bytes / FORGET_AFTER_PART
    }

    /// The text with secrets taken out.
    pub(crate) fn redacted_text(&self, text: &str) -> Text {
        (self.redact)(text).map_or_else(|| text.into(), Text::from)
    }
}

impl std::fmt::Debug for AuditOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditOptions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// How long an audit is kept, and how large the audit of a whole store may become. What is beyond goes, the oldest calls first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditLimits {
    /// How long a call is kept.
    pub ttl: Duration,
    /// How many calls.
    pub calls: u64,
    /// How many bytes of what they were sent.
    pub bytes: u64,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(7 * 24 * 3600), calls: 100_000, bytes: 1 << 30 }
    }
}

/// What one write adds to the audit of a conversation.
#[derive(Clone, Debug)]
pub struct AuditWrite {
    /// New calls.
    pub calls: Vec<AuditedCall>,
    /// What they refer to, by digest. What is there already is left out or ignored.
    pub contents: Vec<(Text, Text)>,
    /// What goes in the same step is what is beyond these.
    pub limits: AuditLimits,
}

/// What a model was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallPurpose {
    /// A reply in a turn.
    #[default]
    Turn,
    /// A summary, or a part of one, between turns.
    Summary,
}

impl CallPurpose {
    fn is_turn(&self) -> bool {
        *self == Self::Turn
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// One request that reached a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditedCall {
    /// The turn it belongs to; of a summary, the turn that left the job.
    pub turn: TurnId,
    /// What it was made for.
    #[serde(default, skip_serializing_if = "CallPurpose::is_turn")]
    pub purpose: CallPurpose,
    /// The seq of the last event when it was made: the reply, if there is one, is behind it. Of a summary, the seq of the last
    /// event that it covers.
    pub made_at: u64,
    /// Which attempt at the reply, from 1; of a summary, which call of the try.
    pub attempt: u32,
    /// When the reply was complete, or failed.
    pub at: Timestamp,
    /// The model, by the name it was chosen by.
    pub model: Text,
    /// Milliseconds until the reply was complete.
    pub ms: u64,
    /// What the provider counted.
    pub usage: Usage,
    /// In dollars, if prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Why there was no reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Text>,
    /// The summary that it shows; for [`CallPurpose::Summary`], the one that it is to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<u32>,
    /// The seq at which the last cut was made: it says what had been left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    /// What hooks added for this turn and this call, with the tokens of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected: Vec<(Text, u32)>,
    /// The digest of the system prompt.
    pub system: Text,
    /// That of the tools.
    pub tools: Text,
    /// Whether those were withheld: none of them could be called.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tools_withheld: bool,
    /// That of [the other fields of the body](crate::model::Model::body_fields). `None` if the model sends none, and of calls that
    /// were recorded before there was this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Text>,
    /// That of the schema of the object that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Text>,
    /// That of the last message's link; empty if there was no message.
    pub messages: Text,
}

/// What a call was sent, put together again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AuditedRequest {
    /// The body: `model`, `system`, `tools`, `schema` and `messages`. Tools that were withheld are `withheld_tools`. `fields` has
    /// the other fields of the body that the model's client sent, tools as its API has them among them.
    pub body: Value,
    /// Whether everything was there. A digest that is not found stands as a note in its place.
    pub is_complete: bool,
}

impl AuditedCall {
    /// The digests that it refers to, links followed.
    pub fn references<'a>(&'a self, contents: &'a HashMap<Text, Text>) -> Vec<&'a Text> {
        let mut all: Vec<&Text> = self.fixed().collect();
        let mut link = Some(&self.messages).filter(|link| !link.is_empty());
        // Digests of links cannot form a circle; a damaged database must not make one last for ever.
        while let Some(at) = link.filter(|_| all.len() <= 4 * contents.len()) {
            all.push(at);
            let Some((before, message)) = contents.get(at).and_then(|link| link.split_once(' ')) else { break };
            let known = |digest: &str| contents.get_key_value(digest).map(|(digest, _)| digest);
            all.extend(known(message));
            link = known(before);
        }
        all
    }

    /// The digests of what is not a message.
    pub fn fixed(&self) -> impl Iterator<Item = &Text> {
        [&self.system, &self.tools].into_iter().chain(&self.schema).chain(&self.fields)
    }

    /// Puts together what was sent.
    pub fn request(&self, contents: &HashMap<Text, Text>) -> AuditedRequest {
        let mut is_complete = true;
        let mut part = |digest: &str| {
            let found = contents.get(digest).and_then(|body| serde_json::from_str::<Value>(body).ok());
            is_complete &= found.is_some();
            found.unwrap_or_else(|| json!({ "missing": digest }))
        };
        let (system, tools) = (part(&self.system), part(&self.tools));
        let schema = self.schema.as_ref().map(|schema| part(schema));
        let fields = self.fields.as_ref().map(|fields| part(fields));
        let (mut messages, mut link, mut steps) = (Vec::new(), self.messages.clone(), 0);
        while !link.is_empty() && steps <= contents.len() {
            steps += 1;
            let Some((before, message)) = contents.get(&link).and_then(|link| link.split_once(' ')) else {
                messages.push(part(&link));
                break;
            };
            messages.push(part(message));
            link = before.into();
        }
        messages.reverse();
        let mut body = json!({ "model": self.model, "system": system, "tools": tools, "messages": messages });
        if self.tools_withheld {
            body["withheld_tools"] = std::mem::replace(&mut body["tools"], json!([]));
        }
        for (name, part) in [("schema", schema), ("fields", fields)] {
            if let Some(part) = part {
                body[name] = part;
            }
        }
        AuditedRequest { body, is_complete }
    }
}

/// A message as the audit and `show --context` have it.
pub fn message_json(message: &Message) -> Value {
    let parts = message.content();
    match message {
        Message::User(_) => json!({ "role": "user", "content": parts }),
        Message::Note(_) => json!({ "role": "note", "content": parts }),
        Message::Assistant { calls, .. } if calls.is_empty() => json!({ "role": "assistant", "content": parts }),
        Message::Assistant { calls, .. } => json!({ "role": "assistant", "content": parts, "calls": calls }),
        Message::Result { call, name, ok, .. } => {
            json!({ "role": "result", "call": call, "name": name, "ok": ok, "content": parts })
        }
    }
}

/// The digest that something is stored by: 128 bits of SHA-256.
pub(crate) fn digest(text: &str) -> Text {
    let bytes = Sha256::digest(text.as_bytes());
    let mut hex = String::with_capacity(32);
    for byte in &bytes[..16] {
        for half in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
        }
    }
    hex.into()
}
