//! A `before_tool` hook may open a tool's own gate: for the call that it saw, and for nothing else.

use serde_json::{Value, json};
use turnbuckle::event::EventKind;
use turnbuckle::hook::{BeforeTool, HookEntry, gate};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::Author;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError};

/// A hook that always decides the same.
fn always(name: &str, decision: BeforeTool) -> HookEntry {
    gate(name, move |_, _| {
        let decision = decision.clone();
        async move { Ok::<_, BoxError>(decision) }
    })
    .into()
}

/// The arguments with which a gated tool ran, and who approved the call; `None` if it waits.
async fn ran(hooks: impl IntoIterator<Item = HookEntry>) -> Option<(Value, Option<Author>)> {
    let send =
        function_with_schema("send", "Sends.", json!({"type": "object"}), Effect::Never, |_, _| async { Ok("sent") });
    let script = Script::of([ScriptReply::calls("c1", "send", json!({"to": "ann"})), ScriptReply::says("done")]);
    let agent = Agent::builder("mail", script).tool(send).approve(["send"]);
    let agent = hooks.into_iter().fold(agent, turnbuckle::AgentBuilder::hook).build().unwrap();
    let mut rig = Rig::new(agent);
    rig.run("go").await.unwrap();
    rig.log().await.unwrap().iter().find_map(|event| match &event.kind {
        EventKind::ToolStarted { arguments, approvals, .. } => {
            Some(((*arguments.value()).clone(), approvals.as_ref().and_then(|approvals| approvals.last.clone())))
        }
        _ => None,
    })
}

#[tokio::test]
async fn a_call_that_a_hook_approves_runs_and_the_log_names_the_hook() {
    let by = Some(Author::hook(&"yes".into()));
    assert_eq!(ran([always("yes", BeforeTool::Approve(None))]).await, Some((json!({"to": "ann"}), by.clone())));
    let other = json!({"to": "bob"});
    assert_eq!(ran([always("yes", BeforeTool::Approve(Some(other.clone())))]).await, Some((other, by)));
}

#[tokio::test]
async fn an_approval_is_void_if_a_later_hook_changes_the_arguments() {
    let change = always("change", BeforeTool::Rewrite(json!({"to": "eve"})));
    assert_eq!(ran([always("yes", BeforeTool::Approve(None)), change]).await, None);
}

#[tokio::test]
async fn an_approval_does_not_answer_what_another_hook_asks() {
    for ask in [BeforeTool::Ask("sure?".into()), BeforeTool::RewriteAndAsk(json!({"to": "ann"}), "sure?".into())] {
        assert_eq!(ran([always("yes", BeforeTool::Approve(None)), always("ask", ask.clone())]).await, None);
        assert_eq!(ran([always("ask", ask), always("yes", BeforeTool::Approve(None))]).await, None);
    }
}
