//! The events of the protocol, and what is particular about each, as data.

use std::time::Duration;

use turnbuckle::hook::Point;

/// An event of the protocol that Turnbuckle knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ClaudeEvent {
    /// A process takes a conversation up for the first time.
    SessionStart,
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
    /// All calls of a reply have their results, and the model is about to be asked again.
    PostToolBatch,
    /// The model says it is done.
    Stop,
    /// A sub-agent's model says it is done.
    SubagentStop,
    /// A sub-agent begins.
    SubagentStart,
    /// The turn ended because the model failed.
    StopFailure,
    /// Somebody is asked something.
    Notification,
    /// A summary of the oldest turns is about to be made.
    PreCompact,
    /// A summary of the oldest turns was made.
    PostCompact,
    /// The process lets the conversation go.
    SessionEnd,
    /// The turn was cancelled. Not of the protocol: ours in addition.
    TurnInterrupted,
}

/// Events of the protocol that are read, and never fired here.
pub(super) const NEVER_FIRED: &[&str] = &[
    "Setup",
    "InstructionsLoaded",
    "UserPromptExpansion",
    "MessageDisplay",
    "PermissionDenied",
    "TaskCreated",
    "TaskCompleted",
    "TeammateIdle",
    "ConfigChange",
    "CwdChanged",
    "DirectoryAdded",
    "FileChanged",
    "WorktreeCreate",
    "WorktreeRemove",
    "PreModelSwitch",
    "PostModelSwitch",
    "Elicitation",
    "ElicitationResult",
];

impl ClaudeEvent {
    /// All that are fired, in the order of a turn.
    pub const ALL: [Self; 16] = [
        Self::SessionStart,
        Self::SubagentStart,
        Self::UserPromptSubmit,
        Self::PreToolUse,
        Self::PermissionRequest,
        Self::PostToolUse,
        Self::PostToolUseFailure,
        Self::PostToolBatch,
        Self::Notification,
        Self::Stop,
        Self::SubagentStop,
        Self::StopFailure,
        Self::TurnInterrupted,
        Self::PreCompact,
        Self::PostCompact,
        Self::SessionEnd,
    ];

    /// The name in settings and in `hook_event_name`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "SessionStart",
            Self::PostToolBatch => "PostToolBatch",
            Self::Notification => "Notification",
            Self::PreCompact => "PreCompact",
            Self::PostCompact => "PostCompact",
            Self::SessionEnd => "SessionEnd",
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
            Self::SessionStart | Self::SessionEnd => Point::OnConversation,
            Self::PostToolBatch => Point::BeforeModel,
            Self::Notification => Point::OnLogged,
            Self::UserPromptSubmit | Self::SubagentStart => Point::BeforeAgent,
            Self::PreToolUse | Self::PermissionRequest => Point::BeforeTool,
            Self::PostToolUse | Self::PostToolUseFailure => Point::AfterTool,
            Self::Stop | Self::SubagentStop => Point::OnStop,
            Self::StopFailure | Self::TurnInterrupted => Point::OnEnded,
            Self::PreCompact | Self::PostCompact => Point::BeforeCompaction,
        }
    }

    /// Whether it is about a call of a tool: only there an `if` rule can fit.
    pub(super) fn is_about_a_tool(self) -> bool {
        matches!(self, Self::PreToolUse | Self::PermissionRequest | Self::PostToolUse | Self::PostToolUseFailure)
    }

    /// Whether groups of this event have a matcher; elsewhere one is ignored.
    pub(super) fn has_matcher(self) -> bool {
        self.is_about_a_tool()
            || matches!(
                self,
                Self::SubagentStart
                    | Self::SubagentStop
                    | Self::StopFailure
                    | Self::SessionStart
                    | Self::SessionEnd
                    | Self::Notification
                    | Self::PreCompact
                    | Self::PostCompact
            )
    }

    /// Whether a matcher is a regular expression as soon as it has a blank, a comma or a hyphen.
    pub(super) fn has_narrow_names(self) -> bool {
        self == Self::StopFailure
    }

    /// What matchers are compared with, by its key in the event. None where there are no matchers.
    pub fn subject(self) -> Option<&'static str> {
        let key = match self {
            Self::SubagentStart | Self::SubagentStop => "agent_type",
            Self::SessionStart => "source",
            Self::SessionEnd => "reason",
            Self::Notification => "notification_type",
            Self::StopFailure => "error",
            Self::PreCompact | Self::PostCompact => "trigger",
            _ => "tool_name",
        };
        self.has_matcher().then_some(key)
    }

    /// Whether handlers read a `permission_mode`: at events of a turn, not at those of sessions and of the system.
    pub(super) fn has_permission_mode(self) -> bool {
        self.is_about_a_tool()
            || matches!(self, Self::UserPromptSubmit | Self::PostToolBatch | Self::Stop | Self::SubagentStop)
    }

    /// Whether handlers read how much trouble the model takes.
    pub(super) fn has_effort(self) -> bool {
        self.is_about_a_tool() || matches!(self, Self::Stop | Self::SubagentStop)
    }

    /// Whether it is fired where there is no turn whose context could be written down.
    pub(super) fn is_outside_turns(self) -> bool {
        matches!(
            self,
            Self::SessionEnd
                | Self::Notification
                | Self::StopFailure
                | Self::TurnInterrupted
                | Self::PreCompact
                | Self::PostCompact
        )
    }

    /// Whether what a handler adds for the model reaches it.
    pub(super) fn takes_context(self) -> bool {
        !matches!(
            self,
            Self::PermissionRequest
                | Self::Notification
                | Self::StopFailure
                | Self::TurnInterrupted
                | Self::PreCompact
                | Self::PostCompact
                | Self::SessionEnd
        )
    }

    /// Whether `"continue": false` ends the turn.
    pub(super) fn can_end_turn(self) -> bool {
        self.can_block() && self != Self::PreCompact
    }

    /// Whether a handler can stop something here.
    pub fn can_block(self) -> bool {
        !matches!(
            self,
            Self::SessionStart
                | Self::SubagentStart
                | Self::Notification
                | Self::StopFailure
                | Self::TurnInterrupted
                | Self::PostCompact
                | Self::SessionEnd
        )
    }

    /// Whether plain text on stdout is context for the model.
    pub(super) fn takes_text(self) -> bool {
        matches!(self, Self::UserPromptSubmit | Self::SessionStart)
    }

    /// What a command has if its handler does not say.
    pub(super) fn default_timeout(self) -> Duration {
        match self {
            Self::UserPromptSubmit => Duration::from_secs(30),
            // All handlers of it share this.
            Self::SessionEnd => Duration::from_millis(1500),
            _ => Duration::from_secs(600),
        }
    }

    /// The kinds of handlers that it has, beside commands.
    pub(super) fn takes(self, kind: &str) -> bool {
        match kind {
            "http" => self != Self::SessionStart,
            "prompt" => self.can_end_turn(),
            _ => true,
        }
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
