//! The crash kit: a tool that says it is idempotent and is not books twice, and the kit says where. Then it is mended.
//!
//! ```sh
//! cargo run --example 14_crash_kit
//! ```

use serde_json::json;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::crash::{Kit, World};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, BoxError, BuildError};

/// `Idempotent` is a promise: run again with the same call id, it does not book again.
fn book(world: &World, asks_first: bool) -> FunctionTool {
    let world = world.clone();
    let schema = json!({"type": "object", "properties": {"room": {"type": "integer"}}, "required": ["room"]});
    function_with_schema("book", "Books a room.", schema, Effect::Idempotent, move |turn, args| {
        let world = world.clone();
        async move {
            // The world knows the booking by the call's id; a real service would be given it as its key.
            if !(asks_first && world.has_happened(&turn)) {
                world.happened(&turn, format!("booked room {}", args["room"])).await;
            }
            Ok("booked")
        }
    })
}

fn clerk(book: FunctionTool) -> Result<Agent, BuildError> {
    let script =
        Script::of([ScriptReply::calls("c1", "book", json!({"room": 7})), ScriptReply::says("Room 7 is yours.")]);
    Agent::builder("clerk", script).tool(book).build()
}

fn main() -> Result<(), BoxError> {
    let careless = Kit::new(|world| clerk(book(world, false))).say("A room, please.").run();
    println!("-- careless: {careless}");
    if careless.is_kept() {
        return Err("the careless tool was not found".into());
    }

    let careful = Kit::new(|world| clerk(book(world, true))).say("A room, please.").run();
    println!("-- careful: {careful}");
    if !careful.is_kept() {
        return Err("the careful tool was blamed".into());
    }
    Ok(())
}
