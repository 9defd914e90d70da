//! Creator and critic: two models that know nothing of each other, and two rounds until the work is accepted.
//!
//! ```sh
//! cargo run --example 08_critic
//! ```

use std::sync::Arc;

use turnbuckle::models::Script;
use turnbuckle::testing::Recorder;
use turnbuckle::{Agent, BoxError};
use turnbuckle_hooks::Critic;
use turnbuckle_hooks::critic::{CriticRules, Judge};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let creator = Recorder::of(Script::says([
        "Our boat never sinks.",
        "Our boat has never sunk.",
        "Our boat has not sunk in twelve years of service.",
    ]));
    let critic = Recorder::of(Script::says([
        r#"{"verdict": "regenerate", "critique": "a promise that nobody can keep"}"#,
        r#"{"verdict": "regenerate", "critique": "since when? say for how long"}"#,
        r#"{"verdict": "approve"}"#,
    ]));
    let judge = Judge::new("claims", Arc::new(critic.clone())).brief("Judge whether the claim can be proved.");
    let agent = Agent::builder("copywriter", creator.clone())
        .system("You sell boats. Be convincing.")
        .hook(Critic::new([judge], CriticRules::default())?)
        .build()?;

    let ended = agent.run("One sentence on how safe our boat is.").await?;
    println!("{} after {} drafts: {}\n", ended.outcome, ended.model_calls, ended.text());

    // What the critic reads has no trace of the creator's prompt, and the creator reads only the critique.
    let read = critic.requests()[0].messages[0].content().text();
    println!("the critic read:\n{read}\n");
    if let Some(note) = creator.requests()[1].messages.last() {
        println!("the creator read:\n{}", note.content().text());
    }
    Ok(())
}
