//! A summary of the oldest part of a conversation, as it is stored and as contexts show it.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::message::{Text, Usage};

/// What stands in the place of the oldest part of a conversation. The log keeps that part.
///
/// A summary is made between turns and covers the log from its beginning to `last`: each one is made of the one before it and of
/// the turns behind that. It is shown from the next cut on, and [`Cut::summary`](crate::cut::Cut::summary) names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Counts the summaries of a conversation, from 1.
    pub version: u32,
    /// The seq of the last event that it covers; it covers everything before that, too.
    pub last: u64,
    /// The seq of the first event that it adds to what the version before it covers.
    pub first_new: u64,
    /// How many turns it covers.
    pub turns: u32,
    /// The name of the model that made it.
    pub model: Text,
    /// Of the version before it and of the events that it adds: says whether it is a summary of this log.
    pub digest: Text,
    /// What the model wrote.
    pub text: Text,
    /// How many tokens of what the model wrote are missing in `text`, because it wrote more than there is room for even when it was
    /// asked for less.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_off: u64,
    /// What users said in the turns it covers, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<KeptMessage>,
    /// How many messages of users there is no room for, not even for a short quotation: in all turns it covers.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unquoted: u32,
    /// What hooks want to be kept word for word, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Text>,
    /// How many texts that hooks want to be kept there is no room for: in all versions.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unkept: u32,
    /// The whole of it as contexts show it.
    pub shown: Text,
    /// Model calls that all versions took together.
    pub calls: u64,
    /// What this version took, tries that failed included.
    pub usage: Usage,
    /// What it cost, in dollars, if prices are known.
    #[serde(default)]
    pub cost: f64,
    /// When it was made.
    pub at: Timestamp,
}

/// What a user said in a turn that is not shown any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMessage {
    /// The seq of the message.
    pub seq: u64,
    /// All of it, or its beginning.
    pub text: Text,
    /// How many bytes of it are missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}
