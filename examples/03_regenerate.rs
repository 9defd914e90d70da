//! A guard sends a reply back with feedback. It holds the stream until it has judged, so nobody sees the draft.
//!
//! ```sh
//! cargo run --example 03_regenerate
//! ```

use std::sync::Arc;

use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::hook::{AfterModel, HookExt, guard};
use turnbuckle::models::Script;
use turnbuckle::{Agent, BoxError, Conversations, Reply, Scope};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let sources = guard("sources", |_turn, reply: Arc<Reply>| async move {
        Ok(if reply.content.text().contains('[') {
            AfterModel::Continue
        } else {
            AfterModel::Regenerate("name your source in brackets".into())
        })
    });
    let script = Script::says(["The moon is made of cheese.", "The moon is made of rock [Apollo 11]."]);
    let agent = Agent::builder("encyclopedia", script).hook(sources.release_on_accept()).build()?;

    let conversations = Conversations::in_memory(agent);
    let id = "moon".into();
    let mut viewer = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await?;
    conversations.send(&id, "What is the moon made of?", Scope::local()).await?.wait().await?;

    while let Some(told) = viewer.try_next() {
        match &told.item {
            FeedItem::Live(LiveEvent::HookFinished { hook, decision, .. }) => println!("{hook} decides: {decision}"),
            FeedItem::Live(LiveEvent::TextDelta { attempt, text }) => println!("told of attempt {attempt}: {text}"),
            _ => {}
        }
    }
    Ok(())
}
