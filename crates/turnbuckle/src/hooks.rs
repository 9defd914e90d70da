//! Ready-made hooks that need nothing but the runtime. One file each, the same shape.

mod adviser;
mod approval;
mod check_result;
mod checks;
mod critic;
mod dry_run;
mod fallback;
mod guard;
mod instructions;
mod listening;
mod period;
mod permit;
mod ready_made;
mod redact;
mod refine;
mod retry;
mod template;
mod validate_input;

pub use adviser::Adviser;
pub use approval::{Approval, ApprovalOptions, ApprovalRule, Judgement};
pub use check_result::{CheckResult, CheckResultOptions, Unfit};
pub use checks::SchemaSource;
pub use critic::{Consensus, ConsensusOption, Critic, CriticOptions, CriticRules, Finally, Judge, JudgeOptions};
pub use dry_run::{DryRun, DryRunOptions};
pub use fallback::{Fallback, FallbackOptions};
pub use guard::{Guard, GuardOptions, GuardRule, Rule, RuleOptions, Then};
pub use instructions::{Instructions, InstructionsOptions};
pub use period::Period;
pub use permit::{Otherwise, Permit, PermitOptions, PermitRule};
pub use ready_made::{OpenModel, OptionError, ReadyMade, Surroundings};
pub use redact::{Redact, RedactAt, RedactBuilder, RedactError, RedactOptions, RedactPattern, Redactor, Strategy};
pub use refine::{Refine, RefineOptions};
pub use retry::{Around, Retry, RetryOptions};
pub use validate_input::{ValidateInput, ValidateInputOptions};
