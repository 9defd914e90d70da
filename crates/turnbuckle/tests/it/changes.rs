//! What hooks changed is in their records: at each point, bounded, and without what must not be stored.

use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use turnbuckle::conversation::TurnReport;
use turnbuckle::hook::*;
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Store;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Output;
use turnbuckle::{Agent, AgentBuilder, BoxError, Content, Limits, Message, Part, Scope, Turn};

use crate::kit::{add, adder, sum};

/// The records of one turn, and how it ended.
pub async fn records(agent: AgentBuilder, message: &str) -> (Vec<Record>, TurnReport) {
    let mut rig = Rig::new(agent.build().unwrap());
    let report = rig.ended(message).await.unwrap();
    (rig.conversations.records(&report.conversation, &report.turn, Scope::local()).await.unwrap(), report)
}

/// What each hook changed, a line each; of hooks that changed nothing there is no line.
async fn changes(agent: AgentBuilder, message: &str) -> String {
    let (records, _) = records(agent, message).await;
    let changed = records.iter().filter_map(|record| Some((record, record.change.as_ref()?)));
    let lines = changed.map(|(record, change)| {
        format!("{} {} {}: {}\n", record.point, record.hook, record.decision, serde_json::to_string(change).unwrap())
    });
    lines.collect()
}

pub async fn check(agent: AgentBuilder, message: &str, expected: Expect) {
    expected.assert_eq(&changes(agent, message).await);
}

/// Does what it is told at the points of calls and replies.
pub struct Does {
    pub before_tool: BeforeTool,
    pub after_tool: AfterTool,
    pub after_model: AfterModel,
}

impl Default for Does {
    fn default() -> Self {
        let (before_tool, after_tool) = (BeforeTool::Continue, AfterTool::Continue);
        Self { before_tool, after_tool, after_model: AfterModel::Continue }
    }
}

impl Hook for Does {
    async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        Ok(if reply.calls.is_empty() { self.after_model.clone() } else { AfterModel::Continue })
    }
    async fn before_tool(&self, _: &Turn, _: &ToolCall) -> Result<BeforeTool, BoxError> {
        Ok(self.before_tool.clone())
    }
    async fn after_tool(&self, _: &Turn, _: &ToolCall, _: &Output) -> Result<AfterTool, BoxError> {
        Ok(self.after_tool.clone())
    }
}

pub fn rewriter(name: &str, text: &'static str) -> impl Hook + use<> {
    pre(name, move |mut turn: BeforeAgentContext| async move {
        turn.rewrite_input(text);
        turn.proceed()
    })
}

pub fn says(text: &'static str) -> AgentBuilder {
    Agent::builder("a", Script::says([text]))
}

pub fn reply(text: &str) -> Box<Reply> {
    Box::new(Reply { content: text.into(), ..Reply::default() })
}

#[tokio::test]
async fn hooks_that_pass_leave_no_change() {
    check(
        adder(sum()).hook(Does::default()).hook(pre("p", |turn: BeforeAgentContext| async { turn.proceed() })),
        "go",
        expect![""],
    )
    .await;
}

#[tokio::test]
async fn a_rewritten_message_and_what_was_added_to_it_are_told() {
    let adds = pre("adds", |mut turn: BeforeAgentContext| async move {
        turn.inject("for a while");
        turn.inject(Content::from(vec![Part::text("two "), Part::text("parts")]));
        turn.proceed()
    });
    let stays = pre("stays", |mut turn: BeforeAgentContext| async move {
        turn.inject("for good");
        turn.proceed()
    });
    let agent = says("hi").hook(rewriter("rewriter", "Hello.")).hook(adds).hook(stays.durable());
    check(
        agent,
        "hello",
        expect![[r#"
            before_agent rewriter continue: {"edit":{"of":"message","before":"hello","after":"Hello."}}
            before_agent adds continue: {"injected":[{"text":"for a while","for":"this_turn"},{"text":"two parts","for":"this_turn"}]}
            before_agent stays continue: {"injected":[{"text":"for good","for":"durable"}]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn edits_of_a_calls_context_and_what_stands_at_its_tail_are_told() {
    let edits = pre("edits", |mut turn: BeforeModelContext| async move {
        turn.edit_context().insert(0, Message::User("a word before".into()));
        turn.proceed()
    });
    let replaces = pre("replaces", |mut turn: BeforeModelContext| async move {
        turn.edit_context()[1] = Message::Note("instead".into());
        turn.inject("at the tail");
        turn.proceed()
    });
    let drops = pre("drops", |mut turn: BeforeModelContext| async move {
        turn.edit_context().remove(0);
        turn.proceed()
    });
    let looks = pre("looks", |mut turn: BeforeModelContext| async move {
        assert!(!turn.edit_context().is_empty());
        turn.proceed()
    });
    let agent = says("hi")
        .hook(edits.every_call())
        .hook(replaces.every_call())
        .hook(drops.every_call())
        .hook(looks.every_call());
    check(
        agent,
        "hello",
        expect![[r#"
            before_model edits continue: {"edit":{"of":"context","what":"1 added to 1 messages","after":"user: a word before"}}
            before_model replaces continue: {"injected":[{"text":"at the tail","for":"this_call"}],"edit":{"of":"context","what":"1 in the place of 1 of 2 messages","before":"user: hello","after":"note: instead"}}
            before_model drops continue: {"edit":{"of":"context","what":"1 of 2 messages taken out","before":"user: a word before","after":""}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn members_of_a_group_tell_what_each_of_them_added() {
    let say = |text: &'static str| move |_: Turn| async move { Ok(Content::from(text)) };
    let agent = says("hi").hook(parallel([member("one", say("1")), member("two", say("2"))]));
    check(
        agent,
        "hello",
        expect![[r#"
            before_agent one continue: {"injected":[{"text":"1","for":"this_turn"}]}
            before_agent two continue: {"injected":[{"text":"2","for":"this_turn"}]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_becomes_of_a_call_and_its_result_is_told() {
    let arguments = || json!({"a": 40, "b": 2});
    for (decision, name) in [
        (BeforeTool::Rewrite(arguments()), "rewrite"),
        (BeforeTool::Approve(Some(arguments())), "approve"),
        (BeforeTool::RewriteAndAsk(arguments(), "really?".into()), "ask"),
    ] {
        let hook = Does { before_tool: decision, ..Does::default() };
        let mut rig = Rig::new(adder(sum()).hook(hook).build().unwrap());
        let turn = rig.send("go").await.unwrap();
        let id = turn.turn().clone();
        rig.follow(turn).await.unwrap();
        let records = rig.conversations.records(&rig.id, &id, Scope::local()).await.unwrap();
        let told: Vec<_> =
            records.iter().filter_map(|record| Some((record.decision.name(), record.change.clone()?))).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let edit = json!({"edit": {"of": "arguments", "before": r#"{"a":2,"b":2}"#, "after": r#"{"a":40,"b":2}"#}});
        assert_eq!((told[0].0, serde_json::to_value(&told[0].1).unwrap()), (name, edit));
    }
    let answers = Does { before_tool: BeforeTool::Answer("five".into()), ..Does::default() };
    let modifies = Does { after_tool: AfterTool::Modify(Output::error("4\nbut only today")), ..Does::default() };
    let agent = adder(sum()).hook(answers.named("answers")).hook(modifies.named("modifies"));
    check(
        agent,
        "go",
        expect![[r#"
            before_tool answers answer: {"edit":{"of":"result","after":"five"}}
            after_tool modifies modify: {"edit":{"of":"result","what":"an error in the place of a result","before":"five","after":"4\nbut only today"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_becomes_of_a_reply_and_of_the_result_of_the_turn_is_told() {
    let modifies = Does { after_model: AfterModel::Modify(reply("Four.")), ..Does::default() };
    let ends = |name: &'static str, result: Value| {
        post(name, move |mut turn: AfterAgentContext| {
            let result = result.clone();
            async move {
                turn.set_result(result);
                turn.inject_later("for later");
                turn.proceed()
            }
        })
    };
    let agent = adder(sum()).hook(modifies).hook(ends("words", json!("4!"))).hook(ends("number", json!({"sum": 4})));
    check(
        agent,
        "go",
        expect![[r#"
            after_model does modify: {"edit":{"of":"reply","before":"4","after":"Four."}}
            after_agent words continue: {"injected":[{"text":"for later","for":"next_turn"}],"edit":{"of":"turn_result","before":"Four.","after":"4!"}}
            after_agent number continue: {"injected":[{"text":"for later","for":"next_turn"}],"edit":{"of":"turn_result","before":"4!","after":"{\"sum\":4}"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_reply_with_other_calls_is_told_with_them() {
    struct Calls;
    impl Hook for Calls {
        async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
            let mut other = (**reply).clone();
            let Some(call) = other.calls.first_mut() else { return Ok(AfterModel::Continue) };
            call.arguments = json!({"a": 1, "b": 1}).into();
            Ok(AfterModel::Modify(Box::new(other)))
        }
    }
    check(
        adder(sum()).hook(Calls),
        "go",
        expect![[r#"
            after_model calls modify: {"edit":{"of":"reply","before":"[call add({\"a\":2,\"b\":2})]","after":"[call add({\"a\":1,\"b\":1})]"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_a_conversation_begins_with_and_a_background_hook_leaves_is_told() {
    struct Greets;
    impl Hook for Greets {
        async fn on_conversation(&self, context: &mut OnConversationContext) -> Result<(), BoxError> {
            context.inject("welcome");
            Ok(())
        }
        async fn background(&self, context: &BackgroundContext) -> Result<(), BoxError> {
            context.leave_note("a note");
            Ok(())
        }
    }
    let mut rig = Rig::new(says("hi").hook(Greets).build().unwrap());
    let report = rig.ended("hello").await.unwrap();
    rig.settle().await;
    let records = rig.conversations.records(&report.conversation, &report.turn, Scope::local()).await.unwrap();
    let told = |point| {
        let record = records.iter().find(|record| record.point == point).unwrap();
        serde_json::to_value(record.change.as_ref().unwrap()).unwrap()
    };
    assert_eq!(told(Point::OnConversation), json!({"injected": [{"text": "welcome", "for": "this_turn"}]}));
    assert_eq!(told(Point::Background), json!({"injected": [{"text": "a note", "for": "next_turn"}]}));
}

#[tokio::test]
async fn what_there_was_no_room_for_is_told_as_left_out() {
    let adds = |name: &'static str, text: &'static str| {
        pre(name, move |mut turn: BeforeAgentContext| async move {
            turn.inject(text);
            turn.proceed()
        })
    };
    let long = "a sentence of some length that takes more than a few tokens of the reserve";
    let limits = Limits { injection_reserve: 20, ..Limits::default() };
    let agent = says("hi").limits(limits).hook(adds("first", long).sheddable(20, 1)).hook(adds("second", long));
    check(
        agent.hook(adds("third", long).sheddable(2, 0)),
        "hello",
        expect![[r#"
            before_agent first continue: {"injected":[{"text":"a sentence of some length that takes more than a few tokens of the reserve","for":"this_turn","left_out":true}]}
            before_agent second continue: {"injected":[{"text":"a sentence of some length that takes more than a few tokens of the reserve","for":"this_turn"}]}
            before_agent third continue: {"injected":[{"text":"a sentence of some length that takes more than a few tokens of the reserve","for":"this_turn","left_out":true}]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_hook_that_fails_or_halts_has_changed_nothing_but_what_counts() {
    struct Fails;
    impl Hook for Fails {
        async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
            turn.rewrite_input("never");
            turn.inject("nor this");
            Err("broken".into())
        }
    }
    check(says("hi").hook(Fails.on_failure(OnFailure::Ignore)), "hello", expect![""]).await;
    // The log has the message as it was rewritten; what was injected has no turn to be in.
    let halts = pre("halts", |mut turn: BeforeAgentContext| async move {
        turn.rewrite_input("halted");
        turn.inject("nowhere");
        turn.halt("no")
    });
    check(
        says("hi").hook(halts),
        "hello",
        expect![[r#"
            before_agent halts halt: {"edit":{"of":"message","before":"hello","after":"halted"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn texts_are_cut_and_a_record_and_a_turn_have_so_many_bytes_of_them() {
    let floods = pre("floods", |mut turn: BeforeModelContext| async move {
        (0..20).for_each(|_| turn.inject("ä".repeat(5_000)));
        turn.proceed()
    });
    let calls: Vec<_> = (0..12).map(|n| ScriptReply::calls(&format!("c{n}"), "add", json!({"a": 1, "b": n}))).collect();
    let script = Script::of(calls.into_iter().chain([ScriptReply::says("done")]));
    let limits = Limits { injection_reserve: 400_000, context_tokens: 4_000_000, ..Limits::default() };
    let (records, _) =
        records(Agent::builder("a", script).tool(add()).limits(limits).hook(floods.every_call()), "go").await;
    let changes: Vec<_> = records.iter().filter_map(|record| record.change.as_deref()).collect();
    assert_eq!(changes.len(), 13);
    let sizes: Vec<usize> = changes.iter().map(|change| serde_json::to_string(change).unwrap().len()).collect();
    assert!(sizes.iter().all(|size| *size < 40_000), "{sizes:?}");
    assert!(sizes.iter().sum::<usize>() < 280_000, "{sizes:?}");
    let first = &changes[0].injected;
    assert_eq!(first.len(), 9, "eight texts and a note");
    assert!(first[0].text.ends_with("ä… (5904 bytes more)"), "{}", first[0].text);
    assert!(first[8].text.contains("not kept"), "{}", first[8].text);
    let last = &changes[12].injected[0].text;
    assert!(last.contains("bytes that are not kept: records of a turn have 256 KiB"), "{last}");
}

#[test]
fn a_record_of_an_older_program_can_be_read() {
    let body = json!({"point": "after_tool", "hook": "h", "decision": "modify", "took": {"secs": 0, "nanos": 1}, "tokens": 0, "shed": 0,
        "call": "c1", "failure": null});
    let record: Record = serde_json::from_value(body).unwrap();
    assert_eq!(record.change, None);
}

#[test]
fn a_record_has_144_bytes_beside_its_texts() {
    assert!(size_of::<Record>() <= 144, "{}", size_of::<Record>());
}

#[tokio::test]
async fn a_hook_cannot_put_a_change_into_a_record_of_its_own() {
    struct Adds;
    impl Hook for Adds {
        async fn before_tool(&self, turn: &Turn, _: &ToolCall) -> Result<BeforeTool, BoxError> {
            let mut record =
                Record::new(Point::BeforeTool, "mine".into(), Decision::Continue, std::time::Duration::ZERO);
            record.change = serde_json::from_value(json!({"injected": [{"text": "x", "for": "this_call"}]}))?;
            turn.record(record);
            Ok(BeforeTool::Continue)
        }
    }
    let (records, _) = records(adder(sum()).hook(Adds), "go").await;
    assert!(records.iter().any(|record| &*record.hook == "mine" && record.change.is_none()), "{records:?}");
}

#[tokio::test]
async fn records_go_with_their_conversation() {
    let store = MemoryStore::default();
    let mut rig = Rig::on(says("hi").hook(rewriter("rewriter", "other")).build().unwrap(), store.clone());
    let report = rig.ended("hello").await.unwrap();
    assert!(!store.records(&report.conversation, &report.turn).await.unwrap().is_empty());
    rig.conversations.delete(&report.conversation, Scope::local()).await.unwrap();
    assert!(store.records(&report.conversation, &report.turn).await.is_err());
}
