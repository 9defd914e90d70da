//! One hook at all six lifecycle points, each saying that it was there.
//!
//! ```sh
//! cargo run --example 02_lifecycle_hooks
//! ```

use std::sync::Arc;

use serde_json::json;
use turnbuckle::hook::{AfterAgent, AfterModel, BeforeAgent, BeforeModel, Hook};
use turnbuckle::hook::{AfterAgentContext, BeforeAgentContext, BeforeModelContext, ModelNext, ToolNext};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError, Reply, ToolCall, Turn};

struct Diary;

impl Hook for Diary {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        println!("before_agent     the user says {:?}", turn.user_message().text());
        turn.inject("It is a rainy day.");
        Ok(BeforeAgent::Continue)
    }

    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        let messages = turn.context().map_or(0, |request| request.messages.len());
        println!("before_model     the model is about to read {messages} message(s)");
        Ok(BeforeModel::Continue)
    }

    async fn wrap_model_call<'a>(
        &self,
        _: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        println!("wrap_model_call  calling");
        let reply = next.run(request, out).await;
        println!("wrap_model_call  called");
        reply
    }

    async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        println!("after_model      it said {:?} and calls {} tool(s)", reply.content.text(), reply.calls.len());
        Ok(AfterModel::Continue)
    }

    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let output = next.run(call).await?;
        println!("wrap_tool_call   {} gave {:?}", call.name, output.content.text());
        Ok(output)
    }

    async fn after_agent(&self, turn: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        let said = turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default();
        println!("after_agent      signing the answer");
        turn.set_result(format!("{said} (signed: diary)"));
        Ok(AfterAgent::Continue)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let script = Script::of([
        ScriptReply::calls("c1", "umbrellas", json!({})),
        ScriptReply::says("Take one of the three umbrellas."),
    ]);
    let count =
        function_with_schema("umbrellas", "Counts them.", json!({"type": "object"}), Effect::Pure, |_, _| async {
            Ok("3")
        });
    let agent = Agent::builder("butler", script).tool(count).hook(Diary).build()?;
    println!("\n{}", agent.run("I am going out.").await?.text());
    Ok(())
}
