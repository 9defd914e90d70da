//! `turnbuckle approvals`: standing approvals, listed and revoked.

use std::io::{self, IsTerminal as _};

use serde_json::json;
use turnbuckle::Timestamp;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::store::StandingApproval;

use crate::Stopped;
use crate::args::{Approvals, ApprovalsCommand, Common};
use crate::exit::Exit;
use crate::inspect::{failed, print_all, unprintable};
use crate::output;
use crate::problem::Problem;
use crate::show::{clean, json_line, quoted};
use crate::without_agent::WithoutAgent;

/// Lists or revokes.
pub(crate) async fn approvals(args: Approvals, common: &Common) -> Result<Exit, Stopped> {
    match args.command {
        None | Some(ApprovalsCommand::List) => list(args.json, common).await,
        Some(ApprovalsCommand::Revoke { id }) => revoke(&id, args.json, common).await,
    }
}

async fn list(as_json: bool, common: &Common) -> Result<Exit, Stopped> {
    let desk = WithoutAgent::read_only(common)?;
    let (found, now) = (desk.conversations.standing(&desk.scope).await.map_err(failed)?, SystemClock::default().now());
    if found.is_empty() && !as_json && io::stderr().is_terminal() {
        output::say("there are no standing approvals: `--always` of `resolve` and `answer` makes one");
    }
    let mut text = String::new();
    for approval in &found {
        text += &match as_json {
            true => line_of_json(approval, now).map_err(unprintable)?,
            false => clean(&format!(
                "{}  {}{approval}, given by {}\n",
                approval.id,
                ended(approval, now),
                approval.by.author()
            )),
        };
    }
    print_all(&text)
}

/// What is over is kept until it is revoked, so that the log's ids can be looked up.
fn ended(approval: &StandingApproval, now: Timestamp) -> &'static str {
    match approval.is_usable(now) {
        true => "",
        false if approval.uses_left == Some(0) => "[used up] ",
        false => "[expired] ",
    }
}

fn line_of_json(approval: &StandingApproval, now: Timestamp) -> serde_json::Result<String> {
    let mut line = serde_json::to_value(approval)?;
    line["usable"] = approval.is_usable(now).into();
    json_line(&line)
}

async fn revoke(id: &str, as_json: bool, common: &Common) -> Result<Exit, Stopped> {
    let desk = WithoutAgent::existing(common)?;
    if !desk.conversations.revoke_standing(id, &desk.scope).await.map_err(failed)? {
        let problem = Problem::error(format!("there is no standing approval {}", quoted(id)));
        return Err(Stopped::failed(problem.hint(format!("`turnbuckle approvals{}` lists them", common.same_store()))));
    }
    match as_json {
        true => print_all(&json_line(&json!({ "revoked": id, "by": desk.scope.by() })).map_err(unprintable)?),
        false => {
            output::say(&format!("revoked: {id}; such calls are asked about again"));
            Ok(Exit::Completed)
        }
    }
}
