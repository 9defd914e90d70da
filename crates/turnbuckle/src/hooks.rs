//! Ready-made hooks that need nothing but the runtime. Each has a module of its own, whose page says what the hook does,
//! at which points it runs, and which options it has.
//!
//! | module | what the hook does |
//! |---|---|
//! | [`validate_input`] | refuses messages that are empty, too long, or not what is expected |
//! | [`quota`] | limits the turns and tokens of each user in a window of time |
//! | [`instructions`] | reads AGENTS.md, CLAUDE.md and texts of yours into every turn |
//! | [`trim`] | leaves duplicates, old pictures and long old results out of a model call |
//! | [`retry`] | tries model and tool calls again after transient failures |
//! | [`fallback`] | asks other models, in order, when one fails |
//! | [`guard`] | checks every reply of the model against rules |
//! | [`approval`] | asks a person about tool calls that rules select |
//! | [`permit`] | permits tools by the roles of the acting user |
//! | [`dry_run`] | answers tool calls with what would run |
//! | [`check_result`] | checks tool results against a JSON schema |
//! | [`format`](mod@format) | shows the result as JSON, as Markdown or through a template |
//!
//! The crate `turnbuckle-hooks` has hooks with dependencies of their own and hooks that ask another model: redaction,
//! critics, limits, caches, memory, telemetry.
//!
//! Every hook here can be given to [`AgentBuilder::hook`](crate::AgentBuilder::hook), and a program can build it by name
//! from configuration: see [`ConfigHook`].

pub mod approval;
pub mod check_result;
mod checks;
mod config_hook;
pub mod dry_run;
pub mod fallback;
pub mod format;
pub mod guard;
mod human_duration;
pub mod instructions;
pub mod permit;
pub mod quota;
pub mod retry;
mod template;
mod tracking_sink;
pub mod trim;
pub mod validate_input;
mod wrapped_calls;

pub use approval::Approval;
pub use check_result::CheckResult;
pub use checks::SchemaSource;
pub use config_hook::{ConfigHook, HookBuildContext, KnownDatabases, OpenModel, OptionError, ProgramCheck};
pub use config_hook::{LinkMaker, ToolAnswer, ToolServers};
pub use dry_run::DryRun;
pub use fallback::Fallback;
pub use format::Format;
pub use guard::Guard;
pub use human_duration::HumanDuration;
pub use instructions::Instructions;
pub use permit::Permit;
pub use quota::Quota;
pub use retry::Retry;
pub use template::Template;
pub use trim::Trim;
pub use validate_input::ValidateInput;
pub use wrapped_calls::WrappedCalls;
