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
//! | `conform_print` | `before_tool` | write `conform: printed` to stdout by the language's ordinary means, and then deny with the reason `conform: no` |
//! | `conform_child` | `before_tool` | run a program that reads its stdin to the end, by the language's ordinary means, and then deny with the reason `conform: no` |
//! | `conform_uncalled` | `before_tool` | return something that is no decision, such as the function `deny` itself: a failure of this call |
//! | `conform_hold` | `stream` | hold everything back until the end, and then let it through in upper case |

mod checks;
mod peer;
mod samples;
mod stderr;

use std::fmt;
use std::path::Path;

use stderr::Stderr;

use crate::command::CommandLine;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is promised.
    pub promise: &'static str,
    /// Whether it is kept.
    pub verdict: Verdict,
    /// What the program wrote to stderr meanwhile, line by line and as it wrote it: clean it before it is shown on a terminal.
    pub stderr: Vec<String>,
}

/// How many promises are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Those that are.
    pub kept: usize,
    /// Those that are not.
    pub broken: usize,
    /// Those that the program has no hook for.
    pub not_seen: usize,
    /// Whether the program said which hooks it has. If it did not, nothing else was checked.
    pub has_begun: bool,
}

/// What is checked, and how it is started.
struct Program<'a> {
    line: &'a CommandLine,
    cwd: &'a Path,
    stderr: Stderr,
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

/// Checks a program, in the folder `cwd`. Findings are given to `tell` as they come, whatever the earlier ones were; only a program
/// that does not even say which hooks it has is asked nothing else.
pub async fn conform(line: &CommandLine, cwd: &Path, mut tell: impl FnMut(Finding)) -> Summary {
    let mut summary = Summary { has_begun: true, ..Summary::default() };
    for (at, (promise, check)) in checks::ALL.iter().enumerate() {
        let program = Program { line, cwd, stderr: Stderr::default() };
        let verdict = check(&program).await.unwrap_or_else(Verdict::Broken);
        match &verdict {
            Verdict::Kept => summary.kept += 1,
            Verdict::Broken(_) => summary.broken += 1,
            Verdict::NotSeen(_) => summary.not_seen += 1,
        }
        summary.has_begun &= at > 0 || verdict == Verdict::Kept;
        tell(Finding { promise, verdict, stderr: program.stderr.lines().await });
        if !summary.has_begun {
            break;
        }
    }
    summary
}
