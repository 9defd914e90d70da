//! `turnbuckle hooks conform -- CMD`: whether a program speaks the protocol of hook workers.

use std::io::Write as _;

use serde_json::json;
use turnbuckle_tools::CommandLine;
use turnbuckle_tools::worker::conform::{Finding, Summary, Verdict, conform as check};

use crate::Stopped;
use crate::args::HooksConform;
use crate::exit::Exit;
use crate::inspect::unprintable;
use crate::problem::Problem;
use crate::show::{clean, json_line};

/// Prints each finding as it comes, and what the program wrote to stderr on stderr. The program is the user's own words, so nothing
/// needs to be accepted.
pub(super) async fn conform(options: &HooksConform, json: bool) -> Result<Exit, Stopped> {
    let folder = std::env::current_dir()
        .map_err(|error| Stopped::failed(Problem::error(format!("the current folder is not there: {error}"))))?;
    let program = CommandLine::Argv(options.program.clone());
    let mut unprinted = None;
    let summary = check(&program, &folder, |finding| match told(&finding, json) {
        Ok(line) => {
            super::print(&line);
            if !json {
                // A closed stderr is not an error.
                let _ = std::io::stderr().lock().write_all(stderr_of(&finding).as_bytes());
            }
        }
        Err(error) => unprinted = Some(error),
    })
    .await;
    if let Some(error) = unprinted {
        return Err(unprintable(error));
    }
    if !json && summary.has_begun {
        super::print(&totals(summary));
    }
    if summary.broken == 0 {
        return Ok(Exit::Completed);
    }
    Err(Stopped::failed(match summary.has_begun {
        true => Problem::error("the program does not speak the protocol")
            .hint("hook-workers.md in the documentation of Turnbuckle describes it"),
        false => Problem::error("the program did not say which hooks it has, so nothing else was checked").hint(
            "it must stay and answer `initialize` on stdout; run it by itself to see whether it \
             starts. The SDKs for Python and TypeScript do the rest",
        ),
    }))
}

fn told(finding: &Finding, json: bool) -> Result<String, serde_json::Error> {
    if !json {
        return Ok(clean(&format!("{finding}\n")));
    }
    let (verdict, why) = match &finding.verdict {
        Verdict::Kept => ("kept", None),
        Verdict::Broken(why) => ("broken", Some(why)),
        Verdict::NotSeen(why) => ("not_seen", Some(why)),
    };
    json_line(&json!({"promise": finding.promise, "verdict": verdict, "why": why, "stderr": finding.stderr}))
}

/// Each line with a sign that it is the program's, and without what a terminal would obey.
fn stderr_of(finding: &Finding) -> String {
    finding.stderr.iter().map(|line| format!("  stderr| {}\n", clean(line))).collect()
}

fn totals(summary: Summary) -> String {
    let Summary { kept, broken, not_seen, .. } = summary;
    format!("{kept} kept, {broken} broken, {not_seen} not seen\n")
}
