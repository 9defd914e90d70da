//! A secret that comes in pieces is still taken out of the stream, and out of the log.
//!
//! ```sh
//! cargo run --example 04_redact_stream
//! ```

use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::{Agent, BoxError, Conversations, Scope};
use turnbuckle_hooks::Redact;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let chunks =
        ["Write to ann", ".lee@exam", "ple.com, her card is 4111 11", "11 1111 1111", ", ticket TCK-1", "23456."];
    println!("the model says: {chunks:?}");
    let redact = Redact::builder().emails().cards().pattern("ticket", "TCK-[0-9]{6}").build()?;
    let agent = Agent::builder("gossip", Script::of([ScriptReply::chunks(chunks)])).hook(redact).build()?;

    let conversations = Conversations::in_memory(agent);
    let id = "desk".into();
    let mut viewer = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await?;
    conversations.send(&id, "How do I reach Ann?", Scope::local()).await?.wait().await?;

    print!("people see:     ");
    while let Some(told) = viewer.try_next() {
        if let FeedItem::Live(LiveEvent::TextDelta { text, .. }) = &told.item {
            print!(" {text:?}");
        }
    }
    let log = serde_json::to_string(&conversations.log(&id, Scope::local()).await?)?;
    println!("\nthe log knows her address: {}", log.contains("ann.lee"));
    Ok(())
}
