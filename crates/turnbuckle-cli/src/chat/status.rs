//! The status line: model, context used, cost, hooks that run.

use std::time::{Duration, Instant};

use turnbuckle::event::{Event, EventKind};

use super::styled::Row;

/// What the status line tells.
#[derive(Debug, Default)]
pub(super) struct Status {
    model: String,
    /// What a call may hold.
    limit: u64,
    /// What the last call held, with its reply.
    context: u64,
    cost: f64,
    /// Tokens of all turns that were seen.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) turns: u64,
    /// Since when a turn is under way.
    since: Option<Instant>,
}

impl Status {
    pub(super) fn new(model: &str, limit: u64) -> Self {
        Self { model: model.to_owned(), limit, ..Self::default() }
    }

    pub(super) fn saw(&mut self, event: &Event) {
        match &event.kind {
            EventKind::AssistantMessage { usage, .. } if usage.total() > 0 => {
                self.context = usage.input + usage.cache_read + usage.cache_write + usage.output;
            }
            EventKind::TurnEnded(ended) => {
                self.cost += ended.cost;
                self.input += ended.usage.input + ended.usage.cache_read + ended.usage.cache_write;
                self.output += ended.usage.output;
                self.turns += 1;
            }
            _ => {}
        }
    }

    /// A turn is under way, or none is.
    pub(super) fn works(&mut self, is_busy: bool, now: Instant) {
        self.since = is_busy.then(|| self.since.unwrap_or(now));
    }

    /// When the time that it shows changes.
    pub(super) fn next_second(&self, now: Instant) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.since?);
        Some(now + Duration::from_secs(1) - Duration::from_nanos(passed.subsec_nanos().into()))
    }

    /// What was spent, in words.
    pub(super) fn spent(&self) -> String {
        let Self { turns, input, output, cost, .. } = self;
        let cost = if *cost > 0.0 { format!("${cost:.4}") } else { "no price is known for this model".to_owned() };
        let s = if *turns == 1 { "" } else { "s" };
        format!("{turns} turn{s} shown here: {input} tokens in, {output} out; {cost}")
    }

    pub(super) fn row(&self, hooks: usize, width: usize, now: Instant) -> Row {
        let mut parts = Vec::new();
        if let Some(since) = self.since {
            parts.push(format!("{} s, Esc interrupts", now.saturating_duration_since(since).as_secs()));
        }
        parts.push(self.model.clone());
        if self.context > 0 && self.limit > 0 {
            parts.push(format!("context {} %", (self.context * 100).div_ceil(self.limit).min(999)));
        }
        if self.cost > 0.0 {
            parts.push(format!("${:.4}", self.cost));
        }
        match hooks {
            0 => {}
            1 => parts.push("1 hook runs".to_owned()),
            many => parts.push(format!("{many} hooks run")),
        }
        Row::dim(&parts.join(" · ")).cut(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_under_way_shows_its_time_and_the_key_that_interrupts() {
        let (mut status, began) = (Status::new("demo", 100), Instant::now());
        assert_eq!(status.row(0, 60, began).text(), "demo");
        assert_eq!(status.next_second(began), None);
        status.works(true, began);
        let later = began + Duration::from_millis(12_300);
        status.works(true, later);
        assert_eq!(status.row(0, 60, later).text(), "12 s, Esc interrupts · demo");
        assert_eq!(status.next_second(later), Some(began + Duration::from_secs(13)));
        status.works(false, later);
        assert_eq!(status.row(0, 60, later).text(), "demo");
    }
}
