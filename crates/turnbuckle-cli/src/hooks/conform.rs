//! `turnbuckle hooks conform -- CMD`: whether a program speaks the protocol of hook workers.

use serde_json::json;
use turnbuckle_tools::CommandLine;
use turnbuckle_tools::worker::conform::{Finding, Verdict, conform as check};

use crate::Stopped;
use crate::args::HooksConform;
use crate::exit::Exit;
use crate::inspect::unprintable;
use crate::problem::Problem;
use crate::show::{clean, json_line};

/// Prints each finding as it comes. The program is the user's own words, so nothing needs to be accepted.
pub(super) async fn conform(options: &HooksConform, json: bool) -> Result<Exit, Stopped> {
    let folder = std::env::current_dir()
        .map_err(|error| Stopped::failed(Problem::error(format!("the current folder is not there: {error}"))))?;
    let program = CommandLine::Argv(options.program.clone());
    let mut unprinted = None;
    let is_kept = check(&program, &folder, |finding| match told(&finding, json) {
        Ok(line) => drop(super::print(&line)),
        Err(error) => unprinted = Some(error),
    })
    .await;
    match (unprinted, is_kept) {
        (Some(error), _) => Err(unprintable(error)),
        (None, true) => Ok(Exit::Completed),
        (None, false) => Err(Stopped::failed(
            Problem::error("the program does not speak the protocol").hint("docs/hook-workers.md describes it"),
        )),
    }
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
    json_line(&json!({"promise": finding.promise, "verdict": verdict, "why": why}))
}
