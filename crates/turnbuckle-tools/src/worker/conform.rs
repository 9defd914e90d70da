//! The conformance kit: whether a program speaks the protocol of hook workers.
//!
//! [`conform`] starts the program anew for each check and speaks to it as the runtime does, also in ways that a good day does not
//! bring: unknown methods, cancelled calls, long lines. Every program can be checked; hooks with the names below are asked for
//! exact answers, so that an SDK can be tested through and through. `docs/hook-workers.md` says what each must do.
//!
//! | hook | point | must |
//! |---|---|---|
//! | `conform_deny` | `before_tool` | deny with the reason `conform: no` |
//! | `conform_fail` | `before_agent` | fail with `conform: broken` in its message |
//! | `conform_wait` | `on_stop` | say `conform: waiting` as its progress, and then wait until it is cancelled |
//! | `conform_twice` | `wrap_tool_call` | call `next` twice, and answer with both texts, joined by `, ` |
//! | `conform_pass_on` | `wrap_model_call` | pass on what `next` answers, and that it failed |
//! | `conform_hold` | `stream` | hold everything back until the end, and then let it through in upper case |

mod checks;
mod peer;
mod samples;

use std::fmt;
use std::path::Path;

use crate::command::CommandLine;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is promised.
    pub promise: &'static str,
    /// Whether it is kept.
    pub verdict: Verdict,
}

/// Whether a promise is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Kept,
    /// It is not, and why.
    Broken(String),
    /// The program has no hook that it could be seen with.
    NotSeen(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Kept => write!(f, "ok      {}", self.promise),
            Verdict::Broken(why) => write!(f, "BROKEN  {}: {why}", self.promise),
            Verdict::NotSeen(why) => write!(f, "-       {}: {why}", self.promise),
        }
    }
}

/// Checks a program, in the folder `cwd`. Findings are given to `tell` as they come; true if no promise is broken.
pub async fn conform(program: &CommandLine, cwd: &Path, mut tell: impl FnMut(Finding)) -> bool {
    let mut is_kept = true;
    for (promise, check) in checks::ALL {
        let verdict = match check(program, cwd).await {
            Ok(verdict) => verdict,
            Err(why) => Verdict::Broken(why),
        };
        is_kept &= !matches!(verdict, Verdict::Broken(_));
        tell(Finding { promise, verdict });
    }
    is_kept
}
