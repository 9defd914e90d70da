//! What a hook may decide, one type a point: what makes no sense at a point cannot be written.
//!
//! A decision is plain data. It is recorded, and it can suspend a turn for a day.

use crate::message::{Reply, Text};
use crate::tool::Output;
use serde_json::Value;

/// At `before_agent`, once a turn, on the incoming message.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "HookAction")]
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
pub enum BeforeTool {
    /// No objection. A gate still asks.
    #[default]
    Continue,
    /// Run it with these arguments; they are validated again.
    Rewrite(Value),
    /// Do not run it: an error result with this reason.
    Deny(Text),
    /// Do not run it: this is the result.
    Answer(Output),
    /// A person decides.
    Ask(Text),
    /// End the turn `halted`; no call of this reply runs.
    Halt(Text),
}

/// At `after_tool`, per result.
#[derive(Clone, Debug, Default, PartialEq)]
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
pub enum AfterAgent {
    /// Go on, with whatever was changed.
    #[default]
    Continue,
    /// The rest of this chain does not run.
    Halt,
}

/// A decision's name in lower case, as records and events have it.
pub trait Named {
    /// The name.
    fn name(&self) -> &'static str;
}

macro_rules! named {
    ($($decision:ident { $($variant:ident => $name:literal),+ $(,)? })+) => {
        $(impl Named for $decision {
            fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name),+ }
            }
        })+
    };
}

named! {
    BeforeAgent { Continue => "continue", Halt => "halt", Erase => "erase" }
    BeforeModel { Continue => "continue", Halt => "halt" }
    AfterModel {
        Continue => "continue", Approve => "approve", Ask => "ask", Reject => "reject", Modify => "modify",
        Regenerate => "regenerate",
    }
    BeforeTool {
        Continue => "continue", Rewrite => "rewrite", Deny => "deny", Answer => "answer", Ask => "ask", Halt => "halt",
    }
    AfterTool { Continue => "continue", Modify => "modify", Halt => "halt" }
    OnStop { Accept => "accept", Advise => "advise", Refuse => "refuse", Pause => "pause", Prevent => "prevent" }
    AfterAgent { Continue => "continue", Halt => "halt" }
}

impl Named for () {
    fn name(&self) -> &'static str {
        "continue"
    }
}
