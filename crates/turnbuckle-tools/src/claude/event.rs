//! The events of the protocol, and what is particular about each, as data.

use std::time::Duration;

use turnbuckle::hook::Point;

/// An event of the protocol that Turnbuckle knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ClaudeEvent {
    /// A message was sent.
    UserPromptSubmit,
    /// Before each call of a tool.
    PreToolUse,
    /// A call would wait for an approval.
    PermissionRequest,
    /// A call worked.
    PostToolUse,
    /// A call that was started failed.
    PostToolUseFailure,
    /// The model says it is done.
    Stop,
    /// A sub-agent's model says it is done.
    SubagentStop,
    /// A sub-agent begins.
    SubagentStart,
    /// The turn ended because the model failed.
    StopFailure,
    /// The turn was cancelled. Not of the protocol: ours in addition.
    TurnInterrupted,
}

/// Events of the protocol that are read, and never fired here.
pub(super) const NEVER_FIRED: &[&str] = &[
    "SessionStart",
    "SessionEnd",
    "Setup",
    "InstructionsLoaded",
    "UserPromptExpansion",
    "MessageDisplay",
    "PermissionDenied",
    "PostToolBatch",
    "Notification",
    "TaskCreated",
    "TaskCompleted",
    "TeammateIdle",
    "ConfigChange",
    "CwdChanged",
    "DirectoryAdded",
    "FileChanged",
    "WorktreeCreate",
    "WorktreeRemove",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "Elicitation",
    "ElicitationResult",
];

impl ClaudeEvent {
    /// All that are fired, in the order of a turn.
    pub const ALL: [Self; 10] = [
        Self::SubagentStart,
        Self::UserPromptSubmit,
        Self::PreToolUse,
        Self::PermissionRequest,
        Self::PostToolUse,
        Self::PostToolUseFailure,
        Self::Stop,
        Self::SubagentStop,
        Self::StopFailure,
        Self::TurnInterrupted,
    ];

    /// The name in settings and in `hook_event_name`.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::PreToolUse => "PreToolUse",
            Self::PermissionRequest => "PermissionRequest",
            Self::PostToolUse => "PostToolUse",
            Self::PostToolUseFailure => "PostToolUseFailure",
            Self::Stop => "Stop",
            Self::SubagentStop => "SubagentStop",
            Self::SubagentStart => "SubagentStart",
            Self::StopFailure => "StopFailure",
            Self::TurnInterrupted => "TurnInterrupted",
        }
    }

    /// The event of this name, if it is one that is fired.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }

    /// The point of a turn at which it is fired.
    pub fn point(self) -> Point {
        match self {
            Self::UserPromptSubmit | Self::SubagentStart => Point::BeforeAgent,
            Self::PreToolUse | Self::PermissionRequest => Point::BeforeTool,
            Self::PostToolUse | Self::PostToolUseFailure => Point::AfterTool,
            Self::Stop | Self::SubagentStop => Point::OnStop,
            Self::StopFailure | Self::TurnInterrupted => Point::OnEnded,
        }
    }

    /// Whether it is about a call of a tool: only there an `if` rule can fit.
    pub(super) fn is_about_a_tool(self) -> bool {
        matches!(self, Self::PreToolUse | Self::PermissionRequest | Self::PostToolUse | Self::PostToolUseFailure)
    }

    /// Whether groups of this event have a matcher; elsewhere one is ignored.
    pub(super) fn has_matcher(self) -> bool {
        self.is_about_a_tool() || matches!(self, Self::SubagentStart | Self::SubagentStop | Self::StopFailure)
    }

    /// Whether a handler can stop something here.
    pub fn can_block(self) -> bool {
        !matches!(self, Self::SubagentStart | Self::StopFailure | Self::TurnInterrupted)
    }

    /// Whether plain text on stdout is context for the model.
    pub(super) fn takes_text(self) -> bool {
        self == Self::UserPromptSubmit
    }

    /// What a command has if its handler does not say.
    pub(super) fn default_timeout(self) -> Duration {
        Duration::from_secs(if self == Self::UserPromptSubmit { 30 } else { 600 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_found_by_its_name_and_none_is_both_fired_and_not() {
        for event in ClaudeEvent::ALL {
            assert_eq!(ClaudeEvent::named(event.name()), Some(event));
            assert!(!NEVER_FIRED.contains(&event.name()));
        }
    }
}
