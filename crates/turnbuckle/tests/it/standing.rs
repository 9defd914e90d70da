//! Standing approvals: they begin with an answer or not at all, and each use of one is in the log and counted, or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};
use turnbuckle::access::{Access, AccessTo, Action};
use turnbuckle::conversation::{Always, Conversations, ResolveError};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::Scope;
use turnbuckle::store::{Answer, ArgumentMatch, Batch, LEASE, Store};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::{Actor, Agent, ConversationId, TurnStatus};

use crate::access::{Paid, ann, process, refund, roles, user};
use crate::approving::{approve_always, clerk, in_project};
use crate::evidence::busy;
use crate::faulty_store::{Fault, FaultyStore};
use crate::kit::assert_valid;

fn mia() -> Scope {
    user("mia", "manager")
}

/// A process without an agent, on the same store.
fn desk(store: &FaultyStore, clock: &PausedClock) -> Conversations {
    let builder = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone())).access(roles());
    builder.ids(Arc::new(SystemIds::default())).build()
}

/// A process whose turn waits for the approval of `c1` while another tool of it runs, and a desk beside it.
async fn busy_process(access: impl Access) -> (FaultyStore, Rig, Conversations) {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let mut owner = process(busy(&Paid::default()), &store, &clock, access);
    drop(owner.conversations.send(&owner.id, "pay me", ann()).await.unwrap());
    owner.settle().await;
    let desk = desk(&store, &clock);
    (store, owner, desk)
}

/// Lets the process look into its inbox.
async fn look(rig: &mut Rig) {
    rig.clock.advance(std::time::Duration::from_secs(1));
    rig.settle().await;
}

#[tokio::test]
async fn a_standing_approval_that_is_handed_over_begins_when_the_answer_is_taken_up() {
    let (store, mut owner, desk) = busy_process(roles()).await;
    let (id, call) = (owner.id.clone(), "c1".into());
    let shown = desk.propose_standing(&id, &call, &Always::default(), &mia()).await.unwrap();
    let answer = Answer::Approve.always(shown.clone());
    let recorded = desk.answer(&id, &call, answer.clone(), None, mia()).await.unwrap();
    assert!(recorded.is_stored_for_owner && store.standing().await.unwrap().is_empty());
    let again = desk.answer(&id, &call, answer, None, mia()).await;
    assert!(matches!(again, Err(ResolveError::Stale { .. })), "{again:?}");
    look(&mut owner).await;
    assert_eq!(store.standing().await.unwrap(), [shown]);
}

#[tokio::test]
async fn a_standing_approval_that_was_handed_over_begins_with_its_answer_also_if_the_turn_is_cancelled() {
    let (store, mut owner, desk) = busy_process(roles()).await;
    let (id, call) = (owner.id.clone(), "c1".into());
    let shown = desk.propose_standing(&id, &call, &Always::default(), &mia()).await.unwrap();
    // Cancelled before the answer is taken up.
    desk.answer(&id, &call, Answer::Approve.always(shown.clone()), None, mia()).await.unwrap();
    owner.conversations.cancel(&id, ann()).await.unwrap();
    look(&mut owner).await;
    let log = store.log(&id, 1, usize::MAX).await.unwrap();
    assert!(matches!(log.last().unwrap().kind, EventKind::TurnEnded(_)), "{log:#?}");
    assert_eq!(resolutions(&log), 1);
    assert_eq!(store.standing().await.unwrap(), [shown]);
}

#[tokio::test]
async fn a_standing_approval_whose_answer_is_refused_where_it_was_handed_over_never_begins() {
    for cancels in [false, true] {
        // Rules in code are not stored with the question: the desk lets managers answer, and the owner does not.
        let only_ann = |actor: &Actor, _: AccessTo<'_>, _: Action| actor.user_id().is_some_and(|id| &**id == "ann");
        let (store, mut owner, desk) = busy_process(only_ann).await;
        let (id, call) = (owner.id.clone(), "c1".into());
        let shown = desk.propose_standing(&id, &call, &Always::default(), &mia()).await.unwrap();
        desk.answer(&id, &call, Answer::Approve.always(shown), None, mia()).await.unwrap();
        if cancels {
            owner.conversations.cancel(&id, ann()).await.unwrap();
        }
        look(&mut owner).await;
        let log = store.log(&id, 1, usize::MAX).await.unwrap();
        let approved = |event: &Arc<Event>| event.kind.answers().is_some();
        assert!(!log.iter().any(approved), "{log:#?}");
        assert!(store.standing().await.unwrap().is_empty());
    }
}

/// Runs `first` in a process that dies in the write that `dies_at` picks, before it is done, and then `second` in another one.
fn across_a_crash(
    dies_at: impl Fn(&Batch<'_>) -> bool + Send + Sync + 'static,
    first: impl AsyncFnOnce(&FaultyStore, &PausedClock),
    second: impl AsyncFnOnce(&FaultyStore, &PausedClock),
) {
    let (is_dying, clock) = (Arc::new(AtomicBool::new(true)), PausedClock::default());
    let dies = is_dying.clone();
    let store = FaultyStore::with(move |batch| match dies.load(Relaxed) && dies_at(batch) {
        true => Fault::Delay(usize::MAX),
        false => Fault::Nothing,
    });
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dying = runtime();
    dying.block_on(async {
        tokio::select! {
            biased;
            () = first(&store, &clock) => panic!("it lived on"),
            () = async { for _ in 0..2_000 { tokio::task::yield_now().await } } => {}
        }
    });
    drop(dying);
    is_dying.store(false, Relaxed);
    clock.advance(LEASE * 2);
    runtime().block_on(second(&store, &clock));
}

fn resolutions(log: &[Arc<Event>]) -> usize {
    log.iter().filter(|event| matches!(event.kind, EventKind::Resolution { .. })).count()
}

#[test]
fn a_crash_while_an_answer_is_written_leaves_neither_it_nor_its_standing_approval() {
    let paid = Paid::default();
    let start = |store: &FaultyStore, clock: &PausedClock| process(clerk(&paid, "clerk", &[5]), store, clock, roles());
    let (id, call): (ConversationId, _) = ("c_1".into(), "c1".into());
    across_a_crash(
        |batch| batch.standing.is_some(),
        async |store, clock| {
            let rig = start(store, clock);
            rig.conversations.turn(&id, "pay", ann()).await.unwrap();
            rig.conversations.approve_always(&id, &call, &Always::default(), &mia()).await.unwrap();
        },
        async |store, clock| {
            assert!(store.standing().await.unwrap().is_empty());
            assert_eq!(resolutions(&store.log(&id, 1, usize::MAX).await.unwrap()), 0);
            let rig = start(store, clock);
            let always = rig.conversations.approve_always(&id, &call, &Always::default(), &mia()).await;
            let (given, handle) = always.unwrap();
            assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
            assert_eq!(store.standing().await.unwrap(), [given]);
            assert_valid(&store.log(&id, 1, usize::MAX).await.unwrap());
        },
    );
    assert_eq!(paid.lock().unwrap().len(), 1);
}

/// What a pattern covers and what it does not, for the same call.
#[test]
fn a_pattern_covers_what_it_says_and_everything_else_must_be_as_shown() {
    let shown = json!({ "path": "docs/a.md", "content": "x", "options": { "mode": "append", "tries": 2 } });
    let pattern = json!({ "path": "docs/*.md", "content": "*", "options": { "mode": "append" } });
    let parts = ArgumentMatch::like_shown(&shown, &pattern).unwrap();
    let covers = |change: &dyn Fn(&mut Value)| {
        let mut arguments = shown.clone();
        change(&mut arguments);
        parts.iter().all(|part| part.covers(&arguments))
    };
    assert!(covers(&|_| {}));
    assert!(covers(&|arguments| arguments["path"] = json!("docs/deep/b.md")));
    assert!(covers(&|arguments| arguments["content"] = json!({ "any": ["thing"] })));
    assert!(covers(&|arguments| drop(arguments.as_object_mut().unwrap().remove("content"))));
    for other in [json!("src/a.md"), json!("docs/a.rs"), json!(["docs/a.md"]), Value::Null] {
        assert!(!covers(&|arguments| arguments["path"] = other.clone()), "{other}");
    }
    assert!(!covers(&|arguments| arguments["force"] = json!(true)), "what was not shown must not be there");
    assert!(!covers(&|arguments| arguments["options"]["more"] = json!(1)), "inside, too");
    assert!(!covers(&|arguments| arguments["options"]["tries"] = json!(3)));
    assert!(!covers(&|arguments| drop(arguments.as_object_mut().unwrap().remove("options"))));
}

#[test]
fn a_pattern_that_the_call_itself_does_not_fit_is_refused() {
    let shown = json!({ "path": "a*.txt", "n": 3 });
    let refused = |pattern: Value| ArgumentMatch::like_shown(&shown, &pattern).unwrap_err().to_string();
    assert_eq!(refused(json!({ "path": "docs/*" })), r#"path is "a*.txt", and the pattern wants "docs/*""#);
    assert_eq!(refused(json!({ "n": "3*" })), r#"n is 3, and the pattern wants "3*""#);
    assert_eq!(refused(json!({ "more": 1 })), "more is null, and the pattern wants 1");
    assert_eq!(refused(json!({ "n": {} })), "n is 3, and the pattern wants {}");
    assert!(refused(json!("*")).starts_with("arguments is {"));
    assert!(refused(json!({ "path": "x".repeat(10_000) })).len() < 200);
    // A text that is not named is compared as it is: its own star is no pattern.
    let parts = ArgumentMatch::like_shown(&shown, &json!({ "n": "*" })).unwrap();
    let other = json!({ "path": "abc.txt", "n": 3 });
    assert!(parts.iter().all(|part| part.covers(&shown)) && !parts.iter().all(|part| part.covers(&other)));
}

/// So many uses and no more.
fn times(times: u32) -> Always {
    let mut always = Always::default();
    always.times = Some(times);
    always
}

fn uses(log: &[Arc<Event>]) -> usize {
    log.iter().filter(|event| event.kind.uses_standing().is_some()).count()
}

async fn uses_left(store: &FaultyStore) -> Option<u32> {
    store.standing().await.unwrap()[0].uses_left
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_conversations_at_once_as_many_run_as_a_standing_approval_says() {
    let paid = Paid::default();
    let store = FaultyStore::with(|batch| Fault::Delay(batch.conversation.as_str().len() * 3 % 7));
    let desk = || in_project(clerk(&paid, "clerk", &[5]), &store, "/shop");
    desk().turn(&"first".into(), "pay", ann()).await.unwrap();
    approve_always(&desk(), "c1", &times(7), &mia()).await;
    let processes = [desk(), desk(), desk()];
    let turns = (0..42).map(|number| {
        let (process, id) =
            (processes[number % 3].clone(), ConversationId::from(format!("{number}{}", "x".repeat(number % 5))));
        tokio::spawn(async move { (process.turn(&id, "pay", ann()).await.unwrap(), id) })
    });
    let (mut ran, mut asked) = (0, 0);
    for turn in turns.collect::<Vec<_>>() {
        let (status, id) = turn.await.unwrap();
        let log = store.log(&id, 1, usize::MAX).await.unwrap();
        assert_valid(&log);
        match status {
            TurnStatus::Ended(_) => ran += uses(&log),
            TurnStatus::Waiting(_) => asked += 1 - uses(&log),
        }
    }
    assert_eq!((ran, asked, uses_left(&store).await), (7, 35, Some(0)));
    assert_eq!(paid.lock().unwrap().len(), 8, "the call that was answered, and seven others");
}

#[test]
fn a_use_that_a_crash_cut_off_is_not_counted_and_one_that_is_written_is() {
    let paid = Paid::default();
    let start = |store: &FaultyStore, clock: &PausedClock| process(clerk(&paid, "clerk", &[5]), store, clock, roles());
    let id = ConversationId::from("second");
    across_a_crash(
        |batch| batch.events.iter().any(|event| event.kind.uses_standing().is_some()),
        async |store, clock| {
            let rig = start(store, clock);
            rig.conversations.turn(&"first".into(), "pay", ann()).await.unwrap();
            approve_always(&rig.conversations, "c1", &times(1), &mia()).await;
            rig.conversations.turn(&id, "pay", ann()).await.unwrap();
        },
        async |store, clock| {
            assert_eq!((uses_left(store).await, paid.lock().unwrap().len()), (Some(1), 1));
            let rig = start(store, clock);
            let handle = rig.conversations.resume(&id, ann()).await.unwrap().unwrap();
            assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
            assert_eq!((uses_left(store).await, paid.lock().unwrap().len()), (Some(0), 2));
            let log = store.log(&id, 1, usize::MAX).await.unwrap();
            assert_eq!(uses(&log), 1);
            assert_valid(&log);
        },
    );
}

#[tokio::test]
async fn of_two_calls_in_one_reply_one_has_the_last_use_and_the_other_is_asked_about() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let desk = in_project(clerk(&paid, "clerk", &[5]), &store, "/shop");
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    approve_always(&desk, "c1", &times(1), &mia()).await;
    let calls = ScriptReply::calls("c1", "refund", json!({"euro": 5})).and_calls("c2", "refund", json!({"euro": 5}));
    let agent = Agent::builder("clerk", Script::of([calls, ScriptReply::says("done")]));
    let two = in_project(agent.tool(refund(&paid).standing_by(["/euro"])), &store, "/shop");
    let TurnStatus::Waiting(pending) = two.turn(&"two".into(), "pay", ann()).await.unwrap() else { panic!() };
    assert_eq!(pending.iter().map(|pending| pending.call.as_str()).collect::<Vec<_>>(), ["c2"]);
    assert_eq!((uses_left(&store).await, paid.lock().unwrap().len()), (Some(0), 2));
    let handle = two.resolve(&"two".into(), &"c2".into(), Answer::Approve, None, mia()).await.unwrap();
    assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
    assert_valid(&store.log(&"two".into(), 1, usize::MAX).await.unwrap());
}
