//! How a person who looks elsewhere learns that the chat waits for them: the bell, or a desktop notification of the terminal.
//!
//! Terminals that know desktop notifications tell programs when they lose the focus. So one is sent only then, and only to terminals that are
//! known to show it: others would print it, or ignore it. tmux and screen pass the bell on, and not the rest.

use std::env;

/// Chooses: `auto` (the default), `bell`, `osc9`, `osc777` or `off`.
const VARIABLE: &str = "TURNBUCKLE_NOTIFY";
/// `off` keeps everything silent.
const BELL: &str = "TURNBUCKLE_BELL";

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    ForAnswer,
    ForMessage,
}

impl Waiting {
    /// Words of ours alone: what a model or a server says does not reach the desktop.
    fn words(self) -> &'static str {
        match self {
            Self::ForAnswer => "Turnbuckle waits for your answer",
            Self::ForMessage => "Turnbuckle is done",
        }
    }
}

/// What this terminal is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Off,
    Bell,
    /// `OSC 9 ; text`: iTerm2, WezTerm, Ghostty, kitty, Warp.
    Osc9,
    /// `OSC 777 ; notify ; title ; text`: urxvt, foot, terminals built on VTE.
    Osc777,
}

/// Tells a person that the chat waits.
#[derive(Debug)]
pub(super) struct Notifier {
    means: Means,
    /// Until the terminal says otherwise: someone has just started the program in it.
    is_focused: bool,
}

impl Notifier {
    pub(super) fn of_environment() -> Self {
        Self::of(&|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
        let means = match variable(VARIABLE).as_deref() {
            _ if is(BELL, "off") => Means::Off,
            Some("off") => Means::Off,
            Some("bell") => Means::Bell,
            Some("osc9") => Means::Osc9,
            Some("osc777") => Means::Osc777,
            _ => Means::known(variable),
        };
        Self { means, is_focused: true }
    }

    /// The terminal has got the focus, or lost it.
    pub(super) fn focus(&mut self, is_focused: bool) {
        self.is_focused = is_focused;
    }

    /// What to write to the terminal.
    pub(super) fn sequence(&self, waiting: Waiting) -> String {
        let words = waiting.words();
        match (self.means, self.is_focused) {
            (Means::Off, _) => String::new(),
            (Means::Bell, _) | (Means::Osc9 | Means::Osc777, true) => "\x07".to_owned(),
            (Means::Osc9, false) => format!("\x1b]9;{words}\x1b\\"),
            (Means::Osc777, false) => format!("\x1b]777;notify;Turnbuckle;{words}\x1b\\"),
        }
    }
}

impl Means {
    fn known(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let term = variable("TERM").unwrap_or_default();
        let is_inside = variable("TMUX").is_some() || variable("STY").is_some();
        if is_inside || term.starts_with("screen") || term.starts_with("tmux") {
            return Self::Bell;
        }
        if let Some("iTerm.app" | "WezTerm" | "ghostty" | "WarpTerminal") = variable("TERM_PROGRAM").as_deref() {
            return Self::Osc9;
        }
        // Over ssh only TERM tells.
        match term.as_str() {
            "xterm-kitty" | "xterm-ghostty" | "wezterm" => Self::Osc9,
            term if term.starts_with("rxvt-unicode") || term == "foot" || term.starts_with("foot-") => Self::Osc777,
            _ if variable("VTE_VERSION").is_some() => Self::Osc777,
            _ => Self::Bell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(variables: &[(&str, &str)], is_focused: bool) -> String {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let mut notifier = Notifier::of(&find);
        notifier.focus(is_focused);
        notifier.sequence(Waiting::ForAnswer)
    }

    #[test]
    fn a_desktop_notification_is_sent_only_without_the_focus_and_only_where_it_is_known() {
        let kitty = [("TERM", "xterm-kitty")];
        assert_eq!(sent(&kitty, true), "\x07");
        assert_eq!(sent(&kitty, false), "\x1b]9;Turnbuckle waits for your answer\x1b\\");
        let foot = [("TERM", "foot")];
        assert_eq!(sent(&foot, false), "\x1b]777;notify;Turnbuckle;Turnbuckle waits for your answer\x1b\\");
        let iterm = [("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")];
        assert!(sent(&iterm, false).starts_with("\x1b]9;"));
        for plain in [
            &[("TERM", "xterm-256color")][..],
            &[("TERM", "tmux-256color"), ("TERM_PROGRAM", "iTerm.app")],
            &[("TERM", "xterm-kitty"), ("TMUX", "/tmp/x")],
            &[],
        ] {
            assert_eq!(sent(plain, false), "\x07", "{plain:?}");
        }
    }

    #[test]
    fn the_person_chooses_and_can_have_silence() {
        assert_eq!(sent(&[("TURNBUCKLE_NOTIFY", "osc777"), ("TMUX", "x")], false).split(';').next(), Some("\x1b]777"));
        assert_eq!(sent(&[("TURNBUCKLE_NOTIFY", "bell"), ("TERM", "xterm-kitty")], false), "\x07");
        assert_eq!(sent(&[("TURNBUCKLE_NOTIFY", "off")], false), "");
        assert_eq!(sent(&[("TURNBUCKLE_BELL", "off"), ("TERM", "xterm-kitty")], false), "");
    }
}
