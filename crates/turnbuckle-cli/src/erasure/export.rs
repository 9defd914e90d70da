//! `turnbuckle export`: the lines of `show --json`, of one conversation or of all that a person owns.

use turnbuckle::feed::FeedEvent;

use crate::Stopped;
use crate::args::{Common, Export};
use crate::exit::Exit;
use crate::inspect::{failed, print, unprintable};
use crate::output;
use crate::run::{named, refused};
use crate::show::json_line;
use crate::without_agent::WithoutAgent;

/// Prints conversation by conversation.
pub(crate) async fn export(args: Export, common: &Common) -> Result<Exit, Stopped> {
    // `json` is taken because every command that prints something takes it; there is one form.
    let Export { id, user, json: _ } = args;
    let WithoutAgent { conversations, scope, .. } = WithoutAgent::existing(common)?;
    let ids = match (&id, &user) {
        (Some(id), _) => vec![named(id, common)?],
        (None, user) => {
            let user = user.as_deref().unwrap_or_default();
            let mut owned = conversations.owned_by(user, &scope).await.map_err(failed)?;
            // The list has the newest first.
            owned.reverse();
            if owned.is_empty() {
                output::say(&format!("user {user} owns no conversation here"));
            }
            owned.into_iter().map(|one| one.id).collect()
        }
    };
    for id in ids {
        let events = conversations.export(&id, scope.clone()).await.map_err(|error| refused(error, common))?;
        for event in &events {
            if !print(&line(event)?)? {
                return Ok(Exit::Completed);
            }
        }
    }
    Ok(Exit::Completed)
}

fn line(event: &FeedEvent) -> Result<String, Stopped> {
    json_line(event).map_err(unprintable)
}
