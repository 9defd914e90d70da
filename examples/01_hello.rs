//! A whole program: an agent with a tool, one turn, and what came of it.
//!
//! ```sh
//! cargo run --example 01_hello
//! ```

use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function;
use turnbuckle::{Agent, BoxError};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // No key is needed: a script stands in for the model.
    let script = Script::of([
        ScriptReply::calls("c1", "add", serde_json::json!({ "a": 2, "b": 2 })),
        ScriptReply::says("2 + 2 is 4."),
    ]);
    let agent = Agent::builder("calculator", script)
        .system("You calculate.")
        .tool(function("add", "Adds two numbers.", Effect::Pure, |_turn, add: Add| async move {
            Ok((add.a + add.b).to_string())
        }))
        .build()?;

    let ended = agent.run("What is 2 + 2?").await?;
    println!("{} after {} model calls: {}", ended.outcome, ended.model_calls, ended.text());
    Ok(())
}
