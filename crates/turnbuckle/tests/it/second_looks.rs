//! What a second look at conversations that survive found: each of these went wrong once.

use crate::faulty_store::{Fault, FaultyStore};
use crate::kit::add;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use turnbuckle::BoxFuture;
use turnbuckle::clock::Clock;
use turnbuckle::event::{Cause, EventKind};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::message::Reply;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Answer, InboxFilter, InboxItem, InboxKind, LEASE, Store};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError, Outcome, OutputSchema, Scope, Turn, UserInput, WhileBusy};

fn outcomes(log: &[Arc<turnbuckle::event::Event>]) -> Vec<Outcome> {
    log.iter()
        .filter_map(|e| match &e.kind {
            EventKind::TurnEnded(t) => Some(t.outcome),
            _ => None,
        })
        .collect()
}
fn item(id: &str, rig: &Rig, kind: InboxKind) -> InboxItem {
    InboxItem { id: id.into(), from: Scope::local().actor().clone(), at: rig.clock.now(), kind }
}
/// Answers the first call at once, then waits for `go` at each.
struct Slow {
    go: Arc<Notify>,
    first: usize,
    calls: AtomicUsize,
    object: bool,
}
impl Model for Slow {
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            if self.calls.fetch_add(1, Relaxed) >= self.first {
                self.go.notified().await;
            }
            let object = self.object.then(|| Arc::new(json!({"n": "secret"})));
            Ok(Reply { content: "{\"n\": \"secret\"}".to_owned().into(), object, ..Reply::default() })
        })
    }
    fn name(&self) -> &str {
        "slow"
    }
}
fn slow(first: usize) -> (Slow, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    (Slow { go: go.clone(), first, calls: AtomicUsize::new(0), object: false }, go)
}

#[tokio::test]
async fn a_letter_that_comes_to_nothing_is_read_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let store =
        FaultyStore::with(move |_| if counts.fetch_add(1, Relaxed) > 500 { Fault::Fail } else { Fault::Nothing });
    let script = Script::of([ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2})), ScriptReply::says("4")]);
    let mut rig = Rig::on(Agent::builder("a", script).tool(add()).approve(["add"]).build().unwrap(), store.clone());
    rig.run("go").await.unwrap();
    let kind =
        InboxKind::Answer { call: "c1".into(), answer: Answer::Approve, digest: None, via: None, standing: None };
    // Of someone who may not answer: the store does not know, the writer does.
    let from = Scope::user("zed").actor().clone();
    store.deliver(&rig.id, InboxItem { from, ..item("l1", &rig, kind) }).await.unwrap();
    let before = count.load(Relaxed);
    rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
    println!("appends {}", count.load(Relaxed) - before);
    assert!(count.load(Relaxed) - before < 20, "spins");
    assert!(store.inbox(&rig.id, InboxFilter::All).await.unwrap().is_empty());
}

#[test]
fn a_turn_that_died_behind_an_approval_is_due_at_once() {
    let store = FaultyStore::shared();
    let process = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tool = || {
        function_with_schema("slow", "w", json!({"type": "object"}), Effect::Pure, |_, _| async move {
            std::future::pending::<()>().await;
            Ok("x")
        })
    };
    let script = Script::of([ScriptReply::calls("c1", "slow", json!({}))]);
    let mut rig = Rig::on(Agent::builder("a", script).tool(tool()).approve(["slow"]).build().unwrap(), store.clone());
    process.block_on(async {
        rig.run("go").await.unwrap();
        rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
        rig.settle().await;
        let log = rig.log().await.unwrap();
        assert!(matches!(log.last().unwrap().kind, EventKind::ToolStarted { .. }));
    });
    drop(process);
    rig.clock.advance(LEASE * 2);
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let due = other.block_on(store.due(rig.clock.now(), None, 9)).unwrap();
    assert_eq!(due.len(), 1, "a dead turn after an approval is not found");
}

#[tokio::test]
async fn a_message_that_a_crash_left_in_the_inbox_can_be_cancelled() {
    let store = FaultyStore::shared();
    let mut rig = Rig::on(Agent::builder("a", Script::says(["one"])).build().unwrap(), store.clone());
    rig.listen().await.unwrap();
    let l = InboxItem::message(&"t_9".into(), "hi".to_owned().into(), Scope::local().actor().clone(), rig.clock.now());
    store.deliver(&rig.id, l).await.unwrap();
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    rig.settle().await;
    assert_eq!(outcomes(&rig.log().await.unwrap()), [Outcome::Cancelled]);
}

#[tokio::test]
async fn a_job_that_is_done_is_not_done_again_while_a_long_turn_keeps_it_from_being_written() {
    struct Bg(Arc<Mutex<u32>>, Arc<Notify>);
    impl Hook for Bg {
        async fn background(&self, turn: &BackgroundContext) -> Result<(), BoxError> {
            let n = {
                let mut n = self.0.lock().unwrap();
                *n += 1;
                *n
            };
            if n == 1 {
                self.1.notified().await;
            }
            turn.leave_note("a note");
            Ok(())
        }
    }
    let (model, go) = slow(1);
    let (runs, bg) = (Arc::new(Mutex::new(0)), Arc::new(Notify::new()));
    let agent = Agent::builder("a", model).hook(Bg(runs.clone(), bg.clone()).named("bg")).build().unwrap();
    let mut rig = Rig::on(agent, FaultyStore::shared());
    rig.ended("one").await.unwrap();
    let turn = rig.send("two").await.unwrap();
    rig.settle().await;
    bg.notify_one();
    rig.settle().await;
    assert_eq!(*runs.lock().unwrap(), 1);
    for _ in 0..200 {
        rig.clock.advance(Duration::from_secs(1));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        rig.conversations.recover_due().await.unwrap();
        rig.settle().await;
    }
    let ran = *runs.lock().unwrap();
    go.notify_one();
    rig.follow(turn).await.unwrap();
    rig.settle().await;
    let notes = rig
        .log()
        .await
        .unwrap()
        .iter()
        .filter(|e| e.turn.as_str() == "t_1" && matches!(e.kind, EventKind::Injection { .. }))
        .count();
    println!("runs {ran} notes {notes}");
    assert_eq!((ran, notes), (1, 1));
}

#[tokio::test]
async fn a_cancellation_that_meets_a_driver_on_its_way_cuts_the_turn_it_begins() {
    let store = FaultyStore::shared();
    let (model, _go) = slow(0);
    let mut rig = Rig::on(Agent::builder("a", model).build().unwrap(), store.clone());
    rig.listen().await.unwrap();
    let l = InboxItem::message(&"t_9".into(), "hi".to_owned().into(), Scope::local().actor().clone(), rig.clock.now());
    store.deliver(&rig.id, l).await.unwrap();
    let (door, id) = (rig.conversations.clone(), rig.id.clone());
    let mut resume = Box::pin(async move { door.resume(&id, Scope::local()).await });
    std::future::poll_fn(|cx| {
        assert!(std::future::Future::poll(resume.as_mut(), cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    let _ = resume.await;
    rig.settle().await;
    assert_eq!(outcomes(&rig.log().await.unwrap()), [Outcome::Cancelled]);
}

#[tokio::test]
async fn an_interrupting_message_never_cuts_its_own_turn() {
    let store = FaultyStore::slow_deliver();
    let (model, go) = slow(0);
    let mut rig = Rig::on(Agent::builder("a", model).build().unwrap(), store);
    let turn = rig.send("one").await.unwrap();
    rig.settle().await;
    let (door, id) = (rig.conversations.clone(), rig.id.clone());
    let sent = tokio::spawn(async move { door.send_while(&id, "two", Scope::local(), WhileBusy::Interrupt).await });
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    rig.follow(turn).await.unwrap();
    sent.await.unwrap().unwrap();
    rig.settle().await;
    go.notify_one();
    rig.settle().await;
    assert_eq!(outcomes(&rig.log().await.unwrap()), [Outcome::Completed, Outcome::Completed]);
}

#[tokio::test]
async fn an_object_has_passed_every_transformer() {
    struct Mask;
    impl Hook for Mask {
        fn transformer(&self) -> Option<Box<dyn Transformer>> {
            struct M;
            impl Transformer for M {
                fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
                    out.push(&text.replace("secret", "MASKED"));
                    Ok(())
                }
            }
            Some(Box::new(M))
        }
    }
    let (model, _) = slow(9);
    let rig = Rig::new(Agent::builder("a", Slow { object: true, ..model }).hook(Mask.named("mask")).build().unwrap());
    let say = UserInput::new("?").with_schema(OutputSchema::new(json!({"type": "object"})).unwrap());
    rig.conversations.turn(&rig.id, say, Scope::local()).await.unwrap();
    let log = format!("{:?}", rig.log().await.unwrap());
    assert!(log.contains("MASKED"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn a_modified_reply_has_the_object_that_it_says() {
    struct Change;
    impl Hook for Change {
        async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
            Ok(AfterModel::Modify(Box::new(Reply {
                content: "{\"n\": \"other\"}".to_owned().into(),
                ..(**reply).clone()
            })))
        }
    }
    let agent =
        Agent::builder("a", Script::says(["{\"n\": \"secret\"}"])).hook(Change.named("change")).build().unwrap();
    let rig = Rig::new(agent);
    let say = UserInput::new("?").with_schema(OutputSchema::new(json!({"type": "object"})).unwrap());
    let rest = rig.conversations.turn(&rig.id, say, Scope::local()).await.unwrap();
    let turnbuckle::TurnStatus::Ended(ended) = rest else { panic!() };
    assert_eq!(ended.object(), Some(&json!({"n": "other"})));
}

#[tokio::test]
async fn jobs_of_two_turns_are_retried_each_as_often_as_promised() {
    struct Bad(Arc<AtomicUsize>);
    impl Hook for Bad {
        async fn background(&self, _: &BackgroundContext) -> Result<(), BoxError> {
            self.0.fetch_add(1, Relaxed);
            Err("no".into())
        }
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let agent = Agent::builder("a", Script::says(["1", "2"])).hook(Bad(runs.clone()).named("bad")).build().unwrap();
    let mut rig = Rig::with(agent, FaultyStore::shared(), |b| b.ids(Arc::new(SystemIds::default())));
    rig.ended("one").await.unwrap();
    rig.ended("two").await.unwrap();
    rig.settle().await;
    assert_eq!(runs.load(Relaxed), 2);
    for _ in 0..10 {
        rig.clock.advance(Duration::from_secs(1));
        rig.settle().await;
    }
    assert_eq!(runs.load(Relaxed), 6, "three tries of each");
}

#[tokio::test]
async fn a_transformer_that_cannot_be_made_is_a_failure_of_its_hook() {
    struct Broken;
    impl Hook for Broken {
        fn transformer(&self) -> Option<Box<dyn Transformer>> {
            // The hook's points are found before anything runs.
            match std::thread::current().name() {
                Some("building") => Some(Box::new(Never)),
                _ => panic!("no transformer today"),
            }
        }
    }
    struct Never;
    impl Transformer for Never {
        fn chunk(&mut self, _: &str, _: &mut TransformOutput<'_>) -> Result<(), BoxError> {
            Ok(())
        }
    }
    let build = || Agent::builder("a", Script::says(["hello"])).hook(Broken.named("broken")).build().unwrap();
    let agent = std::thread::Builder::new().name("building".into()).spawn(build).unwrap().join().unwrap();
    let ended = Rig::new(agent).ended("hi").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(matches!(&ended.cause, Some(Cause::HookFailed { hook, .. }) if &**hook == "broken"), "{ended:?}");
}
