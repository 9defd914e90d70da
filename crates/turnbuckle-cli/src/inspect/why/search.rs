//! Whether a text was in what calls were sent. Each stored text is looked through once, however many calls had it.

use std::collections::HashMap;

use serde_json::Value;
use turnbuckle::message::Text;
use turnbuckle::sent::{event_contains, json_contains};
use turnbuckle::store::AuditedCall;

use super::data::{Call, Conversation, REDACTED};

/// Whether a text was in what a call was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Sent,
    NotSent,
    /// Not known: the log has it, and the audit has taken secrets out of the request.
    Redacted,
    /// Not known: neither the log nor a summary has it, and the audit has taken secrets out of the request, where it may have been.
    MayBeRedacted,
    /// Not known: the audit has no longer all of the request.
    Removed,
    /// Not known: neither the log nor a summary has it, and what else the call was sent was not recorded.
    NotRecorded,
    /// Not known: the log has it and did not show it to the call, and not all of what hooks added is stored.
    MayBeAdded,
}

impl Presence {
    /// Why it is not known, for programs and for people; `None` if it is.
    pub(crate) fn unknown(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Sent | Self::NotSent => None,
            Self::Redacted => Some(("redacted", REDACTION)),
            Self::MayBeRedacted => Some(("redacted", MAYBE_REDACTED)),
            Self::Removed => Some(("removed", REMOVED)),
            Self::NotRecorded => Some(("not_recorded", NOT_RECORDED)),
            Self::MayBeAdded => Some(("not_recorded", MAY_BE_ADDED)),
        }
    }
}

const REDACTION: &str = "redaction hides it: the log has it, the audit took secrets out of the request, and whether it was sent \
                         cannot be known";
const MAYBE_REDACTED: &str = "the log does not have it, and the audit took secrets out of the request: it may have been there, and what \
                              was taken out cannot be searched";
const REMOVED: &str =
    "parts of the request were removed to keep the audit within its limits: whether it was sent cannot be known";
const NOT_RECORDED: &str = "the log does not have it, and the audit does not have this request: whether it was in the system \
                            prompt, the tools, a line about the budget or what is not stored of what hooks added cannot be known";

const MAY_BE_ADDED: &str = "no message from the log had it, the audit does not have this request, and what hooks added is not \
                            stored whole: whether it was in that cannot be known";

/// What is known of a part of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    has_text: bool,
    is_redacted: bool,
    is_missing: bool,
}

impl Seen {
    fn or(self, other: Self) -> Self {
        Self {
            has_text: self.has_text || other.has_text,
            is_redacted: self.is_redacted || other.is_redacted,
            is_missing: self.is_missing || other.is_missing,
        }
    }
}

/// A search for one text in everything that the audit has.
pub(crate) struct Search<'a> {
    contents: &'a HashMap<Text, Text>,
    wanted: &'a str,
    /// Whether an event or a summary has it.
    is_in_log: bool,
    parts: HashMap<&'a str, Seen>,
    /// What is known of a link and those before it.
    links: HashMap<&'a str, Seen>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(conversation: &'a Conversation, wanted: &'a str) -> Self {
        let contents = &conversation.contents;
        let is_in_log = conversation.log.iter().any(|event| event_contains(event, wanted))
            || conversation.summaries.iter().any(|summary| summary.shown.contains(wanted));
        Self { contents, wanted, is_in_log, parts: HashMap::new(), links: HashMap::new() }
    }

    /// Whether the text was in what a call was sent, as far as that is known.
    pub(crate) fn presence(&mut self, call: &'a Call) -> Presence {
        let in_log = call.sent.found.is_sent();
        let Some(audited) = &call.audited else {
            let was_added = call.added.iter().flatten().any(|added| added.contains(self.wanted));
            return match () {
                () if in_log || was_added => Presence::Sent,
                () if !self.is_in_log => Presence::NotRecorded,
                () if call.lacks_added => Presence::MayBeAdded,
                () => Presence::NotSent,
            };
        };
        let seen = self.request(audited);
        match () {
            () if seen.has_text => Presence::Sent,
            // What the log says was sent and the audit does not have: a hook took it out, or the audit cannot show it.
            () if in_log && seen.is_redacted => Presence::Redacted,
            () if seen.is_missing => Presence::Removed,
            // What hooks added, for example. Of a text that the log has, the log tells which calls it was shown to.
            () if seen.is_redacted && !self.is_in_log => Presence::MayBeRedacted,
            () => Presence::NotSent,
        }
    }

    /// Whether the text is in a request that was audited.
    pub(crate) fn is_in(&mut self, call: &'a AuditedCall) -> bool {
        self.request(call).has_text
    }

    fn request(&mut self, call: &'a AuditedCall) -> Seen {
        // Of tools that were withheld, the fields of the body say which ones the provider was told of all the same.
        let is_told = |digest: &&Text| **digest != call.tools || !call.tools_withheld || call.fields.is_none();
        let fixed = call.fixed().filter(is_told).fold(Seen::default(), |seen, digest| seen.or(self.part(digest)));
        fixed.or(self.messages(&call.messages))
    }

    fn messages(&mut self, last: &'a str) -> Seen {
        // From the last link back to one that is known; each has the digests of the one before it and of its message.
        let (mut link, mut new, mut seen) = (last, Vec::new(), Seen::default());
        // Digests of links cannot form a circle; a damaged database must not make one last for ever.
        while !link.is_empty() && new.len() <= self.contents.len() {
            if let Some(known) = self.links.get(link) {
                seen = *known;
                break;
            }
            let Some((before, message)) = self.contents.get(link).and_then(|link| link.split_once(' ')) else {
                seen = Seen { is_missing: true, ..Seen::default() };
                break;
            };
            new.push((link, message));
            link = before;
        }
        for (link, message) in new.into_iter().rev() {
            seen = seen.or(self.part(message));
            self.links.insert(link, seen);
        }
        seen
    }

    fn part(&mut self, digest: &'a str) -> Seen {
        if let Some(seen) = self.parts.get(digest) {
            return *seen;
        }
        let body = self.contents.get(digest).and_then(|body| serde_json::from_str::<Value>(body).ok());
        let seen = body.map_or(Seen { is_missing: true, ..Seen::default() }, |body| Seen {
            has_text: json_contains(&body, self.wanted),
            is_redacted: json_contains(&body, REDACTED),
            is_missing: false,
        });
        self.parts.insert(digest, seen);
        seen
    }
}
