//! Tower's own layers around the model: a rate limit and a retry that keep their state over calls.
//!
//! ```sh
//! cargo run --example 11_tower_layer
//! ```

use std::future::{Ready, ready};
use std::time::{Duration, Instant};

use tower::ServiceBuilder;
use tower::retry::Policy;
use turnbuckle::models::{Script, ScriptFault, ScriptReply};
use turnbuckle::{Agent, BoxError, Conversations, Reply, Scope};
use turnbuckle_hooks::tower::{ModelCall, around_models};

/// A budget of retries for each call, as tower's policies have it: whatever failed is tried again.
#[derive(Clone)]
struct Retries(u32);

impl Policy<ModelCall, Reply, BoxError> for Retries {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut ModelCall, result: &mut Result<Reply, BoxError>) -> Option<Ready<()>> {
        let error = result.as_ref().err()?;
        self.0 = self.0.checked_sub(1)?;
        println!("  tower tries again: {error}");
        Some(ready(()))
    }

    fn clone_request(&mut self, call: &ModelCall) -> Option<ModelCall> {
        Some(call.clone())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let overloaded = ScriptReply {
        error: Some(ScriptFault { status: 529, retry_after: None, message: "overloaded".into() }),
        ..ScriptReply::default()
    };
    // Every conversation hears this from its beginning: it fails once, then it answers.
    let model = Script::of([overloaded, ScriptReply::says("Here I am.")]);

    // The layer is applied once. All calls of the agent share its rate limit: two in 200 ms. A retry needs a service that
    // it can clone, and a rate limit cannot be: tower's buffer stands between them, in a task of its own.
    let layer = ServiceBuilder::new().retry(Retries(2)).buffer(16).rate_limit(2, Duration::from_millis(200));
    let agent = Agent::builder("a", model).hook(around_models(layer)).build()?;

    let conversations = Conversations::in_memory(agent);
    let began = Instant::now();
    for number in 1..=3 {
        println!("turn {number}");
        let ended = conversations.run("Are you there?", Scope::local()).await?;
        println!("  {} (after {} calls)", ended.text(), ended.model_calls);
    }
    println!("six calls at two in 200 ms took {} ms", began.elapsed().as_millis());
    Ok(())
}
