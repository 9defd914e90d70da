//! What only a provider reads keeps its place, and a provider is told where the stable segments of a context end.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::event::EventKind;
use turnbuckle::hook::{BeforeAgentContext, BeforeModelContext, Hook, TransformOutput, Transformer, pre};
use turnbuckle::message::{Content, Hosted, Part, ProviderBlock, Reply, Thought, ToolCall};
use turnbuckle::model::{Model, ModelError, Request, Segments, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::{Effect, Executor};
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Limits, Message, Outcome};

/// Says these parts, streaming what is text.
struct Says(Vec<Part>);

impl Model for Says {
    fn stream<'a>(&'a self, _: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            for part in &self.0 {
                match part {
                    Part::Text { text } => out.text(text),
                    Part::Thinking(thought) => out.thinking(&thought.text),
                    _ => {}
                }
            }
            Ok(Reply { content: self.0.clone().into(), ..Reply::default() })
        })
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        Some(text.len() as u64)
    }
    fn price(&self, _: &turnbuckle::message::Usage) -> Option<f64> {
        Some(0.25)
    }
}

fn sealed(what: &str) -> Part {
    ProviderBlock { provider: "anthropic".into(), block: Arc::new(json!({ "type": what })) }.into()
}

fn thought(text: &str, signature: &str) -> Part {
    Thought { text: text.into(), signature: Some(signature.into()) }.into()
}

/// Replaces one e-mail address in what the model says.
struct NoAddresses;

impl Hook for NoAddresses {
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        Some(Box::new(Self))
    }
}

impl Transformer for NoAddresses {
    fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
        out.push(&text.replace("ann@example.com", "[email]"));
        Ok(())
    }
}

async fn logged(agent: AgentBuilder) -> Content {
    let mut rig = Rig::new(agent.build().unwrap());
    rig.run("go").await.unwrap();
    let log = rig.log().await.unwrap();
    let said = log.iter().find_map(|event| match &event.kind {
        EventKind::AssistantMessage { content, .. } => Some(content.clone()),
        _ => None,
    });
    said.expect("the model said nothing")
}

#[tokio::test]
async fn what_transformers_left_alone_is_logged_as_it_was_said_part_by_part() {
    let parts =
        vec![thought("a", "1"), thought("b", "2"), sealed("use"), sealed("result"), Part::text("x"), Part::text("y")];
    let plain = Agent::builder("a", Says(parts.clone()));
    assert_eq!(logged(plain).await.parts(), parts);
    let guarded = Agent::builder("a", Says(parts.clone())).hook(NoAddresses);
    assert_eq!(logged(guarded).await.parts(), parts);
}

#[tokio::test]
async fn a_thought_that_was_changed_loses_its_signature_and_nothing_loses_its_place() {
    let parts = vec![thought("ask ann@example.com", "1"), sealed("use"), Part::text("I did"), sealed("end")];
    let logged = logged(Agent::builder("a", Says(parts)).hook(NoAddresses)).await;
    let [Part::Thinking(thought), use_, said, end] = logged.parts() else { panic!("{logged:?}") };
    assert!(thought.signature.is_none() && !thought.text.contains("ann@"));
    assert_eq!([use_, said, end], [&sealed("use"), &Part::text("I did"), &sealed("end")]);
}

fn ends(segments: Segments) -> [(usize, usize); 3] {
    [segments.history, segments.opening, segments.calls].map(|end| (end.messages, end.parts))
}

#[tokio::test]
async fn a_request_says_where_history_opening_and_calls_end() {
    let replies = [
        ScriptReply::calls("c1", "look", json!({})),
        ScriptReply::says("a1"),
        ScriptReply::calls("c2", "look", json!({})),
        ScriptReply::says("a2"),
    ];
    let model = Recorder::of(Script::of(replies));
    let look =
        function_with_schema("look", "Looks.", json!({"type": "object"}), Effect::Pure, |_, _| async { Ok("seen") });
    let once = pre("once", |mut turn: BeforeAgentContext| async move {
        turn.inject("1");
        turn.proceed()
    });
    let tail = pre("tail", |mut turn: BeforeModelContext| async move {
        turn.inject("T");
        turn.proceed()
    })
    .every_call();
    let agent = Agent::builder("a", model.clone()).tool(look).hook(once).hook(tail);
    let mut rig = Rig::new(agent.build().unwrap());
    rig.run("first").await.unwrap();
    rig.run("second").await.unwrap();
    let found: Vec<_> = model.requests().iter().map(|request| ends(request.segments())).collect();
    // The call's own injection is a third part of the opening message, or a message of its own: in no segment.
    assert_eq!(found[0], [(0, 0), (1, 2), (1, 2)]);
    assert_eq!(found[1], [(0, 0), (1, 2), (3, 1)]);
    assert_eq!(found[2], [(4, 1), (5, 2), (5, 2)]);
    assert_eq!(found[3], [(4, 1), (5, 2), (7, 1)]);
}

#[tokio::test]
async fn ends_behind_an_edit_keep_their_distance_from_the_tail() {
    let model = Recorder::of(Script::says(["a1", "a2"]));
    let forget = pre("forget", |mut turn: BeforeModelContext| async move {
        let messages: &mut Vec<Message> = turn.edit_context();
        messages.drain(..messages.len() - 1);
        turn.proceed()
    })
    .every_call();
    let mut rig = Rig::new(Agent::builder("a", model.clone()).hook(forget).build().unwrap());
    rig.run("first").await.unwrap();
    rig.run("second").await.unwrap();
    assert_eq!(ends(model.requests()[1].segments()), [(0, 1), (1, 1), (1, 1)]);
}

#[tokio::test]
async fn near_the_limit_the_model_counts() {
    let counts = |context_tokens| async move {
        let limits = Limits { context_tokens, injection_reserve: 0, ..Limits::default() };
        let agent = Agent::builder("a", Says(vec![Part::text("ok")])).limits(limits);
        let mut rig = Rig::new(agent.build().unwrap());
        rig.ended("x".repeat(400)).await.unwrap()
    };
    // About 90 by the estimate, 404 by the model.
    assert_eq!(counts(1000).await.outcome, Outcome::Completed);
    let ended = counts(180).await;
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.reason.unwrap().contains("404 tokens"));
}

#[tokio::test]
async fn what_a_turn_cost_stands_in_its_log_and_its_trace_if_a_price_is_known() {
    let mut rig = Rig::new(Agent::builder("a", Says(vec![Part::text("ok")])).build().unwrap());
    let trace = rig.trace("go").await;
    assert!(trace.contains("end       completed ($0.2500)"), "{trace}");
    let log = rig.log().await.unwrap();
    let last = serde_json::to_value(&log.last().unwrap().kind).unwrap();
    assert_eq!(last["cost"], 0.25);
    let mut free = Rig::new(Agent::builder("a", Script::says(["ok"])).build().unwrap());
    free.run("go").await.unwrap();
    let last = serde_json::to_value(&free.log().await.unwrap().last().unwrap().kind).unwrap();
    assert_eq!(last.get("cost"), None, "what nobody knows is not told");
}

/// Its host searched before it answered, under an id that repeats.
struct Searches;

impl Model for Searches {
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let call =
            ToolCall { call: "s1".into(), name: "web_search".into(), arguments: Arc::new(json!({ "q": "rope" })) };
        let hosted = vec![Hosted { call, ok: true, content: "found".into() }];
        let content = vec![sealed("server_tool_use"), Part::text("Rope is strong.")];
        Box::pin(async move { Ok(Reply { content: content.into(), hosted, ..Reply::default() }) })
    }
}

#[tokio::test]
async fn what_the_models_host_ran_is_in_the_log_with_its_result_and_is_not_run_or_sent_again() {
    let model = Recorder::of(Searches);
    let mut rig = Rig::new(Agent::builder("a", model.clone()).build().unwrap());
    let told = rig.trace("rope?").await;
    rig.ended("more").await.unwrap();
    let log = rig.log().await.unwrap();
    crate::kit::assert_valid(&log);
    let calls: Vec<_> = log
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolCall { call, executor, .. } => Some((call.to_string(), *executor)),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [("s1".to_owned(), Executor::Provider), ("s1~2".to_owned(), Executor::Provider)]);
    assert!(told.contains("Rope is strong.") && told.ends_with("end       completed\n"), "{told}");
    let sent = model.requests()[1].messages.to_vec();
    assert!(
        matches!(&sent[1], Message::Assistant { calls, content } if calls.is_empty() && content.parts().len() == 2)
    );
    assert_eq!(sent.len(), 3, "{sent:?}");
}
