//! Jobs and processes that end: none is tried for ever, none is held for another's sake, and what was done is not lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use turnbuckle::event::{Event, EventKind, TurnEnded};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::message::{ToolCall, Usage};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::scope::{Actor, Author};
use turnbuckle::store::{Batch, Job, JobKind, Lease, Store};
use turnbuckle::testing::{PausedClock, Recorder, Rig};
use turnbuckle::tool::Output;
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, BoxError, Conversations, Limits, Outcome, Scope, Turn, TurnId, TurnReport, TurnStatus};

use crate::faulty_store::FaultyStore;

/// Works on a turn for as long as it is told, and remembers which.
#[derive(Clone, Default)]
struct Worker {
    seen: Arc<Mutex<Vec<String>>>,
    hangs: bool,
    go: Arc<tokio::sync::Notify>,
    waits: bool,
}

impl Worker {
    fn hanging() -> Self {
        Self { hangs: true, ..Self::default() }
    }
    fn saw(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Hook for Worker {
    async fn background(&self, turn: &BackgroundContext) -> Result<(), BoxError> {
        self.seen.lock().unwrap().push(turn.turn().to_string());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if self.waits {
            self.go.notified().await;
        }
        turn.leave_note("a note");
        Ok(())
    }
}

fn echo() -> Script {
    Script::of([ScriptReply::says("yes")]).when_exhausted(OnExhausted::Repeat)
}

fn agent(worker: &Worker) -> Agent {
    Agent::builder("a", echo()).hook(worker.clone().named("worker")).build().unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Another process at the store.
fn process(agent: Agent, store: &FaultyStore, clock: &PausedClock) -> Conversations {
    let builder = Conversations::builder(agent, store.clone()).clock(Arc::new(clock.clone()));
    builder.ids(Arc::new(SystemIds::default())).build()
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// How long a dead process holds its jobs at most: its only hook's minute, and a lease.
const HELD: Duration = Duration::from_secs(75);

#[test]
fn a_job_that_takes_its_process_down_is_parked_and_says_so() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let mut begun = 0;
    let first = runtime();
    first.block_on(async {
        let worker = Worker::hanging();
        process(agent(&worker), &store, &clock).turn(&"c".into(), "go", Scope::local()).await.unwrap();
        settle().await;
        begun += worker.saw().len();
    });
    drop(first);
    for _ in 0..6 {
        let next = runtime();
        next.block_on(async {
            clock.advance(HELD);
            let worker = Worker::hanging();
            process(agent(&worker), &store, &clock).recover_due().await.unwrap();
            settle().await;
            begun += worker.saw().len();
        });
        drop(next);
    }
    assert_eq!(begun, 3);
    let job = runtime().block_on(store.jobs(&"c".into())).unwrap().remove(0);
    assert_eq!((job.tries, job.due), (3, None));
    assert_eq!(job.error.as_deref(), Some("it was begun 3 times, and the process ended before it did"));
}

#[test]
fn a_sub_agent_that_left_a_note_does_not_do_its_task_again_after_a_crash() {
    /// Dies between the end of the sub-agent and the result of its call.
    struct Dies(bool);
    impl Hook for Dies {
        async fn wrap_tool_call<'a>(
            &self,
            _: &'a Turn,
            call: &'a ToolCall,
            next: ToolNext<'a>,
        ) -> Result<Output, BoxError> {
            let output = next.run(call).await;
            if self.0 {
                std::future::pending::<()>().await;
            }
            output
        }
    }
    let agent = |dies: bool, inner: &Recorder| {
        let inner = Agent::builder("inner", inner.clone()).hook(Worker::default().named("worker")).build().unwrap();
        let call = ScriptReply::calls("s1", "inner", json!({"task": "go"}));
        let script = Script::of([call, ScriptReply::says("done")]);
        Agent::builder("outer", script).tool(SubAgent::new(inner, "Works.")).hook(Dies(dies)).build().unwrap()
    };
    let (store, clock, id) = (FaultyStore::shared(), PausedClock::default(), "c".into());
    let first = runtime();
    first.block_on(async {
        let model = Recorder::of(echo());
        process(agent(true, &model), &store, &clock).send(&id, "go", Scope::local()).await.unwrap();
        settle().await;
        assert_eq!(model.requests().len(), 1);
    });
    drop(first);
    clock.advance(HELD);
    runtime().block_on(async {
        let log = store.log(&"c/s1".into(), 1, usize::MAX).await.unwrap();
        assert!(matches!(log.last().unwrap().kind, EventKind::Injection { .. }), "the note stands last: {log:#?}");
        let model = Recorder::of(echo());
        let conversations = process(agent(false, &model), &store, &clock);
        let turn = conversations.resume(&id, Scope::local()).await.unwrap().unwrap();
        let TurnStatus::Ended(ended) = turn.wait().await.unwrap() else { panic!("it waits") };
        assert_eq!(ended.outcome, Outcome::Completed);
        assert!(model.requests().is_empty(), "the task was done before");
    });
}

#[test]
fn jobs_whose_scope_cannot_be_made_do_not_hold_up_the_end_of_the_process() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let first = runtime();
    first.block_on(async {
        let worker = Worker::hanging();
        process(agent(&worker), &store, &clock).turn(&"c".into(), "go", Scope::local()).await.unwrap();
        settle().await;
    });
    drop(first);
    clock.advance(HELD);
    runtime().block_on(async {
        let builder = Conversations::builder(agent(&Worker::default()), store.clone()).clock(Arc::new(clock.clone()));
        let broken = |_: &Actor| -> Scope { panic!("there is no such tenant") };
        let conversations = builder.ids(Arc::new(SystemIds::default())).scope_source(broken).build();
        conversations.recover_due().await.unwrap();
        settle().await;
        tokio::select! {
            biased;
            () = conversations.drain(Duration::from_secs(60)) => {}
            () = settle() => panic!("somebody waits for work that nobody does"),
        }
    });
}

/// A turn in the log whose job points where the turn does not end.
async fn misplaced(store: &FaultyStore, clock: &PausedClock) {
    use turnbuckle::clock::Clock as _;
    let (id, now, actor) = ("c".into(), clock.now(), Scope::local().actor().clone());
    store.open(&id, &actor, now).await.unwrap();
    let epoch = store.claim(&id, &"w".into(), now).await.unwrap().epoch;
    let (turn, kind) =
        (TurnId::from("t1"), EventKind::UserMessage { content: "hi".into(), by: Author::User("me".into()) });
    let event = |seq, kind| Arc::new(Event { seq, turn: turn.clone(), at: now, kind });
    let ended = TurnEnded {
        outcome: Outcome::Completed,
        details: None,
        model_calls: 1,
        usage: Usage::default(),
        cost: 0.0,
        ms: 1,
        agent: None,
    };
    let events = [event(1, kind), event(2, EventKind::TurnEnded(Arc::new(ended)))];
    let (hook, kind) = ("worker".into(), JobKind::Background);
    let jobs = vec![Job {
        turn: turn.clone(),
        seq: 1,
        agent: "a".into(),
        hook,
        kind,
        actor,
        tries: 1,
        error: None,
        due: Some(now),
        used: None,
        reminder: None,
        spent: None,
        partial: None,
    }];
    let batch = Batch { events: &events, jobs, lease: Lease::Release, ..Batch::new(&id, epoch, 0) };
    store.append(batch).await.unwrap();
}

#[tokio::test]
async fn a_job_whose_turn_cannot_be_read_back_is_parked_at_the_bound() {
    let (store, clock, worker) = (FaultyStore::shared(), PausedClock::default(), Worker::default());
    misplaced(&store, &clock).await;
    let door = process(agent(&worker), &store, &clock);
    for _ in 0..9 {
        clock.advance(HELD);
        door.recover_due().await.unwrap();
        settle().await;
    }
    let job = store.jobs(&"c".into()).await.unwrap().remove(0);
    assert_eq!((job.tries, job.due), (3, None));
    let error = job.error.unwrap();
    assert!(error.contains("turn t1") && error.contains("not where the job says"), "{error}");
    assert!(worker.saw().is_empty());
}

/// Hangs when a turn has ended, if told; halts and erases what begins with `!`.
#[derive(Clone)]
struct Eraser(bool, Arc<Mutex<Vec<String>>>);

impl Hook for Eraser {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        match turn.user_message().text().starts_with('!') {
            true => Ok(BeforeAgent::Erase("not kept".into())),
            false => Ok(BeforeAgent::Continue),
        }
    }
    async fn on_ended(&self, ended: &TurnReport) -> Result<(), BoxError> {
        if self.0 && ended.outcome == Outcome::Halted {
            std::future::pending::<()>().await;
        }
        self.1.lock().unwrap().push(format!("{}", ended.outcome));
        Ok(())
    }
}

#[test]
fn a_job_of_an_erased_turn_is_done_without_reading_the_whole_log() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let limits = Limits { context_tokens: 400, injection_reserve: 100, ..Limits::default() };
    let agent = |hook: Eraser| Agent::builder("a", echo()).limits(limits.clone()).hook(hook).build().unwrap();
    let first = runtime();
    first.block_on(async {
        let door = process(agent(Eraser(true, Arc::default())), &store, &clock);
        for _ in 0..100 {
            door.turn(&"c".into(), "word ".repeat(25), Scope::local()).await.unwrap();
        }
        let _turn = door.send(&"c".into(), "!", Scope::local()).await.unwrap();
        settle().await;
    });
    drop(first);
    runtime().block_on(async {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let door = process(agent(Eraser(false, seen.clone())), &store, &clock);
        clock.advance(HELD);
        store.were_read();
        assert_eq!(door.recover_due().await.unwrap(), 1);
        settle().await;
        assert_eq!(*seen.lock().unwrap(), ["halted"]);
        let read = store.were_read();
        assert!(read < 60, "{read} of 301 events were read");
    });
}

#[test]
fn a_long_job_of_one_turn_keeps_none_of_another_from_other_processes() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let first = runtime();
    first.block_on(async {
        let door = process(agent(&Worker::hanging()), &store, &clock);
        for _ in 0..2 {
            door.turn(&"c".into(), "go", Scope::local()).await.unwrap();
            settle().await;
        }
    });
    drop(first);
    runtime().block_on(async {
        let (slow, quick) = (Worker::hanging(), Worker::default());
        clock.advance(HELD);
        process(agent(&slow), &store, &clock).recover_due().await.unwrap();
        settle().await;
        process(agent(&quick), &store, &clock).recover_due().await.unwrap();
        settle().await;
        assert_eq!((slow.saw().len(), quick.saw().len()), (1, 1));
        assert_ne!(slow.saw(), quick.saw(), "nobody does the other's");
    });
}

/// An agent that asks before it adds, with a worker.
fn asker(worker: &Worker) -> Agent {
    let call = ScriptReply::calls("c1", "add", serde_json::json!({"a": 2, "b": 2}));
    let script = Script::of([ScriptReply::says("one"), call, ScriptReply::says("4")]);
    let agent = Agent::builder("a", script).tool(crate::kit::add()).approve(["add"]);
    agent.hook(worker.clone().named("worker")).build().unwrap()
}

#[test]
fn a_job_is_done_while_a_later_turn_is_open() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let first = runtime();
    first.block_on(async {
        let door = process(asker(&Worker::hanging()), &store, &clock);
        door.turn(&"c".into(), "go", Scope::local()).await.unwrap();
        let rest = door.turn(&"c".into(), "add", Scope::local()).await.unwrap();
        assert!(matches!(rest, TurnStatus::Waiting(_)));
    });
    drop(first);
    runtime().block_on(async {
        let worker = Worker::default();
        let door = process(asker(&worker), &store, &clock);
        clock.advance(HELD);
        assert_eq!(door.recover_due().await.unwrap(), 1);
        settle().await;
        assert_eq!(worker.saw().len(), 1);
        assert!(store.jobs(&"c".into()).await.unwrap().is_empty());
        let log = door.log(&"c".into(), Scope::local()).await.unwrap();
        assert!(matches!(&log.last().unwrap().kind, EventKind::Injection { .. }), "its note is in the log: {log:#?}");
    });
}

#[tokio::test]
async fn what_jobs_came_to_while_another_process_had_the_conversation_is_written_by_it() {
    let (store, worker) = (FaultyStore::shared(), Worker { waits: true, ..Worker::default() });
    let mut rig = Rig::on(agent(&worker), store.clone());
    rig.ended("go").await.unwrap();
    // Another process begins a turn, and its model takes its time.
    let (go, held) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (gate, reached) = (go.clone(), held.clone());
    let slow = pre("slow", move |turn: BeforeAgentContext| {
        let (gate, reached) = (gate.clone(), reached.clone());
        async move {
            reached.notify_one();
            gate.notified().await;
            turn.proceed()
        }
    });
    let other = Agent::builder("a", echo()).hook(slow).build().unwrap();
    let there = process(other, &store, &rig.clock);
    let turn = there.send(&rig.id, "next", Scope::local()).await.unwrap();
    held.notified().await;
    worker.go.notify_one();
    rig.settle().await;
    assert!(store.jobs(&rig.id).await.unwrap().is_empty(), "nobody has to do it again");
    go.notify_one();
    tokio::time::timeout(Duration::from_secs(10), turn.wait()).await.unwrap().unwrap();
    settle().await;
    let log = there.log(&rig.id, Scope::local()).await.unwrap();
    let notes =
        log.iter().filter(|event| matches!(&event.kind, EventKind::Injection { hook, .. } if &**hook == "worker"));
    assert_eq!(notes.count(), 1, "{log:#?}");
    assert_eq!(worker.saw().len(), 1);
    crate::kit::assert_valid(&log);
}

#[tokio::test]
async fn conversations_that_stay_due_keep_no_others_waiting() {
    let (store, clock, worker) = (FaultyStore::shared(), PausedClock::default(), Worker::default());
    let id = |n: u32| turnbuckle::ConversationId::from(format!("c{n:03}"));
    // Their jobs are of a hook that this agent does not have: they stay due, whatever it does.
    let stranger = Agent::builder("a", echo()).hook(Worker::hanging().named("stranger")).build().unwrap();
    let stranger = process(stranger, &store, &clock);
    for n in 0..200 {
        stranger.turn(&id(n), "go", Scope::local()).await.unwrap();
    }
    let hanging = process(agent(&Worker::hanging()), &store, &clock);
    hanging.turn(&id(999), "go", Scope::local()).await.unwrap();
    clock.advance(HELD);
    let door = process(agent(&worker), &store, &clock);
    for _ in 0..4 {
        door.recover_due().await.unwrap();
    }
    settle().await;
    assert_eq!(worker.saw().len(), 1);
}

#[tokio::test]
async fn a_turn_under_way_does_not_read_the_messages_behind_it_again_and_again() {
    let (store, gate) = (FaultyStore::shared(), Arc::new(tokio::sync::Notify::new()));
    let opened = gate.clone();
    let slow = pre("slow", move |turn: BeforeAgentContext| {
        let opened = opened.clone();
        async move {
            opened.notified().await;
            turn.proceed()
        }
    });
    let mut rig = Rig::on(Agent::builder("a", echo()).hook(slow).build().unwrap(), store.clone());
    let _turn = rig.send("go").await.unwrap();
    for _ in 0..50 {
        let queue = turnbuckle::WhileBusy::Queue;
        rig.conversations.send_while(&rig.id, "next", Scope::local(), queue).await.unwrap();
    }
    store.were_read();
    for _ in 0..10 {
        rig.clock.advance(Duration::from_secs(1));
        rig.settle().await;
    }
    assert_eq!(store.were_read(), 0);
}

#[test]
fn jobs_that_sub_agents_left_are_taken_up_with_the_conversation_of_the_main_agent() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let outer = |worker: &Worker| {
        let inner = Agent::builder("inner", echo()).hook(worker.clone().named("worker")).build().unwrap();
        let call = ScriptReply::calls("s1", "inner", serde_json::json!({"task": "look"}));
        let script = Script::of([call, ScriptReply::says("done")]);
        Agent::builder("outer", script).tool(SubAgent::new(inner, "Looks.")).build().unwrap()
    };
    let first = runtime();
    first.block_on(async {
        let worker = Worker::hanging();
        process(outer(&worker), &store, &clock).turn(&"c".into(), "go", Scope::local()).await.unwrap();
        settle().await;
        assert_eq!(worker.saw().len(), 1);
    });
    drop(first);
    runtime().block_on(async {
        let worker = Worker::default();
        let door = process(outer(&worker), &store, &clock);
        assert_eq!(door.recover_due().await.unwrap(), 0, "the dead process holds it");
        clock.advance(HELD);
        assert_eq!(door.recover_due().await.unwrap(), 1);
        settle().await;
        assert_eq!(worker.saw().len(), 1);
        assert!(store.jobs(&"c/s1".into()).await.unwrap().is_empty());
        let log = store.log(&"c/s1".into(), 1, 99).await.unwrap();
        assert!(matches!(&log.last().unwrap().kind, EventKind::Injection { .. }), "its note is written: {log:#?}");
        assert_eq!(door.recover_due().await.unwrap(), 0);
    });
}
