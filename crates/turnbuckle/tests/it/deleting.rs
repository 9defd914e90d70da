//! Deleting, holding, exporting: what goes, what stays, and what is recorded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use turnbuckle::conversation::{Conversations, ConversationsBuilder, RunError, SendError};
use turnbuckle::feed::{Delivery, FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hook::{BackgroundContext, Hook};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::store::{ActKind, LEASE, STORE_FILES, SideStore, Store, StoreError};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::PausedClock;
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, BoxError, BoxFuture, ConversationId, Scope, TurnStatus};

use crate::access::{Paid, ann, roles, support, user};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn talker() -> Agent {
    Agent::builder("talker", Script::says(["hello"; 20])).build().unwrap()
}

/// A process on the store.
fn process(agent: Agent, store: &MemoryStore, clock: &PausedClock) -> ConversationsBuilder {
    clock.advance(LEASE);
    Conversations::builder(agent, store.clone()).clock(Arc::new(clock.clone())).access(roles())
}

fn one_process() -> (MemoryStore, PausedClock, Conversations) {
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let conversations = process(talker(), &store, &clock).build();
    (store, clock, conversations)
}

async fn said(conversations: &Conversations, id: &str, scope: Scope) -> Result<TurnStatus, RunError> {
    conversations.turn(&id.into(), "hi", scope).await
}

/// Keeps a line for each turn, as a file would.
#[derive(Clone, Default)]
struct Notes {
    lines: Arc<Mutex<Vec<(ConversationId, String)>>>,
    broken: Arc<Mutex<Option<&'static str>>>,
}

impl Notes {
    fn of(&self, id: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|(of, _)| of.as_str() == id).count()
    }

    fn break_down(&self, why: Option<&'static str>) {
        *self.broken.lock().unwrap() = why;
    }
}

impl SideStore for Notes {
    fn name(&self) -> String {
        "notes".to_owned()
    }
    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        let lines = self.lines.lock().unwrap();
        let count = lines.iter().filter(|(id, _)| id.is_within(conversation)).count();
        Box::pin(std::future::ready(Ok(count as u64)))
    }
    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        if let Some(why) = *self.broken.lock().unwrap() {
            return Box::pin(std::future::ready(Err(why.into())));
        }
        self.lines.lock().unwrap().retain(|(id, _)| !id.is_within(conversation));
        Box::pin(std::future::ready(Ok(())))
    }
    fn erase_user<'a>(&'a self, user: &'a str, kept: &'a [ConversationId]) -> BoxFuture<'a, Result<(), BoxError>> {
        let is_kept = |id: &ConversationId| kept.iter().any(|kept| id.is_within(kept));
        self.lines.lock().unwrap().retain(|(id, by)| by != user || is_kept(id));
        Box::pin(std::future::ready(Ok(())))
    }
}

struct NoteTaker(Notes);

impl Hook for NoteTaker {
    fn side_store(&self) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(self.0.clone()))
    }
    async fn on_event(&self, event: &FeedEvent) -> Result<(), BoxError> {
        // Observers lag behind the turn that they watch.
        tokio::task::yield_now().await;
        self.0.lines.lock().unwrap().push((event.conversation.clone(), "ann".to_owned()));
        Ok(())
    }
}

fn note_taking(notes: &Notes) -> Agent {
    Agent::builder("talker", Script::says(["hello"; 20])).hook(NoteTaker(notes.clone())).build().unwrap()
}

#[tokio::test]
async fn a_deleted_conversation_is_gone_and_its_id_cannot_be_used_again() {
    let (store, clock, conversations) = one_process();
    said(&conversations, "fix", ann()).await.unwrap();
    let id = ConversationId::from("fix");
    let mut watched = conversations.subscribe(&id, Delivery::Lossy, ann()).await.unwrap();
    let deleted = conversations.delete(&id, ann()).await.unwrap();
    assert!(deleted.left.is_empty(), "{deleted:?}");
    assert!(matches!(conversations.log(&id, ann()).await, Err(SendError::NotFound { .. })));
    assert!(conversations.list(ann()).await.unwrap().is_empty());
    let again = said(&conversations, "fix", ann()).await;
    assert!(matches!(again, Err(RunError::Send(SendError::Deleted { .. }))), "{again:?}");
    assert_eq!(conversations.resident_count(), 1, "only what the refused message made");
    // Another process does not bring it back either.
    let other = process(talker(), &store, &clock).build();
    let again = said(&other, "fix", ann()).await;
    assert!(matches!(again, Err(RunError::Send(SendError::Deleted { .. }))), "{again:?}");
    // To someone else it looks like a conversation of another.
    let again = said(&other, "fix", Scope::user("bob")).await;
    assert!(matches!(again, Err(RunError::Send(SendError::NotFound { .. }))), "{again:?}");
    let told = watched.next().await.unwrap();
    assert!(
        matches!(&told.item, FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("deleted by user ann"))
    );
}

#[tokio::test]
async fn a_process_that_has_it_in_memory_cannot_bring_it_back() {
    let (store, clock, conversations) = one_process();
    said(&conversations, "fix", ann()).await.unwrap();
    let id = ConversationId::from("fix");
    let other = process(talker(), &store, &clock).build();
    other.delete(&id, ann()).await.unwrap();
    // The first one still holds its log, its owner and its state.
    assert_eq!(conversations.resident_count(), 1);
    let again = said(&conversations, "fix", ann()).await;
    assert!(matches!(again, Err(RunError::Send(SendError::Deleted { .. }))), "{again:?}");
    assert!(matches!(conversations.snapshot(&id, ann()).await, Err(SendError::NotFound { .. })));
    assert!(store.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_open_turn_makes_it_busy_and_a_hold_makes_it_held() {
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let paid = Paid::default();
    let conversations = process(support(&paid).build().unwrap(), &store, &clock).build();
    let id = ConversationId::from("fix");
    let status = said(&conversations, "fix", ann()).await.unwrap();
    assert!(matches!(status, TurnStatus::Waiting(_)));
    let busy = conversations.delete(&id, ann()).await;
    assert!(matches!(&busy, Err(SendError::Busy { pending, .. }) if pending.len() == 1), "{busy:?}");
    conversations.cancel(&id, ann()).await.unwrap();
    conversations.resume(&id, ann()).await.unwrap();
    assert!(conversations.place_hold(&id, user("ada", "admin")).await.unwrap());
    assert!(!conversations.place_hold(&id, ann()).await.unwrap());
    let held = conversations.delete(&id, ann()).await;
    assert!(matches!(&held, Err(SendError::Held { hold, .. }) if hold.by == Author::User("ada".into())), "{held:?}");
    // What is on hold can be talked to.
    conversations.log(&id, ann()).await.unwrap();
    assert!(conversations.lift_hold(&id, ann()).await.unwrap());
    conversations.delete(&id, ann()).await.unwrap();
    let acts = conversations.acts(Scope::system()).await.unwrap();
    let kinds: Vec<_> = acts.iter().map(|act| (act.kind, act.by.to_string())).collect();
    let expected = [(ActKind::Deleted, "user ann"), (ActKind::Released, "user ann"), (ActKind::Held, "user ada")];
    assert_eq!(kinds, expected.map(|(kind, by)| (kind, by.to_owned())));
}

#[tokio::test]
async fn it_is_busy_while_another_process_has_it() {
    let (store, clock, conversations) = one_process();
    said(&conversations, "fix", ann()).await.unwrap();
    let id = ConversationId::from("fix");
    store.claim(&id, &"another".into(), turnbuckle::clock::Clock::now(&clock)).await.unwrap();
    let busy = conversations.delete(&id, ann()).await;
    assert!(matches!(busy, Err(SendError::Busy { .. })), "{busy:?}");
}

#[tokio::test]
async fn it_is_busy_while_a_background_hook_works_on_it() {
    struct Slow(Arc<tokio::sync::Notify>);
    impl Hook for Slow {
        async fn background(&self, _: &BackgroundContext) -> Result<(), BoxError> {
            self.0.notified().await;
            Ok(())
        }
    }
    let (store, clock, go) = (MemoryStore::default(), PausedClock::default(), Arc::new(tokio::sync::Notify::new()));
    let agent = Agent::builder("talker", Script::says(["hello"])).hook(Slow(go.clone())).build().unwrap();
    let conversations = process(agent, &store, &clock).build();
    let id = ConversationId::from("fix");
    said(&conversations, "fix", ann()).await.unwrap();
    let busy = conversations.delete(&id, ann()).await;
    assert!(matches!(busy, Err(SendError::Busy { .. })), "{busy:?}");
    go.notify_one();
    conversations.drain(Duration::from_secs(60)).await;
    conversations.delete(&id, ann()).await.unwrap();
}

#[tokio::test]
async fn what_hooks_keep_beside_the_store_goes_with_it_also_what_they_were_about_to_write() {
    let (notes, clock) = (Notes::default(), PausedClock::default());
    let conversations = process(note_taking(&notes), &MemoryStore::default(), &clock).build();
    said(&conversations, "fix", ann()).await.unwrap();
    said(&conversations, "other", ann()).await.unwrap();
    let deleted = conversations.delete(&"fix".into(), ann()).await.unwrap();
    assert!(deleted.left.is_empty(), "{deleted:?}");
    conversations.drain(Duration::from_secs(60)).await;
    assert_eq!(notes.of("fix"), 0);
    assert!(notes.of("other") > 0);
}

#[tokio::test]
async fn what_could_not_be_erased_is_told_and_erased_by_the_next_deletion_or_maintenance() {
    let (notes, clock, store) = (Notes::default(), PausedClock::default(), MemoryStore::default());
    let conversations = process(note_taking(&notes), &store, &clock).build();
    let id = ConversationId::from("fix");
    said(&conversations, "fix", ann()).await.unwrap();
    notes.break_down(Some("the disk is away"));
    let deleted = conversations.delete(&id, ann()).await.unwrap();
    assert_eq!(deleted.left.len(), 1);
    assert_eq!((&*deleted.left[0].what, &*deleted.left[0].why), ("notes", "the disk is away"));
    // A process without that hook does not claim that it is done.
    let other = process(talker(), &store, &clock).build();
    let left = other.finish_deletions().await.unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    // Repeating the deletion is how a person tries again; to others it never was.
    assert_eq!(conversations.delete(&id, ann()).await.unwrap().left.len(), 1);
    assert!(matches!(conversations.delete(&id, user("bob", "")).await, Err(SendError::NotFound { .. })));
    notes.break_down(None);
    assert!(conversations.finish_deletions().await.unwrap().is_empty());
    assert_eq!(notes.of("fix"), 0);
    assert!(store.unfinished_deletions().await.unwrap().is_empty());
    let done = conversations.acts(ann()).await.unwrap();
    assert_eq!(done.len(), 1, "one deletion, however often it was tried: {done:?}");
}

/// The process dies after the store has deleted the conversation and before anything else is erased.
#[tokio::test]
async fn a_deletion_that_a_crash_cut_short_is_finished() {
    let (notes, clock, store) = (Notes::default(), PausedClock::default(), MemoryStore::default());
    let conversations = process(note_taking(&notes), &store, &clock).build();
    let id = ConversationId::from("fix");
    said(&conversations, "fix", ann()).await.unwrap();
    conversations.drain(Duration::from_secs(60)).await;
    let epoch = store.claim(&id, &"doomed".into(), turnbuckle::clock::Clock::now(&clock)).await;
    let (by, left) = (Author::User("ann".into()), ["notes".into(), STORE_FILES.into()]);
    let now = turnbuckle::clock::Clock::now(&clock);
    let deletion =
        turnbuckle::store::Deletion { conversation: &id, epoch: epoch.unwrap().epoch, by: &by, at: now, left: &left };
    store.delete(deletion).await.unwrap();
    assert!(notes.of("fix") > 0);
    assert!(conversations.delete(&id, ann()).await.unwrap().left.is_empty());
    assert_eq!(notes.of("fix"), 0);
}

#[tokio::test]
async fn sub_agents_conversations_are_exported_and_deleted_with_their_parents() {
    let inner = Agent::builder("inner", Script::says(["inside"])).build().unwrap();
    let script = Script::of([ScriptReply::calls("s1", "inner", json!({"task": "look"})), ScriptReply::says("ok")]);
    let agent = Agent::builder("outer", script).tool(SubAgent::new(inner, "Looks.")).build().unwrap();
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let conversations = process(agent, &store, &clock).build();
    said(&conversations, "fix", ann()).await.unwrap();
    let exported = conversations.export(&"fix".into(), ann()).await.unwrap();
    let own = conversations.log(&"fix".into(), ann()).await.unwrap();
    assert_eq!(exported.iter().filter(|event| event.conversation.as_str() == "fix").count(), own.len());
    assert!(exported.iter().any(|event| event.conversation.as_str() == "fix/s1"));
    assert!(matches!(conversations.delete(&"fix/s1".into(), ann()).await, Err(SendError::NotFound { .. })));
    conversations.delete(&"fix".into(), ann()).await.unwrap();
    assert!(store.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_persons_conversations_go_together_and_those_on_hold_are_named() {
    let (notes, clock, store) = (Notes::default(), PausedClock::default(), MemoryStore::default());
    let conversations = process(note_taking(&notes), &store, &clock).build();
    for (id, owner) in [("a1", "ann"), ("a2", "ann"), ("a3", "ann"), ("b1", "bob")] {
        said(&conversations, id, Scope::user(owner)).await.unwrap();
    }
    conversations.drain(Duration::from_secs(60)).await;
    notes.lines.lock().unwrap().push(("from before".into(), "ann".to_owned()));
    conversations.place_hold(&"a2".into(), user("ada", "admin")).await.unwrap();
    // Bob may not even know of them.
    let nothing = conversations.delete_user("ann", user("bob", "")).await.unwrap();
    assert!(nothing.forbidden && nothing.deleted.is_empty() && nothing.kept.is_empty());
    assert_eq!(notes.of("from before"), 1);
    let result = conversations.delete_user("ann", user("ada", "admin")).await.unwrap();
    let mut gone: Vec<_> = result.deleted.iter().map(|one| one.id.as_str()).collect();
    gone.sort_unstable();
    assert_eq!(gone, ["a1", "a3"]);
    assert!(matches!(&result.kept[..], [(id, SendError::Held { .. })] if id.as_str() == "a2"), "{result:?}");
    assert_eq!(notes.of("from before"), 0);
    assert!(notes.of("a2") > 0, "what was noted in it is on hold with it");
    let left: Vec<_> = store.list().await.unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(left, [ConversationId::from("b1"), "a2".into()]);
}

#[tokio::test]
async fn what_the_deleting_process_did_not_know_of_goes_when_another_repeats_it() {
    let (notes, clock, store) = (Notes::default(), PausedClock::default(), MemoryStore::default());
    let knowing = process(note_taking(&notes), &store, &clock).build();
    said(&knowing, "fix", ann()).await.unwrap();
    knowing.drain(Duration::from_secs(60)).await;
    let id = ConversationId::from("fix");
    let unknowing = process(talker(), &store, &clock).build();
    unknowing.delete(&id, ann()).await.unwrap();
    assert!(notes.of("fix") > 0);
    assert!(matches!(knowing.delete(&id, Scope::user("bob")).await, Err(SendError::NotFound { .. })));
    notes.break_down(Some("the disk is away"));
    let left = knowing.delete(&id, ann()).await.unwrap().left;
    assert!(matches!(&left[..], [one] if &*one.what == "notes" && one.why.contains("away")), "{left:?}");
    notes.break_down(None);
    assert!(knowing.delete(&id, ann()).await.unwrap().left.is_empty());
    assert_eq!(notes.of("fix"), 0);
}

#[tokio::test]
async fn what_is_kept_about_a_person_goes_also_if_they_own_no_conversation() {
    let (notes, clock, store) = (Notes::default(), PausedClock::default(), MemoryStore::default());
    let conversations = process(note_taking(&notes), &store, &clock).build();
    let note = || notes.lines.lock().unwrap().push(("elsewhere".into(), "ann".to_owned()));
    note();
    assert!(conversations.delete_user("ann", user("bob", "")).await.unwrap().forbidden);
    assert_eq!(notes.of("elsewhere"), 1);
    for allowed in [user("ada", "admin"), ann(), Scope::system()] {
        note();
        assert!(!conversations.delete_user("ann", allowed.clone()).await.unwrap().forbidden);
        assert_eq!(notes.of("elsewhere"), 0, "{allowed:?}");
    }
}

#[tokio::test]
async fn retention_deletes_what_was_not_used_for_long_enough_and_nothing_that_is_held_or_open() {
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let paid = Paid::default();
    let waiting = process(support(&paid).build().unwrap(), &store, &clock).build();
    said(&waiting, "open", ann()).await.unwrap();
    let conversations = process(talker(), &store, &clock).build();
    for id in ["old", "held"] {
        said(&conversations, id, ann()).await.unwrap();
    }
    conversations.place_hold(&"held".into(), ann()).await.unwrap();
    clock.advance(89 * DAY);
    said(&conversations, "new", ann()).await.unwrap();
    assert_eq!(conversations.delete_unused_for(90 * DAY).await.unwrap(), 0);
    clock.advance(DAY + LEASE);
    assert_eq!(conversations.delete_unused_for(90 * DAY).await.unwrap(), 1);
    let mut left: Vec<_> = store.list().await.unwrap().into_iter().map(|one| one.id.to_string()).collect();
    left.sort_unstable();
    assert_eq!(left, ["held", "new", "open"]);
    let tombstone = store.tombstone(&"old".into()).await.unwrap().unwrap();
    assert_eq!(tombstone.by, Author::System(SystemAuthor::Retention));
    assert_eq!(conversations.finish_deletions().await.unwrap().len(), 0);
}

#[tokio::test]
async fn maintenance_applies_retention_and_finishes_deletions() {
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let conversations = process(talker(), &store, &clock).retain(DAY).build();
    said(&conversations, "old", ann()).await.unwrap();
    clock.advance(2 * DAY);
    let maintained = conversations.clone();
    let maintenance = tokio::spawn(async move { maintained.run_maintenance().await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    maintenance.abort();
    assert!(store.list().await.unwrap().is_empty());
    assert!(store.unfinished_deletions().await.unwrap().is_empty());
}

#[tokio::test]
async fn reading_a_conversation_of_another_is_recorded_once_and_before_anything_is_given() {
    let (_, _, conversations) = one_process();
    said(&conversations, "fix", ann()).await.unwrap();
    let (id, rita) = (ConversationId::from("fix"), user("rita", "reader"));
    conversations.log(&id, ann()).await.unwrap();
    assert!(matches!(conversations.log(&id, user("bob", "")).await, Err(SendError::NotFound { .. })));
    assert!(conversations.acts(Scope::system()).await.unwrap().is_empty());
    for _ in 0..3 {
        conversations.log(&id, rita.clone()).await.unwrap();
        conversations.subscribe(&id, Delivery::Lossy, rita.clone()).await.unwrap();
    }
    let acts = conversations.acts(ann()).await.unwrap();
    assert_eq!(acts.len(), 1, "{acts:?}");
    assert_eq!(
        (acts[0].kind, &*acts[0].about, &acts[0].by),
        (ActKind::ReadAnothers, "fix", &Author::User("rita".into()))
    );
    // Rita sees what she did, and nobody else's business.
    assert_eq!(conversations.acts(rita).await.unwrap().len(), 1);
    assert!(conversations.acts(user("bob", "")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_deletion_needs_the_right_to_delete_and_names_who_did_it() {
    let (store, _, conversations) = one_process();
    said(&conversations, "fix", ann()).await.unwrap();
    let id = ConversationId::from("fix");
    assert!(matches!(conversations.delete(&id, user("rita", "reader")).await, Err(SendError::Forbidden { .. })));
    conversations.delete(&id, user("ada", "admin")).await.unwrap();
    assert_eq!(store.tombstone(&id).await.unwrap().unwrap().by, Author::User("ada".into()));
    let missing = conversations.delete(&"none".into(), ann()).await;
    assert!(matches!(missing, Err(SendError::NotFound { .. })));
    let direct = store.log(&id, 1, 1).await;
    assert!(matches!(direct, Err(StoreError::Deleted { .. })));
}
