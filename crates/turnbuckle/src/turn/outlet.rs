//! The root sink: what models push goes through the stream transformers, is told, and becomes the message.
//!
//! Everything that becomes an assistant message has passed every transformer exactly once, wherever it came from; what
//! they let through is what is told and what is logged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::seen::Frame;
use crate::hook::{HookEntry, Passed, Transformer};
use crate::live::Live;
use crate::message::{Content, Part, Text};
use crate::model::Sink;
use crate::scope::By;

/// What kind of stretch a piece of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Text,
    Thinking,
}

/// A stretch of one kind: as pushed, and as let through.
struct Stretch {
    lane: Lane,
    raw: String,
    passed: String,
    transformers: Vec<(Text, Box<dyn Transformer>)>,
    finished: bool,
}

impl Stretch {
    /// What was let through.
    fn passed(&self) -> &str {
        if self.transformers.is_empty() { &self.raw } else { &self.passed }
    }

    /// It as a part, if anything came through.
    fn part(&self) -> Option<Part> {
        let text: Text = self.passed().into();
        (!text.is_empty()).then_some(match self.lane {
            Lane::Text => Part::Text { text },
            Lane::Thinking => Part::Thinking { text, signature: None },
        })
    }
}

/// Where one reply comes out.
pub(crate) struct Outlet {
    frame: Arc<Frame>,
    attempt: u32,
    stretches: Vec<Stretch>,
    annotations: Map<String, Value>,
    /// Whether any text of the present attempt was told.
    told: bool,
    /// Whether text waits until every guard has accepted.
    held: bool,
    /// A transformer that failed: nothing gets through any more.
    failure: Option<(Text, String)>,
    scratch: [String; 2],
}

impl Outlet {
    /// `attempt` counts unless a model begins another.
    pub(crate) fn new(frame: Arc<Frame>, attempt: u32, held: bool) -> Self {
        Self {
            frame,
            attempt,
            stretches: Vec::new(),
            annotations: Map::new(),
            told: false,
            held,
            failure: None,
            scratch: Default::default(),
        }
    }

    fn hooks(frame: &Frame) -> &[HookEntry] {
        &frame.agent.chains().stream
    }

    fn stretch(&mut self, lane: Lane) -> usize {
        if self.stretches.last().is_none_or(|last| last.lane != lane || last.finished) {
            self.finish_last();
            let make = |entry: &HookEntry| Some((entry.name.clone(), entry.hook()?.transformer()?));
            let transformers = Self::hooks(&self.frame).iter().filter_map(make).collect();
            let (raw, passed) = (String::new(), String::new());
            self.stretches.push(Stretch { lane, raw, passed, transformers, finished: false });
        }
        self.stretches.len() - 1
    }

    fn push(&mut self, lane: Lane, text: &str) {
        if text.is_empty() || self.failure.is_some() {
            return;
        }
        let index = self.stretch(lane);
        let stretch = &mut self.stretches[index];
        stretch.raw.push_str(text);
        if stretch.transformers.is_empty() {
            return self.let_through(index, text);
        }
        self.transform(index, Some(text));
    }

    fn finish_last(&mut self) {
        let Some(index) = self.stretches.len().checked_sub(1) else { return };
        if self.stretches[index].finished || self.failure.is_some() {
            return;
        }
        if !self.stretches[index].transformers.is_empty() {
            self.transform(index, None);
        }
        self.stretches[index].finished = true;
    }

    /// Runs a chunk, or the end of the stretch, through the chain of transformers.
    fn transform(&mut self, index: usize, chunk: Option<&str>) {
        let [mut from, mut to] = std::mem::take(&mut self.scratch);
        from.clear();
        from.push_str(chunk.unwrap_or_default());
        let annotations = &mut self.annotations;
        for (hook, transformer) in &mut self.stretches[index].transformers {
            to.clear();
            let mut out = Passed::new(&mut to, annotations);
            let run = || -> Result<(), crate::Failure> {
                if !from.is_empty() {
                    transformer.chunk(&from, &mut out)?;
                }
                if chunk.is_none() {
                    transformer.finish(&mut out)?;
                }
                Ok(())
            };
            let failure = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("it panicked".to_owned()),
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

    fn let_through(&mut self, index: usize, text: &str) {
        if text.is_empty() {
            return;
        }
        let stretch = &mut self.stretches[index];
        // Without transformers what was said is what is let through: one copy is enough.
        if !stretch.transformers.is_empty() {
            stretch.passed.push_str(text);
        }
        let lane = stretch.lane;
        if !self.held {
            self.tell(lane, text);
        }
    }

    fn tell(&mut self, lane: Lane, text: &str) {
        self.told = true;
        let (attempt, text) = (self.attempt, text.into());
        self.frame.tell(match lane {
            Lane::Text => Live::TextDelta { attempt, text },
            Lane::Thinking => Live::ThinkingDelta { attempt, text },
        });
    }

    /// Takes back what was told of this attempt and forgets the rest.
    pub(crate) fn discard(&mut self, by: Option<By>, reason: Option<Text>) {
        if std::mem::take(&mut self.told) {
            self.frame.tell(Live::AttemptDiscarded { attempt: self.attempt, by, reason });
        }
        self.stretches.clear();
        self.annotations.clear();
    }

    /// Makes sure that the whole of `content`, and nothing else, has come through; gives back what was let through.
    pub(crate) fn complete(&mut self, content: &Content) -> Result<Content, (Text, String)> {
        if !self.pushed_exactly(content) {
            if !self.stretches.is_empty() {
                self.discard(None, Some("the reply differs from what was streamed".into()));
            }
            for part in content.parts() {
                match part {
                    Part::Text { text } => self.push(Lane::Text, text),
                    Part::Thinking { text, .. } => self.push(Lane::Thinking, text),
                    _ => {}
                }
            }
        }
        self.finish_last();
        match self.failure.take() {
            Some(failure) => Err(failure),
            // Nothing stood between what was said and what was let through.
            None if self.stretches.iter().all(|stretch| stretch.transformers.is_empty()) => Ok(content.clone()),
            None => Ok(self.content(content)),
        }
    }

    /// Whether what was pushed is what the reply holds.
    fn pushed_exactly(&self, content: &Content) -> bool {
        let mut pushed = self.stretches.iter().map(|stretch| (stretch.lane, stretch.raw.as_str()));
        let (mut lane, mut rest) = (Lane::Text, "");
        for part in content.parts() {
            let (kind, mut text): (Lane, &str) = match part {
                Part::Text { text } => (Lane::Text, text),
                Part::Thinking { text, .. } => (Lane::Thinking, text),
                _ => continue,
            };
            while !text.is_empty() {
                if rest.is_empty() {
                    let Some(stretch) = pushed.next() else { return false };
                    (lane, rest) = stretch;
                }
                let length = text.len().min(rest.len());
                if lane != kind || text.as_bytes()[..length] != rest.as_bytes()[..length] {
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
        let mut stretches = self.stretches.iter();
        let (mut left, mut unchanged) = (0_usize, true);
        for part in reply.parts() {
            let said = match part {
                Part::Text { text } | Part::Thinking { text, .. } => text.len(),
                _ => 0,
            };
            if said > 0 && left == 0 {
                let Some(stretch) = stretches.next() else { break };
                (left, unchanged) = (stretch.raw.len(), stretch.passed() == stretch.raw);
                if !unchanged {
                    parts.extend(stretch.part());
                }
            }
            if said == 0 || unchanged {
                parts.push(part.clone());
            }
            left = left.saturating_sub(said);
        }
        parts.extend(stretches.filter_map(Stretch::part));
        parts.into()
    }

    /// Every guard has accepted: what was held is told.
    pub(crate) fn release(&mut self) {
        if !self.held {
            return;
        }
        for index in 0..self.stretches.len() {
            let stretch = &self.stretches[index];
            let (lane, text) = (stretch.lane, stretch.passed().to_owned());
            self.tell(lane, &text);
        }
    }

    /// What was told of a reply that was cut short: that, and no more, is what happened.
    pub(crate) fn told_content(&self) -> Option<Content> {
        self.told.then(|| self.content(&Content::default()))
    }

    pub(crate) fn annotations(&self) -> Option<Arc<Value>> {
        (!self.annotations.is_empty()).then(|| Arc::new(Value::Object(self.annotations.clone())))
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Sink for Outlet {
    fn begin(&mut self, attempt: u32) {
        if self.told {
            self.discard(None, Some("another attempt".into()));
        }
        self.stretches.clear();
        self.annotations.clear();
        self.attempt = attempt;
    }
    fn text(&mut self, text: &str) {
        self.push(Lane::Text, text);
    }
    fn thinking(&mut self, text: &str) {
        self.push(Lane::Thinking, text);
    }
}
