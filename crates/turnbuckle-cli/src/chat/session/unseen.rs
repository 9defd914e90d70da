//! What of a question was not shown at once: a key shows it, and nothing is approved unseen by one key.

use turnbuckle::projection::Pending;

use super::super::question::{self, Beside};
use super::super::view::View;
use super::Session;
use crate::show::Tone;

/// The most lines of a diff that a question shows at once, and how much of each: minified code is one line.
const MOST_LINES: usize = 300;
const WIDTH: usize = 500;

/// A question that was cut.
#[derive(Debug)]
pub(super) struct Cut {
    /// The whole diff, if there is one.
    diff: Option<String>,
    /// Whether the person knows that something is missing: then the key that approves does.
    is_known: bool,
    /// Whether a part was left out. Otherwise it is merely longer than the screen, and its beginning has scrolled away.
    is_shortened: bool,
}

impl Cut {
    /// `None` if all of it is on the screen.
    pub(super) fn of(pending: &Pending, diff: Option<&str>, view: &View) -> Option<Self> {
        let beside = beside(diff);
        let whole = question::whole(pending, beside);
        let is_shortened = whole != question::shown_beside(pending, beside, view.text_width())
            || diff.is_some_and(|diff| short(diff).is_some());
        let is_cut = is_shortened || !view.fits(&whole, diff);
        is_cut.then(|| Self { diff: diff.map(str::to_owned), is_known: false, is_shortened })
    }
}

/// The beginning of a long diff; `None` if it is short.
pub(super) fn short(diff: &str) -> Option<String> {
    let total = diff.lines().count();
    let is_long = |line: &str| line.len() > WIDTH;
    if total <= MOST_LINES && !diff.lines().any(is_long) {
        return None;
    }
    let line = |line: &str| match is_long(line) {
        true => format!("{}… {} more bytes, NOT shown\n", &line[..line.floor_char_boundary(WIDTH)], line.len() - WIDTH),
        false => format!("{line}\n"),
    };
    let mut text: String = diff.lines().take(MOST_LINES).map(line).collect();
    if total > MOST_LINES {
        text.push_str(&format!("… {} more lines, NOT shown", total - MOST_LINES));
    }
    Some(text)
}

pub(super) fn beside(diff: Option<&str>) -> Beside {
    if diff.is_some() { Beside::Diff } else { Beside::Nothing }
}

impl Session {
    /// Shows the question again, with everything.
    pub(super) fn view_whole(&mut self, asked: &Pending) {
        let diff = self.cut.take().and_then(|cut| cut.diff);
        question::whole(asked, beside(diff.as_deref())).iter().for_each(|line| self.view.asked(line));
        if let Some(diff) = diff {
            self.view.diff(&diff);
        }
    }

    /// Whether the call may be approved now. If something of it was not shown, the person is told so first, and approves it with the next key.
    pub(super) fn may_approve(&mut self) -> bool {
        match &mut self.cut {
            Some(cut) if !cut.is_known => {
                cut.is_known = true;
                let what = if cut.is_shortened { "was shown" } else { "is on the screen" };
                let text = format!("not all of it {what}: v shows the whole; the same key again approves it as it is");
                self.view.say("", Tone::Hook, &text);
                false
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_diff_says_what_is_missing_and_a_short_one_is_shown_as_it_is() {
        assert_eq!(short("+a\n+b\n"), None);
        let long = short(&"+x\n".repeat(400)).unwrap();
        assert!(long.ends_with("+x\n… 100 more lines, NOT shown"), "{long}");
        let wide = short(&format!("+{}\n", "é".repeat(1000))).unwrap();
        assert!(wide.ends_with("é… 1501 more bytes, NOT shown\n"), "{wide}");
    }
}
