//! A message while a turn runs, for the model of that turn: `WhileBusy::Steer`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::json;
use tokio::sync::Notify;
use turnbuckle::OutputSchema;
use turnbuckle::conversation::{SendError, TurnError, TurnHandle, UserInput};
use turnbuckle::event::{Cause, EventKind, Outcome};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::Author;
use turnbuckle::store::{Answer, InboxFilter, LEASE, Store};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::trace::trace_told;
use turnbuckle::{Agent, AgentBuilder, BoxError, Conversations, Limits, Scope, TurnStatus, WhileBusy};

use crate::access::{roles, user};
use crate::faulty_store::FaultyStore;
use crate::kit::assert_valid;

/// A tool that says that it runs and waits to be let go.
#[derive(Clone, Default)]
pub struct Slow {
    pub runs: Arc<Notify>,
    pub go: Arc<Notify>,
}

impl Slow {
    fn tool(&self) -> FunctionTool {
        let this = self.clone();
        function_with_schema("slow", "Waits.", json!({"type": "object"}), Effect::Pure, move |_, _| {
            let this = this.clone();
            async move {
                this.runs.notify_one();
                this.go.notified().await;
                Ok("slept")
            }
        })
    }
}

fn call(id: &str) -> ScriptReply {
    ScriptReply::calls(id, "slow", json!({}))
}

fn script() -> Script {
    Script::of([call("c1"), call("c2"), ScriptReply::says("done"), ScriptReply::says("next")])
}

/// A turn whose first tool runs, and everything that its model was asked.
pub struct UnderWay {
    pub rig: Rig,
    pub slow: Slow,
    pub turn: TurnHandle,
    asked: Recorder,
}

pub async fn under_way(hooks: impl FnOnce(AgentBuilder) -> AgentBuilder) -> UnderWay {
    under_way_on(MemoryStore::default(), hooks).await
}

async fn under_way_on(store: impl Store, hooks: impl FnOnce(AgentBuilder) -> AgentBuilder) -> UnderWay {
    let (slow, asked) = (Slow::default(), Recorder::of(script()));
    let agent = hooks(Agent::builder("a", asked.clone()).tool(slow.tool())).build().unwrap();
    let mut rig = Rig::with(agent, store, |builder| builder.access(roles()));
    let turn = rig.send("go").await.unwrap();
    slow.runs.notified().await;
    UnderWay { rig, slow, turn, asked }
}

impl UnderWay {
    pub async fn steer(&self, text: &str) -> TurnHandle {
        steer(&self.rig.conversations, text, Scope::local()).await.unwrap()
    }

    /// Lets both tools go and follows the turn to its end.
    pub async fn finish(mut self) -> (Rig, turnbuckle::TurnReport, Recorder) {
        self.slow.go.notify_one();
        self.slow.runs.notified().await;
        self.slow.go.notify_one();
        let TurnStatus::Ended(ended) = self.rig.follow(self.turn).await.unwrap() else { panic!("it waits") };
        self.rig.settle().await;
        assert_valid(&self.rig.log().await.unwrap());
        (self.rig, *ended, self.asked)
    }
}

async fn steer(conversations: &Conversations, text: &str, scope: Scope) -> Result<TurnHandle, SendError> {
    conversations.send_while(&"c_1".into(), text, scope, WhileBusy::Steer).await
}

fn expect_trace(rig: &Rig, expected: Expect) {
    expected.assert_eq(&trace_told(rig.told(), 1));
}

/// What each request had, one line a message.
pub fn requests(asked: &Recorder) -> Vec<String> {
    let line = |request: &turnbuckle::model::Request| {
        request.messages.iter().map(|message| message.content().text()).collect::<Vec<_>>().join(" | ")
    };
    asked.requests().iter().map(line).collect()
}

#[tokio::test]
async fn a_message_is_given_to_the_model_at_its_next_call_within_the_turn() {
    let under_way = under_way(|agent| agent).await;
    let sent = under_way.steer("faster").await;
    let (rig, ended, asked) = under_way.finish().await;
    assert_eq!((ended.outcome, ended.text().as_str()), (Outcome::Completed, "done"));
    let TurnStatus::Ended(told) = sent.wait().await.unwrap() else { panic!("it waits") };
    assert_eq!(told.turn, ended.turn, "its sender waits for the turn that it is part of");
    expect_trace(
        &rig,
        expect![[r#"
            accept    "go"
            build     1 message, 1 tool
            call      slow()
            dispatch  slow() = slept
            steer     "faster"
            build     4 messages, 1 tool
            call      slow()
            dispatch  slow() = slept
            build     6 messages, 1 tool
            call      "done"
            end       completed
        "#]],
    );
    assert_eq!(
        requests(&asked),
        ["go", "go |  | slept | faster", "go |  | slept | faster |  | slept"],
        "behind the results that it follows, and there ever after"
    );
    let log = rig.log().await.unwrap();
    assert!(log.iter().all(|event| event.turn == ended.turn), "there is no other turn: {log:#?}");
}

#[tokio::test]
async fn hooks_see_it_once_for_itself_and_what_they_add_stands_behind_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let looks = {
        let seen = seen.clone();
        pre("looks", move |mut turn: BeforeAgentContext| {
            let seen = seen.clone();
            async move {
                let text = turn.user_message().text();
                seen.lock().unwrap().push((text.clone(), turn.is_steering()));
                turn.inject(format!(" +{text}"));
                turn.rewrite_input(text.to_uppercase());
                turn.proceed()
            }
        })
    };
    let at_stop = Arc::new(Mutex::new(String::new()));
    let stops = {
        let at_stop = at_stop.clone();
        stop("stops", move |turn: OnStopContext| {
            *at_stop.lock().unwrap() = turn.user_message().text();
            async { Ok(OnStop::Accept) }
        })
    };
    let under_way = under_way(|agent| agent.hook(looks).hook(stops)).await;
    under_way.steer("one").await;
    under_way.steer("two").await;
    let (_, _, asked) = under_way.finish().await;
    let expected = [("go", false), ("one", true), ("two", true)].map(|(text, steers)| (text.to_owned(), steers));
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(requests(&asked)[1], "GO +go |  | slept | ONE +one | TWO +two");
    assert_eq!(requests(&asked)[2], "GO +go |  | slept | ONE +one | TWO +two |  | slept");
    assert_eq!(*at_stop.lock().unwrap(), "GO", "the message that opened the turn is what it was");
}

/// Asserts that only the message is refused, and that its sender and the end of the turn say why.
async fn expect_refused(under_way: UnderWay, is_cause: impl Fn(&Cause) -> bool, hook: &str) {
    let sent = under_way.steer("bad").await;
    let (rig, ended, asked) = under_way.finish().await;
    assert_eq!((ended.outcome, ended.text().as_str()), (Outcome::Completed, "done"), "the turn goes on");
    let Err(TurnError::Refused(refused)) = sent.wait().await else { panic!("it was not refused") };
    assert_eq!(refused.by, Some(Author::Hook(hook.into())));
    assert!(refused.cause.as_ref().is_some_and(&is_cause), "{refused:?}");
    assert!(ended.warnings.iter().any(|warning| warning.cause.as_ref().is_some_and(&is_cause)), "{ended:?}");
    assert!(requests(&asked).iter().all(|request| !request.contains("bad")), "no model saw it");
    let said = |kind: &EventKind| matches!(kind, EventKind::UserMessage { .. });
    assert_eq!(rig.log().await.unwrap().iter().filter(|event| said(&event.kind)).count(), 1);
}

#[tokio::test]
async fn a_hook_that_halts_refuses_the_message_and_not_the_turn() {
    let halts = pre("halts", |turn: BeforeAgentContext| async move {
        match turn.user_message().text().as_str() {
            "bad" => turn.halt("not that"),
            _ => turn.proceed(),
        }
    });
    let is_cause = |cause: &Cause| matches!(cause, Cause::HookDecided { hook, .. } if **hook == *"halts");
    expect_refused(under_way(|agent| agent.hook(halts)).await, is_cause, "halts").await;
}

#[tokio::test]
async fn what_does_not_fit_the_reserve_refuses_the_message_and_not_the_turn() {
    let adds = pre("adds", |mut turn: BeforeAgentContext| async move {
        let size = if turn.is_steering() { 400 } else { 100 };
        turn.inject("word ".repeat(size));
        turn.proceed()
    });
    let limits = Limits { injection_reserve: 300, ..Limits::default() };
    let is_cause = |cause: &Cause| matches!(cause, Cause::InjectionOverflow { reserve: 300, .. });
    expect_refused(under_way(|agent| agent.hook(adds).limits(limits)).await, is_cause, "adds").await;
}

#[tokio::test]
async fn a_hook_that_fails_and_blocks_refuses_the_message_and_not_the_turn() {
    struct Breaks;
    impl Hook for Breaks {
        async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
            if turn.is_steering() { Err("broken".into()) } else { Ok(BeforeAgent::Continue) }
        }
    }
    let is_cause = |cause: &Cause| matches!(cause, Cause::HookFailed { .. });
    expect_refused(under_way(|agent| agent.hook(Breaks.named("breaks"))).await, is_cause, "breaks").await;
}

#[tokio::test]
async fn a_turn_that_ends_first_leaves_the_message_for_the_next_one() {
    let mut under_way = under_way(|agent| agent).await;
    let sent = under_way.steer("and?").await;
    under_way.rig.conversations.cancel(&under_way.rig.id, Scope::local()).await.unwrap();
    let TurnStatus::Ended(first) = under_way.rig.follow(under_way.turn).await.unwrap() else { panic!("it waits") };
    assert_eq!(first.outcome, Outcome::Cancelled);
    under_way.slow.runs.notified().await;
    under_way.slow.go.notify_one();
    let opened = sent.turn().clone();
    let TurnStatus::Ended(second) = under_way.rig.follow(sent).await.unwrap() else { panic!("it waits") };
    assert_eq!((second.outcome, second.turn), (Outcome::Completed, opened));
    let log = under_way.rig.log().await.unwrap();
    let and = |kind: &EventKind| matches!(kind, EventKind::UserMessage { content, .. } if content.text() == "and?");
    assert_eq!(log.iter().filter(|event| and(&event.kind)).count(), 1);
    assert_valid(&log);
}

#[tokio::test]
async fn with_no_turn_to_steer_it_is_a_message_like_any_other() {
    let mut rig = Rig::new(Agent::builder("a", Script::says(["hello"])).build().unwrap());
    let sent = steer(&rig.conversations, "hi", Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = rig.follow(sent).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.text(), "hello");
}

#[tokio::test]
async fn tools_act_for_whoever_opened_the_turn_so_nobody_else_steers_it() {
    let under_way = under_way(|agent| agent).await;
    let other = steer(&under_way.rig.conversations, "delete it", user("bob", "speaker")).await.unwrap();
    let typed = OutputSchema::new(json!({"type": "object"})).unwrap();
    let typed = UserInput::new("as JSON").with_schema(typed);
    let door = &under_way.rig.conversations;
    let typed = door.send_while(&under_way.rig.id, typed, Scope::local(), WhileBusy::Steer).await.unwrap();
    let (turns, first) = ([other.turn().clone(), typed.turn().clone()], under_way.turn.turn().clone());
    let (rig, _, asked) = under_way.finish().await;
    assert!(requests(&asked)[..3].iter().all(|request| !request.contains("delete it") && !request.contains("JSON")));
    other.wait().await.unwrap();
    typed.wait().await.unwrap();
    let log = rig.log().await.unwrap();
    let said = log.iter().filter(|event| matches!(event.kind, EventKind::UserMessage { .. }));
    let said: Vec<_> = said.map(|event| event.turn.clone()).collect();
    assert_eq!(said, [first, turns[0].clone(), turns[1].clone()]);
}

#[tokio::test]
async fn a_turn_that_waits_is_steered_when_it_goes_on() {
    let slow = Slow::default();
    slow.go.notify_one();
    let asked = Recorder::of(Script::of([call("c1"), ScriptReply::says("done")]));
    let agent = Agent::builder("a", asked.clone()).tool(slow.tool()).approve(["slow"]).build().unwrap();
    let mut rig = Rig::on(agent, FaultyStore::shared());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let sent = steer(&rig.conversations, "and quickly", Scope::local()).await.unwrap();
    rig.settle().await;
    let answered = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    let TurnStatus::Ended(ended) = rig.follow(answered.unwrap()).await.unwrap() else { panic!("it waits again") };
    assert_eq!(requests(&asked)[1], "go |  | slept | and quickly");
    assert!(matches!(sent.wait().await, Ok(TurnStatus::Waiting(_) | TurnStatus::Ended(_))));
    assert_eq!(ended.text(), "done");
    assert_valid(&rig.log().await.unwrap());
}

fn elsewhere(store: &FaultyStore, rig: &Rig) -> Conversations {
    let agent = Agent::builder("a", script()).tool(Slow::default().tool()).build().unwrap();
    let builder = Conversations::builder(agent, store.clone()).clock(Arc::new(rig.clock.clone()));
    builder.ids(Arc::new(SystemIds::default())).build()
}

#[tokio::test]
async fn a_turn_is_steered_from_another_process() {
    let store = FaultyStore::shared();
    let mut under_way = under_way_on(store.clone(), |agent| agent).await;
    let sent = steer(&elsewhere(&store, &under_way.rig), "faster", Scope::local()).await.unwrap();
    assert!(sent.is_remote());
    under_way.rig.clock.advance(Duration::from_secs(1));
    under_way.rig.settle().await;
    let (rig, ended, asked) = under_way.finish().await;
    assert_eq!(requests(&asked)[1], "go |  | slept | faster");
    assert!(store.inbox(&rig.id, InboxFilter::All).await.unwrap().is_empty());
    assert!(rig.log().await.unwrap().iter().all(|event| event.turn == ended.turn));
}

#[test]
fn a_message_to_a_process_that_died_is_given_to_the_turn_by_whoever_carries_it_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (first, store) = (runtime(), FaultyStore::shared());
    let under_way = first.block_on(under_way_on(store.clone(), |agent| agent));
    first.block_on(under_way.steer("faster"));
    let (id, clock) = (under_way.rig.id.clone(), under_way.rig.clock.clone());
    drop(first);
    clock.advance(LEASE);
    runtime().block_on(async {
        let (slow, asked) = (Slow::default(), Recorder::of(script()));
        let agent = Agent::builder("a", asked.clone()).tool(slow.tool()).build().unwrap();
        let builder = Conversations::builder(agent, store.clone()).clock(Arc::new(clock));
        let door = builder.ids(Arc::new(SystemIds::default())).build();
        let turn = door.resume(&id, Scope::local()).await.unwrap().unwrap();
        slow.go.notify_one();
        slow.runs.notified().await;
        slow.runs.notified().await;
        slow.go.notify_one();
        assert!(matches!(turn.wait().await.unwrap(), TurnStatus::Ended(_)));
        assert_eq!(requests(&asked)[0], "go |  | slept | faster");
        let log = door.log(&id, Scope::local()).await.unwrap();
        let said = |kind: &EventKind| matches!(kind, EventKind::UserMessage { .. });
        assert_eq!(log.iter().filter(|event| said(&event.kind)).count(), 2);
        assert_valid(&log);
    });
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_hooks_look_at_the_message_has_not_taken_it_in() {
    let looking = Arc::new(Notify::new());
    let looks = {
        let looking = looking.clone();
        pre("looks", move |turn: BeforeAgentContext| {
            let looking = looking.clone();
            async move {
                if turn.is_steering() {
                    looking.notify_one();
                    std::future::pending::<()>().await;
                }
                turn.proceed()
            }
        })
    };
    let mut under_way = under_way(|agent| agent.hook(looks)).await;
    let sent = under_way.steer("wait").await;
    under_way.slow.go.notify_one();
    looking.notified().await;
    under_way.rig.conversations.cancel(&under_way.rig.id, Scope::local()).await.unwrap();
    let TurnStatus::Ended(first) = under_way.rig.follow(under_way.turn).await.unwrap() else { panic!("it waits") };
    assert_eq!(first.outcome, Outcome::Cancelled);
    under_way.slow.runs.notified().await;
    under_way.slow.go.notify_one();
    let TurnStatus::Ended(second) = under_way.rig.follow(sent).await.unwrap() else { panic!("it waits") };
    assert_eq!(second.outcome, Outcome::Completed, "it opened a turn of its own");
    assert_valid(&under_way.rig.log().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_messages_at_once_each_is_taken_in_exactly_once() {
    let steps = (0..40).map(|number| call(&format!("c{number}"))).chain((0..60).map(|_| ScriptReply::says("done")));
    let quick = function_with_schema("slow", "Yields.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        tokio::task::yield_now().await;
        Ok("slept")
    });
    let agent = Agent::builder("a", Script::of(steps)).tool(quick).build().unwrap();
    let door = Conversations::builder(agent, FaultyStore::shared()).build();
    let first = door.send(&"c_1".into(), "go", Scope::local()).await.unwrap();
    let senders = (0..40).map(|number| {
        let door = door.clone();
        tokio::spawn(async move {
            let sent = steer(&door, &format!("message {number}"), Scope::local()).await.unwrap();
            sent.wait().await.unwrap();
        })
    });
    let senders: Vec<_> = senders.collect();
    first.wait().await.unwrap();
    for sender in senders {
        tokio::time::timeout(Duration::from_secs(60), sender).await.expect("a sender was forgotten").unwrap();
    }
    let log = door.log(&"c_1".into(), Scope::local()).await.unwrap();
    let mut said: Vec<_> = log
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::UserMessage { content, .. } => Some(content.text()),
            _ => None,
        })
        .collect();
    said.sort();
    let mut expected: Vec<_> = (0..40).map(|number| format!("message {number}")).collect();
    expected.push("go".to_owned());
    expected.sort();
    assert_eq!(said, expected);
    assert_valid(&log);
}

/// The texts of all user messages, in order.
pub async fn said(door: &Conversations) -> Vec<String> {
    let log = door.log(&"c_1".into(), Scope::local()).await.unwrap();
    assert_valid(&log);
    let text = |kind: &EventKind| match kind {
        EventKind::UserMessage { content, .. } => Some(content.text()),
        _ => None,
    };
    log.iter().filter_map(|event| text(&event.kind)).collect()
}

#[tokio::test]
async fn a_message_whose_turn_has_not_begun_can_be_taken_back() {
    let store = FaultyStore::shared();
    let under_way = under_way_on(store.clone(), |agent| agent).await;
    let (door, id) = (under_way.rig.conversations.clone(), under_way.rig.id.clone());
    let queue = async |text: &str| door.send_while(&id, text, Scope::local(), WhileBusy::Queue).await.unwrap();
    let (kept, queued, steering) = (queue("kept").await, queue("gone").await, under_way.steer("gone, too").await);
    let take_back = async |turn| door.take_back(&id, turn, Scope::local()).await.unwrap();
    assert!(!door.take_back(&id, queued.turn(), user("bob", "speaker")).await.unwrap(), "it is not his");
    assert!(take_back(queued.turn()).await && take_back(steering.turn()).await);
    assert!(!take_back(queued.turn()).await, "it is gone");
    assert!(!take_back(under_way.turn.turn()).await, "its turn runs");
    let waiting = door.queued(&id, &Scope::local()).await.unwrap();
    let waiting: Vec<String> = waiting.iter().map(|message| message.content.text()).collect();
    assert_eq!(waiting, ["kept"], "the others are not shown as waiting while the turn still runs");
    assert!(matches!(queued.wait().await, Err(TurnError::TakenBack)));
    assert!(matches!(steering.wait().await, Err(TurnError::TakenBack)));
    under_way.finish().await;
    assert!(matches!(kept.wait().await, Ok(TurnStatus::Ended(_))));
    assert_eq!(said(&door).await, ["go", "kept"]);
    assert!(store.inbox(&id, InboxFilter::All).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_message_behind_a_turn_that_waits_can_be_taken_back() {
    let store = FaultyStore::shared();
    let slow = Slow::default();
    slow.go.notify_one();
    let model = Script::of([call("c1"), ScriptReply::says("done")]);
    let agent = Agent::builder("a", model).tool(slow.tool()).approve(["slow"]).build().unwrap();
    let mut rig = Rig::on(agent, store.clone());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let door = rig.conversations.clone();
    let queued = door.send_while(&rig.id, "later", Scope::local(), WhileBusy::Queue).await.unwrap();
    rig.settle().await;
    assert!(door.take_back(&rig.id, queued.turn(), Scope::local()).await.unwrap());
    rig.settle().await;
    assert!(store.inbox(&rig.id, InboxFilter::All).await.unwrap().is_empty());
    let answered = door.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    rig.follow(answered.unwrap()).await.unwrap();
    assert_eq!(said(&door).await, ["go"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_message_is_taken_back_or_has_a_turn_and_never_both() {
    let agent = Agent::builder("a", Script::says(vec!["done"; 200])).build().unwrap();
    let door = Conversations::in_memory(agent);
    let mut kept = 0;
    for number in 0..80 {
        let id = "c_1".into();
        let send = |text: String| door.send_while(&id, text, Scope::local(), WhileBusy::Queue);
        let first = send(format!("first {number}")).await.unwrap();
        let second = send(format!("second {number}")).await.unwrap();
        let taken = door.take_back(&id, second.turn(), Scope::local()).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), second.wait()).await.expect("nobody was told");
        assert_eq!(taken, matches!(ended, Err(TurnError::TakenBack)), "{ended:?}");
        assert_eq!(taken, ended.is_err(), "{ended:?}");
        kept += usize::from(!taken);
        // On a busy machine the messages that nobody waits for would fill the inbox.
        tokio::time::timeout(Duration::from_secs(60), first.wait()).await.expect("nobody was told").unwrap();
    }
    let second = |text: &&String| text.starts_with("second");
    let said = said(&door).await;
    assert_eq!(said.iter().filter(second).count(), kept, "{said:?}");
}
