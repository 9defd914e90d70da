//! When the model says it is done, nobody takes its word for it: a stop hook looks, and refuses.
//!
//! ```sh
//! cargo run --example 05_stop_hook
//! ```

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnbuckle::hook::{OnStop, OnStopContext, stop};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let file = Arc::new(Mutex::new(String::new()));

    let written = file.clone();
    let schema = json!({"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]});
    let write = function_with_schema("write", "Writes the file.", schema, Effect::Idempotent, move |turn, args| {
        let content = args["content"].as_str().unwrap_or_default().to_owned();
        if let Ok(mut file) = written.lock() {
            *file = content;
        }
        turn.touch("config.json");
        async { Ok("written") }
    });

    let lint = stop("lint", move |turn: OnStopContext| {
        let content = file.lock().map(|file| file.clone()).unwrap_or_default();
        async move {
            turn.progress(format!("checking {}…", turn.touched().join(", ")));
            Ok(match serde_json::from_str::<serde_json::Value>(&content) {
                Ok(_) => OnStop::Accept,
                Err(error) => OnStop::Refuse(format!("config.json: {error}").into()),
            })
        }
    });

    let script = Script::of([
        ScriptReply::calls("c1", "write", json!({"content": "{\"debug\": true"})),
        ScriptReply::says("Done!"),
        ScriptReply::calls("c2", "write", json!({"content": "{\"debug\": true}"})),
        ScriptReply::says("Now it is done."),
    ]);
    let agent = Agent::builder("coder", script).tool(write).hook(lint).build()?;
    // A rig prints what each stage did.
    print!("{}", Rig::new(agent).trace("Switch debugging on.").await);
    Ok(())
}
