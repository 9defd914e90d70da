//! A guard sends a reply back with feedback. It holds the stream until it has judged, so nobody sees the draft.
//!
//! ```sh
//! cargo run --example 03_regenerate
//! ```

use std::sync::Arc;

use turnbuckle::hook::{AfterModel, HookExt, guard};
use turnbuckle::live::{Delivery, Live, Telling};
use turnbuckle::models::Script;
use turnbuckle::{Agent, Conversations, Failure, Reply, Scope};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
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
    conversations.send(&id, "What is the moon made of?", Scope::local()).await?.rest().await?;

    while let Some(told) = viewer.try_next() {
        match &told.what {
            Telling::Live(Live::HookFinished { hook, decision, .. }) => println!("{hook} decides: {decision}"),
            Telling::Live(Live::TextDelta { attempt, text }) => println!("told of attempt {attempt}: {text}"),
            _ => {}
        }
    }
    Ok(())
}
