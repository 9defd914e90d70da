//! The three things that a monitor can change, and the rule by which each changes.

use std::time::Duration;

use super::window::{Sample, Totals, Window};
use super::{MonitorOptions, MonitorState};
use crate::time;

/// What a control changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Which model is asked: level 1 is the fallback.
    Fallback,
    /// How many model calls may run at once: each level halves it.
    Concurrency,
    /// How many model calls a turn may make: each level halves it.
    Budget,
}

/// One row of the table in the documentation of the module.
#[derive(Debug)]
struct Control {
    action: Action,
    /// The calls since the last change of this control.
    window: Window,
    /// How many steps it is away from normal.
    level: u32,
    /// When it changed last.
    changed: Option<Duration>,
}

/// All controls of a monitor.
#[derive(Debug)]
pub(super) struct Controls {
    options: MonitorOptions,
    has_fallback: bool,
    controls: Vec<Control>,
}

impl Controls {
    /// Only controls that have a limit: the others cost nothing.
    pub(super) fn new(options: MonitorOptions, has_fallback: bool) -> Self {
        let limited = [
            (Action::Fallback, options.max_error_rate.or(options.max_refusal_rate).is_some()),
            (Action::Concurrency, options.max_latency.is_some()),
            (Action::Budget, options.max_cost.is_some()),
        ];
        let control = |action| Control { action, window: Window::new(options.window.0), level: 0, changed: None };
        let controls = limited.into_iter().filter(|(_, limited)| *limited).map(|(action, _)| control(action)).collect();
        Self { options, has_fallback, controls }
    }

    pub(super) fn state(&self) -> MonitorState {
        let level =
            |action| self.controls.iter().find(|control| control.action == action).map_or(0, |control| control.level);
        let reduced = |action, normal: Option<u32>, least| normal.map(|normal| reduced(normal, least, level(action)));
        MonitorState {
            on_fallback: self.has_fallback && level(Action::Fallback) > 0,
            concurrency: reduced(Action::Concurrency, self.options.concurrency, self.options.min_concurrency),
            budget: reduced(Action::Budget, self.options.budget, self.options.min_budget),
        }
    }

    /// Counts a call, and returns a notice for each control that it changed.
    pub(super) fn add(&mut self, sample: &Sample, now: Duration) -> Vec<String> {
        let Self { options, has_fallback, controls } = self;
        controls.iter_mut().filter_map(|control| control.add(sample, now, options, *has_fallback)).collect()
    }

    /// Counts a stop that a hook refused, as a refusal of the reply before it.
    pub(super) fn add_refused_stop(&mut self) {
        self.controls.iter_mut().for_each(|control| control.window.add_refusal());
    }
}

fn reduced(normal: u32, least: u32, level: u32) -> u32 {
    normal.checked_shr(level).unwrap_or(0).max(least)
}

impl Control {
    fn add(&mut self, sample: &Sample, now: Duration, options: &MonitorOptions, has_fallback: bool) -> Option<String> {
        self.window.add(sample, now);
        let totals = self.window.totals();
        if (totals.calls as usize) < options.min_calls || !self.may_change(now, options.hold.0) {
            return None;
        }
        let level = match self.is_above_limit(&totals, options) {
            true if self.can_step(options) => self.level + 1,
            false if self.level > 0 => self.level - 1,
            _ => return None,
        };
        self.level = level;
        self.changed = Some(now);
        self.window.clear();
        let (numbers, window) = (self.numbers(&totals, options), time::shown(options.window.0));
        let effect = self.effect(options, has_fallback);
        Some(format!("{numbers} over {} calls in {window}: {effect}", totals.calls))
    }

    fn may_change(&mut self, now: Duration, hold: Duration) -> bool {
        let Some(changed) = &mut self.changed else { return true };
        // A change in the future means that the clock went back: the hold then starts now.
        *changed = (*changed).min(now);
        now - *changed >= hold
    }

    fn is_above_limit(&self, totals: &Totals, options: &MonitorOptions) -> bool {
        let above = |number: f64, limit: Option<f64>| limit.is_some_and(|limit| number > limit);
        match self.action {
            Action::Fallback => {
                above(totals.error_rate(), options.max_error_rate)
                    || above(totals.refusal_rate(), options.max_refusal_rate)
            }
            Action::Concurrency => options.max_latency.is_some_and(|limit| totals.average_latency() > limit.0),
            Action::Budget => above(totals.cost, options.max_cost),
        }
    }

    fn can_step(&self, options: &MonitorOptions) -> bool {
        let smaller = |normal: Option<u32>, least| match normal {
            Some(normal) => reduced(normal, least, self.level + 1) < reduced(normal, least, self.level),
            // Nothing to change: the limit is announced once.
            None => self.level == 0,
        };
        match self.action {
            Action::Fallback => self.level == 0,
            Action::Concurrency => smaller(options.concurrency, options.min_concurrency),
            Action::Budget => smaller(options.budget, options.min_budget),
        }
    }

    /// What was measured, with the limits.
    fn numbers(&self, totals: &Totals, options: &MonitorOptions) -> String {
        let rate = |name: &str, rate: f64, limit: Option<f64>| {
            limit.map(|limit| format!("{name} {:.0} % (limit {:.0} %)", rate * 100.0, limit * 100.0))
        };
        match self.action {
            Action::Fallback => {
                let errors = rate("error rate", totals.error_rate(), options.max_error_rate);
                let refusals = rate("refusal rate", totals.refusal_rate(), options.max_refusal_rate);
                errors.into_iter().chain(refusals).collect::<Vec<_>>().join(", ")
            }
            Action::Concurrency => {
                let limit = options.max_latency.map(|limit| time::shown(limit.0).to_string()).unwrap_or_default();
                format!("average latency {} (limit {limit})", time::shown(totals.average_latency()))
            }
            Action::Budget => format!("cost ${:.2} (limit ${:.2})", totals.cost, options.max_cost.unwrap_or_default()),
        }
    }

    /// What holds from now on.
    fn effect(&self, options: &MonitorOptions, has_fallback: bool) -> String {
        let value = |normal: Option<u32>, least| normal.map(|normal| reduced(normal, least, self.level));
        let changed = match self.action {
            Action::Fallback if !has_fallback => None,
            Action::Fallback if self.level > 0 => Some("model calls go to the fallback model".to_owned()),
            Action::Fallback => Some("model calls go to the agent's model again".to_owned()),
            Action::Concurrency => value(options.concurrency, options.min_concurrency)
                .map(|calls| format!("at most {calls} model calls run at once")),
            Action::Budget => value(options.budget, options.min_budget)
                .map(|calls| format!("a turn may make at most {calls} model calls")),
        };
        changed.unwrap_or_else(|| if self.level > 0 { "above the limit" } else { "within the limit again" }.to_owned())
    }
}
