//! Ready-made hooks that need nothing but the runtime. One file each, the same shape.

mod approval;
mod check_result;
mod checks;
mod dry_run;
mod fallback;
mod format;
mod guard;
mod instructions;
mod listening;
mod period;
mod permit;
mod quota;
mod ready_made;
mod retry;
mod template;
mod trim;
mod validate_input;

pub use approval::{Approval, ApprovalOptions, ApprovalRule, Judgement};
pub use check_result::{CheckResult, CheckResultOptions, Unfit};
pub use checks::SchemaSource;
pub use dry_run::{DryRun, DryRunOptions};
pub use fallback::{Fallback, FallbackOptions};
pub use format::{Format, FormatOptions, FormatTo};
pub use guard::{Guard, GuardOptions, GuardRule, Rule, RuleOptions, Then};
pub use instructions::{Instructions, InstructionsOptions};
pub use period::Period;
pub use permit::{Otherwise, Permit, PermitOptions, PermitRule};
pub use quota::{Quota, QuotaOptions};
pub use ready_made::{OpenModel, OptionError, ReadyMade, Surroundings};
pub use retry::{Around, Retry, RetryOptions};
pub use template::Template;
pub use trim::{Trim, TrimOptions};
pub use validate_input::{ValidateInput, ValidateInputOptions};
