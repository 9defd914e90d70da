//! Attempts, regeneration, guards: a discarded attempt never becomes history, and what was told of it is taken back.

use std::sync::{Arc, Mutex};

use expect_test::expect;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::model::{Model, ModelError, Request, Retry, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Output;
use turnbuckle::{Agent, AgentBuilder, BoxError, Message, Outcome, Scope, Turn};

use crate::kit::check;

fn agent(model: impl Model) -> AgentBuilder {
    Agent::builder("writer", model)
}

/// Sends back every reply that does not contain the word.
fn wants(word: &'static str) -> impl Hook {
    guard("critic", move |_, reply: Arc<Reply>| async move {
        Ok(if reply.content.text().contains(word) {
            AfterModel::Continue
        } else {
            AfterModel::Regenerate(format!("say {word}").into())
        })
    })
}

/// A retry is a loop.
struct Again;
impl Hook for Again {
    async fn wrap_model_call<'a>(
        &self,
        _: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        loop {
            match next.run(request, out).await {
                Err(error) if error.retry() != Retry::Never => {}
                done => return done,
            }
        }
    }
}

fn told_text(rig: &Rig) -> String {
    let told = rig.told().iter().filter_map(|told| match &told.item {
        FeedItem::Live(LiveEvent::TextDelta { text, .. }) => Some(text.to_string()),
        FeedItem::Live(LiveEvent::AttemptDiscarded { .. }) => Some("⟲".to_owned()),
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn a_regenerated_reply_is_taken_back_and_the_feedback_is_in_the_next_request_only() {
    let model = Recorder::of(Script::says(["draft", "better, please", "more"]));
    let mut rig = Rig::new(agent(model.clone()).hook(wants("please")).build().unwrap());
    expect![[r#"
        accept    "write"
        build     1 message, 0 tools
        discard   attempt 1 by hook critic: say please
        build     3 messages, 0 tools
        call      "better, please"
        end       completed
    "#]]
    .assert_eq(&rig.trace("write").await);
    rig.run("and on").await.unwrap();
    let requests = model.requests();
    assert_eq!(requests[1].messages.len(), 3);
    assert_eq!((requests[1].attempt, requests[1].ordinal), (2, 2));
    assert!(matches!(&requests[1].messages[2], Message::Note(note) if note.text().contains("say please")));
    let later = format!("{:?}", requests[2].messages);
    assert!(!later.contains("draft") && !later.contains("say please"), "{later}");
}

#[tokio::test]
async fn at_the_bound_the_turn_is_rejected_and_the_hook_is_named() {
    check(
        agent(Script::says(["a", "b", "c", "d"])).hook(wants("please")),
        "write",
        expect![[r#"
            accept    "write"
            build     1 message, 0 tools
            discard   attempt 1 by hook critic: say please
            build     3 messages, 0 tools
            discard   attempt 2 by hook critic: say please
            build     3 messages, 0 tools
            discard   attempt 3 by hook critic: say please
            end       rejected by hook critic: say please (after 2 regenerations)
        "#]],
    )
    .await;
}

#[tokio::test]
async fn all_regenerations_of_a_reply_count_together() {
    let agent = agent(Script::says(["", "one", "one two", "x"])).hook(wants("one")).hook(wants("two").named("second"));
    let mut rig = Rig::new(agent.build().unwrap());
    let ended = rig.ended("write").await.unwrap();
    assert_eq!((ended.outcome, ended.model_calls), (Outcome::Completed, 3));
}

#[tokio::test]
async fn with_release_on_accept_no_byte_of_a_rejected_attempt_is_told() {
    let script = Script::of([ScriptReply::chunks(["bad ", "word"]), ScriptReply::chunks(["fine, ", "please"])]);
    let mut rig = Rig::new(agent(script).hook(wants("please").release_on_accept()).build().unwrap());
    rig.run("write").await.unwrap();
    assert_eq!(told_text(&rig), "fine, please");
}

#[tokio::test]
async fn why_a_reply_was_sent_back_is_told_and_recorded_without_the_reply() {
    for reason in ["too short".to_owned(), "long ".repeat(10_000)] {
        let feedback = reason.clone();
        let critic = guard("critic", move |_, reply: Arc<Reply>| {
            let feedback = feedback.clone();
            async move {
                Ok(match reply.content.text().contains("draft") {
                    true => AfterModel::Regenerate(feedback.into()),
                    false => AfterModel::Continue,
                })
            }
        });
        let model = Recorder::of(Script::says(["a draft", "fine"]));
        let mut rig = Rig::new(agent(model.clone()).hook(critic.release_on_accept()).build().unwrap());
        let ended = rig.ended("write").await.unwrap();
        let told = rig.told().iter().find_map(|told| match &told.item {
            FeedItem::Live(LiveEvent::HookFinished { decision: Decision::Regenerate, reason, .. }) => reason.clone(),
            _ => None,
        });
        let records = rig.conversations.records(&rig.id, &ended.turn, Scope::local()).await.unwrap();
        let recorded = records.iter().find(|record| record.decision == Decision::Regenerate).unwrap().reason.clone();
        assert_eq!(told, recorded);
        let told = told.unwrap();
        assert!(told.starts_with(&reason[..9]) && told.len() < 5_000, "{} bytes", told.len());
        let read = model.requests()[1].messages.last().unwrap().content().text();
        assert!(read.contains(&reason), "the model reads all of the feedback");
        let everything = format!("{:?}", rig.told());
        assert!(!everything.contains("a draft"), "a reply that was not released is not told");
    }
}

#[tokio::test]
async fn without_it_text_is_told_at_once_and_taken_back() {
    let script = Script::of([ScriptReply::chunks(["bad ", "word"]), ScriptReply::chunks(["fine, ", "please"])]);
    let mut rig = Rig::new(agent(script).hook(wants("please")).build().unwrap());
    rig.run("write").await.unwrap();
    assert_eq!(told_text(&rig), "bad word⟲fine, please");
}

#[tokio::test]
async fn a_retry_after_text_is_a_new_attempt_that_takes_the_text_back() {
    let broken = ScriptReply { fail_after_chunks: Some(1), ..ScriptReply::chunks(["par", "tial"]) };
    let script = Script::of([broken, ScriptReply::fails(529), ScriptReply::says("whole")]);
    let mut rig = Rig::new(agent(script).hook(Again).build().unwrap());
    let ended = rig.ended("write").await.unwrap();
    assert_eq!((ended.text(), ended.model_calls), ("whole".to_owned(), 3));
    assert_eq!(told_text(&rig), "par⟲whole");
}

#[tokio::test]
async fn a_model_error_in_mid_stream_fails_the_turn_and_leaves_no_message() {
    let broken = ScriptReply { fail_after_chunks: Some(1), ..ScriptReply::chunks(["par", "tial"]) };
    check(
        agent(Script::of([broken])),
        "write",
        expect![[r#"
            accept    "write"
            build     1 message, 0 tools
            discard   attempt 1: the connection to the model broke: scripted
            end       failed: the connection to the model broke: scripted
        "#]],
    )
    .await;
}

#[tokio::test]
async fn retrying_for_ever_ends_at_the_limit() {
    let script = Script::of([ScriptReply::fails(500)]).when_exhausted(turnbuckle::models::OnExhausted::Repeat);
    let mut rig = Rig::new(agent(script).hook(Again).build().unwrap());
    let ended = rig.ended("write").await.unwrap();
    assert_eq!((ended.outcome, ended.model_calls), (Outcome::Exhausted, 50));
}

#[tokio::test]
async fn a_rejected_turn_adds_nothing_to_later_contexts() {
    let reject_first = guard("first", |turn: Turn, _| async move {
        let first = turn.user_message().text() == "one";
        Ok(if first { AfterModel::Reject("not that".into()) } else { AfterModel::Continue })
    });
    let model = Recorder::of(Script::says(["secret", "fine"]));
    let mut rig = Rig::new(agent(model.clone()).hook(reject_first).build().unwrap());
    assert_eq!(rig.ended("one").await.unwrap().outcome, Outcome::Rejected);
    assert_eq!(rig.ended("two").await.unwrap().text(), "fine");
    assert_eq!(model.requests()[1].messages.len(), 1);
}

#[tokio::test]
async fn a_modified_reply_goes_to_the_hooks_behind_and_replaces_what_was_told() {
    let modify = guard("modify", |_, _| async { Ok(AfterModel::Modify(Box::new(Reply::text("instead")))) });
    let seen = guard("seen", |_, reply: Arc<Reply>| async move {
        assert_eq!(reply.content.text(), "instead");
        Ok(AfterModel::Continue)
    });
    let mut rig = Rig::new(agent(Script::says(["original"])).hook(modify).hook(seen).build().unwrap());
    assert_eq!(rig.ended("write").await.unwrap().text(), "instead");
    assert_eq!(told_text(&rig), "original⟲instead");
}

#[tokio::test]
async fn a_wrap_that_answers_by_itself_is_judged_like_a_model() {
    struct Cached;
    impl Hook for Cached {
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            _: &'a Request,
            _: &'a mut dyn Sink,
            _: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            Ok(Reply::text("from the cache"))
        }
    }
    let judged = guard("judge", |_, reply: Arc<Reply>| async move {
        assert_eq!(reply.content.text(), "from the cache");
        Ok(AfterModel::Continue)
    });
    let never = Script::of([]);
    let mut rig = Rig::new(agent(never).hook(Cached).hook(judged).build().unwrap());
    let ended = rig.ended("write").await.unwrap();
    assert_eq!((ended.text(), ended.model_calls), ("from the cache".to_owned(), 0));
    assert_eq!(told_text(&rig), "from the cache");
}

#[tokio::test]
async fn a_wrap_may_change_the_request_and_the_model() {
    struct Elsewhere(Arc<dyn Model>);
    impl Hook for Elsewhere {
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            request: &'a Request,
            out: &'a mut dyn Sink,
            next: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            let Err(first) = next.run(request, out).await else { return Err(ModelError::Cancelled) };
            assert!(matches!(first, ModelError::Status { status: 500, .. }));
            let mut request = request.clone();
            Arc::make_mut(&mut request.messages).push(Message::Note("be brief".into()));
            let model = self.0.clone();
            next.to_owned();
            let next = ModelNext::on(next, &model);
            next.run(&request, out).await
        }
    }
    let other = Recorder::of(Script::says(["x", "from the other"]));
    let agent = agent(Script::of([ScriptReply::fails(500)])).hook(Elsewhere(Arc::new(other.clone())));
    let mut rig = Rig::new(agent.build().unwrap());
    assert_eq!(rig.ended("write").await.unwrap().text(), "from the other");
    assert_eq!(other.requests()[0].messages.len(), 2);
}

/// Keeps the chain of its turn, and does one of three things with the call.
#[derive(Clone)]
struct Keeper {
    then: Then,
    model: Arc<Mutex<Option<(OwnedModelNext, Request)>>>,
    tool: Arc<Mutex<Option<(OwnedToolNext, ToolCall)>>>,
    turn: Arc<Mutex<Option<Turn>>>,
}

#[derive(Clone, Copy)]
enum Then {
    Hang,
    Fail,
    Run,
}

impl Keeper {
    fn that(then: Then) -> Self {
        Self { then, model: Arc::default(), tool: Arc::default(), turn: Arc::default() }
    }

    /// Everything that was kept is run, and must not come through.
    async fn assert_over(&self) {
        struct Nowhere;
        impl Sink for Nowhere {
            fn text(&mut self, _: &str) {}
            fn thinking(&mut self, _: &str) {}
        }
        let (next, request) = self.model.lock().unwrap().take().unwrap();
        assert!(matches!(next.run(&request, &mut Nowhere).await, Err(ModelError::Cancelled)));
        let kept = self.tool.lock().unwrap().take();
        if let Some((next, call)) = kept {
            assert!(next.run(&call).await.is_err());
        }
        assert!(self.turn.lock().unwrap().take().unwrap().cancellation().is_cancelled());
    }
}

impl Hook for Keeper {
    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        *self.model.lock().unwrap() = Some((next.to_owned(), request.clone()));
        *self.turn.lock().unwrap() = Some(turn.clone());
        match self.then {
            Then::Hang => std::future::pending().await,
            Then::Fail => Err(ModelError::Protocol("no".into())),
            Then::Run => next.run(request, out).await,
        }
    }
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        *self.tool.lock().unwrap() = Some((next.to_owned(), call.clone()));
        next.run(call).await
    }
}

#[tokio::test]
async fn next_called_after_its_turn_was_cancelled_calls_nothing() {
    let (keeper, model) = (Keeper::that(Then::Hang), Recorder::of(Script::says(["never"])));
    let mut rig = Rig::new(agent(model.clone()).hook(keeper.clone()).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    rig.settle().await;
    rig.conversations.cancel(&rig.id, turnbuckle::Scope::local()).await.unwrap();
    rig.follow(handle).await.unwrap();
    keeper.assert_over().await;
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn next_called_after_its_turn_completed_calls_nothing() {
    let model = Recorder::of(crate::kit::sum());
    let keeper = Keeper::that(Then::Run);
    let mut rig = Rig::new(agent(model.clone()).tool(crate::kit::add()).hook(keeper.clone()).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    keeper.assert_over().await;
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn next_called_after_its_turn_failed_calls_nothing() {
    let (keeper, model) = (Keeper::that(Then::Fail), Recorder::of(Script::says(["never"])));
    let mut rig = Rig::new(agent(model.clone()).hook(keeper.clone()).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Failed);
    keeper.assert_over().await;
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn next_called_while_its_turn_waits_calls_nothing() {
    let model = Recorder::of(crate::kit::sum());
    let agent = agent(model.clone()).tool(crate::kit::add()).approve(["add"]);
    let keeper = Keeper::that(Then::Run);
    let mut rig = Rig::new(agent.hook(keeper.clone()).build().unwrap());
    assert!(matches!(rig.run("go").await.unwrap(), turnbuckle::TurnStatus::Waiting(_)));
    keeper.assert_over().await;
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn tools_may_be_narrowed_for_a_call() {
    struct NoTools;
    impl Hook for NoTools {
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            request: &'a Request,
            out: &'a mut dyn Sink,
            next: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            let mut request = request.clone();
            request.narrow_tools(|_| false);
            next.run(&request, out).await
        }
    }
    let model = Recorder::of(Script::says(["ok"]));
    let agent = Agent::builder("a", model.clone()).tool(crate::kit::add()).hook(NoTools).build().unwrap();
    Rig::new(agent).run("go").await.unwrap();
    assert!(model.requests()[0].tools().is_empty());
}

#[tokio::test]
async fn a_guard_that_fails_blocks_and_nothing_it_has_not_judged_stands() {
    let broken = guard("broken", |_, _| async { Err::<AfterModel, BoxError>("out of order".into()) });
    check(
        agent(Script::says(["hello"])).hook(broken),
        "write",
        expect![[r#"
            accept    "write"
            build     1 message, 0 tools
            discard   attempt 1 by hook broken: the hook failed
            end       failed by hook broken: hook broken failed at after_model: out of order
        "#]],
    )
    .await;
}
