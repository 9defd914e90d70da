//! `turnbuckle hold`: keeps a conversation from being deleted, or lets it go again.

use crate::Stopped;
use crate::args::{Common, Hold};
use crate::exit::Exit;
use crate::output;
use crate::run::{named, refused};
use crate::without_agent::WithoutAgent;

/// Puts it on hold, or releases it. What is so already is no error.
pub(crate) async fn hold(args: Hold, common: &Common) -> Result<Exit, Stopped> {
    let id = named(&args.id, common)?;
    let WithoutAgent { conversations, scope, .. } = WithoutAgent::existing(common)?;
    let options = common.same_store();
    let said = match args.release {
        false => match conversations.place_hold(&id, scope).await.map_err(|error| refused(error, common))? {
            true => format!("conversation {id} is on hold; `turnbuckle hold {id} --release{options}` ends that"),
            false => format!("conversation {id} was on hold already"),
        },
        true => match conversations.lift_hold(&id, scope).await.map_err(|error| refused(error, common))? {
            true => format!("conversation {id} is not on hold any more"),
            false => format!("conversation {id} was not on hold"),
        },
    };
    output::say(&said);
    Ok(Exit::Completed)
}
