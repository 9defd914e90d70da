//! Promises about what is left to be done: inbox items, jobs, and what is due.

use futures_util::future::join_all;

use super::*;
use crate::access::AnswerRule;
use crate::event::{Evidence, Question, Resolved};
use crate::store::{Answer, ArgumentMatch, StandingApproval};

/// The next job for a process that has all hooks of these tests.
async fn taken(store: &SharedStore, id: &ConversationId, at: Timestamp) -> Option<Job> {
    let hooks = ["now", "soon", "parked", "memory"].map(|hook| {
        [JobKind::Ended, JobKind::Background].map(|kind| JobSelector { hook: hook.into(), used: None, kind })
    });
    let lease = JobLease { writer: &"w2".into(), from: at, lasts: LEASE };
    store.take_job(id, hooks.as_flattened(), lease).await.unwrap()
}

pub(super) async fn a_delivered_message_stays_until_a_write_takes_it(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    for turn in ["t1", "t2", "t3"] {
        store.deliver(&id, message(turn)).await.unwrap();
    }
    let taken = ["t2".into()];
    store.append(Batch { take: &taken, ..batch(&id, epoch, 0, &[said("t2", 1)]) }).await.unwrap();
    let claim = claim(&store, &id, "w", NOW).await.unwrap();
    assert_eq!(claim.inbox, [message("t1"), message("t3")]);
    assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap(), claim.inbox);
}

pub(super) async fn an_inbox_is_full_at_its_bound_and_messages_keep_no_order_out(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let order = |name: String| InboxItem {
        id: name.into(),
        from: ann(),
        at: NOW,
        kind: InboxKind::Cancel { turn: "t".into() },
    };
    let is_full =
        |refused: Result<(), StoreError>| matches!(refused, Err(StoreError::Full { id }) if id.as_str() == "c");
    // At once: a store may write many together.
    let messages = (0..MAX_INBOX).map(|nth| store.deliver(&id, message(&format!("t{nth}"))));
    assert!(join_all(messages).await.iter().all(Result::is_ok));
    assert!(is_full(store.deliver(&id, message("one more")).await));
    let orders = (0..MAX_INBOX).map(|nth| store.deliver(&id, order(format!("l{nth}"))));
    assert!(join_all(orders).await.iter().all(Result::is_ok));
    assert!(is_full(store.deliver(&id, order("one more".to_owned())).await));
    let taken = ["t7".into()];
    store.append(Batch { take: &taken, ..batch(&id, epoch, 0, &[said("t7", 1)]) }).await.unwrap();
    store.deliver(&id, message("one more")).await.unwrap();
    assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap().len(), 2 * MAX_INBOX);
}

pub(super) async fn of_the_answers_to_a_call_the_first_that_is_stored_wins(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let event = |seq, kind| Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind });
    let question = Question::Elicitation { question: "Which?".into(), schema: None };
    let asked = EventKind::Suspension {
        call: "c1".into(),
        question: Box::new(question),
        expires: NOW.after(LEASE),
        rule: None,
    };
    let by = Author::User("ann".into());
    let resolved = |decision| EventKind::Resolution {
        call: "c1".into(),
        decision,
        by: by.clone(),
        reason: None,
        evidence: Default::default(),
    };
    let answer = |item: &str| InboxItem {
        id: item.into(),
        from: ann(),
        at: NOW,
        kind: InboxKind::Answer { call: "c1".into(), answer: Answer::Approve, digest: None, via: None, standing: None },
    };
    let is_not_asked = |told: Result<(), StoreError>| matches!(told, Err(StoreError::NotAsked { .. }));
    let is_answered = |told: Result<(), StoreError>| matches!(told, Err(StoreError::AlreadyAnswered { .. }));
    assert!(is_not_asked(store.deliver(&id, answer("l0")).await), "nothing is asked yet");
    store.append(batch(&id, epoch, 0, &[event(1, asked)])).await.unwrap();
    store.deliver(&id, answer("l1")).await.unwrap();
    assert!(is_answered(store.deliver(&id, answer("l2")).await), "the first answer waits in the inbox");
    // The writer's own answer is the second one as well.
    let denied = [event(2, resolved(Resolved::Denied))];
    assert!(is_answered(store.append(batch(&id, epoch, 1, &denied)).await), "a writer overrules no stored answer");
    let taken = ["l1".into()];
    let approved = [event(2, resolved(Resolved::Approved))];
    store.append(Batch { take: &taken, ..batch(&id, epoch, 1, &approved) }).await.unwrap();
    assert!(is_not_asked(store.deliver(&id, answer("l3")).await), "the question has its answer");
    assert!(store.inbox(&id, InboxFilter::All).await.unwrap().is_empty());
}

pub(super) async fn an_answer_that_is_given_after_the_question_expired_is_refused(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let question = Question::Elicitation { question: "Which?".into(), schema: None };
    let kind = EventKind::Suspension {
        call: "c1".into(),
        question: Box::new(question),
        expires: NOW.after(LEASE),
        rule: None,
    };
    let asked = Arc::new(Event { seq: 1, turn: "t1".into(), at: NOW, kind });
    store.append(batch(&id, epoch, 0, &[asked])).await.unwrap();
    let answer = |at| {
        let kind =
            InboxKind::Answer { call: "c1".into(), answer: Answer::Approve, digest: None, via: None, standing: None };
        store.deliver(&id, InboxItem { id: "l1".into(), from: ann(), at, kind })
    };
    assert!(matches!(answer(NOW.after(LEASE)).await, Err(StoreError::NotAsked { .. })), "its time is over");
    answer(NOW).await.unwrap();
}

pub(super) async fn a_question_that_needs_two_approvals_takes_two_of_different_users(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let event = |seq, kind| Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind });
    let question = Question::Pause { hook: "lint".into(), reason: "look".into() };
    let rule = Some(Arc::new(AnswerRule { n: 2, roles: vec!["manager".into()], ..AnswerRule::default() }));
    let asked =
        EventKind::Suspension { call: "c1".into(), question: Box::new(question), expires: NOW.after(LEASE), rule };
    let answer = |item: &str, user: &str, answer| {
        let from = Actor::User { id: user.into(), roles: Arc::new([]) };
        let kind = InboxKind::Answer { call: "c1".into(), answer, digest: None, via: None, standing: None };
        store.deliver(&id, InboxItem { id: item.into(), from, at: NOW, kind })
    };
    let is_answered = |told: Result<(), StoreError>| matches!(told, Err(StoreError::AlreadyAnswered { .. }));
    store.append(batch(&id, epoch, 0, &[event(1, asked)])).await.unwrap();
    answer("l1", "mia", Answer::Approve).await.unwrap();
    assert!(is_answered(answer("l2", "mia", Answer::Approve).await), "the same user twice is one approval");
    answer("l3", "max", Answer::Approve).await.unwrap();
    assert!(is_answered(answer("l4", "moe", Answer::Approve).await), "two are enough");
    assert!(is_answered(answer("l5", "moe", Answer::Deny(None)).await), "and settle it");
    // The first of them is taken into the log, and leaves the question open.
    let evidence = Evidence { open: true, ..Evidence::default() };
    let (decision, by) = (Resolved::Approved, Author::User("mia".into()));
    let open =
        event(2, EventKind::Resolution { call: "c1".into(), decision, by, reason: None, evidence: Box::new(evidence) });
    let taken = ["l1".into(), "l3".into()];
    store.append(Batch { take: &taken, ..batch(&id, epoch, 1, &[open]) }).await.unwrap();
    assert!(is_answered(answer("l6", "mia", Answer::Approve).await), "she has approved, as the log says");
    answer("l7", "moe", Answer::Deny(None)).await.unwrap();
    assert!(is_answered(answer("l8", "max", Answer::Approve).await), "a denial ends it");
}

pub(super) async fn who_approved_may_change_their_mind_before_it_is_taken_up(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let question = Question::Pause { hook: "lint".into(), reason: "look".into() };
    let rule = Some(Arc::new(AnswerRule { n: 2, roles: vec!["manager".into()], ..AnswerRule::default() }));
    let kind =
        EventKind::Suspension { call: "c1".into(), question: Box::new(question), expires: NOW.after(LEASE), rule };
    store.append(batch(&id, epoch, 0, &[Arc::new(Event { seq: 1, turn: "t1".into(), at: NOW, kind })])).await.unwrap();
    let answer = |item: &str, answer| {
        let kind = InboxKind::Answer { call: "c1".into(), answer, digest: None, via: None, standing: None };
        store.deliver(&id, InboxItem { id: item.into(), from: ann(), at: NOW, kind })
    };
    answer("l1", Answer::Approve).await.unwrap();
    answer("l2", Answer::Deny(None)).await.unwrap();
    let again = answer("l3", Answer::Deny(None)).await;
    assert!(matches!(again, Err(StoreError::AlreadyAnswered { .. })), "a denial ends it: {again:?}");
    assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap().len(), 2);
}

/// A standing approval made from a call of conversation `c`.
pub(super) fn standing(name: &str) -> StandingApproval {
    StandingApproval {
        id: name.into(),
        agent: "a".into(),
        tool: "write".into(),
        definition: "d".into(),
        arguments: vec![ArgumentMatch::equals("/path", "a.txt".into()), ArgumentMatch::like("/mode", "r*")],
        project: "/p".into(),
        requester: "ann".into(),
        by: ann(),
        at: NOW,
        expires: NOW.after(LEASE),
        uses_left: None,
        from: ("c".into(), "c1".into()),
    }
}

/// A write in which a standing approval is given and nothing else happens.
pub(super) async fn give(store: &SharedStore, id: &ConversationId, epoch: u64, approval: &StandingApproval) {
    store.append(Batch { standing: Some(approval), ..batch(id, epoch, 0, &[]) }).await.unwrap();
}

pub(super) async fn a_standing_approval_is_stored_with_its_answer_or_not_at_all(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let event = |seq, kind| Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind });
    let question = Question::Pause { hook: "lint".into(), reason: "look".into() };
    let asked = |call: &str| {
        let (question, expires) = (question.clone(), NOW.after(LEASE));
        EventKind::Suspension { call: call.into(), question: Box::new(question), expires, rule: None }
    };
    let approved = |call: &str| {
        let (decision, by) = (Resolved::Approved, Author::User("ann".into()));
        let evidence = Evidence::default();
        EventKind::Resolution { call: call.into(), decision, by, reason: None, evidence: Box::new(evidence) }
    };
    store.append(batch(&id, epoch, 0, &[event(1, asked("c1")), event(2, asked("c2"))])).await.unwrap();
    let given = standing("s1");
    let with_answer =
        |epoch, seq, events| store.append(Batch { standing: Some(&given), ..batch(&id, epoch, seq, events) });
    // Refused: under an old claim, at a wrong seq, and behind an answer that was stored before.
    let answer = [event(3, approved("c1"))];
    let fenced = with_answer(epoch - 1, 2, &answer).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    let misplaced = with_answer(epoch, 7, &answer).await;
    assert!(matches!(misplaced, Err(StoreError::WrongSeq { .. })), "{misplaced:?}");
    let (digest, via, standing) = (None, None, Some(Box::new(StandingApproval { id: "s2".into(), ..given.clone() })));
    let kind = InboxKind::Answer { call: "c1".into(), answer: Answer::Approve, digest, via, standing };
    let item = InboxItem { id: "l1".into(), from: ann(), at: NOW, kind };
    store.deliver(&id, item.clone()).await.unwrap();
    let late = with_answer(epoch, 2, &answer).await;
    assert!(matches!(late, Err(StoreError::AlreadyAnswered { .. })), "{late:?}");
    assert!(store.standing().await.unwrap().is_empty(), "no answer was written, so nothing begins");
    // What is in an inbox is kept together as well, and begins only with the write that takes it up.
    assert_eq!(store.inbox(&id, InboxFilter::Control).await.unwrap(), [item]);
    let stored = match store.inbox(&id, InboxFilter::All).await.unwrap().remove(0).kind {
        InboxKind::Answer { standing, .. } => standing,
        _ => None,
    };
    let stored = stored.expect("the standing approval of the stored answer");
    let taken = ["l1".into()];
    let write = Batch { standing: Some(&stored), take: &taken, ..batch(&id, epoch, 2, &answer) };
    store.append(write).await.unwrap();
    with_answer(epoch, 3, &[event(4, approved("c2"))]).await.unwrap();
    let begun: Vec<_> = store.standing().await.unwrap().into_iter().map(|approval| approval.id).collect();
    assert_eq!(begun, ["s2".into(), "s1".into()]);
}

/// A call that runs by a standing approval.
fn used(seq: u64, approval: &str, at: Timestamp) -> Arc<Event> {
    let (decision, by) = (Resolved::Approved, Author::User("ann".into()));
    let evidence = Evidence { standing: Some(approval.into()), ..Evidence::default() };
    let kind = EventKind::Resolution {
        call: format!("c{seq}").as_str().into(),
        decision,
        by,
        reason: None,
        evidence: Box::new(evidence),
    };
    Arc::new(Event { seq, turn: "t1".into(), at, kind })
}

pub(super) async fn a_use_of_a_standing_approval_is_counted_in_the_write_that_is_its_evidence(store: SharedStore) {
    let (giver, epoch) = opened(&store).await;
    let approval = |name: &str, uses_left| StandingApproval { uses_left, ..standing(name) };
    give(&store, &giver, epoch, &approval("s1", Some(7))).await;
    give(&store, &giver, epoch, &approval("s2", None)).await;
    assert_eq!(store.standing().await.unwrap(), [approval("s1", Some(7)), approval("s2", None)]);
    let refused = |told: &Result<(), StoreError>| matches!(told, Err(StoreError::StandingEnded { .. }));
    // Of many conversations at once as many use it as may, and only their logs say so.
    let mut claimed = Vec::new();
    for number in 0..20 {
        let id = id(&format!("u{number}"));
        store.open(&id, &ann(), NOW).await.unwrap();
        claimed.push((claim(&store, &id, "w", NOW).await.unwrap().epoch, id));
    }
    let event = [used(1, "s1", NOW)];
    let uses = claimed.iter().map(|(epoch, id)| store.append(batch(id, *epoch, 0, &event)));
    let told = join_all(uses).await;
    assert!(told.iter().all(|told| told.is_ok() || refused(told)), "{told:?}");
    for ((_, id), told) in claimed.iter().zip(&told) {
        assert_eq!(store.log(id, 1, 9).await.unwrap().len(), usize::from(told.is_ok()));
    }
    assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 7);
    assert_eq!(store.standing().await.unwrap()[0].uses_left, Some(0));
}

pub(super) async fn a_write_that_is_refused_uses_no_standing_approval(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    give(&store, &id, epoch, &StandingApproval { uses_left: Some(2), ..standing("s1") }).await;
    let left = async || store.standing().await.unwrap()[0].uses_left;
    let refused = |told: Result<(), StoreError>| matches!(told, Err(StoreError::StandingEnded { .. }));
    let misplaced = store.append(batch(&id, epoch, 4, &[used(5, "s1", NOW)])).await;
    assert!(matches!(misplaced, Err(StoreError::WrongSeq { .. })), "{misplaced:?}");
    let thrice = [used(1, "s1", NOW), used(2, "s1", NOW), used(3, "s1", NOW)];
    assert!(refused(store.append(batch(&id, epoch, 0, &thrice)).await), "two uses are left, not three");
    assert!(refused(store.append(batch(&id, epoch, 0, &[used(1, "s1", NOW), used(2, "other", NOW)])).await));
    assert_eq!((left().await, store.log(&id, 1, 9).await.unwrap().len()), (Some(2), 0));
    assert!(refused(store.append(batch(&id, epoch, 0, &[used(1, "s1", later(LEASE))])).await), "it has expired");
    store.append(batch(&id, epoch, 0, &thrice[..2])).await.unwrap();
    assert_eq!(left().await, Some(0));
    assert!(store.revoke_standing("s1").await.unwrap());
    assert!(refused(store.append(batch(&id, epoch, 2, &[used(3, "s1", NOW)])).await), "it is revoked");
    assert!(!store.revoke_standing("s1").await.unwrap());
}

pub(super) async fn jobs_stay_until_they_are_settled(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let (ended, aside, other) =
        (job("memory", JobKind::Ended), job("memory", JobKind::Background), job("other", JobKind::Background));
    let jobs = vec![ended.clone(), aside.clone(), other.clone()];
    let events = [said("t1", 1)];
    store.append(Batch { jobs, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [ended.clone(), aside.clone(), other.clone()]);
    store.settle_job(&id, ended.clone(), JobDisposition::Remove).await.unwrap();
    let failed = Job { tries: 3, error: Some("no luck".to_owned()), due: None, ..aside };
    store.settle_job(&id, failed.clone(), JobDisposition::Keep).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [failed.clone(), other.clone()]);
    store.settle_job(&id, ended, JobDisposition::Keep).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [failed.clone(), other.clone()], "what is gone stays gone");
    store.append(Batch { done: &[other], ..batch(&id, epoch, 1, &[]) }).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap(), [failed]);
}

pub(super) async fn a_job_is_taken_by_one_until_its_hold_lapses(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let (now, soon) = (job("now", JobKind::Background), Job { due: Some(later(LEASE)), ..job("soon", JobKind::Ended) });
    let parked = Job { due: None, ..job("parked", JobKind::Background) };
    let (jobs, job_lease, events) = (vec![now.clone(), soon, parked], LEASE / 3, [said("t1", 1)]);
    store.append(Batch { jobs, job_lease, lease: Lease::Release, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    let take = async |at| taken(&store, &id, at).await.map(|job| (job.hook.to_string(), job.tries));
    assert_eq!(take(NOW).await, None, "whoever wrote them holds them");
    assert_eq!(take(later(LEASE / 3)).await, Some(("now".to_owned(), 2)));
    assert_eq!(take(later(LEASE / 2)).await, None);
    assert_eq!(take(later(LEASE * 2)).await, Some(("now".to_owned(), 3)), "the oldest first");
    assert_eq!(take(later(LEASE * 2)).await, Some(("soon".to_owned(), 2)));
    assert_eq!(take(later(LEASE * 2)).await, None);
    store.settle_job(&id, Job { due: Some(later(LEASE * 2)), ..now.clone() }, JobDisposition::Keep).await.unwrap();
    assert!(take(later(LEASE * 2)).await.is_some(), "whoever settles a job no longer holds it");
}

pub(super) async fn what_nobody_does_is_due(store: SharedStore) {
    let due = async |at| store.due(at, None, 9).await.unwrap();
    let (id, mut epoch) = opened(&store).await;
    let until = later(LEASE * 2);
    for (status, now, then) in [
        (ConversationStatus::Idle, false, false),
        (ConversationStatus::Running, true, true),
        (ConversationStatus::Waiting { until }, false, true),
    ] {
        let batch = Batch { status: Some(status), lease: Lease::Release, ..batch(&id, epoch, 0, &[]) };
        store.append(batch).await.unwrap();
        assert_eq!(due(NOW).await.len(), usize::from(now), "{status:?}");
        assert_eq!(due(until).await.len(), usize::from(then), "{status:?}");
        assert_eq!(store.list().await.unwrap()[0].status, status);
        epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
        assert!(due(NOW).await.is_empty(), "somebody does it");
    }
    assert_eq!(due(until).await, [id], "its writer is gone");
}

pub(super) async fn inbox_items_and_jobs_are_due(store: SharedStore) {
    let due = async |at| store.due(at, None, 9).await.unwrap().len();
    let (id, epoch) = opened(&store).await;
    let waiting = Some(ConversationStatus::Waiting { until: later(LEASE * 9) });
    let batch = batch(&id, epoch, 0, &[]);
    store.append(Batch { status: waiting, lease: Lease::Release, ..batch }).await.unwrap();
    store.deliver(&id, message("t2")).await.unwrap();
    assert_eq!(due(NOW).await, 0, "a message behind a turn that waits must wait");
    let kind = InboxKind::Cancel { turn: "t1".into() };
    store.deliver(&id, InboxItem { id: "l_1".into(), from: ann(), at: NOW, kind }).await.unwrap();
    assert_eq!(due(NOW).await, 1);
    let epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
    let (jobs, take) = (vec![job("memory", JobKind::Background)], ["t2".into(), "l_1".into()]);
    let (status, lease, events) = (Some(ConversationStatus::Idle), Lease::Release, [said("t1", 1)]);
    let batch = Batch { jobs, take: &take, status, lease, job_lease: LEASE, ..self::batch(&id, epoch, 0, &events) };
    store.append(batch).await.unwrap();
    assert_eq!(due(NOW).await, 0, "whoever wrote the job holds it");
    assert_eq!(due(later(LEASE)).await, 1);
}

pub(super) async fn of_what_is_due_no_more_is_given_than_asked_and_nothing_of_sub_agents(store: SharedStore) {
    for name in ["a", "b", "c", "a/c1"] {
        store.open(&id(name), &ann(), NOW).await.unwrap();
        store.deliver(&id(name), message("t1")).await.unwrap();
    }
    assert_eq!(store.due(NOW, None, 2).await.unwrap().len(), 2);
    assert_eq!(store.due(NOW, None, 9).await.unwrap().len(), 3);
}

pub(super) async fn orders_are_read_without_the_messages_among_them(store: SharedStore) {
    let (id, _) = opened(&store).await;
    let order = InboxItem { id: "l_1".into(), from: ann(), at: NOW, kind: InboxKind::Cancel { turn: "t1".into() } };
    for item in [message("t1"), order.clone(), message("t2")] {
        store.deliver(&id, item).await.unwrap();
    }
    let steering = message("t3").steering(Some("t1".into()));
    store.deliver(&id, steering.clone()).await.unwrap();
    let during_turn = store.inbox(&id, InboxFilter::DuringTurn).await.unwrap();
    assert_eq!(store.inbox(&id, InboxFilter::Control).await.unwrap(), during_turn[..1]);
    assert_eq!(during_turn, [order, steering]);
    assert_eq!(store.inbox(&id, InboxFilter::All).await.unwrap().len(), 4);
}

pub(super) async fn a_job_is_counted_when_it_is_taken(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let events = [said("t1", 1)];
    let batch = Batch { jobs: vec![job("memory", JobKind::Background)], ..batch(&id, epoch, 0, &events) };
    store.append(batch).await.unwrap();
    // Whoever took it before was never heard of again.
    for (number, tries) in (2..6).enumerate() {
        let at = later(LEASE * u32::try_from(number + 1).unwrap());
        assert_eq!(taken(&store, &id, at).await.unwrap().tries, tries);
        assert_eq!(store.jobs(&id).await.unwrap()[0].tries, tries, "and it stands in the store");
    }
}

pub(super) async fn a_job_that_its_writer_has_not_begun_is_free(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let free = |reminder| Job { tries: 0, reminder, ..job("memory", JobKind::Logged) };
    let later_on = Job { due: Some(later(LEASE)), ..free(Some(50)) };
    let jobs = vec![job("now", JobKind::Ended), free(None), later_on.clone()];
    let events = [said("t1", 1)];
    store.append(Batch { jobs, job_lease: LEASE / 3, ..batch(&id, epoch, 0, &events) }).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap().len(), 3, "a reminder is another job than the message");
    let hooks = ["now", "memory"]
        .map(|hook| [JobKind::Ended, JobKind::Logged].map(|kind| JobSelector { hook: hook.into(), used: None, kind }));
    let take = async |at| {
        let lease = JobLease { writer: &"w2".into(), from: at, lasts: LEASE * 9 };
        store.take_job(&id, hooks.as_flattened(), lease).await.unwrap().map(|job| (job.kind, job.reminder, job.tries))
    };
    assert_eq!(take(NOW).await, Some((JobKind::Logged, None, 1)));
    assert_eq!(take(NOW).await, None, "the other is held by its writer, and the reminder is not due");
    store.settle_job(&id, free(None), JobDisposition::Remove).await.unwrap();
    assert_eq!(take(later(LEASE / 3)).await, Some((JobKind::Ended, None, 2)));
    store.append(Batch { done: &[later_on], ..batch(&id, epoch, 1, &[]) }).await.unwrap();
    assert_eq!(store.jobs(&id).await.unwrap().len(), 1);
    assert_eq!(take(later(LEASE)).await, None, "a reminder that is done with is gone");
}

pub(super) async fn a_job_is_left_to_those_who_have_its_hook(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let (first, second) = (job("other", JobKind::Background), job("memory", JobKind::Background));
    let events = [said("t1", 1)];
    store.append(Batch { jobs: vec![first.clone(), second], ..batch(&id, epoch, 0, &events) }).await.unwrap();
    let lease = JobLease { writer: &"w2".into(), from: later(LEASE), lasts: LEASE };
    let hook = |hook: &str, kind| JobSelector { hook: hook.into(), used: None, kind };
    assert!(store.take_job(&id, &[], lease).await.unwrap().is_none());
    let wrong_kind = [hook("other", JobKind::Ended), hook("memory", JobKind::Ended)];
    assert!(store.take_job(&id, &wrong_kind, lease).await.unwrap().is_none());
    let taken = store.take_job(&id, &[hook("memory", JobKind::Background)], lease).await.unwrap();
    assert_eq!(taken.unwrap().hook, "memory".into());
    assert_eq!(store.jobs(&id).await.unwrap()[0], first, "neither counted nor held");
    assert!(store.take_job(&id, &[hook("other", JobKind::Background)], lease).await.unwrap().is_some());
    let named = |used: &str| JobSelector { used: Some(used.into()), ..hook("lint", JobKind::Background) };
    let jobs = vec![Job { used: Some("lint".into()), ..job("lint", JobKind::Background) }];
    store.append(Batch { jobs, ..batch(&id, epoch, 1, &[]) }).await.unwrap();
    let lease = JobLease { from: later(LEASE * 3), ..lease };
    assert!(store.take_job(&id, &[named("command")], lease).await.unwrap().is_none(), "another hook of the same name");
    assert!(store.take_job(&id, &[named("lint")], lease).await.unwrap().is_some());
}

pub(super) async fn what_is_due_is_read_on_behind_the_last(store: SharedStore) {
    for name in ["b", "e", "a", "d", "c"] {
        store.open(&id(name), &ann(), NOW).await.unwrap();
        store.deliver(&id(name), message("t1")).await.unwrap();
    }
    let (mut last, mut seen) = (None, Vec::new());
    loop {
        let due = store.due(NOW, last.as_ref(), 2).await.unwrap();
        let Some(end) = due.last() else { break };
        last = Some(end.clone());
        seen.extend(due.into_iter().map(|id| id.to_string()));
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
}

pub(super) async fn jobs_of_sub_agents_are_found_from_above(store: SharedStore) {
    for name in ["a", "a/c1", "a/c1/c2", "a/c3", "ab", "ab/c1"] {
        let id = id(name);
        store.open(&id, &ann(), NOW).await.unwrap();
        let epoch = claim(&store, &id, "w", NOW).await.unwrap().epoch;
        let due = (name != "a/c3").then_some(NOW);
        let jobs =
            if name.contains('/') { vec![Job { due, ..job("memory", JobKind::Background) }] } else { Vec::new() };
        let events = [said("t1", 1)];
        let batch = Batch { jobs, lease: Lease::Release, job_lease: LEASE, ..batch(&id, epoch, 0, &events) };
        store.append(batch).await.unwrap();
    }
    let below = async |name| {
        let mut found = store.sub_agents_with_jobs(&id(name)).await.unwrap();
        found.sort();
        found
    };
    assert_eq!(below("a").await, [id("a/c1"), id("a/c1/c2")], "not what is parked, and nothing of another's");
    assert_eq!(below("a/c1").await, [id("a/c1/c2")]);
    assert!(store.due(NOW, None, 9).await.unwrap().is_empty(), "whoever wrote them holds them");
    assert_eq!(store.due(later(LEASE), None, 9).await.unwrap(), [id("a"), id("ab")]);
}

pub(super) async fn a_list_says_who_is_at_work(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    assert_eq!(store.list().await.unwrap()[0].claimed_until, Some(later(LEASE)));
    store.append(Batch { lease: Lease::Release, ..batch(&id, epoch, 0, &[]) }).await.unwrap();
    assert_eq!(store.list().await.unwrap()[0].claimed_until, None);
}
