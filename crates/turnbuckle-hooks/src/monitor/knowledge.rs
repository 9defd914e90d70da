//! What the loop knows, and how it comes from numbers to a change.

use std::collections::VecDeque;
use std::time::Duration;

use super::MonitorOptions;
use crate::time;

/// More calls in a window are not needed for a judgement.
const MOST_SAMPLES: usize = 10_000;

/// One model call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) took: Duration,
    pub(super) failed: bool,
    pub(super) refused: bool,
    pub(super) cost: f64,
}

/// What is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Course {
    /// Whether model calls go to the fallback.
    pub on_fallback: bool,
    /// How many model calls may run at once, if that is limited.
    pub concurrency: Option<u32>,
    /// How many model calls a turn may make, if that is limited.
    pub budget: Option<u32>,
}

/// A change that can be made, and undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Fallback,
    Concurrency,
    Budget,
}

#[derive(Debug)]
pub(super) struct Knowledge {
    options: MonitorOptions,
    has_fallback: bool,
    samples: VecDeque<Sample>,
    refused_stops: u32,
    /// What was in force before each change, with the change.
    before: Vec<(Change, Course)>,
    course: Course,
    changed: Option<Duration>,
}

impl Knowledge {
    pub(super) fn new(options: &MonitorOptions, has_fallback: bool) -> Self {
        let course = Course { on_fallback: false, concurrency: options.concurrency, budget: options.budget };
        Self {
            options: options.clone(),
            has_fallback,
            samples: VecDeque::new(),
            refused_stops: 0,
            before: Vec::new(),
            course,
            changed: None,
        }
    }

    pub(super) fn course(&self) -> Course {
        self.course
    }

    pub(super) fn refused_stop(&mut self) {
        self.refused_stops = self.refused_stops.saturating_add(1);
    }

    /// Takes a call in; what was changed and why, if anything was.
    pub(super) fn learn(&mut self, sample: Sample, now: Duration) -> Option<String> {
        let window = self.options.window.0;
        // A sample from the future is of another clock, or one that went back: it says nothing about now.
        self.samples.retain(|old| now.checked_sub(old.at).is_some_and(|age| age < window));
        if self.samples.len() == MOST_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        if self.samples.len() < self.options.min_calls || !self.may_change(now) {
            return None;
        }
        match self.analyse() {
            Some((why, plan)) => {
                let change = plan.into_iter().find(|change| self.can(*change))?;
                Some(self.execute(change, &why, now))
            }
            None => self.undo(now),
        }
    }

    fn may_change(&mut self, now: Duration) -> bool {
        let Some(changed) = &mut self.changed else { return true };
        *changed = (*changed).min(now);
        now - *changed >= self.options.hold.0
    }

    /// The first number beyond its set point, and the changes that may help.
    fn analyse(&self) -> Option<(String, [Change; 2])> {
        use Change::{Budget, Concurrency, Fallback};
        let calls = self.samples.len();
        let share = |count: usize| count as f64 / calls as f64;
        let errors = share(self.samples.iter().filter(|sample| sample.failed).count());
        let refused = self.samples.iter().filter(|sample| sample.refused).count() + self.refused_stops as usize;
        let refusals = share(refused).min(1.0);
        let latency = self.samples.iter().map(|sample| sample.took).sum::<Duration>() / u32::try_from(calls).ok()?;
        let cost: f64 = self.samples.iter().map(|sample| sample.cost).sum();
        let over = |value: f64, most: Option<f64>| most.is_some_and(|most| value > most);
        if over(errors, self.options.max_error_rate) {
            return Some((format!("{:.0} % of {calls} calls failed", errors * 100.0), [Fallback, Concurrency]));
        }
        if self.options.max_latency.is_some_and(|most| latency > most.0) {
            return Some((format!("a call takes {} on average", time::shown(latency)), [Concurrency, Fallback]));
        }
        if over(cost, self.options.max_cost) {
            let window = time::shown(self.options.window.0);
            return Some((format!("${cost:.2} were spent within {window}"), [Budget, Fallback]));
        }
        if over(refusals, self.options.max_refusal_rate) {
            return Some((format!("{:.0} % of {calls} calls were refused", refusals * 100.0), [Fallback, Budget]));
        }
        None
    }

    fn can(&self, change: Change) -> bool {
        let above = |now: Option<u32>, floor: u32| now.is_some_and(|now| now > floor);
        match change {
            Change::Fallback => self.has_fallback && !self.course.on_fallback,
            Change::Concurrency => above(self.course.concurrency, self.options.min_concurrency),
            Change::Budget => above(self.course.budget, self.options.min_budget),
        }
    }

    fn execute(&mut self, change: Change, why: &str, now: Duration) -> String {
        self.before.push((change, self.course));
        let halved = |now: Option<u32>, floor: u32| now.map(|now| (now / 2).max(floor));
        match change {
            Change::Fallback => self.course.on_fallback = true,
            Change::Concurrency => {
                self.course.concurrency = halved(self.course.concurrency, self.options.min_concurrency);
            }
            Change::Budget => self.course.budget = halved(self.course.budget, self.options.min_budget),
        }
        self.settle(now);
        format!("{why}: {}", self.said(change))
    }

    fn undo(&mut self, now: Duration) -> Option<String> {
        let (change, course) = self.before.pop()?;
        self.course = course;
        self.settle(now);
        Some(format!("all is within its set points: {}", self.said(change)))
    }

    /// The change is judged by what comes after it.
    fn settle(&mut self, now: Duration) {
        self.changed = Some(now);
        self.samples.clear();
        self.refused_stops = 0;
    }

    fn said(&self, change: Change) -> String {
        let Course { on_fallback, concurrency, budget } = self.course;
        match change {
            Change::Fallback if on_fallback => "model calls go to the fallback now".into(),
            Change::Fallback => "model calls go to the agent's model again".into(),
            Change::Concurrency => format!("{} model calls may run at once now", concurrency.unwrap_or_default()),
            Change::Budget => format!("a turn may make {} model calls now", budget.unwrap_or_default()),
        }
    }
}
