//! `turnbuckle hold`: keeps a conversation from being deleted, or lets it go again.

use serde_json::json;

use crate::Stopped;
use crate::args::{Common, Hold};
use crate::exit::Exit;
use crate::inspect::{print_all, unprintable};
use crate::output;
use crate::run::{named, refused};
use crate::show::json_line;
use crate::without_agent::WithoutAgent;

/// Puts it on hold, or releases it. What is so already is no error.
pub(crate) async fn hold(args: Hold, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id, common)?;
    let WithoutAgent { conversations, scope, .. } = WithoutAgent::existing(common)?;
    let options = common.same_store();
    let changed = match args.release {
        false => conversations.place_hold(&id, scope).await,
        true => conversations.lift_hold(&id, scope).await,
    };
    let changed = changed.map_err(|error| refused(error, common))?;
    if args.json {
        let line = json!({ "conversation": id, "on_hold": !args.release, "changed": changed });
        return print_all(&json_line(&line).map_err(unprintable)?);
    }
    output::say(&match (args.release, changed) {
        (false, true) => format!("conversation {id} is on hold; `turnbuckle hold {id} --release{options}` ends that"),
        (false, false) => format!("conversation {id} was on hold already"),
        (true, true) => format!("conversation {id} is not on hold any more"),
        (true, false) => format!("conversation {id} was not on hold"),
    });
    Ok(Exit::Completed)
}
