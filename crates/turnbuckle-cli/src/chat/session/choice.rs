//! Which standing approval is made of a call: some are offered, from narrow to broad, and each is shown as it would be stored.

use std::collections::BTreeSet;

use turnbuckle::projection::Pending;
use turnbuckle::store::{Answer, StandingApproval};
use turnbuckle_tools::rules;

use super::super::keys::Key;
use super::super::question;
use super::Session;
use super::answers::Mode;
use crate::show::{Tone, brief};

/// Standing approvals to choose from. There is at least one.
#[derive(Debug)]
pub(super) struct Choice {
    offered: Vec<StandingApproval>,
    chosen: usize,
}

impl Choice {
    /// The narrowest is chosen until the person says otherwise. `None` if nothing is offered.
    fn of(offered: Vec<StandingApproval>) -> Option<Self> {
        (!offered.is_empty()).then_some(Self { offered, chosen: 0 })
    }

    /// One row for each, and what keys do.
    pub(super) fn lines(&self) -> Vec<String> {
        let row = |(place, approval): (usize, &StandingApproval)| {
            let mark = if place == self.chosen { '›' } else { ' ' };
            // A rule is exact and hard to read; whoever chooses must know what it lets through.
            let words = rules::in_words(&approval.tool, &approval.arguments);
            let words = words.map_or_else(String::new, |words| format!("{words}: "));
            format!("{mark} {} {words}{}", place + 1, brief(&approval.covered()))
        };
        let keys = ["Up, Down or a number chooses", "Enter stores it and approves", "Esc goes back"];
        self.offered.iter().enumerate().map(row).chain(keys.map(str::to_owned)).collect()
    }

    /// What stands before the line being typed.
    pub(super) fn label(&self) -> String {
        format!("rule {} of {} › ", self.chosen + 1, self.offered.len())
    }

    /// Chooses another one. False if the key does not.
    fn press(&mut self, key: &Key) -> bool {
        let last = self.offered.len() - 1;
        let chosen = match key {
            Key::Up => self.chosen.saturating_sub(1),
            Key::Down => (self.chosen + 1).min(last),
            Key::Char(digit) => match digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()) {
                Some(number @ 1..) if number <= self.offered.len() => number - 1,
                _ => return false,
            },
            _ => return false,
        };
        self.chosen = chosen;
        true
    }
}

impl Session {
    /// Standing approvals were proposed: each is shown in full, as it would be stored, before one is.
    pub(super) fn propose(&mut self, offered: Vec<StandingApproval>) {
        if self.question.is_none() {
            return;
        }
        for (approval, number) in offered.iter().zip(1..) {
            let label = if number == 1 { "always" } else { "" };
            self.view.say(label, Tone::Hook, &format!("{number} {approval}"));
        }
        let remarks: BTreeSet<String> =
            offered.iter().filter_map(|approval| rules::remark(&approval.tool, &approval.arguments)).collect();
        for remark in remarks {
            self.view.say("", Tone::Dim, &remark);
        }
        if let Some(choice) = Choice::of(offered) {
            self.mode = Mode::Always(choice);
        }
    }

    /// Whether a key chooses among standing approvals.
    pub(super) fn chooses_by_key(&mut self, key: &Key) -> bool {
        match &mut self.mode {
            Mode::Always(choice) if self.view.draft.is_empty() => choice.press(key),
            _ => false,
        }
    }

    /// A line while standing approvals are offered: Enter alone stores the chosen one.
    pub(super) fn chosen_line(&mut self, asked: &Pending, mut choice: Choice, line: &str) {
        if line.is_empty() || question::is_yes(line) {
            let approval = choice.offered.swap_remove(choice.chosen);
            self.view.say("always", Tone::Hook, &format!("{}: {approval}", approval.id));
            return self.give(asked, Answer::Approve, Some(approval));
        }
        if question::is_no(line) {
            return self.view.say("", Tone::Dim, "nothing is stored");
        }
        self.view.say("", Tone::Dim, "Enter stores the chosen rule and approves this call, Esc goes back");
        self.mode = Mode::Always(choice);
    }
}
