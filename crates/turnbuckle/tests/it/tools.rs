//! Tools: whatever the model asks for and whatever comes of it, every call has one result that the model reads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{
    AfterTool, BeforeTool, Hook, HookExt, OnFailure, OnStop, OnStopContext, Point, ToolNext, gate, stop,
};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Store;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::{Effect, MAX_RESULT_BYTES, Output, Spec, Tool};
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Message, Outcome, Scope, ToolCall, Turn, TurnStatus};

fn tool<O, F, Fut>(name: &str, run: F) -> FunctionTool
where
    O: Into<Output>,
    F: Fn(Turn, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, BoxError>> + Send + 'static,
{
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    function_with_schema(name, "For tests.", schema, Effect::Pure, run)
}

fn echo() -> FunctionTool {
    tool("echo", |_, arguments| async move { Ok(arguments["n"].to_string()) })
}

use crate::kit::assert_valid;

/// One reply with these calls, then the answer.
fn calls(calls: &[(&str, &str, Value)]) -> Script {
    let ask =
        |reply: ScriptReply, (id, name, arguments): &(&str, &str, Value)| reply.and_calls(id, name, arguments.clone());
    Script::of([calls.iter().fold(ScriptReply::default(), ask), ScriptReply::says("done")])
}

fn one_call() -> Script {
    calls(&[("c1", "echo", json!({"n": 1}))])
}

fn agent(script: Script) -> AgentBuilder {
    Agent::builder("a", script)
}

/// The trace of one turn; its log is valid.
async fn check(agent: AgentBuilder, expected: Expect) -> Rig {
    let mut rig = Rig::new(agent.build().unwrap());
    let trace = rig.trace("go").await;
    expected.assert_eq(&trace);
    assert_valid(&rig.log().await.unwrap());
    rig
}

/// One call of `echo`, its one result that begins so, and a turn that completes.
async fn comes_to(agent: AgentBuilder, expected: &str) {
    let mut rig = Rig::new(agent.build().unwrap());
    let trace = rig.trace("go").await;
    let results: Vec<&str> = trace.lines().filter_map(|line| line.strip_prefix("dispatch  ")).collect();
    assert!(results.len() == 1 && results[0].starts_with(expected), "not {expected:?}:\n{trace}");
    assert!(trace.ends_with("end       completed\n"), "{trace}");
    assert_valid(&rig.log().await.unwrap());
}

/// The one result of the first call.
fn result(log: &[Arc<Event>]) -> (bool, String) {
    let find = |event: &Arc<Event>| match &event.kind {
        EventKind::ToolResult { ok, content, .. } => Some((*ok, content.text())),
        _ => None,
    };
    log.iter().find_map(find).expect("no result")
}

#[tokio::test]
async fn malformed_arguments_are_error_results_and_nothing_runs() {
    let script = calls(&[
        ("raw", "echo", json!("{\"n\": ")),
        ("missing", "echo", json!({})),
        ("wrong", "echo", json!({"n": "one"})),
        ("list", "echo", json!([1])),
    ]);
    let expected = expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("{\"n\": ") echo() echo("one") echo([1])
        dispatch  echo("{\"n\": ") ! the arguments are not a JSON object: {"n":
        dispatch  echo() ! the arguments do not fit the tool's schema: "n" is a required property (at "")
        dispatch  echo("one") ! the arguments do not fit the tool's schema: "one" is not of type "integer" (at "/n")
        dispatch  echo([1]) ! the arguments do not fit the tool's schema: [1] is not of type "object" (at "")
        build     6 messages, 1 tool
        call      "done"
        end       completed
    "#]];
    check(agent(script).tool(echo()), expected).await;
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_an_error_result() {
    let expected = expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      shell()
        dispatch  shell() ! there is no tool named "shell"
        build     3 messages, 1 tool
        call      "done"
        end       completed
    "#]];
    check(agent(calls(&[("c1", "shell", json!({}))])).tool(echo()), expected).await;
}

#[tokio::test]
async fn a_tools_error_is_read_by_the_model() {
    let fails = tool("echo", |_, _| async { Err::<&str, BoxError>("no such file".into()) });
    comes_to(agent(one_call()).tool(fails), "echo(1) ! the tool failed: no such file").await;
}

#[tokio::test]
async fn a_tool_that_panics_is_an_error_result() {
    let panics =
        tool("echo", |_, arguments: Value| async move { Ok(arguments["n"].as_str().expect("text").to_owned()) });
    comes_to(agent(one_call()).tool(panics), "echo(1) ! the tool failed: it panicked: text").await;
}

struct PanicsAtOnce(Spec);

impl Tool for PanicsAtOnce {
    fn spec(&self) -> &Spec {
        &self.0
    }
    fn call<'a>(&'a self, _: &'a Turn, _: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        panic!("before there is a future")
    }
}

#[tokio::test]
async fn a_tool_that_panics_before_it_awaits_is_an_error_result_too() {
    let spec = Spec::server("echo", "For tests.", json!({"type": "object"}), Effect::Pure);
    let mut rig = Rig::new(agent(one_call()).tool(PanicsAtOnce(spec)).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    rig.settle().await;
    let log = rig.log().await.unwrap();
    assert!(matches!(log.last().unwrap().kind, EventKind::TurnEnded(_)), "the turn is stuck: {log:#?}");
    rig.follow(handle).await.unwrap();
    assert_eq!(result(&log), (false, "the tool failed: it panicked: before there is a future".to_owned()));
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_dropped_with_an_error_result() {
    let never = tool("echo", |_, _| std::future::pending::<Result<&str, BoxError>>()).timeout(Duration::from_secs(3));
    let mut rig = Rig::new(agent(one_call()).tool(never).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    rig.clock.pass(Duration::from_secs(3)).await;
    assert!(matches!(rig.follow(handle).await.unwrap(), TurnStatus::Ended(ended) if ended.is_completed()));
    let log = rig.log().await.unwrap();
    assert_eq!(result(&log), (false, "the tool failed: it took longer than 3s".to_owned()));
    assert_valid(&log);
}

#[tokio::test]
async fn a_result_that_is_not_text_or_far_too_long_still_reaches_the_model() {
    let bytes = tool("bytes", |_, _| async { Ok(Output::bytes(vec![b'a', 0xff, b'z'])) });
    let long = tool("long", |_, _| async { Ok(format!("begin{}end", "x".repeat(50 << 20))) });
    let script = calls(&[("c1", "bytes", json!({"n": 1})), ("c2", "long", json!({"n": 1}))]);
    let model = Recorder::of(script);
    let limits = turnbuckle::Limits { context_tokens: 200_000, ..Default::default() };
    let mut rig = Rig::new(Agent::builder("a", model.clone()).tool(bytes).tool(long).limits(limits).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    assert_valid(&rig.log().await.unwrap());
    let texts: Vec<String> = model.requests()[1].messages[2..].iter().map(|message| message.content().text()).collect();
    assert_eq!(texts[0], "[not UTF-8: replaced by \u{FFFD}]\na\u{FFFD}z");
    assert!(texts[1].len() < MAX_RESULT_BYTES + 100 && texts[1].starts_with("begin") && texts[1].ends_with("end"));
    assert!(texts[1].contains("bytes left out"));
}

#[tokio::test]
async fn a_call_id_that_repeats_becomes_unique_within_a_reply_and_over_turns() {
    let twice = |n| ScriptReply::calls("c", "echo", json!({"n": n})).and_calls("c", "echo", json!({"n": n + 1}));
    let script = Script::of([twice(1), ScriptReply::says("a"), twice(3), ScriptReply::says("b")]);
    let mut rig = Rig::new(agent(script).tool(echo()).build().unwrap());
    rig.ended("go").await.unwrap();
    rig.ended("again").await.unwrap();
    let log = rig.log().await.unwrap();
    assert_valid(&log);
    let call = |event: &Arc<Event>| match &event.kind {
        EventKind::ToolCall { call, .. } => Some(call.to_string()),
        _ => None,
    };
    assert_eq!(log.iter().filter_map(call).collect::<Vec<_>>(), ["c", "c~2", "c~3", "c~4"]);
}

#[tokio::test]
async fn calls_of_one_reply_run_side_by_side_and_are_rendered_in_call_order() {
    let meet = Arc::new(Barrier::new(3));
    let waits = tool("echo", move |_, arguments: Value| {
        let meet = meet.clone();
        async move {
            meet.wait().await;
            let n = arguments["n"].as_u64().unwrap();
            for _ in 0..10 * (3 - n) {
                tokio::task::yield_now().await;
            }
            Ok(n.to_string())
        }
    });
    let model = Recorder::of(calls(&[1, 2, 3].map(|n| (["", "a", "b", "c"][n], "echo", json!({"n": n})))));
    let mut rig = Rig::new(Agent::builder("a", model.clone()).tool(waits).build().unwrap());
    expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo(1) echo(2) echo(3)
        dispatch  echo(3) = 3
        dispatch  echo(2) = 2
        dispatch  echo(1) = 1
        build     5 messages, 1 tool
        call      "done"
        end       completed
    "#]]
    .assert_eq(&rig.trace("go").await);
    assert_valid(&rig.log().await.unwrap());
    let result = |message: &Message| match message {
        Message::Result { call, content, .. } => Some(format!("{call}={}", content.text())),
        _ => None,
    };
    let rendered: Vec<_> = model.requests()[1].messages.iter().filter_map(result).collect();
    assert_eq!(rendered, ["a=1", "b=2", "c=3"]);
}

#[tokio::test]
async fn that_a_tool_starts_is_logged_before_its_effect() {
    let store = MemoryStore::default();
    let looks = {
        let store = store.clone();
        tool("echo", move |turn: Turn, arguments| {
            let store = store.clone();
            async move {
                let log = store.log(turn.conversation(), 1, usize::MAX).await?;
                let started = |event: &Arc<Event>| match &event.kind {
                    EventKind::ToolStarted { call, arguments: logged, .. } => {
                        Some(call) == turn.call() && *logged == arguments
                    }
                    _ => false,
                };
                Ok(log.iter().any(started).to_string())
            }
        })
    };
    let rewrite = gate("rewrite", |_, _| async { Ok(BeforeTool::Rewrite(json!({"n": 7}))) });
    let mut rig = Rig::on(agent(one_call()).tool(looks).hook(rewrite).build().unwrap(), store);
    rig.ended("go").await.unwrap();
    let log = rig.log().await.unwrap();
    assert_eq!(result(&log), (true, "true".to_owned()));
    assert_valid(&log);
}

#[tokio::test]
async fn progress_is_told_while_the_tool_runs_and_outside_a_tool_it_is_not() {
    let works = tool("echo", |turn: Turn, _| async move {
        turn.report_progress("half");
        turn.report_progress(json!({"percent": 100}));
        Ok("done")
    });
    let outside = stop("outside", |turn: OnStopContext| async move {
        turn.report_progress("nobody hears this");
        Ok(OnStop::Accept)
    });
    let mut rig = Rig::new(agent(one_call()).tool(works).hook(outside).build().unwrap());
    rig.ended("go").await.unwrap();
    let told = |telling: &FeedItem| match telling {
        FeedItem::Live(LiveEvent::ToolProgress { call, payload }) => Some(format!("{call} {payload}")),
        FeedItem::Log(event) if matches!(event.kind, EventKind::ToolStarted { .. }) => Some("started".to_owned()),
        FeedItem::Log(event) if matches!(event.kind, EventKind::ToolResult { .. }) => Some("result".to_owned()),
        _ => None,
    };
    let told: Vec<_> = rig.told().iter().filter_map(|each| told(&each.item)).collect();
    assert_eq!(told, ["started", "c1 \"half\"", "c1 {\"percent\":100}", "result"]);
}

#[tokio::test]
async fn a_stop_hook_sees_which_files_were_touched_and_what_the_tools_did() {
    let writes = tool("echo", |turn: Turn, _| async move {
        turn.touch("src/b.rs");
        turn.touch("src/a.rs");
        turn.touch("src/b.rs");
        Ok("written")
    });
    let seen = Arc::new(Mutex::new(String::new()));
    let looks = {
        let seen = seen.clone();
        stop("looks", move |turn: OnStopContext| {
            let traced = turn
                .tool_trace()
                .iter()
                .map(|tool| format!("{} {} {} {}", tool.call, tool.name, tool.ok, tool.content.text()));
            *seen.lock().unwrap() =
                format!("{} after {}", turn.touched().join(" "), traced.collect::<Vec<_>>().join(", "));
            async { Ok(OnStop::Accept) }
        })
    };
    let script = calls(&[("c1", "echo", json!({"n": 1})), ("c2", "gone", json!({}))]);
    Rig::new(agent(script).tool(writes).hook(looks).build().unwrap()).ended("go").await.unwrap();
    let expected = "src/a.rs src/b.rs after c1 echo true written, c2 gone false there is no tool named \"gone\"";
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_tool_that_needs_a_user_fails_when_the_system_calls_it() {
    let rig = Rig::new(agent(one_call()).tool(echo().needs_user()).build().unwrap());
    let handle = rig.conversations.send(&rig.id, "go", Scope::system()).await.unwrap();
    assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(ended) if ended.is_completed()));
    let log = rig.conversations.log(&rig.id, Scope::system()).await.unwrap();
    assert_eq!(result(&log), (false, "this tool needs a user, and the system called it".to_owned()));
    assert_valid(&log);
}

fn decides(decision: BeforeTool) -> impl Hook + use<> {
    gate("decides", move |_, _| std::future::ready(Ok(decision.clone())))
}

#[tokio::test]
async fn before_tool_rewrites_denies_and_answers() {
    let with = |decision| agent(one_call()).tool(echo()).hook(decides(decision));
    comes_to(with(BeforeTool::Rewrite(json!({"n": 42}))), "echo(42) = 42").await;
    let badly = "echo(1) ! hook decides rewrote the arguments, and the arguments do not fit the tool's schema:";
    comes_to(with(BeforeTool::Rewrite(json!({"n": "x"}))), badly).await;
    comes_to(with(BeforeTool::Deny("not on a Sunday".into())), "echo(1) ! [denied by decides] not on a Sunday").await;
    comes_to(with(BeforeTool::Answer(Output::ok("from the cache"))), "echo(1) = from the cache").await;
}

#[tokio::test]
async fn a_halt_before_one_call_stops_all_calls_of_the_reply_and_is_recorded() {
    let halts = gate("halts", |_, call: ToolCall| async move {
        Ok(if call.call.as_str() == "c2" { BeforeTool::Halt("enough".into()) } else { BeforeTool::Continue })
    });
    let script = calls(&[("c1", "echo", json!({"n": 1})), ("c2", "echo", json!({"n": 2}))]);
    let expected = expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo(1) echo(2)
        dispatch  echo(1) ! [not run: turn halted]
        dispatch  echo(2) ! [not run: turn halted]
        end       halted by hook halts: enough
    "#]];
    let rig = check(agent(script).tool(echo()).hook(halts), expected).await;
    let records = rig.conversations.records(&rig.id, &"t_1".into(), Scope::local()).await.unwrap();
    let halted = records.iter().any(|record| record.point == Point::BeforeTool && record.decision.name() == "halt");
    assert!(halted, "the run that halted the turn left no record: {records:?}");
}

/// At `after_tool`.
struct After(AfterTool);

impl Hook for After {
    async fn after_tool(&self, _: &Turn, _: &ToolCall, _: &Output) -> Result<AfterTool, BoxError> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn after_tool_changes_the_result_or_ends_the_turn_with_it_logged() {
    let with = |decision| agent(one_call()).tool(echo()).hook(After(decision));
    comes_to(with(AfterTool::Modify(Output::error("no"))), "echo(1) ! no").await;
    let expected = expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo(1)
        dispatch  echo(1) = 1
        end       halted by hook after: seen enough
    "#]];
    check(with(AfterTool::Halt("seen enough".into())), expected).await;
    let answered =
        with(AfterTool::Modify(Output::ok("changed"))).hook(decides(BeforeTool::Answer(Output::ok("cache"))));
    comes_to(answered, "echo(1) = changed").await;
    let halted = with(AfterTool::Halt("seen enough".into())).hook(decides(BeforeTool::Answer(Output::ok("cache"))));
    let expected = expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo(1)
        dispatch  echo(1) = cache
        end       halted by hook after: seen enough
    "#]];
    check(halted, expected).await;
}

/// Tries a failing tool again.
struct Retry;

impl Hook for Retry {
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        for _ in 0..2 {
            if let Ok(output) = next.run(call).await {
                return Ok(output);
            }
        }
        next.run(call).await
    }
}

/// Fails, by an error or a panic, until it is called for the third time.
fn flaky(panics: bool) -> (Arc<AtomicU32>, FunctionTool) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let run = move |_, _| {
        let n = counted.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            assert!(n > 2 || !panics, "try {n}");
            if n > 2 { Ok(format!("worked at try {n}")) } else { Err(format!("try {n}").into()) }
        }
    };
    (count, tool("echo", run))
}

#[tokio::test]
async fn a_wrap_tries_a_failing_tool_again() {
    comes_to(agent(one_call()).tool(flaky(false).1).hook(Retry), "echo(1) = worked at try 3").await;
}

#[tokio::test]
async fn a_panic_of_the_tool_is_the_tools_failure_and_not_that_of_the_wrap_around_it() {
    comes_to(agent(one_call()).tool(flaky(true).1).hook(Retry), "echo(1) = worked at try 3").await;
    let (count, panics) = flaky(true);
    struct Plain;
    impl Hook for Plain {
        async fn wrap_tool_call<'a>(
            &self,
            _: &'a Turn,
            call: &'a ToolCall,
            next: ToolNext<'a>,
        ) -> Result<Output, BoxError> {
            next.run(call).await
        }
    }
    Rig::new(agent(one_call()).tool(panics).hook(Plain.on_failure(OnFailure::Ignore)).build().unwrap())
        .ended("go")
        .await;
    assert_eq!(count.load(Ordering::Relaxed), 1, "a tool that panicked was run again behind the wrap's back");
}

#[tokio::test]
async fn a_hook_for_some_tools_leaves_the_others_alone() {
    let write = tool("write_file", |_, _| async { Ok("written") });
    let denies = gate("guard", |_, _| async { Ok(BeforeTool::Deny("read only".into())) }).for_tools(["write_*"]);
    let marks = After(AfterTool::Modify(Output::ok("marked"))).named("marks").for_tools(["ec?o"]);
    let script = calls(&[("c1", "echo", json!({"n": 1})), ("c2", "write_file", json!({"n": 2}))]);
    let expected = expect![[r#"
        accept    "go"
        build     1 message, 2 tools
        call      echo(1) write_file(2)
        dispatch  write_file(2) ! [denied by guard] read only
        dispatch  echo(1) = marked
        build     4 messages, 2 tools
        call      "done"
        end       completed
    "#]];
    check(agent(script).tool(echo()).tool(write).hook(denies).hook(marks), expected).await;
}

#[tokio::test]
async fn a_hook_that_fails_at_a_tool_blocks_the_call_and_not_the_turn() {
    let fails = || gate("fails", |_, _| async { Err::<BeforeTool, BoxError>("no policy".into()) });
    comes_to(agent(one_call()).tool(echo()).hook(fails()), "echo(1) ! [blocked] hook fails failed: no policy").await;
    comes_to(agent(one_call()).tool(echo()).hook(fails().on_failure(OnFailure::Ignore)), "echo(1) = 1").await;
}
