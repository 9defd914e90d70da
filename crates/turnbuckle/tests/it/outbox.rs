//! What a turn leaves to be done is done, whoever has to: at least once, with patience, and never in silence.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnbuckle::event::EventKind;
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::Script;
use turnbuckle::store::{JobKind, Store};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, AgentBuilder, BoxError, Conversations, Scope, TurnReport};

use crate::faulty_store::FaultyStore;

/// Remembers what it was given to do; fails as often as told, and hangs for good if told.
#[derive(Clone, Default)]
struct Worker {
    seen: Arc<Mutex<Vec<String>>>,
    failures: Arc<AtomicU32>,
    hangs: bool,
}

impl Worker {
    fn saw(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Hook for Worker {
    async fn background(&self, turn: &BackgroundContext) -> Result<(), BoxError> {
        let messages = turn.messages().len();
        self.seen.lock().unwrap().push(format!("background {} of {messages} messages", turn.turn()));
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let left = self.failures.load(Ordering::Relaxed);
        if left > 0 {
            self.failures.store(left - 1, Ordering::Relaxed);
            return Err("no luck".into());
        }
        turn.leave_note("a note");
        Ok(())
    }
    async fn on_ended(&self, ended: &TurnReport) -> Result<(), BoxError> {
        self.seen.lock().unwrap().push(format!("ended {} {}", ended.turn, ended.text()));
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

fn agent(worker: &Worker) -> AgentBuilder {
    Agent::builder("a", Script::says(["one", "two"])).hook(worker.clone().named("worker"))
}

async fn jobs(rig: &Rig) -> Vec<(JobKind, u32, bool)> {
    let jobs = rig.conversations.jobs(&rig.id, Scope::local()).await.unwrap();
    jobs.into_iter().map(|job| (job.kind, job.tries, job.due.is_some())).collect()
}

#[tokio::test]
async fn what_is_done_leaves_the_outbox_and_its_note_joins_the_log_in_the_same_write() {
    let (worker, store) = (Worker::default(), FaultyStore::shared());
    let mut rig = Rig::on(agent(&worker).build().unwrap(), store);
    rig.ended("go").await.unwrap();
    rig.settle().await;
    assert_eq!(worker.saw(), ["ended t_1 one", "background t_1 of 2 messages"]);
    assert!(jobs(&rig).await.is_empty());
    let log = rig.log().await.unwrap();
    assert!(matches!(&log.last().unwrap().kind, EventKind::Injection { hook, .. } if &**hook == "worker"));
}

#[tokio::test]
async fn a_poisoned_job_is_tried_with_growing_waits_then_parked_with_its_error() {
    let worker = Worker { failures: Arc::new(AtomicU32::new(99)), ..Worker::default() };
    let mut rig = Rig::on(agent(&worker).build().unwrap(), FaultyStore::shared());
    rig.ended("go").await.unwrap();
    rig.settle().await;
    assert_eq!(jobs(&rig).await, [(JobKind::Background, 1, true)]);
    for (wait, tries) in [(999, 1), (1, 2), (1999, 2), (1, 3), (3_600_000, 3)] {
        rig.clock.advance(Duration::from_millis(wait));
        rig.settle().await;
        assert_eq!(jobs(&rig).await, [(JobKind::Background, tries, tries < 3)], "after {wait} ms more");
    }
    let parked = rig.conversations.jobs(&rig.id, Scope::local()).await.unwrap().remove(0);
    assert_eq!(parked.error.as_deref(), Some("no luck"));
    assert_eq!(rig.conversations.recover_due().await.unwrap(), 0, "a parked job is nobody's work");
    rig.ended("again").await.unwrap();
}

#[tokio::test]
async fn a_job_that_failed_once_is_done_at_the_next_try() {
    let worker = Worker { failures: Arc::new(AtomicU32::new(1)), ..Worker::default() };
    let mut rig = Rig::on(agent(&worker).build().unwrap(), FaultyStore::shared());
    rig.ended("go").await.unwrap();
    rig.settle().await;
    rig.clock.advance(Duration::from_secs(1));
    rig.settle().await;
    assert!(jobs(&rig).await.is_empty());
    assert_eq!(worker.saw().len(), 3);
}

/// A process that dies while its hooks work after the turn.
fn dead_process(store: &FaultyStore) {
    let process = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let worker = Worker { hangs: true, ..Worker::default() };
    let mut rig = Rig::on(agent(&worker).build().unwrap(), store.clone());
    let turn = process.block_on(async {
        let turn = rig.send("go").await.unwrap();
        rig.settle().await;
        turn
    });
    assert_eq!(worker.saw(), ["ended t_1 one"]);
    drop((process, turn));
}

#[test]
fn jobs_that_a_crash_left_are_taken_up_when_nobody_holds_them() {
    let store = FaultyStore::shared();
    dead_process(&store);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let worker = Worker::default();
        let mut rig = Rig::with(agent(&worker).build().unwrap(), store.clone(), |builder| {
            builder.ids(Arc::new(SystemIds::default()))
        });
        rig.listen().await.unwrap();
        assert_eq!(rig.conversations.recover_due().await.unwrap(), 0, "the dead process still holds them");
        // Two hooks at a minute each, and a lease.
        rig.clock.advance(Duration::from_secs(135));
        assert_eq!(rig.conversations.recover_due().await.unwrap(), 1);
        rig.conversations.drain(Duration::from_secs(9)).await;
        rig.settle().await;
        assert_eq!(worker.saw(), ["ended t_1 one", "background t_1 of 2 messages"]);
        assert!(store.jobs(&rig.id).await.unwrap().is_empty());
        assert_eq!(rig.conversations.recover_due().await.unwrap(), 0);
    });
}

#[test]
fn jobs_of_a_conversation_are_taken_up_with_its_next_message() {
    let store = FaultyStore::shared();
    dead_process(&store);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let (worker, model) = (Worker::default(), Recorder::of(Script::says(["one", "two"])));
        let agent = Agent::builder("a", model.clone()).hook(worker.clone().named("worker"));
        let mut rig = Rig::with(agent.build().unwrap(), store, |builder| builder.ids(Arc::new(SystemIds::default())));
        rig.clock.advance(Duration::from_secs(135));
        rig.ended("again").await.unwrap();
        rig.conversations.drain(Duration::from_secs(9)).await;
        rig.settle().await;
        let saw = worker.saw();
        assert!(saw.contains(&"ended t_1 one".to_owned()), "{saw:?}");
        assert!(saw.contains(&"background t_1 of 2 messages".to_owned()), "the turn as it was then: {saw:?}");
        assert_eq!(saw.len(), 4);
    });
}

#[tokio::test]
async fn a_job_of_a_hook_that_this_agent_does_not_have_is_left_as_it_is() {
    let (worker, store) =
        (Worker { failures: Arc::new(AtomicU32::new(1)), ..Worker::default() }, FaultyStore::shared());
    let mut rig = Rig::on(agent(&worker).build().unwrap(), store.clone());
    rig.ended("go").await.unwrap();
    rig.settle().await;
    let left = store.jobs(&rig.id).await.unwrap();
    let other = Agent::builder("a", Script::says(["x"])).hook(Worker::default().named("other")).build().unwrap();
    let door = Conversations::builder(other, store.clone()).clock(Arc::new(rig.clock.clone()));
    let door = door.ids(Arc::new(SystemIds::default())).build();
    for _ in 0..5 {
        // The first process is not polled in between: it would take its job itself.
        rig.clock.advance(Duration::from_secs(9));
        door.recover_due().await.unwrap();
        door.drain(Duration::ZERO).await;
    }
    assert_eq!(store.jobs(&rig.id).await.unwrap(), left, "neither counted nor parked");
    rig.settle().await;
    assert!(store.jobs(&rig.id).await.unwrap().is_empty(), "and done by whoever has the hook");
}

#[tokio::test]
async fn a_hook_that_may_take_for_ever_does_not_keep_the_turn_from_ending() {
    struct Patient;
    impl Hook for Patient {
        async fn background(&self, _: &BackgroundContext) -> Result<(), BoxError> {
            Ok(())
        }
        async fn on_ended(&self, _: &TurnReport) -> Result<(), BoxError> {
            Ok(())
        }
    }
    let agent = Agent::builder("a", Script::says(["done"])).hook(Patient.timeout(Duration::MAX)).build().unwrap();
    assert_eq!(agent.run("go").await.unwrap().text(), "done");
}
