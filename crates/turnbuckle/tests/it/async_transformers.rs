//! Stream transformers whose answers take a while: batches, order, failures, cancellation.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{AsyncTransformer, Hook, HookExt as _, Stretch, TransformBatch, TransformedBatch, transform};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxError, BoxFuture, Outcome, Scope};

/// Lets batches through in brackets, each when it is allowed to.
#[derive(Clone)]
struct Slow {
    gate: Arc<Semaphore>,
    seen: Arc<Mutex<Vec<TransformBatch>>>,
    fails: bool,
}

impl Slow {
    fn new(permits: usize) -> Self {
        Self { gate: Arc::new(Semaphore::new(permits)), seen: Arc::default(), fails: false }
    }
}

impl Hook for Slow {
    fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
        Some(Box::new(self.clone()))
    }
}

impl AsyncTransformer for Slow {
    fn transform<'a>(
        &'a mut self,
        stretch: &'a Stretch,
        batch: TransformBatch,
    ) -> BoxFuture<'a, Result<TransformedBatch, BoxError>> {
        Box::pin(async move {
            assert_eq!((stretch.agent.as_ref(), stretch.attempt), ("a", 1));
            self.seen.lock().unwrap().push(batch.clone());
            tokio::task::yield_now().await;
            self.gate.acquire().await.unwrap().forget();
            if self.fails {
                return Err("the scanner is down".into());
            }
            let text = match batch.chunks.is_empty() {
                true => String::new(),
                false => format!("[{}]", batch.chunks.concat()),
            };
            let end = if batch.is_last { "." } else { "" };
            let annotations = json!({"seen": true}).as_object().unwrap().clone();
            Ok(TransformedBatch { text: text + end, annotations })
        })
    }
}

fn told(rig: &Rig) -> String {
    let text = |event: &turnbuckle::feed::FeedEvent| match &event.item {
        FeedItem::Live(live) => match live {
            LiveEvent::TextDelta { text, .. } => Some(text.to_string()),
            _ => None,
        },
        FeedItem::Log(_) => None,
    };
    rig.told().iter().filter_map(text).collect()
}

#[tokio::test]
async fn what_was_said_while_it_worked_comes_together_and_what_it_lets_through_is_told_and_logged() {
    let slow = Slow::new(100);
    let upper = transform("upper", |text: &str| text.to_uppercase());
    let reply = ScriptReply::chunks(["a", "b", "c", "d"]);
    let agent = Agent::builder("a", Script::of([reply])).hook(slow.clone().named("slow")).hook(upper).build().unwrap();
    let mut rig = Rig::new(agent);
    let trace = rig.trace("hi").await;
    let seen = slow.seen.lock().unwrap().clone();
    assert_eq!(seen.iter().flat_map(|batch| batch.chunks.clone()).collect::<String>(), "abcd", "{seen:?}");
    assert!(seen.len() < 5, "at least two chunks came together: {seen:?}");
    assert!(seen.last().unwrap().is_last && seen.iter().filter(|batch| batch.is_last).count() == 1);
    let passed = told(&rig);
    assert!(passed.starts_with("[A") && passed.ends_with("."), "the transformer behind it saw its answers: {passed}");
    assert!(trace.contains(&format!("call      {passed:?}")), "{trace}");
}

#[tokio::test]
async fn one_that_fails_blocks_and_nothing_that_it_did_not_let_through_is_told() {
    let slow = Slow { fails: true, ..Slow::new(100) };
    let agent = Agent::builder("a", Script::says(["secret"])).hook(slow.named("slow")).build().unwrap();
    let mut rig = Rig::new(agent);
    let ended = rig.ended("hi").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.reason.unwrap().contains("hook slow failed at stream: the scanner is down"));
    assert_eq!(told(&rig), "");
}

#[tokio::test]
async fn one_that_is_late_blocks() {
    let slow = Slow::new(0);
    let entry = slow.clone().named("slow").timeout(Duration::from_secs(3));
    let mut rig = Rig::new(Agent::builder("a", Script::says(["secret"])).hook(entry).build().unwrap());
    let clock = rig.clock.clone();
    let late = async {
        while slow.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(4));
    };
    let (ended, ()) = tokio::join!(rig.ended("hi"), late);
    let ended = ended.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.reason.unwrap().contains("took longer than 3s"));
    assert_eq!(told(&rig), "");
}

#[tokio::test]
async fn a_turn_can_be_cancelled_while_it_waits_for_one() {
    let slow = Slow::new(0);
    let mut rig = Rig::new(Agent::builder("a", Script::says(["x"])).hook(slow.clone().named("slow")).build().unwrap());
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let cancel = async {
        while slow.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        conversations.cancel(&id, Scope::local()).await.unwrap();
    };
    let (ended, ()) = tokio::join!(rig.ended("hi"), cancel);
    assert_eq!(ended.unwrap().outcome, Outcome::Cancelled);
}
