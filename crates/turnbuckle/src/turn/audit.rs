//! What the audit keeps of a request that reached a model.

use std::time::Duration;

use serde_json::Value;

use super::active::ActiveTurn;
use super::context::SentAttempt;
use crate::audit::{AuditOptions, AuditWrite, AuditedCall, CallPurpose, digest, message_json};
use crate::clock::Timestamp;
use crate::message::{Message, Text};
use crate::model::{Model, Request};

/// What was stored of the last request: only what is new is looked at again.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditMemory {
    /// The messages of it, each with the digest of its link.
    links: Vec<(Message, Text)>,
    /// Digests of system prompts, tools, schemas and other fields that were stored by this process.
    fixed: Vec<Text>,
    /// When that was.
    at: Option<Timestamp>,
    /// What this process had recorded by then.
    recorded: (u64, u64),
}

/// After this time everything is stored again; what is there already is not stored twice.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// The digests that a request is stored by.
pub(crate) struct StoredRequest {
    pub(crate) system: Text,
    pub(crate) tools: Text,
    pub(crate) schema: Option<Text>,
    pub(crate) fields: Option<Text>,
    pub(crate) messages: Text,
}

impl AuditMemory {
    /// Adds what is new in a request to `contents`, with secrets taken out.
    pub(crate) fn store(
        &mut self,
        request: &Request,
        model: &dyn Model,
        options: &AuditOptions,
        contents: &mut Vec<(Text, Text)>,
    ) -> StoredRequest {
        if options.may_have_dropped(self.recorded) {
            // What other conversations were sent since may have pushed out what is known to be stored.
            (self.links, self.fixed) = (Vec::new(), Vec::new());
        }
        let before = contents.len();
        let mut fixed = |value: Value| {
            let body: Text = redacted(value, options).to_string().into();
            let digest = digest(&body);
            if !self.fixed.contains(&digest) {
                self.fixed.push(digest.clone());
                contents.push((digest.clone(), body));
            }
            digest
        };
        let system = fixed(Value::String(request.system.to_string()));
        let tools = fixed(serde_json::to_value(&**request.defined_tools()).unwrap_or_default());
        let schema = request.schema.as_ref().map(|schema| fixed((**schema).clone()));
        let fields = model.body_fields(request).map(fixed);
        let same = self.links.iter().zip(&*request.messages).take_while(|((old, _), new)| old == *new).count();
        self.links.truncate(same);
        for message in &request.messages[same..] {
            let before: Text = self.links.last().map_or_else(|| "".into(), |(_, link)| link.clone());
            let body: Text = redacted(message_json(message), options).to_string().into();
            let content = digest(&body);
            let link: Text = format!("{before} {content}").into();
            let at = digest(&link);
            contents.push((content, body));
            contents.push((at.clone(), link));
            self.links.push((message.clone(), at));
        }
        let messages = self.links.last().map_or_else(|| "".into(), |(_, link)| link.clone());
        options.note_recorded(contents[before..].iter().map(|(_, body)| body.len() as u64).sum());
        self.recorded = options.recorded();
        StoredRequest { system, tools, schema, fields, messages }
    }
}

/// Digests of what hooks were given are part of the audit, too.
pub(crate) fn note(active: &mut ActiveTurn, sent: &SentAttempt) {
    let Some(options) = active.turn.ctx.services.audit.clone() else { return };
    let mut write = active
        .audit
        .take()
        .unwrap_or_else(|| Box::new(AuditWrite { calls: Vec::new(), contents: Vec::new(), limits: options.limits }));
    let memory = &mut active.memory.audit;
    let now = active.turn.ctx.clock().now();
    if memory.at.is_none_or(|at| now.since(at) > FORGET_AFTER.min(options.limits.ttl / 2)) {
        // What was stored then may have gone by now.
        *memory = AuditMemory::default();
    }
    memory.at = Some(now);
    let request = &sent.request;
    let stored = memory.store(request, &*sent.model, &options, &mut write.contents);
    let StoredRequest { system, tools, schema, fields, messages } = stored;
    let ctx = &active.turn.ctx;
    let injected = active.turn.view.injections.iter().map(|one| (one.hook.clone(), one.tokens)).collect();
    write.calls.push(AuditedCall {
        turn: ctx.id.clone(),
        purpose: CallPurpose::Turn,
        made_at: active.state.seq,
        attempt: request.attempt,
        at: now,
        model: sent.name.clone(),
        ms: u64::try_from(sent.took.as_millis()).unwrap_or(u64::MAX),
        usage: sent.usage,
        cost: sent.cost,
        error: sent.error.as_ref().map(|error| options.redacted_text(error)),
        summary: active.state.window.summary().map(|summary| summary.version),
        cut: active.state.window.last_cut().map(|cut| cut.made_at),
        injected,
        system,
        tools,
        tools_withheld: request.withholds_tools(),
        schema,
        fields,
        messages,
    });
    active.audit = Some(write);
}

/// The value with secrets taken out of its texts and keys.
fn redacted(value: Value, options: &AuditOptions) -> Value {
    let clean = |text: String| (options.redact)(&text).unwrap_or(text);
    match value {
        Value::String(text) => Value::String(clean(text)),
        Value::Array(items) => items.into_iter().map(|item| redacted(item, options)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, item)| (clean(key), redacted(item, options))).collect(),
        // A card number may come as a number.
        Value::Number(number) => match (options.redact)(&number.to_string()) {
            Some(text) => Value::String(text),
            None => Value::Number(number),
        },
        other => other,
    }
}
