//! The root sink: what models push goes through the stream transformers, is told, and becomes the message.
//!
//! Everything that becomes an assistant message has passed every transformer exactly once, wherever it came from; what
//! they let through is what is told and what is logged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::context::TurnContext;
use super::pipe::{Pushed, within};
use crate::BoxError;
use crate::feed::LiveEvent;
use crate::hook::{
    AsyncTransformer, HookEntry, Point, Stretch, StretchKind, TransformBatch, TransformOutput, TransformedBatch,
    Transformer,
};
use crate::message::{Content, Part, Text};
use crate::model::Sink;
use crate::scope::Author;

/// What kind of stretch a piece of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Text,
    Thinking,
}

/// A stretch of one kind: as pushed, and as let through.
struct Block {
    channel: Channel,
    raw: String,
    passed: String,
    transformers: Vec<(Text, Stage)>,
    finished: bool,
}

/// One transformer of the chain.
enum Stage {
    Now(Box<dyn Transformer>),
    /// With the time that each of its answers may take.
    Later(Box<dyn AsyncTransformer>, Duration),
}

impl Block {
    /// What was let through.
    fn passed(&self) -> &str {
        if self.transformers.is_empty() { &self.raw } else { &self.passed }
    }

    /// It as a part, if anything came through.
    fn part(&self) -> Option<Part> {
        let text: Text = self.passed().into();
        (!text.is_empty()).then_some(match self.channel {
            Channel::Text => Part::Text { text },
            Channel::Thinking => Part::thinking(text),
        })
    }
}

/// The transformer of a hook for a new stretch.
fn stage(entry: &HookEntry) -> Option<Stage> {
    let hook = entry.hook()?;
    match entry.transforms_later() {
        true => Some(Stage::Later(hook.async_transformer()?, entry.time_limit())),
        false => Some(Stage::Now(hook.transformer()?)),
    }
}

/// How a transformer fails, if it does.
fn contained(run: impl FnOnce() -> Result<(), BoxError>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("it panicked".to_owned()),
    }
}

/// Where one reply comes out.
pub(crate) struct ReplyStream {
    ctx: Arc<TurnContext>,
    attempt: u32,
    /// Most replies are one stretch of text.
    blocks: SmallVec<[Block; 1]>,
    annotations: Map<String, Value>,
    /// Whether viewers have seen any text of the present attempt.
    shown: bool,
    /// Whether text is held back until every guard has accepted.
    held: bool,
    /// A transformer that failed: nothing gets through any more.
    failure: Option<(Text, String)>,
    scratch: [String; 2],
}

impl ReplyStream {
    /// `attempt` counts unless a model begins another.
    pub(crate) fn new(ctx: Arc<TurnContext>, attempt: u32, held: bool) -> Self {
        Self {
            ctx,
            attempt,
            blocks: SmallVec::new(),
            annotations: Map::new(),
            shown: false,
            held,
            failure: None,
            scratch: Default::default(),
        }
    }

    fn hooks(ctx: &TurnContext) -> &[HookEntry] {
        ctx.agent.hooks_at(Point::Stream)
    }

    fn block(&mut self, channel: Channel) -> usize {
        if self.blocks.last().is_none_or(|last| last.channel != channel || last.finished) {
            self.finish_last();
            let mut transformers = Vec::new();
            for entry in Self::hooks(&self.ctx) {
                match catch_unwind(AssertUnwindSafe(|| stage(entry))) {
                    Ok(made) => transformers.extend(made.map(|made| (entry.name.clone(), made))),
                    Err(_) => self.failure = Some((entry.name.clone(), "it panicked".to_owned())),
                }
            }
            let (raw, passed) = (String::new(), String::new());
            self.blocks.push(Block { channel, raw, passed, transformers, finished: false });
        }
        self.blocks.len() - 1
    }

    fn push(&mut self, channel: Channel, text: &str) {
        if text.is_empty() || self.failure.is_some() {
            return;
        }
        let index = self.block(channel);
        if self.failure.is_some() {
            return;
        }
        let block = &mut self.blocks[index];
        block.raw.push_str(text);
        if block.transformers.is_empty() {
            return self.let_through(index, text);
        }
        self.transform(index, Some(text));
    }

    fn finish_last(&mut self) {
        let Some(index) = self.blocks.len().checked_sub(1) else { return };
        if self.blocks[index].finished || self.failure.is_some() {
            return;
        }
        if !self.blocks[index].transformers.is_empty() {
            self.transform(index, None);
        }
        self.blocks[index].finished = true;
    }

    /// Runs a chunk, or the end of the stretch, through the chain of transformers.
    fn transform(&mut self, index: usize, chunk: Option<&str>) {
        let [mut from, mut to] = std::mem::take(&mut self.scratch);
        from.clear();
        from.push_str(chunk.unwrap_or_default());
        let annotations = &mut self.annotations;
        for (hook, stage) in &mut self.blocks[index].transformers {
            to.clear();
            let mut out = TransformOutput::new(&mut to, annotations);
            let failure = match stage {
                Stage::Now(transformer) => contained(|| {
                    if !from.is_empty() {
                        transformer.chunk(&from, &mut out)?;
                    }
                    if chunk.is_none() {
                        transformer.finish(&mut out)?;
                    }
                    Ok(())
                }),
                // A stream with one of these is piped: see `pipe.rs`.
                Stage::Later(..) => Some("it was not waited for".to_owned()),
            };
            if let Some(failure) = failure {
                self.failure = Some((hook.clone(), failure));
                break;
            }
            std::mem::swap(&mut from, &mut to);
        }
        if self.failure.is_none() {
            self.let_through(index, &from);
        }
        self.scratch = [from, to];
    }

    /// Whether a transformer answers later: then what models say comes through a pipe, and nothing is pushed here directly.
    pub(crate) fn is_piped(&self) -> bool {
        Self::hooks(&self.ctx).iter().any(HookEntry::transforms_later)
    }

    /// Like [`push`](Self::push), of chunks that came together.
    async fn push_later(&mut self, channel: Channel, chunks: Vec<String>) {
        if self.failure.is_some() {
            return;
        }
        if self.blocks.last().is_none_or(|last| last.channel != channel || last.finished) {
            self.finish_last_later().await;
        }
        let index = self.block(channel);
        if self.failure.is_some() {
            return;
        }
        chunks.iter().for_each(|chunk| self.blocks[index].raw.push_str(chunk));
        self.transform_later(index, TransformBatch { chunks, is_last: false }).await;
    }

    async fn finish_last_later(&mut self) {
        let Some(index) = self.blocks.len().checked_sub(1) else { return };
        if self.blocks[index].finished || self.failure.is_some() {
            return;
        }
        self.transform_later(index, TransformBatch { chunks: Vec::new(), is_last: true }).await;
        self.blocks[index].finished = true;
    }

    /// Runs a batch through the chain. Behind a transformer that answers later, its answer is one chunk.
    async fn transform_later(&mut self, index: usize, mut batch: TransformBatch) {
        let ctx = self.ctx.clone();
        let stretch = Stretch {
            conversation: ctx.conversation.clone(),
            turn: ctx.id.clone(),
            agent: ctx.agent.shared_name().clone(),
            attempt: self.attempt,
            kind: match self.blocks[index].channel {
                Channel::Text => StretchKind::Text,
                Channel::Thinking => StretchKind::Thinking,
            },
        };
        let is_last = batch.is_last;
        for (hook, stage) in &mut self.blocks[index].transformers {
            let failure = match stage {
                Stage::Now(transformer) => {
                    let mut text = String::new();
                    let mut out = TransformOutput::new(&mut text, &mut self.annotations);
                    let failure = contained(|| {
                        batch.chunks.iter().try_for_each(|chunk| transformer.chunk(chunk, &mut out))?;
                        if is_last { transformer.finish(&mut out) } else { Ok(()) }
                    });
                    batch.chunks = vec![text];
                    failure
                }
                Stage::Later(..) if batch.chunks.is_empty() && !is_last => None,
                Stage::Later(transformer, limit) => {
                    let given = std::mem::replace(&mut batch, TransformBatch { chunks: Vec::new(), is_last });
                    match within(&ctx, *limit, transformer.transform(&stretch, given)).await {
                        Ok(TransformedBatch { text, annotations }) => {
                            self.annotations.extend(annotations);
                            batch.chunks = vec![text];
                            None
                        }
                        Err(failure) => Some(failure.to_string()),
                    }
                }
            };
            batch.chunks.retain(|chunk| !chunk.is_empty());
            if let Some(failure) = failure {
                self.failure = Some((hook.clone(), failure));
                return;
            }
        }
        self.let_through(index, &batch.chunks.concat());
    }

    /// What came through the pipe.
    pub(super) async fn take(&mut self, pushed: Vec<Pushed>) {
        let mut together: Vec<(Channel, Vec<String>)> = Vec::new();
        // Chunks before the last `begin` belong to an attempt that was given up: nobody needs to see them.
        let first = pushed.iter().rposition(|one| matches!(one, Pushed::Begin(_))).unwrap_or(0);
        for one in pushed.into_iter().skip(first) {
            let (channel, text) = match one {
                Pushed::Begin(attempt) => {
                    self.begin(attempt);
                    continue;
                }
                Pushed::Text(text) => (Channel::Text, text),
                Pushed::Thinking(text) => (Channel::Thinking, text),
            };
            match together.last_mut() {
                Some((last, chunks)) if *last == channel => chunks.push(text),
                _ => together.push((channel, vec![text])),
            }
        }
        for (channel, chunks) in together {
            self.push_later(channel, chunks).await;
        }
    }

    /// [`complete`](Self::complete) for a stream that is piped.
    pub(crate) async fn complete_later(&mut self, content: &Content) -> Result<Content, (Text, String)> {
        if !self.pushed_exactly(content) && self.failure.is_none() {
            if !self.blocks.is_empty() {
                self.discard(None, Some("the reply differs from what was streamed".into()));
            }
            for part in content.parts() {
                match part {
                    Part::Text { text } => self.push_later(Channel::Text, vec![text.to_string()]).await,
                    Part::Thinking(thought) => {
                        self.push_later(Channel::Thinking, vec![thought.text.to_string()]).await;
                    }
                    _ => {}
                }
            }
        }
        self.finish_last_later().await;
        self.completed(content)
    }

    fn let_through(&mut self, index: usize, text: &str) {
        if text.is_empty() {
            return;
        }
        let block = &mut self.blocks[index];
        // Without transformers what was said is what is let through: one copy is enough.
        if !block.transformers.is_empty() {
            block.passed.push_str(text);
        }
        let channel = block.channel;
        if !self.held {
            self.publish(channel, text);
        }
    }

    fn publish(&mut self, channel: Channel, text: &str) {
        self.shown = true;
        let (attempt, text) = (self.attempt, text.into());
        self.ctx.publish(match channel {
            Channel::Text => LiveEvent::TextDelta { attempt, text },
            Channel::Thinking => LiveEvent::ThinkingDelta { attempt, text },
        });
    }

    /// Takes back what was told of this attempt and forgets the rest.
    pub(crate) fn discard(&mut self, by: Option<Author>, reason: Option<Text>) {
        self.take_back(by, reason, false);
    }

    /// Like [`discard`](Self::discard), because a hook put another reply in place of this one.
    pub(crate) fn replace(&mut self, hook: &Text) {
        self.take_back(Some(Author::hook(hook)), Some("modified".into()), true);
    }

    fn take_back(&mut self, by: Option<Author>, reason: Option<Text>, replaced: bool) {
        if std::mem::take(&mut self.shown) {
            self.ctx.publish(LiveEvent::AttemptDiscarded { attempt: self.attempt, by, reason, replaced });
        }
        self.blocks.clear();
        self.annotations.clear();
    }

    /// Makes sure that the whole of `content`, and nothing else, has come through; gives back what was let through.
    pub(crate) fn complete(&mut self, content: &Content) -> Result<Content, (Text, String)> {
        if !self.pushed_exactly(content) {
            if !self.blocks.is_empty() {
                self.discard(None, Some("the reply differs from what was streamed".into()));
            }
            for part in content.parts() {
                match part {
                    Part::Text { text } => self.push(Channel::Text, text),
                    Part::Thinking(thought) => self.push(Channel::Thinking, &thought.text),
                    _ => {}
                }
            }
        }
        self.finish_last();
        self.completed(content)
    }

    /// What was let through of a reply that has come through as a whole.
    fn completed(&mut self, content: &Content) -> Result<Content, (Text, String)> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            // Nothing stood between what was said and what was let through.
            None if self.blocks.iter().all(|block| block.transformers.is_empty()) => Ok(content.clone()),
            None => Ok(self.content(content)),
        }
    }

    /// Whether what was pushed is what the reply holds.
    fn pushed_exactly(&self, content: &Content) -> bool {
        let mut pushed = self.blocks.iter().map(|block| (block.channel, block.raw.as_str()));
        let (mut channel, mut rest) = (Channel::Text, "");
        for part in content.parts() {
            let (kind, mut text): (Channel, &str) = match part {
                Part::Text { text } => (Channel::Text, text),
                Part::Thinking(thought) => (Channel::Thinking, &thought.text),
                _ => continue,
            };
            while !text.is_empty() {
                if rest.is_empty() {
                    let Some(block) = pushed.next() else { return false };
                    (channel, rest) = block;
                }
                let length = text.len().min(rest.len());
                if channel != kind || text.as_bytes()[..length] != rest.as_bytes()[..length] {
                    return false;
                }
                // Both sides agree on these bytes, so the cut is a character boundary in both or in neither.
                let (Some(more), Some(left)) = (text.get(length..), rest.get(length..)) else { return false };
                (text, rest) = (more, left);
            }
        }
        rest.is_empty() && pushed.next().is_none()
    }

    /// The reply's parts with what was let through in place of what was said. Parts of a stretch that came through
    /// unchanged stay as they were, signatures and all; a signature proves unchanged text, so it goes with a thought that
    /// was changed. What is no text keeps its place among the rest.
    fn content(&self, reply: &Content) -> Content {
        let mut parts = Vec::with_capacity(reply.parts().len());
        let mut blocks = self.blocks.iter();
        let (mut left, mut unchanged) = (0_usize, true);
        for part in reply.parts() {
            let said = match part {
                Part::Text { text } => text.len(),
                Part::Thinking(thought) => thought.text.len(),
                _ => 0,
            };
            if said > 0 && left == 0 {
                let Some(block) = blocks.next() else { break };
                (left, unchanged) = (block.raw.len(), block.passed() == block.raw);
                if !unchanged {
                    parts.extend(block.part());
                }
            }
            if said == 0 || unchanged {
                parts.push(part.clone());
            }
            left = left.saturating_sub(said);
        }
        parts.extend(blocks.filter_map(Block::part));
        parts.into()
    }

    /// Every guard has accepted: what was held is told.
    pub(crate) fn release(&mut self) {
        if !self.held {
            return;
        }
        for index in 0..self.blocks.len() {
            let block = &self.blocks[index];
            let (channel, text) = (block.channel, block.passed().to_owned());
            self.publish(channel, &text);
        }
    }

    /// What was told of a reply that was cut short: that, and no more, is what happened.
    pub(crate) fn shown_content(&self) -> Option<Content> {
        self.shown.then(|| self.content(&Content::default()))
    }

    pub(crate) fn annotations(&self) -> Option<Arc<Value>> {
        (!self.annotations.is_empty()).then(|| Arc::new(Value::Object(self.annotations.clone())))
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Sink for ReplyStream {
    fn begin(&mut self, attempt: u32) {
        if self.shown {
            self.discard(None, Some("another attempt".into()));
        }
        self.blocks.clear();
        self.annotations.clear();
        self.attempt = attempt;
    }
    fn text(&mut self, text: &str) {
        self.push(Channel::Text, text);
    }
    fn thinking(&mut self, text: &str) {
        self.push(Channel::Thinking, text);
    }
}
