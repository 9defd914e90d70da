//! Viewers: snapshot and tail of both planes, in one order. Who keeps up loses nothing, and nobody waits for the others.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{ConversationState, Delivery, FeedEvent, FeedItem, LiveEvent, Subscription};
use turnbuckle::hook::{AfterModel, BeforeAgentContext, HookExt, OnStop, OnStopContext, guard, pre, stop};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::projection::{Pending, Projection};
use turnbuckle::store::{Answer, Store};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::{function_with_schema, human};
use turnbuckle::{Agent, AgentBuilder, BoxFuture, Conversations, Reply, Scope, TurnStatus};

use crate::faulty_store::{Fault, FaultyStore};

/// More than a viewer may be behind, several times.
const MANY: usize = 5_000;

fn chatty() -> Agent {
    let chunks = (0..MANY).map(|n| format!("{n} "));
    Agent::builder("a", Script::of([ScriptReply::chunks(chunks)])).build().unwrap()
}

fn said(told: &FeedEvent) -> Option<&str> {
    match &told.item {
        FeedItem::Live(LiveEvent::TextDelta { text, .. }) => Some(text),
        _ => None,
    }
}

fn lagged(told: &FeedEvent) -> Option<u64> {
    match &told.item {
        FeedItem::Live(LiveEvent::Lagged { missed }) => Some(*missed),
        _ => None,
    }
}

async fn breathe() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

async fn watch(rig: &Rig, delivery: Delivery) -> Subscription {
    rig.conversations.subscribe(&rig.id, delivery, Scope::local()).await.unwrap()
}

async fn snapshot(rig: &Rig) -> Projection {
    rig.conversations.snapshot(&rig.id, Scope::local()).await.unwrap()
}

/// What was told already, without waiting.
fn drain(tail: &mut Subscription) -> Vec<FeedEvent> {
    std::iter::from_fn(|| tail.try_next()).collect()
}

#[tokio::test]
async fn a_lossy_viewer_that_falls_behind_is_told_so_and_takes_a_new_snapshot() {
    let mut rig = Rig::new(chatty());
    let mut lossy = watch(&rig, Delivery::Lossy).await;
    assert!(rig.ended("go").await.unwrap().is_completed());
    let first = lossy.next().await.unwrap();
    assert!(lagged(&first).is_some_and(|missed| missed > MANY as u64 / 2), "{first:?}");
    let fresh = watch(&rig, Delivery::Lossy).await.snapshot;
    let view = rig.told().iter().fold(Projection::default(), |mut view, told| {
        view.apply(told);
        view
    });
    assert_eq!(fresh, view);
}

#[tokio::test]
async fn a_lossy_viewer_that_asks_without_waiting_is_told_too() {
    let mut rig = Rig::new(chatty());
    let mut lossy = watch(&rig, Delivery::Lossy).await;
    rig.ended("go").await.unwrap();
    let told = drain(&mut lossy);
    assert!(told.first().and_then(lagged).is_some(), "it was told {} words and no `lagged`", told.len());
}

#[tokio::test]
async fn a_lossless_viewer_loses_nothing_and_the_turn_waits_for_it() {
    let rig = Rig::new(chatty());
    let mut lossless = watch(&rig, Delivery::Lossless).await;
    let handle = rig.conversations.send(&rig.id, "go", Scope::local()).await.unwrap();
    let mut rest = tokio::spawn(handle.wait());
    breathe().await;
    assert!(!rest.is_finished(), "the turn did not wait");
    let mut heard = 0;
    let ended = loop {
        tokio::select! {
            biased;
            told = lossless.next() => {
                if let Some(text) = said(&told.expect("cut off")) {
                    assert_eq!(text, format!("{heard} "));
                    heard += 1;
                }
            }
            ended = &mut rest => break ended.unwrap().unwrap(),
        }
    };
    assert_eq!(heard, MANY);
    assert!(matches!(ended, TurnStatus::Ended(ended) if ended.is_completed()));
}

#[tokio::test]
async fn a_subscription_ends_when_the_conversation_is_closed_once_everything_was_read() {
    for delivery in [Delivery::Lossy, Delivery::Lossless] {
        let conversations = Conversations::in_memory(Agent::builder("a", Script::says(["hello"])).build().unwrap());
        let id = "c_1".into();
        let mut tail = conversations.subscribe(&id, delivery, Scope::local()).await.unwrap();
        conversations.turn(&id, "hi", Scope::local()).await.unwrap();
        conversations.close(&id, Scope::local()).await.unwrap();
        let read = async {
            let mut last = None;
            while let Some(event) = tail.next().await {
                last = Some(event);
            }
            last
        };
        let last = tokio::time::timeout(Duration::from_secs(20), read).await.expect("the stream ends");
        assert!(matches!(
            last.unwrap().item,
            FeedItem::Live(LiveEvent::StateChanged { state: ConversationState::Idle })
        ));
    }
}

#[tokio::test]
async fn a_lossless_viewer_that_never_reads_is_cut_off_at_the_deadline_and_the_turn_goes_on() {
    let rig = Rig::new(chatty());
    let mut deaf = watch(&rig, Delivery::Lossless).await;
    let handle = rig.conversations.send(&rig.id, "go", Scope::local()).await.unwrap();
    let rest = tokio::spawn(handle.wait());
    breathe().await;
    rig.clock.advance(Duration::from_millis(4_999));
    breathe().await;
    assert!(!rest.is_finished(), "it was cut off too early");
    rig.clock.advance(Duration::from_millis(1));
    assert!(matches!(rest.await.unwrap().unwrap(), TurnStatus::Ended(ended) if ended.is_completed()));
    let heard = drain(&mut deaf);
    assert!(heard.len() < MANY);
    assert!(deaf.next().await.is_none(), "it is told that it was cut off");
}

#[tokio::test]
async fn a_viewer_that_caught_up_is_not_cut_off_with_one_that_did_not() {
    let rig = Rig::new(chatty());
    let _deaf = watch(&rig, Delivery::Lossless).await;
    let mut slow = watch(&rig, Delivery::Lossless).await;
    let handle = rig.conversations.send(&rig.id, "go", Scope::local()).await.unwrap();
    let rest = tokio::spawn(handle.wait());
    breathe().await;
    let mut heard = drain(&mut slow);
    rig.clock.advance(Duration::from_secs(5));
    while !rest.is_finished() {
        heard.extend(drain(&mut slow));
        tokio::task::yield_now().await;
    }
    heard.extend(drain(&mut slow));
    assert_eq!(heard.iter().filter_map(said).count(), MANY);
}

/// A model that lets others run between its chunks.
struct Slowly(Script);

#[derive(Default)]
struct Kept(Vec<(bool, String)>);

impl Sink for Kept {
    fn text(&mut self, text: &str) {
        self.0.push((false, text.to_owned()));
    }
    fn thinking(&mut self, text: &str) {
        self.0.push((true, text.to_owned()));
    }
}

impl Model for Slowly {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let mut kept = Kept::default();
            let reply = self.0.stream(request, &mut kept).await;
            for (thinking, text) in kept.0 {
                tokio::task::yield_now().await;
                if thinking { out.thinking(&text) } else { out.text(&text) }
            }
            tokio::task::yield_now().await;
            reply
        })
    }
}

enum Step {
    Say(&'static str),
    Interrupt(&'static str),
    Answer(Answer),
}

/// What a conversation told from its beginning, and real snapshots from its course.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) told: Vec<FeedEvent>,
    pub(crate) log: Vec<Arc<Event>>,
    snapshots: Vec<Projection>,
}

async fn play(agent: AgentBuilder, steps: impl IntoIterator<Item = Step>) -> Story {
    let mut rig = Rig::new(agent.build().unwrap());
    rig.listen().await.unwrap();
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let (keep, mut snapshots) = tokio::sync::mpsc::unbounded_channel();
    let sampler = tokio::spawn(async move {
        while keep.send(conversations.snapshot(&id, Scope::local()).await.unwrap()).is_ok() {
            tokio::task::yield_now().await;
        }
    });
    let mut pending: Vec<Pending> = Vec::new();
    for step in steps {
        let handle = match step {
            Step::Say(text) => rig.send(text).await.unwrap(),
            Step::Interrupt(text) => {
                let handle = rig.send(text).await.unwrap();
                for _ in 0..6 {
                    tokio::task::yield_now().await;
                }
                rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
                handle
            }
            Step::Answer(answer) => {
                let call = pending.remove(0).call;
                rig.conversations.resolve(&rig.id, &call, answer, None, Scope::local()).await.unwrap()
            }
        };
        if let TurnStatus::Waiting(calls) = rig.follow(handle).await.unwrap() {
            pending = calls;
        }
    }
    rig.settle().await;
    sampler.abort();
    let snapshots = std::iter::from_fn(|| snapshots.try_recv().ok()).collect();
    Story { told: rig.told().to_vec(), log: rig.log().await.unwrap(), snapshots }
}

fn storyteller(replies: impl IntoIterator<Item = ScriptReply>) -> AgentBuilder {
    let schema = json!({"type": "object"});
    let work = |name: &str| {
        function_with_schema(name, "Works.", schema.clone(), Effect::Pure, |turn: turnbuckle::Turn, _| async move {
            turn.report_progress("working");
            tokio::task::yield_now().await;
            Ok("worked")
        })
    };
    Agent::builder("a", Slowly(Script::of(replies)))
        .tool(work("work"))
        .tool(work("risky").requires_approval())
        .tool(human("ask", "Asks."))
}

fn slowly_refuses_once() -> impl turnbuckle::hook::Hook {
    stop("lint", |turn: OnStopContext| async move {
        turn.progress("linting");
        tokio::task::yield_now().await;
        Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse("fix it".into()) })
    })
}

fn judge(decision: fn(u32) -> AfterModel) -> impl turnbuckle::hook::Hook {
    let count = std::sync::atomic::AtomicU32::new(0);
    guard("critic", move |_, _| {
        let decision = decision(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        async move {
            tokio::task::yield_now().await;
            Ok(decision)
        }
    })
}

/// Turns with tools, regenerations, suspensions, refusals, a cancellation, a broken stream.
pub(crate) async fn stories() -> Vec<Story> {
    use Step::{Answer as Give, Interrupt, Say};
    let long = || ScriptReply::chunks(["a ", "b ", "c ", "d ", "e ", "f ", "g ", "h"]);
    let two = || long().and_calls("c1", "work", json!({})).and_calls("c2", "work", json!({}));
    let gated = || ScriptReply::calls("c1", "risky", json!({})).and_calls("c2", "ask", json!({"question": "who?"}));
    let done = || ScriptReply { thinking: Some("hm".to_owned()), ..long() };
    let recall = pre("recall", |mut turn: BeforeAgentContext| async move {
        turn.inject("tea");
        turn.proceed()
    });
    let again = |n| if n == 0 { AfterModel::Regenerate("shorter".into()) } else { AfterModel::Continue };
    let broken = ScriptReply { fail_after_chunks: Some(4), ..long() };
    vec![
        play(storyteller([two(), done(), done()]).hook(recall.durable()), [Say("one"), Say("two")]).await,
        play(storyteller([two(), done()]).hook(slowly_refuses_once()), [Say("one")]).await,
        play(storyteller([done(), two(), done(), done()]).hook(slowly_refuses_once()), [Say("one"), Say("two")]).await,
        play(storyteller([done(), done()]).hook(judge(again)), [Say("one")]).await,
        play(storyteller([done(), done()]).hook(judge(again).release_on_accept()), [Say("one")]).await,
        play(storyteller([done()]).hook(judge(|_| AfterModel::Reject("no".into()))), [Say("one")]).await,
        play(
            storyteller([done()]).hook(judge(|_| AfterModel::Ask("fine?".into()))),
            [Say("one"), Give(Answer::Deny(None))],
        )
        .await,
        play(storyteller([gated(), done()]), [Say("one"), Give(Answer::Approve), Give(Answer::Result(json!("ann")))])
            .await,
        play(storyteller([gated(), done()]), [Say("one"), Give(Answer::Deny(None)), Give(Answer::Deny(None))]).await,
        play(storyteller([gated()]), [Say("one")]).await,
        play(storyteller([long(), done()]), [Interrupt("one"), Say("two")]).await,
        play(storyteller([broken, done()]), [Say("one"), Say("two")]).await,
    ]
}

pub(crate) static STORIES: LazyLock<Vec<Story>> = LazyLock::new(|| {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stories());
    std::thread::spawn(runtime).join().unwrap()
});

fn folded(told: &[FeedEvent]) -> Projection {
    let mut view = Projection::default();
    told.iter().for_each(|told| view.apply(told));
    view
}

#[test]
fn a_real_snapshot_is_what_was_told_up_to_its_cursor() {
    let streams = |view: &Projection| view.streaming.is_some() && view.state == ConversationState::Call;
    assert!(STORIES.iter().flat_map(|story| &story.snapshots).any(streams), "no snapshot caught the model speaking");
    for (index, story) in STORIES.iter().enumerate() {
        crate::kit::assert_valid(&story.log);
        for snapshot in &story.snapshots {
            let upto = story.told.iter().filter(|told| told.cursor <= snapshot.cursor).cloned().collect::<Vec<_>>();
            // A new writer's epoch begins before its first word.
            let view = Projection { cursor: snapshot.cursor, ..folded(&upto) };
            assert_eq!(*snapshot, view, "story {index}");
        }
    }
}

#[test]
fn cursors_strictly_increase_and_the_log_is_told_without_gaps() {
    for story in STORIES.iter() {
        assert!(story.told.windows(2).all(|pair| pair[0].cursor < pair[1].cursor));
        let logged = |told: &FeedEvent| match &told.item {
            FeedItem::Log(event) => Some(event.clone()),
            FeedItem::Live(_) => None,
        };
        assert_eq!(story.told.iter().filter_map(logged).collect::<Vec<_>>(), story.log);
    }
}

#[test]
fn at_rest_nothing_is_under_way() {
    for story in STORIES.iter() {
        let view = folded(&story.told);
        assert_eq!(view.events, story.log);
        assert!(view.in_flight_tools.is_empty() && view.hooks.is_empty() && view.streaming.is_none());
        let waits = !view.pending.is_empty();
        assert_eq!(view.state, if waits { ConversationState::Waiting } else { ConversationState::Idle });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The tail may begin before the snapshot, and every word may come twice.
    #[test]
    fn any_cut_into_snapshot_and_tail_gives_the_same_view(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        overlap in any::<prop::sample::Index>(),
        twice in any::<bool>(),
    ) {
        let story = which.get(&STORIES);
        let cut = cut.index(story.told.len() + 1);
        let from = overlap.index(cut + 1);
        let mut view = folded(&story.told[..cut]);
        for told in &story.told[from..] {
            view.apply(told);
            if twice {
                view.apply(told);
            }
        }
        prop_assert_eq!(view, folded(&story.told));
    }

    /// Whichever real snapshot a viewer got.
    #[test]
    fn a_real_snapshot_and_its_tail_give_the_same_view(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let story = which.get(&STORIES);
        let mut view = at.get(&story.snapshots).clone();
        story.told.iter().for_each(|told| view.apply(told));
        prop_assert_eq!(view, folded(&story.told));
    }
}

fn other_process(agent: &Agent, store: &MemoryStore) -> Conversations {
    Conversations::builder(agent.clone(), store.clone()).build()
}

#[tokio::test]
async fn a_waiting_conversation_looks_the_same_from_another_process() {
    let store = MemoryStore::default();
    let agent = storyteller([ScriptReply::calls("c1", "risky", json!({}))]).build().unwrap();
    let mut rig = Rig::on(agent.clone(), store.clone());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let here = snapshot(&rig).await;
    let there = other_process(&agent, &store).snapshot(&rig.id, Scope::local()).await.unwrap();
    assert_eq!((here.state, &here.pending), (ConversationState::Waiting, &there.pending));
    assert_eq!(there.state, ConversationState::Waiting);
}

#[tokio::test]
async fn a_viewer_does_not_miss_in_silence_what_another_process_wrote() {
    let store = MemoryStore::default();
    let agent = storyteller([ScriptReply::says("one"), ScriptReply::says("two")]).build().unwrap();
    let mut rig = Rig::on(agent.clone(), store.clone());
    rig.listen().await.unwrap();
    let there = other_process(&agent, &store).send(&rig.id, "first", Scope::local()).await.unwrap();
    there.wait().await.unwrap();
    rig.ended("second").await.unwrap();
    let warned = rig.told().iter().any(|told| lagged(told).is_some());
    assert!(warned || folded(rig.told()).events == rig.log().await.unwrap(), "a gap, and nobody said so");
}

#[tokio::test]
async fn an_event_is_told_only_when_it_is_written() {
    // A store that takes its time over a write, so that whatever is told too early is heard too early.
    let store = FaultyStore::with(|_| Fault::Delay(20));
    let replies = [ScriptReply::calls("c1", "work", json!({})), ScriptReply::says("fine"), ScriptReply::says("done")];
    let agent = storyteller(replies).hook(slowly_refuses_once()).build().unwrap();
    let rig = Rig::on(agent, store.clone());
    let mut tail = watch(&rig, Delivery::Lossless).await;
    let handle = rig.conversations.send(&rig.id, "go", Scope::local()).await.unwrap();
    let mut events = 0;
    while let Some(told) = tail.next().await {
        let FeedItem::Log(event) = &told.item else { continue };
        let written = store.log(&rig.id, event.seq, usize::MAX).await.unwrap();
        assert_eq!(written.first(), Some(event), "told before it was written");
        events += 1;
        if matches!(event.kind, EventKind::TurnEnded(_)) {
            break;
        }
    }
    assert_eq!(events, 9);
    handle.wait().await.unwrap();
}
