//! A tool that needs approval: the turn waits, everything but the store goes away, and a later answer carries it on.
//!
//! ```sh
//! cargo run --example 07_ask_a_human
//! ```

use serde_json::json;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError, BuildError, Conversations, Scope, TurnStatus};

fn cashier() -> Result<Agent, BuildError> {
    let schema = json!({"type": "object", "properties": {"euros": {"type": "integer"}}, "required": ["euros"]});
    // `Never`: a refund that was started and left no result is not tried again behind anybody's back.
    let refund = function_with_schema("refund", "Pays money back.", schema, Effect::Never, |turn, args| async move {
        println!("  (the tool runs: {} euros, approved by {:?})", args["euros"], turn.approved_by());
        Ok("paid")
    });
    let script = Script::of([
        ScriptReply::calls("c1", "refund", json!({"euros": 40})),
        ScriptReply::says("You have your 40 euros back."),
    ]);
    Agent::builder("cashier", script).tool(refund.requires_approval()).build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let id = "till".into();

    let morning = Conversations::builder(cashier()?, store.clone()).build();
    let TurnStatus::Waiting(pending) = morning.send(&id, "It is broken.", Scope::local()).await?.wait().await? else {
        return Err("the refund was not asked about".into());
    };
    println!("waiting for: {:?}\n", pending[0].question);
    drop(morning);

    // Another process, another day. Only the store is the same.
    let evening = Conversations::builder(cashier()?, store).build();
    let handle = evening.resolve(&id, &pending[0].call, Answer::Approve, None, Scope::local()).await?;
    if let TurnStatus::Ended(ended) = handle.wait().await? {
        println!("{}: {}", ended.outcome, ended.text());
    }
    Ok(())
}
