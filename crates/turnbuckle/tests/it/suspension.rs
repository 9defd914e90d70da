//! Suspension: a question can wait for a day, and for another process.

use expect_test::expect;
use serde_json::json;
use turnbuckle::conversation::{ResolveError, SendError};
use turnbuckle::event::Question;
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::store::Answer;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::{client, function_with_schema, human};
use turnbuckle::trace::trace_told;
use turnbuckle::{Agent, AgentBuilder, Outcome, Scope, TurnStatus, WhileBusy};

use crate::kit::{add, adder, assert_valid, sum};

async fn waits(rig: &mut Rig, message: &str) -> Vec<Pending> {
    match rig.run(message).await.unwrap() {
        TurnStatus::Waiting(pending) => pending,
        TurnStatus::Ended(ended) => panic!("it ended {}: {:?}", ended.outcome, ended.reason),
    }
}

async fn answer(rig: &mut Rig, call: &str, answer: Answer) -> TurnStatus {
    let handle = rig.conversations.resolve(&rig.id, &call.into(), answer, None, Scope::user("local")).await.unwrap();
    rig.follow(handle).await.unwrap()
}

fn all(rig: &Rig) -> String {
    trace_told(rig.told(), rig.conversations.agent().tools().len())
}

fn gated() -> AgentBuilder {
    adder(sum()).approve(["add"])
}

#[tokio::test]
async fn an_approved_call_runs_once_with_the_approver_on_record() {
    let mut rig = Rig::new(gated().build().unwrap());
    let pending = waits(&mut rig, "go").await;
    assert!(matches!(&pending[0].question, Question::Approval { tool: Some(tool), .. } if &**tool == "add"));
    answer(&mut rig, "c1", Answer::Approve).await;
    expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      add(2, 2)
        wait      c1: approval of add(2, 2)
        resolve   c1: approved by user local
        dispatch  add(2, 2) = 4
        build     3 messages, 1 tool
        call      "4"
        end       completed
    "#]]
    .assert_eq(&all(&rig));
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn a_denied_call_is_an_error_result_that_the_model_reads() {
    let mut rig = Rig::new(gated().build().unwrap());
    waits(&mut rig, "go").await;
    answer(&mut rig, "c1", Answer::Deny(Some("not today".into()))).await;
    assert!(all(&rig).contains("dispatch  add(2, 2) ! [denied by user local]: not today"), "{}", all(&rig));
}

#[tokio::test]
async fn everything_but_the_store_may_go_while_it_waits() {
    let store = MemoryStore::default();
    let mut first = Rig::on(gated().build().unwrap(), store.clone());
    waits(&mut first, "go").await;
    drop(first);
    let mut second = Rig::on(gated().build().unwrap(), store);
    second.listen().await.unwrap();
    let TurnStatus::Ended(ended) = answer(&mut second, "c1", Answer::Approve).await else { panic!("it waits") };
    assert_eq!(ended.text(), "4");
    assert_valid(&second.log().await.unwrap());
}

#[tokio::test]
async fn an_answer_is_stale_when_unknown_given_before_or_about_other_arguments() {
    let mut rig = Rig::new(gated().build().unwrap());
    waits(&mut rig, "go").await;
    let resolve = async |call: &str, digest: Option<&str>| {
        let digest = digest.map(Into::into);
        rig.conversations.resolve(&rig.id, &call.into(), Answer::Approve, digest, Scope::local()).await.map(drop)
    };
    let why = |refused: Result<(), ResolveError>| match refused {
        Err(ResolveError::Stale { why, .. }) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let unknown = why(resolve("nobody", None).await);
    assert_eq!(unknown, format!("conversation {} has no call nobody", rig.id));
    assert!(matches!(resolve("c1", Some("another")).await, Err(ResolveError::Stale { .. })));
    let stranger = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::user("eve")).await;
    assert!(matches!(stranger, Err(ResolveError::NotFound { .. })));
    let unfit = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Result(json!(1)), None, Scope::local()).await;
    assert!(matches!(unfit, Err(ResolveError::Unfit { .. })));
    resolve("c1", None).await.unwrap();
    let again = why(resolve("c1", None).await);
    assert!(again.starts_with("it was answered before: approved by user local at "), "{again}");
}

#[tokio::test]
async fn a_hook_may_ask_before_a_tool_and_the_rewritten_arguments_are_what_is_shown_and_run() {
    let rewrite = gate("cap", |_, _| async { Ok(BeforeTool::Rewrite(json!({"a": 1, "b": 1}))) });
    let ask = gate("boss", |_, _| async { Ok(BeforeTool::Ask("is it worth it?".into())) });
    let mut rig = Rig::new(adder(sum()).hook(rewrite).hook(ask).build().unwrap());
    let pending = waits(&mut rig, "go").await;
    let Question::Approval { arguments, why, .. } = &pending[0].question else { panic!("{pending:?}") };
    assert_eq!((&**arguments, why.as_deref()), (&json!({"a": 1, "b": 1}), Some("is it worth it?")));
    answer(&mut rig, "c1", Answer::Approve).await;
    assert!(all(&rig).contains("dispatch  add(1, 1) = 2"), "{}", all(&rig));
}

#[tokio::test]
async fn a_whole_reply_can_wait_for_a_person_and_is_no_history_until_approved() {
    let ask = || {
        guard("editor", |turn: turnbuckle::Turn, _| async move {
            let first = turn.context().is_some_and(|request| request.messages.len() == 1);
            Ok(if first { AfterModel::Ask("publish?".into()) } else { AfterModel::Continue })
        })
    };
    let mut rig = Rig::new(gated().hook(ask()).build().unwrap());
    let pending = waits(&mut rig, "go").await;
    assert!(!all(&rig).contains("call "), "{}", all(&rig));
    let call = pending[0].call.to_string();
    let TurnStatus::Ended(ended) = answer(&mut rig, &call, Answer::Approve).await else { panic!("asked again") };
    assert_eq!(ended.text(), "4", "its calls need no further gate");

    let mut rig = Rig::new(gated().hook(ask()).build().unwrap());
    let call = waits(&mut rig, "go").await[0].call.to_string();
    let TurnStatus::Ended(ended) = answer(&mut rig, &call, Answer::Deny(Some("no".into()))).await else {
        panic!("waits")
    };
    assert_eq!((ended.outcome, ended.by), (Outcome::Rejected, Some(Author::User("local".into()))));
    assert!(!all(&rig).contains("call "), "{}", all(&rig));
}

#[tokio::test]
async fn a_hook_that_approves_the_reply_opens_its_gates_and_is_the_evidence() {
    let approve = guard("policy", |_, _| async { Ok(AfterModel::Approve) });
    let mut rig = Rig::new(gated().hook(approve).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().text(), "4");
    let log = serde_json::to_string(&rig.log().await.unwrap()).unwrap();
    assert!(log.contains(r#""approved_by":{"hook":"policy"}"#), "{log}");
}

#[tokio::test]
async fn a_mixed_turn_goes_on_when_nothing_is_open() {
    let script = Script::of([
        ScriptReply::calls("h", "ask_human", json!({"question": "which one?"}))
            .and_calls("c", "open_tab", json!({}))
            .and_calls("s", "add", json!({"a": 1, "b": 2})),
        ScriptReply::says("thanks"),
    ]);
    let agent = Agent::builder("a", script)
        .tool(human("ask_human", "Asks."))
        .tool(client("open_tab", "Opens.", json!({"type": "object"})).requires_approval())
        .tool(add());
    let mut rig = Rig::new(agent.build().unwrap());
    assert_eq!(waits(&mut rig, "go").await.len(), 2);
    assert!(matches!(answer(&mut rig, "h", Answer::Result(json!("the left"))).await, TurnStatus::Waiting(_)));
    let TurnStatus::Waiting(pending) = answer(&mut rig, "c", Answer::Approve).await else {
        panic!("a gated client call waits twice")
    };
    assert!(matches!(pending[0].question, Question::ClientExec { .. }));
    assert!(matches!(answer(&mut rig, "c", Answer::Error("no browser".into())).await, TurnStatus::Ended(_)));
    expect![[r#"
        accept    "go"
        build     1 message, 3 tools
        call      ask_human("which one?") open_tab() add(1, 2)
        wait      h: question "which one?"
        wait      c: approval of open_tab()
        dispatch  add(1, 2) = 3
        resolve   h: answered by user local
        dispatch  ask_human("which one?") = the left
        resolve   c: approved by user local
        wait      c: client runs open_tab()
        resolve   c: answered by user local: no browser
        dispatch  open_tab() ! no browser
        build     5 messages, 3 tools
        call      "thanks"
        end       completed
    "#]]
    .assert_eq(&all(&rig));
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn a_waiting_turn_is_busy_can_be_cancelled_and_can_be_interrupted() {
    let mut rig = Rig::new(gated().build().unwrap());
    waits(&mut rig, "go").await;
    let busy = rig.conversations.send(&rig.id, "more", Scope::local()).await;
    assert!(matches!(busy, Err(SendError::Busy { pending, .. }) if pending == ["c1".into()]));
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    rig.settle().await;
    assert!(all(&rig).ends_with("resolve   c1: cancelled by user local\ndispatch  add(2, 2) ! [cancelled]\nend       cancelled by user local\n"), "{}", all(&rig));
    let stale = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    assert!(matches!(stale, Err(ResolveError::Stale { .. })), "late results are refused");

    let mut rig = Rig::new(gated().build().unwrap());
    waits(&mut rig, "go").await;
    let handle =
        rig.conversations.send_while(&rig.id, "stop that", Scope::local(), WhileBusy::Interrupt).await.unwrap();
    assert!(matches!(rig.follow(handle).await.unwrap(), TurnStatus::Ended(ended) if ended.text() == "4"));
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn the_tool_runs_with_the_requesters_scope_and_can_read_who_approved() {
    let who = function_with_schema("who", "Who.", json!({"type": "object"}), Effect::Never, |turn, _| async move {
        Ok(format!("{:?} by {:?}", turn.scope().user_id(), turn.approved_by()))
    });
    let script = Script::of([ScriptReply::calls("c1", "who", json!({})), ScriptReply::says("ok")]);
    let mut rig = Rig::new(Agent::builder("a", script).tool(who.requires_approval()).build().unwrap());
    waits(&mut rig, "go").await;
    let handle = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    rig.follow(handle).await.unwrap();
    assert!(all(&rig).contains(r#"who() = Some("local") by Some(User("local"))"#), "{}", all(&rig));
}
