//! Promises about answers to one question: which count, and in which order.

use super::*;
use crate::access::AnswerRule;
use crate::event::{Evidence, Outcome, Question, Resolved, TurnEnded};
use crate::id::ItemId;
use crate::message::Usage;
use crate::store::Answer;

/// Delivers answers to call `c1`, and writes resolutions of it.
struct Answering<'a> {
    store: &'a SharedStore,
    id: ConversationId,
    epoch: u64,
}

impl Answering<'_> {
    /// A conversation that asks `n` people to approve a call.
    async fn begin(store: &SharedStore, n: u32) -> Answering<'_> {
        let (id, epoch) = opened(store).await;
        let question = Question::Approval {
            tool: Some("pay".into()),
            arguments: Arc::default(),
            digest: "d1".into(),
            why: None,
            again: false,
            redacted: false,
            standing: None,
        };
        let rule = Some(Arc::new(AnswerRule { n, roles: vec!["manager".into()], ..AnswerRule::default() }));
        let kind =
            EventKind::Suspension { call: "c1".into(), question: Box::new(question), expires: NOW.after(LEASE), rule };
        let asked = Arc::new(Event { seq: 1, turn: "t1".into(), at: NOW, kind });
        store.append(batch(&id, epoch, 0, &[asked])).await.unwrap();
        Answering { store, id, epoch }
    }

    /// Stores an answer in an item that is named like its sender. `digest` is of what they were shown.
    async fn deliver(&self, user: &str, answer: Answer, digest: Option<&str>) -> Result<(), StoreError> {
        let from = Actor::User { id: user.into(), roles: Arc::new([]) };
        let digest = digest.map(Into::into);
        let kind = InboxKind::Answer { call: "c1".into(), answer, digest, via: None, standing: None };
        self.store.deliver(&self.id, InboxItem { id: user.into(), from, at: NOW, kind }).await
    }

    /// Ends the turn with event `seq + 1`, and the question with the one before it. Takes these items up.
    async fn end(&self, seq: u64, take: &[ItemId]) -> Result<(), StoreError> {
        let event = |seq, kind| Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind });
        let (decision, by) = (Resolved::Cancelled, Author::User("ann".into()));
        let evidence = Box::default();
        let resolved = EventKind::Resolution { call: "c1".into(), decision, by, reason: None, evidence };
        let ended = TurnEnded {
            outcome: Outcome::Cancelled,
            details: None,
            model_calls: 0,
            usage: Usage::default(),
            cost: 0.0,
            ms: 0,
            agent: None,
        };
        let events = [event(seq, resolved), event(seq + 1, EventKind::TurnEnded(Arc::new(ended)))];
        self.store.append(Batch { take, ..batch(&self.id, self.epoch, seq - 1, &events) }).await
    }

    /// Writes a resolution as event `seq`; one that came from the inbox takes its item up.
    async fn write(&self, seq: u64, user: &str, wrote: Wrote, from_inbox: bool) -> Result<(), StoreError> {
        let (decision, open, arguments) = match wrote {
            Wrote::Open => (Resolved::Approved, true, None),
            Wrote::Edit => (Resolved::Approved, true, Some(Arc::new(serde_json::json!({})))),
            Wrote::Approval => (Resolved::Approved, false, None),
            Wrote::Denial => (Resolved::Denied, false, None),
            Wrote::Expiry => (Resolved::Expired, false, None),
        };
        let digest = arguments.is_some().then(|| "d2".into());
        let evidence = Evidence { open, arguments, digest, ..Evidence::default() };
        let (by, item) = (Author::User(user.into()), [user.into()]);
        let kind =
            EventKind::Resolution { call: "c1".into(), decision, by, reason: None, evidence: Box::new(evidence) };
        let events = [Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind })];
        let batch = batch(&self.id, self.epoch, seq - 1, &events);
        match from_inbox {
            true => self.store.append(Batch { take: &item, answer: Some(&item[0]), ..batch }).await,
            false => self.store.append(batch).await,
        }
    }
}

#[derive(Clone, Copy)]
enum Wrote {
    Open,
    Edit,
    Approval,
    Denial,
    Expiry,
}

fn is_answered(told: &Result<(), StoreError>) -> bool {
    matches!(told, Err(StoreError::AlreadyAnswered { .. }))
}

fn is_changed(told: &Result<(), StoreError>) -> bool {
    matches!(told, Err(StoreError::ArgumentsChanged { .. }))
}

pub(super) async fn approvals_in_the_log_and_in_the_inbox_count_together(store: SharedStore) {
    let asked = Answering::begin(&store, 3).await;
    asked.write(2, "mia", Wrote::Open, false).await.unwrap();
    asked.deliver("max", Answer::Approve, Some("d1")).await.unwrap();
    assert!(is_answered(&asked.deliver("mia", Answer::Approve, Some("d1")).await), "the log has hers");
    assert!(is_answered(&asked.deliver("max", Answer::Approve, Some("d1")).await), "the inbox has his");
    asked.deliver("moe", Answer::Approve, Some("d1")).await.unwrap();
    assert!(is_answered(&asked.deliver("kim", Answer::Approve, Some("d1")).await), "three are enough");
    assert!(is_answered(&asked.deliver("kim", Answer::Deny(None), None).await), "and settle it");
}

pub(super) async fn answers_are_written_in_the_order_in_which_they_were_stored(store: SharedStore) {
    let asked = Answering::begin(&store, 3).await;
    asked.deliver("mia", Answer::Approve, None).await.unwrap();
    asked.deliver("max", Answer::Approve, None).await.unwrap();
    for (user, wrote) in [("kim", Wrote::Open), ("kim", Wrote::Edit), ("kim", Wrote::Denial), ("", Wrote::Expiry)] {
        assert!(is_answered(&asked.write(2, user, wrote, false).await), "a writer's own answer comes behind them");
    }
    assert!(is_answered(&asked.write(2, "max", Wrote::Open, true).await), "mia's was stored before");
    asked.write(2, "mia", Wrote::Open, true).await.unwrap();
    assert!(is_answered(&asked.write(3, "mia", Wrote::Open, true).await), "hers was taken up");
    asked.write(3, "max", Wrote::Open, true).await.unwrap();
    assert!(is_answered(&asked.deliver("mia", Answer::Approve, None).await), "the log has hers");
    asked.write(4, "kim", Wrote::Approval, false).await.unwrap();
    let late = asked.deliver("zoe", Answer::Deny(None), None).await;
    assert!(matches!(late, Err(StoreError::NotAsked { .. })), "{late:?}");
}

pub(super) async fn a_turn_ends_only_behind_the_stored_answers_to_its_questions(store: SharedStore) {
    let asked = Answering::begin(&store, 3).await;
    asked.deliver("mia", Answer::Approve, None).await.unwrap();
    asked.deliver("max", Answer::Approve, None).await.unwrap();
    assert!(is_answered(&asked.end(2, &[]).await), "mia and max were told that theirs are stored");
    assert!(is_answered(&asked.end(2, &["max".into()]).await), "mia was");
    asked.write(2, "mia", Wrote::Open, true).await.unwrap();
    assert!(is_answered(&asked.end(3, &[]).await), "max was");
    // A writer that takes it up may have refused it.
    asked.end(3, &["max".into()]).await.unwrap();
    assert!(store.inbox(&asked.id, InboxFilter::All).await.unwrap().is_empty());
    let late = asked.deliver("moe", Answer::Approve, None).await;
    assert!(matches!(late, Err(StoreError::NotAsked { .. })), "{late:?}");
}

pub(super) async fn changed_arguments_void_approvals_and_nobody_approves_what_they_did_not_see(store: SharedStore) {
    let asked = Answering::begin(&store, 2).await;
    asked.deliver("mia", Answer::Approve, Some("d1")).await.unwrap();
    let edit = || Answer::ApproveWith(Arc::default());
    asked.deliver("max", edit(), Some("d1")).await.unwrap();
    assert!(is_changed(&asked.deliver("moe", Answer::Approve, Some("d1")).await), "max has changed them");
    assert!(is_changed(&asked.deliver("moe", Answer::Approve, None).await), "and nobody was shown how");
    assert!(is_changed(&asked.deliver("moe", edit(), Some("d1")).await));
    asked.write(2, "mia", Wrote::Open, true).await.unwrap();
    asked.write(3, "max", Wrote::Edit, true).await.unwrap();
    assert!(is_changed(&asked.deliver("moe", Answer::Approve, Some("d1")).await));
    assert!(is_answered(&asked.deliver("max", Answer::Approve, Some("d2")).await), "they are his");
    asked.deliver("mia", Answer::Approve, Some("d2")).await.unwrap();
    assert!(is_answered(&asked.deliver("moe", Answer::Deny(None), None).await), "two have approved the new ones");
}
