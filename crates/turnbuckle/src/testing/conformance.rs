//! What every store promises, as a suite that any store can be put through.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use turnbuckle::{stores::MemoryStore, testing::conformance};
//!
//! conformance::check(|| Arc::new(MemoryStore::default())).await;
//! # });
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken promise ends the test that looked for it")]

mod answers;
mod audit;
mod claims;
mod deletion;
mod keys;
mod log;
mod work;

use std::sync::Arc;
use std::time::Duration;

use crate::cache_break::{BreakCause, CacheBreak, Repeated, Segment, SegmentMark, SentRequest};
use crate::event::{Event, EventKind};
use crate::hook::{Change, Decision, Edit, Edited, InjectedText, InjectionSpan, Point, Record};
use crate::message::Injection;
use crate::scope::Author;
use crate::store::{
    Act, ActKind, ApprovedReply, Batch, Claim, ConversationStatus, Cut, Deletion, Hold, InboxFilter, InboxItem,
    InboxKind, Job, JobDisposition, JobKind, JobLease, JobSelector, LEASE, Lease, ListPart, MAX_INBOX, PurgeLimits,
    Purged, RENEW_EVERY, Recovery, STORE_FILES, Scratch, ScratchWrite, Store, StoreError, Stub, Tombstone, Totals,
};
use crate::{Actor, BoxFuture, ConversationId, Limits, Scope, Timestamp, TurnId};

/// A store behind a pointer, as programs hold it.
pub type SharedStore = Arc<dyn Store>;
/// One promise: panics where the store, given fresh and empty, breaks it.
pub type Promise = fn(SharedStore) -> BoxFuture<'static, ()>;

macro_rules! promises {
    ($($module:ident: $($name:ident),+;)+) => {
        /// Each promise by its name: for a test each, or a report that goes on after a broken one.
        pub const PROMISES: &[(&str, Promise)] = &[$($((stringify!($name), |store| Box::pin($module::$name(store)))),+),+];
    };
}

promises! {
    answers:
        approvals_in_the_log_and_in_the_inbox_count_together,
        answers_are_written_in_the_order_in_which_they_were_stored,
        a_turn_ends_only_behind_the_stored_answers_to_its_questions,
        changed_arguments_void_approvals_and_nobody_approves_what_they_did_not_see;
    audit:
        what_was_sent_is_kept_once_and_read_back,
        what_was_sent_between_turns_is_kept_without_a_claim,
        an_audit_ends_with_its_time_and_takes_what_only_it_refers_to,
        an_audit_is_no_larger_than_it_may_be_and_the_oldest_calls_go_first,
        a_refused_batch_adds_nothing_to_the_audit,
        a_deleted_conversation_takes_its_audit_with_it;
    claims:
        a_conversation_belongs_to_whoever_opened_it_first,
        what_was_never_opened_is_not_found,
        conversations_are_listed_newest_first,
        a_part_of_the_list_is_like_the_list,
        while_a_lease_holds_no_other_writer_may_claim,
        of_many_claims_at_once_one_is_granted,
        a_lease_that_was_not_renewed_lapses,
        a_renewed_lease_holds,
        a_released_claim_is_free_at_once_and_dead,
        epochs_grow_with_every_claim_and_an_old_one_is_fenced,
        one_conversation_is_no_concern_of_another;
    deletion:
        a_deleted_conversation_is_gone_with_its_sub_agents,
        a_deletion_by_the_system_names_the_owner,
        a_deleted_id_cannot_be_used_again,
        a_writer_that_lost_its_claim_cannot_delete,
        a_writer_that_does_not_know_of_a_deletion_cannot_bring_it_back,
        a_conversation_on_hold_cannot_be_deleted_until_it_is_released,
        a_conversation_with_a_job_in_hand_is_not_deleted,
        standing_approvals_made_from_a_deleted_conversation_go_with_it,
        what_a_deletion_left_is_known_until_it_is_erased,
        unused_conversations_are_found_in_the_order_of_their_ids,
        acts_are_kept_in_their_order;
    keys:
        a_key_makes_two_messages_one_for_a_day;
    log:
        a_write_at_a_wrong_seq_is_refused,
        a_write_with_a_gap_is_refused,
        the_log_is_read_back_from_any_seq,
        the_end_of_the_log_is_read_backwards_by_tokens,
        call_ids_are_found_wherever_they_stand,
        what_stands_beside_the_log_is_put_kept_and_deleted,
        totals_come_back_with_the_claim,
        cuts_are_kept_in_order_and_the_last_one_comes_back_with_the_claim,
        the_last_request_is_replaced_and_comes_back_with_the_claim_and_breaks_are_kept,
        what_was_learned_about_estimates_is_kept_by_model_and_replaced,
        summaries_are_added_without_a_claim_each_version_once_and_come_back_with_the_claim,
        a_title_is_set_without_a_claim_and_listed,
        records_are_kept_by_turn_in_order,
        a_refused_batch_leaves_no_trace;
    work:
        a_delivered_message_stays_until_a_write_takes_it,
        an_inbox_is_full_at_its_bound_and_messages_keep_no_order_out,
        of_the_answers_to_a_call_the_first_that_is_stored_wins,
        an_answer_that_is_given_after_the_question_expired_is_refused,
        who_approved_may_change_their_mind_before_it_is_taken_up,
        a_standing_approval_is_stored_with_its_answer_or_not_at_all,
        a_use_of_a_standing_approval_is_counted_in_the_write_that_is_its_evidence,
        a_write_that_is_refused_uses_no_standing_approval,
        a_question_that_needs_two_approvals_takes_two_of_different_users,
        jobs_stay_until_they_are_settled,
        a_job_is_taken_by_one_until_its_hold_lapses,
        what_nobody_does_is_due,
        inbox_items_and_jobs_are_due,
        of_what_is_due_no_more_is_given_than_asked_and_nothing_of_sub_agents,
        orders_are_read_without_the_messages_among_them,
        a_job_is_counted_when_it_is_taken,
        a_job_that_its_writer_has_not_begun_is_free,
        a_job_is_left_to_those_who_have_its_hook,
        what_is_due_is_read_on_behind_the_last,
        jobs_of_sub_agents_are_found_from_above,
        a_list_says_who_is_at_work;
}

/// Puts a store through all promises, a fresh and empty one for each. Needs a tokio runtime.
///
/// # Panics
/// At the first promise that the store breaks; the line of the panic stands in the function that is named after it.
pub async fn check(store: impl Fn() -> SharedStore) {
    for (_, promise) in PROMISES {
        promise(store()).await;
    }
}

const NOW: Timestamp = Timestamp::from_millis(1_769_860_800_000);

fn later(wait: Duration) -> Timestamp {
    NOW.after(wait)
}

fn ann() -> Actor {
    Scope::user("ann").role("editor").actor().clone()
}

fn id(text: &str) -> ConversationId {
    text.into()
}

fn said(turn: &str, seq: u64) -> Arc<Event> {
    let kind = EventKind::UserMessage { content: format!("{turn} {seq}").into(), by: Author::User("ann".into()) };
    Arc::new(Event { seq, turn: turn.into(), at: NOW, kind })
}

fn message(turn: &str) -> InboxItem {
    InboxItem::message(&turn.into(), "hi".into(), ann(), NOW)
}

/// A cut at the second event.
fn cut(turn: &str, results: u32) -> Cut {
    let stub = |seq| Stub { seq, bytes: 9_000, attachments: 1, head: 400, tail: 100, recovery: Recovery::CallAgain };
    Cut {
        turn: turn.into(),
        made_at: 9,
        first: 2,
        stubs: (3..3 + u64::from(results)).map(stub).collect(),
        turns: 1,
        results,
        calls: 1,
        steps: 40,
        ended_steps: 3,
        left_out: vec![crate::store::LeftOutSteps {
            events: vec![(4, 6), (8, 9)],
            steps: 41,
            calls: vec![("read_file".into(), 40)],
            other_calls: 1,
            found_by: Some("search_history".into()),
        }],
        before: 40_000,
        after: 16_000,
        reducers: vec!["tool_results".into(), "window".into()],
        factor: crate::store::Factor::thousandths(1250),
        summary: None,
        cause: crate::store::CutCause::Refused,
    }
}

/// A request at this seq, with numbers as large as they can be.
fn sent(turn: &str, made_at: u64) -> SentRequest {
    let mark = |place: u32| SegmentMark {
        hash: u64::MAX - u64::from(place),
        bytes: u64::from(place) << 40,
        tokens: u64::from(place) * 1_000,
        messages: place,
        pieces: u32::MAX,
    };
    SentRequest {
        turn: turn.into(),
        made_at,
        at: NOW,
        model: "demo".into(),
        ends: [0, 1, 2, 3, 4, 5, 6, 7].map(mark),
        changed_by: Some(("clock".into(), Point::WrapModelCall)),
        injected_by: vec!["recall".into()],
        cached: 12_000,
        repeated: Some(Repeated { culprit: "clock".into(), count: 2, turn: turn.into() }),
    }
}

fn cache_break(turn: &str) -> CacheBreak {
    CacheBreak {
        turn: turn.into(),
        made_at: 9,
        segment: Segment::History,
        byte: 4_096,
        exact: false,
        kept: 900,
        lost: 3_000,
        cost: 0.0123,
        read: 800,
        input: 4_000,
        cached: 3_900,
        cause: BreakCause::Reducers { reducers: vec!["window".into()] },
        fixed: None,
    }
}

fn record(hook: &str) -> Record {
    Record {
        point: Point::OnStop,
        hook: hook.into(),
        decision: Decision::Accept,
        took: Duration::from_micros(1500),
        tokens: 3,
        shed: 1,
        call: Some("c1".into()),
        failure: None,
        reason: None,
        outcome: Some("ok".into()),
        input: Some("abc".into()),
        change: Some(Box::new(change())),
    }
}

fn change() -> Change {
    let added = |lasts, left_out| InjectedText { text: "added \u{2028} ä".into(), lasts, left_out };
    let injected = vec![added(InjectionSpan::ThisCall, false), added(InjectionSpan::NextTurn, true)];
    let (before, after) = (Some("old\0".into()), Some("new".into()));
    let edit = Edit { of: Edited::Arguments, what: Some("what".into()), before, after, hidden: true };
    Change { injected, edit: Some(edit) }
}

fn job(hook: &str, kind: JobKind) -> Job {
    let (turn, hook) = ("t1".into(), hook.into());
    Job {
        turn,
        seq: 1,
        agent: "a".into(),
        hook,
        kind,
        actor: ann(),
        tries: 1,
        error: None,
        due: Some(NOW),
        used: None,
        reminder: None,
        spent: None,
        partial: None,
    }
}

fn scratch(turn: &str) -> Scratch {
    Scratch {
        turn: turn.into(),
        actor: ann(),
        agent: "a".into(),
        model: "demo".into(),
        parts: None,
        project: "/home/ann/shop".into(),
        digest: "d".into(),
        schema: Some(Arc::new(serde_json::json!({"type": "object"}))),
        limits: Limits { max_cost: 0.5, ..Limits::default() },
        injections: Vec::new(),
        steering: vec![(7, Injection { hook: "recall".into(), content: "she likes tea".into(), tokens: 5 })],
        regeneration: None,
        asked: None,
        approved_reply: Some(ApprovedReply {
            approvals: vec![Author::Hook("policy".into())],
            calls: vec![("c1".into(), "d1".into())],
        }),
        answered_by: Vec::new(),
        answers: vec![("c1".into(), crate::store::Answer::Deny(Some("no".into())))],
        effective: Some(vec![("c2".into(), Arc::new(serde_json::json!({"to": "ann@example.com"})))]),
        touched: vec!["a.rs".to_owned()],
        active: Duration::from_millis(1234),
        worked: Duration::from_millis(5),
        unlogged: crate::limits::UsedBudget { calls: 2, cost: 0.5, ..Default::default() },
        sub_agents: vec![("c/call_1".into(), crate::limits::UsedBudget { cost: 0.25, ..Default::default() })],
        last_answer: None,
        advice: vec![("coach".into(), "shorter".into())],
        warnings: Vec::new(),
    }
}

/// A batch of these events and nothing else.
fn batch<'a>(id: &'a ConversationId, epoch: u64, expected_seq: u64, events: &'a [Arc<Event>]) -> Batch<'a> {
    Batch { events, ..Batch::new(id, epoch, expected_seq) }
}

async fn claim(store: &SharedStore, id: &ConversationId, writer: &str, now: Timestamp) -> Result<Claim, StoreError> {
    store.claim(id, &writer.into(), now).await
}

/// A conversation `c`, claimed by `w` now.
async fn opened(store: &SharedStore) -> (ConversationId, u64) {
    let id = id("c");
    store.open(&id, &ann(), NOW).await.unwrap();
    let epoch = claim(store, &id, "w", NOW).await.unwrap().epoch;
    (id, epoch)
}
