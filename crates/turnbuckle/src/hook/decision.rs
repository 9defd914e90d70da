//! What a hook may decide, one type a point: what makes no sense at a point cannot be written.
//!
//! A decision is plain data. It is recorded, and it can suspend a turn for a day.

use crate::message::{Reply, Text};
use crate::record::Decision;
use crate::tool::Output;
use serde_json::Value;

/// At `before_agent`, once a turn, on the incoming message.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "HookAction")]
#[non_exhaustive]
pub enum BeforeAgent {
    /// Go on, with whatever was injected or rewritten.
    #[default]
    Continue,
    /// End the turn `halted`. The message stays in the log; no later context holds it.
    Halt(Text),
    /// End the turn `halted`, and do not keep the message.
    Erase(Text),
}

/// At `before_model`, before each model call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum BeforeModel {
    /// Go on, with whatever was injected or edited.
    #[default]
    Continue,
    /// End the turn `halted`.
    Halt(Text),
}

/// At `after_model`: a reply is complete and no tool has run.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "HookAction")]
#[non_exhaustive]
pub enum AfterModel {
    /// No objection.
    #[default]
    Continue,
    /// Its calls need no further gate.
    Approve,
    /// A person decides: approved, its calls need no further gate; denied, the turn ends `rejected`.
    Ask(Text),
    /// End the turn `rejected`; the reply is taken back.
    Reject(Text),
    /// Use this reply instead. Hooks behind see the new one.
    Modify(Box<Reply>),
    /// Take the reply back and ask for another, with this feedback.
    Regenerate(Text),
}

/// At `before_tool`, per call, arguments valid.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum BeforeTool {
    /// No objection. A gate still asks.
    #[default]
    Continue,
    /// Run it with these arguments; they are validated again.
    Rewrite(Value),
    /// No objection, and the tool's own approval is not needed: the log says that the hook approved the call. With arguments
    /// the call runs with those instead. It answers neither what another hook asks nor a rule of `[access] approve`, and is
    /// void if a later hook changes the arguments.
    Approve(Option<Value>),
    /// Do not run it: an error result with this reason.
    Deny(Text),
    /// Do not run it: this is the result.
    Answer(Output),
    /// A person decides.
    Ask(Text),
    /// A person decides about the call with these arguments instead; they are validated again.
    RewriteAndAsk(Value, Text),
    /// End the turn `halted`; no call of this reply runs.
    Halt(Text),
}

/// At `after_tool`, per result.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum AfterTool {
    /// As it is.
    #[default]
    Continue,
    /// The model reads this instead.
    Modify(Output),
    /// End the turn `halted`, this result logged.
    Halt(Text),
}

/// At `on_stop`: the model answered without calls.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OnStop {
    /// It is done.
    #[default]
    Accept,
    /// It is done; the next turn's model reads this.
    Advise(Text),
    /// It is not: the model reads this and goes on.
    Refuse(Text),
    /// A person decides: approved, the turn ends; denied, it is a refusal.
    Pause(Text),
    /// End the turn `halted`, whatever other hooks refuse.
    Prevent(Text),
}

/// At `after_agent`: the turn is settled.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum AfterAgent {
    /// Go on, with whatever was changed.
    #[default]
    Continue,
    /// The rest of this chain does not run.
    Halt,
}

/// At `before_compaction`: a summary is about to be made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum BeforeCompaction {
    /// Go on, with whatever is to be kept word for word.
    #[default]
    Continue,
    /// Make no summary of these turns. They are left out without one when the context becomes too large.
    Skip(Text),
}

/// What a record and an event say of a decision.
pub(crate) trait HookDecision {
    /// The name of the decision.
    fn decision(&self) -> Decision;
    /// Why, if the decision says so.
    fn reason(&self) -> Option<&Text> {
        None
    }
}

/// One line a decision: the type, and for each variant whether it carries a reason.
macro_rules! named {
    ($($Type:ident { $($Plain:ident)* $(; $($Reasoned:ident)+)? })+) => {
        $(impl HookDecision for $Type {
            fn decision(&self) -> Decision {
                match self {
                    $(Self::$Plain { .. } => Decision::$Plain,)*
                    $($(Self::$Reasoned(_) => Decision::$Reasoned,)+)?
                }
            }
            fn reason(&self) -> Option<&Text> {
                match self {
                    $($(Self::$Reasoned(reason) => Some(reason),)+)?
                    #[allow(unreachable_patterns, reason = "a type may have reasons in all its variants")]
                    _ => None,
                }
            }
        })+
    };
}

named! {
    BeforeAgent { Continue; Halt Erase }
    BeforeModel { Continue; Halt }
    AfterModel { Continue Approve Modify; Ask Reject Regenerate }
    AfterTool { Continue Modify; Halt }
    OnStop { Accept; Advise Refuse Pause Prevent }
    AfterAgent { Continue Halt }
    BeforeCompaction { Continue; Skip }
}

impl HookDecision for BeforeTool {
    fn decision(&self) -> Decision {
        match self {
            Self::Continue => Decision::Continue,
            Self::Rewrite(_) => Decision::Rewrite,
            Self::Approve(_) => Decision::Approve,
            Self::Deny(_) => Decision::Deny,
            Self::Answer(_) => Decision::Answer,
            Self::Ask(_) | Self::RewriteAndAsk(..) => Decision::Ask,
            Self::Halt(_) => Decision::Halt,
        }
    }
    fn reason(&self) -> Option<&Text> {
        match self {
            Self::Deny(reason) | Self::Ask(reason) | Self::RewriteAndAsk(_, reason) | Self::Halt(reason) => {
                Some(reason)
            }
            Self::Continue | Self::Rewrite(_) | Self::Approve(_) | Self::Answer(_) => None,
        }
    }
}

impl HookDecision for () {
    fn decision(&self) -> Decision {
        Decision::Continue
    }
}
