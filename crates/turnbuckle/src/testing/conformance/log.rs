//! Promises about what is written: all of it or nothing, in order, and read back as it was.

use super::*;
use crate::id::ItemId;
use crate::message::Usage;
use crate::store::{Calibration, Factor, KeptMessage, Summary};

pub(super) async fn a_write_at_a_wrong_seq_is_refused(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    store.append(batch(&id, epoch, 0, &[said("t1", 1), said("t1", 2)])).await.unwrap();
    for (expected, seq) in [(0, 1), (1, 2), (3, 4)] {
        let wrong = store.append(batch(&id, epoch, expected, &[said("t1", seq)])).await;
        assert!(matches!(wrong, Err(StoreError::WrongSeq { actual: 2, .. })), "{wrong:?}");
    }
    assert!(matches!(store.append(batch(&id, epoch, 1, &[])).await, Err(StoreError::WrongSeq { .. })));
    store.append(batch(&id, epoch, 2, &[said("t1", 3)])).await.unwrap();
}

pub(super) async fn a_write_with_a_gap_is_refused(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    for events in [vec![said("t1", 2)], vec![said("t1", 1), said("t1", 3)], vec![said("t1", 1), said("t1", 1)]] {
        let gap = store.append(batch(&id, epoch, 0, &events)).await;
        assert!(matches!(gap, Err(StoreError::WrongSeq { .. })), "{gap:?}");
    }
    assert!(store.log(&id, 1, 99).await.unwrap().is_empty());
}

pub(super) async fn the_log_is_read_back_from_any_seq(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let events: Vec<_> = (1..=5).map(|seq| said("t1", seq)).collect();
    store.append(batch(&id, epoch, 0, &events[..2])).await.unwrap();
    store.append(batch(&id, epoch, 2, &events[2..])).await.unwrap();
    assert_eq!(store.log(&id, 0, 99).await.unwrap(), events);
    for from in 1..=6 {
        assert_eq!(store.log(&id, from as u64, 99).await.unwrap(), events[from - 1..]);
    }
    assert!(store.log(&id, 99, 99).await.unwrap().is_empty());
}

pub(super) async fn the_end_of_the_log_is_read_backwards_by_tokens(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let events: Vec<_> = (1..=9).map(|seq| said("t1", seq)).collect();
    store.append(batch(&id, epoch, 0, &events)).await.unwrap();
    let each = crate::context::tokens::of_event(&events[0]);
    for (before, tokens, range) in [
        (u64::MAX, u64::MAX, 0..9),
        (10, each, 8..9),
        (10, each + 1, 7..9),
        (10, 0, 9..9),
        (5, 2 * each, 2..4),
        (3, 99 * each, 0..2),
        (1, each, 0..0),
    ] {
        let tail = store.tail(&id, before, tokens).await.unwrap();
        assert_eq!(tail, events[range.clone()], "before {before}, {tokens} tokens");
    }
}

pub(super) async fn call_ids_are_found_wherever_they_stand(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let called = |seq, call: &str| {
        let kind = EventKind::ToolCall {
            call: call.into(),
            name: "add".into(),
            arguments: Default::default(),
            executor: crate::tool::Executor::Server,
        };
        Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind })
    };
    let events = [called(1, "c1"), said("t1", 2), called(3, "c1~2")];
    store.append(batch(&id, epoch, 0, &events)).await.unwrap();
    for (call, there) in [("c1", true), ("c1~2", true), ("c1~3", false), ("c", false), ("", false)] {
        assert_eq!(store.has_call(&id, &call.into()).await.unwrap(), there, "{call:?}");
    }
}

pub(super) async fn what_stands_beside_the_log_is_put_kept_and_deleted(store: SharedStore) {
    let (id, mut epoch) = opened(&store).await;
    let first = Arc::new(scratch("t1"));
    let second = Arc::new(Scratch { touched: Vec::new(), ..scratch("t1") });
    let writes = [
        (ScratchWrite::Keep, None),
        (ScratchWrite::Put(&first), Some(&first)),
        (ScratchWrite::Keep, Some(&first)),
        (ScratchWrite::Put(&second), Some(&second)),
        (ScratchWrite::Delete, None),
    ];
    for (write, expected) in writes {
        store.append(Batch { scratch: write, ..batch(&id, epoch, 0, &[]) }).await.unwrap();
        let claim = claim(&store, &id, "w", NOW).await.unwrap();
        assert_eq!(claim.scratch.as_ref(), expected, "after {write:?}");
        assert_eq!(store.scratch(&id).await.unwrap().as_ref(), expected.map(|scratch| &**scratch), "to those who look");
        epoch = claim.epoch;
    }
}

pub(super) async fn totals_come_back_with_the_claim(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let totals = Totals { model_calls: 7, tokens: 1 << 40 };
    store.append(Batch { totals: Some(totals), ..batch(&id, epoch, 0, &[]) }).await.unwrap();
    store.append(batch(&id, epoch, 0, &[])).await.unwrap();
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().totals, totals);
}

pub(super) async fn a_title_is_set_without_a_claim_and_listed(store: SharedStore) {
    let (id, _) = opened(&store).await;
    assert_eq!(store.title(&id).await.unwrap(), None);
    for title in ["first", "second"] {
        store.set_title(&id, &title.into()).await.unwrap();
        assert_eq!(store.title(&id).await.unwrap().as_deref(), Some(title));
        let listed = store.list().await.unwrap();
        let listed = listed.iter().find(|one| one.id == id).unwrap();
        assert_eq!(listed.title.as_deref(), Some(title));
    }
}

pub(super) async fn summaries_are_added_without_a_claim_each_version_once_and_come_back_with_the_claim(
    store: SharedStore,
) {
    let (id, epoch) = opened(&store).await;
    let job = Job { tries: 0, ..job("summary", JobKind::Summary) };
    store.append(Batch { jobs: vec![job.clone()], ..batch(&id, epoch, 0, &[]) }).await.unwrap();
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().newest_summary, None);
    // Nobody needs the claim for it: another writer has it.
    store.add_summary(&id, summary(1), &job).await.unwrap();
    assert!(store.jobs(&id).await.unwrap().is_empty(), "its job goes in the same step");
    assert!(matches!(store.add_summary(&id, summary(1), &job).await, Err(StoreError::Fenced { .. })));
    store.add_summary(&id, summary(2), &job).await.unwrap();
    assert_eq!(store.summaries(&id).await.unwrap().iter().map(|one| one.version).collect::<Vec<_>>(), [1, 2]);
    let claimed = claim(&store, &id, "w", NOW).await.unwrap();
    assert_eq!((claimed.summary, claimed.newest_summary.as_deref()), (None, Some(&summary(2))));
    let cut = Cut { summary: Some(1), ..cut("t1", 1) };
    store.append(Batch { cut: Some(&Arc::new(cut)), ..batch(&id, claimed.epoch, 0, &[]) }).await.unwrap();
    let claimed = claim(&store, &id, "w", NOW).await.unwrap();
    assert_eq!(claimed.summary.as_deref(), Some(&summary(1)));
    assert_eq!(claimed.newest_summary.as_deref(), Some(&summary(2)));
    assert!(store.summaries(&self::id("other")).await.unwrap_or_default().is_empty());
}

fn summary(version: u32) -> Summary {
    Summary {
        version,
        last: 10 * u64::from(version),
        first_new: 1,
        turns: version,
        model: "m".into(),
        digest: "d".into(),
        text: "what happened".into(),
        cut_off: 7,
        messages: vec![KeptMessage { seq: 1, text: "hi".into(), missing: 2 }],
        unquoted: 3,
        kept: vec!["fact".into()],
        unkept: 2,
        shown: "[notes]".into(),
        calls: 1,
        usage: Usage { input: 10, output: 5, ..Usage::default() },
        cost: 0.5,
        at: NOW,
    }
}

pub(super) async fn what_was_learned_about_estimates_is_kept_by_model_and_replaced(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let calibration =
        |model: &str, thousandths| Calibration { model: model.into(), factor: Factor::thousandths(thousandths) };
    for calibrations in [vec![calibration("a", 1200), calibration("b", 800)], vec![calibration("a", 1300)]] {
        store.append(Batch { calibrations: &calibrations, ..batch(&id, epoch, 0, &[]) }).await.unwrap();
    }
    let mut kept = store.calibrations().await.unwrap();
    kept.sort_by(|one, other| one.model.cmp(&other.model));
    assert_eq!(kept, [calibration("a", 1300), calibration("b", 800)]);
    // A batch that is refused writes nothing of it.
    let refused = Batch { calibrations: &[calibration("a", 500)], ..batch(&id, epoch + 1, 0, &[]) };
    assert!(store.append(refused).await.is_err());
    assert_eq!(store.calibrations().await.unwrap().len(), 2);
    assert!(store.calibrations().await.unwrap().contains(&calibration("a", 1300)));
}

pub(super) async fn cuts_are_kept_in_order_and_the_last_one_comes_back_with_the_claim(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().cut, None);
    let epoch = epoch + 1;
    let cuts = [cut("t1", 1), cut("t1", 5), cut("t2", 3)];
    for each in &cuts {
        store.append(Batch { cut: Some(&Arc::new(each.clone())), ..batch(&id, epoch, 0, &[]) }).await.unwrap();
        store.append(batch(&id, epoch, 0, &[])).await.unwrap();
    }
    assert_eq!(store.cuts(&id).await.unwrap(), cuts);
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().cut.as_deref(), Some(&cuts[2]));
    store.open(&self::id("other"), &ann(), NOW).await.unwrap();
    assert!(store.cuts(&self::id("other")).await.unwrap().is_empty());
}

pub(super) async fn records_are_kept_by_turn_in_order(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    for (turn, hooks) in [("t1", vec!["a", "c"]), ("t2", vec!["b"]), ("t1", vec!["a"])] {
        let (turn, records) = (TurnId::from(turn), hooks.into_iter().map(record).collect::<Vec<_>>());
        let batch = Batch { turn: Some(&turn), records, ..batch(&id, epoch, 0, &[]) };
        store.append(batch).await.unwrap();
    }
    assert_eq!(store.records(&id, &"t1".into()).await.unwrap(), [record("a"), record("c"), record("a")]);
    assert_eq!(store.records(&id, &"t2".into()).await.unwrap(), [record("b")]);
    assert!(store.records(&id, &"t9".into()).await.unwrap().is_empty());
}

pub(super) async fn a_refused_batch_leaves_no_trace(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    store.deliver(&id, message("t1")).await.unwrap();
    let (turn, put) = (TurnId::from("t1"), Arc::new(scratch("t1")));
    let events = [said("t1", 1), said("t1", 3)];
    for (epoch, expected_seq) in [(epoch + 1, 0), (epoch, 7), (epoch, 0)] {
        let everything = Batch {
            take: &[ItemId::of_turn(&turn)],
            scratch: ScratchWrite::Put(&put),
            records: vec![record("a")],
            turn: Some(&turn),
            cut: Some(&Arc::new(cut("t1", 1))),
            sent: Some(&Arc::new(sent("t1", 1))),
            breaks: &[cache_break("t1")],
            jobs: vec![job("memory", JobKind::Ended)],
            lease: Lease::Release,
            ..batch(&id, epoch, expected_seq, &events)
        };
        assert!(store.append(everything).await.is_err());
    }
    assert!(matches!(claim(&store, &id, "other", NOW).await, Err(StoreError::InUse { .. })), "the claim was released");
    assert!(store.log(&id, 1, 99).await.unwrap().is_empty());
    assert!(store.records(&id, &turn).await.unwrap().is_empty());
    assert!(store.cuts(&id).await.unwrap().is_empty());
    assert!(store.cache_breaks(&id).await.unwrap().is_empty());
    assert!(store.sent(&id).await.unwrap().is_none());
    assert!(store.jobs(&id).await.unwrap().is_empty());
    let claim = claim(&store, &id, "w", NOW).await.unwrap();
    assert_eq!((claim.seq, claim.inbox.len(), claim.scratch), (0, 1, None));
}

pub(super) async fn the_last_request_is_replaced_and_comes_back_with_the_claim_and_breaks_are_kept(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    assert!(claim(&store, &id, "w", NOW).await.unwrap().sent.is_none());
    let epoch = epoch + 1;
    for (seq, turn) in [(0, "t1"), (1, "t2")] {
        let (events, put) = ([said(turn, seq + 1)], Arc::new(sent(turn, seq)));
        let breaks = [cache_break(turn)];
        store.append(Batch { sent: Some(&put), breaks: &breaks, ..batch(&id, epoch, seq, &events) }).await.unwrap();
    }
    // A write without one leaves it.
    store.append(batch(&id, epoch, 2, &[said("t2", 3)])).await.unwrap();
    let expected = Some(Arc::new(sent("t2", 1)));
    assert_eq!(store.sent(&id).await.unwrap(), expected);
    assert_eq!(claim(&store, &id, "w", NOW).await.unwrap().sent, expected);
    assert_eq!(store.cache_breaks(&id).await.unwrap(), [cache_break("t1"), cache_break("t2")]);
    assert!(matches!(store.cache_breaks(&"nobody".into()).await, Err(StoreError::NotFound { .. })));
}
