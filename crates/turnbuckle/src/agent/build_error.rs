//! What can be wrong with the definition of an agent.

use std::fmt;

use crate::event::Executor;
use crate::json_schema::SchemaError;
use crate::message::Text;

/// What is wrong with a definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name that cannot be one.
    #[error("{what} name {name:?} is not made of 1 to 64 of A-Z a-z 0-9 _ -")]
    BadName {
        /// What is named so: an agent or a tool.
        what: &'static str,
        /// The name that was given.
        name: Text,
    },
    /// Two hooks, or members of groups, with one name.
    #[error("two hooks are named {hook:?}")]
    DuplicateHook {
        /// The name that was given.
        hook: Text,
    },
    /// A hook with an empty name.
    #[error("hook number {place} has an empty name")]
    NamelessHook {
        /// Counted from 1.
        place: usize,
    },
    /// Two tools with one name.
    #[error("two tools are named {tool:?}")]
    DuplicateTool {
        /// The name that was given.
        tool: Text,
    },
    /// A name or a glob that means no tool of the agent.
    #[error("{named_by} names {tool:?}, and the agent has no such tool; it has: {}", list(.known))]
    UnknownTool {
        /// What names it.
        named_by: NamedBy,
        /// The name or glob.
        tool: String,
        /// The tools that the agent has.
        known: Vec<Text>,
    },
    /// Approval is required for a tool that a person or the provider runs.
    #[error(
        "tool {tool:?} requires approval, and is run by the {executor:?}: only server and client tools can be gated"
    )]
    IllegalGate {
        /// The tool's name.
        tool: Text,
        /// Who runs the tool.
        executor: Executor,
    },
    /// A pointer by which a standing approval would know a call again names no argument of the tool: the approval would cover
    /// every call.
    #[error(
        "`standing_by` of tool {tool:?} has {pointer:?}, which is not the JSON pointer of an argument, like \"/path\""
    )]
    BadStandingBy {
        /// The tool.
        tool: Text,
        /// The pointer that was given.
        pointer: Text,
    },
    /// The parameters of a tool are not the JSON schema of an object.
    #[error("the parameters of tool {tool:?} are not the JSON schema of an object: {}", .source.problem())]
    BadSchema {
        /// The tool's name.
        tool: Text,
        /// What is wrong with it.
        source: SchemaError,
    },
    /// What answers must look like is no schema.
    #[error("the schema of the agent's answers cannot be used")]
    BadAnswerSchema {
        /// What is wrong.
        #[source]
        source: SchemaError,
    },
    /// No room is left for history.
    #[error("injection_reserve ({reserve}) must be smaller than context_tokens ({context})")]
    ReserveTooLarge {
        /// What hooks may add.
        reserve: u64,
        /// What a context may hold.
        context: u64,
    },
    /// A hook that may add more than all hooks together.
    #[error("hook {hook:?} may add {tokens} tokens, and injection_reserve is {reserve}")]
    HookBeyondReserve {
        /// The hook's name.
        hook: Text,
        /// Its `max_tokens`.
        tokens: u32,
        /// What hooks may add, together.
        reserve: u64,
    },
    /// A limit that allows nothing.
    #[error("{limit} must not be 0")]
    ZeroLimit {
        /// The limit's name in the configuration.
        limit: &'static str,
    },
    /// A setting that would be ignored.
    #[error("hook {hook:?} has {setting}, and implements no point that it applies to")]
    IdleSetting {
        /// The hook's name.
        hook: Text,
        /// The setting.
        setting: &'static str,
    },
}

/// What names a tool that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedBy {
    /// The list given to [`AgentBuilder::approve`].
    Approve,
    /// The `tools` of this hook.
    Hook(Text),
}

impl fmt::Display for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approve => f.write_str("approve"),
            Self::Hook(hook) => write!(f, "hook {hook:?}"),
        }
    }
}

fn list(known: &[Text]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
