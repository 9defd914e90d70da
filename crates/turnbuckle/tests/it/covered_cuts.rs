//! What leaves a context is in the summary that stands in its place, however much of the context system prompt and tools take.

use std::time::Duration;

use turnbuckle::context::{Cut, tokens};
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{OnExhausted, Script};
use turnbuckle::store::{Store as _, Summary};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxFuture, Limits, Outcome, Reply};

const CONTEXT: u64 = 16_000;
const RESERVE: u64 = 1_000;

/// Writes as many notes as it may.
struct FullNotes;

impl Model for FullNotes {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let most = request.system.split("at most ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let most: u64 = most.parse().unwrap();
        let mut notes = "## Facts\n".to_owned();
        for n in 0.. {
            let fact = format!("- heron {n} lives at the pond of farm {}\n", n * 7);
            if tokens::of_text(&notes) + tokens::of_text(&fact) > most {
                break;
            }
            notes.push_str(&fact);
        }
        Box::pin(std::future::ready(Ok(Reply::text(notes))))
    }
}

/// A text of about so many tokens.
fn words(size: u64) -> String {
    let mut text = String::new();
    let mut n = 0_u64;
    while tokens::of_text(&text) + 8 < size {
        for _ in 0..(size / 20).max(1) {
            n += 1;
            text.push_str(if n.is_multiple_of(3) { "one " } else { "seven " });
        }
    }
    text
}

/// What a conversation came to: its cuts, its summaries, and the seqs of what users said.
struct Came {
    cuts: Vec<Cut>,
    summaries: Vec<Summary>,
    said: Vec<u64>,
    told: Vec<String>,
    /// What is three quarters of what a cut leaves beside a full summary, in hundredths of what contexts may show.
    large: f64,
}

/// A conversation of turns of so many hundredths of what contexts may show, with a system prompt of so many hundredths of the context.
async fn converse(fixed: u64, sizes: &[f64]) -> Came {
    let limits = Limits { context_tokens: CONTEXT, injection_reserve: RESERVE, ..Limits::default() };
    let speaker = Script::says(["ok"]).when_exhausted(OnExhausted::Repeat);
    let agent = Agent::builder("a", speaker).limits(limits).summary_model(FullNotes);
    let agent = agent.system(words(CONTEXT * fixed / 100)).build().unwrap();
    // Without the tenth by which estimates may be wrong.
    let room = (CONTEXT - RESERVE) * 10 / 11;
    let capacity = room - agent.fixed_tokens();
    let left = (room * 3 / 5).saturating_sub(agent.fixed_tokens()).max(capacity / 4);
    let part = |of_capacity: u64, of_left: u64| (capacity / of_capacity).min(left / of_left);
    let beside = left - part(10, 4) - part(20, 8) - part(40, 16) - 204;
    let large = 75.0 * beside as f64 / capacity as f64;
    let store = MemoryStore::default();
    let mut rig = Rig::on(agent, store.clone());
    for size in sizes {
        let message = words((capacity as f64 * size / 100.0) as u64);
        assert_eq!(rig.ended(message).await.unwrap().outcome, Outcome::Completed);
        rig.conversations.drain(Duration::from_secs(600)).await;
    }
    let cuts = store.cuts(&rig.id).await.unwrap().iter().map(|cut| Cut::clone(cut)).collect();
    let summaries = store.summaries(&rig.id).await.unwrap().iter().map(|one| Summary::clone(one)).collect();
    let log = rig.log().await.unwrap();
    let said = log.iter().filter(|event| matches!(event.kind, EventKind::UserMessage { .. })).map(|event| event.seq);
    let notice = |item: FeedItem| match item {
        FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("before there was a summary") => {
            Some(text.to_string())
        }
        _ => None,
    };
    let told = rig.told().into_iter().filter_map(|told| notice(told.item.clone())).collect();
    Came { cuts, summaries, said: said.collect(), told, large }
}

impl Came {
    /// How many messages of users each cut took that the summary which it shows does not cover.
    fn lost(&self) -> Vec<usize> {
        let covered = |cut: &Cut| {
            let shown = |version| self.summaries.iter().find(|summary| summary.version == version);
            cut.summary.and_then(shown).map_or(0, |shown| shown.last)
        };
        let gone = |cut: &Cut| self.said.iter().filter(|seq| **seq > covered(cut) && **seq < cut.first).count();
        self.cuts.iter().map(gone).collect()
    }
}

/// Numbers that look random, the same each time.
fn dice(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed * 7_919 + 17), |last| {
        Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|number| number >> 33)
    .skip(3)
}

#[tokio::test]
async fn every_turn_that_a_cut_leaves_out_is_in_the_summary_that_it_shows() {
    for fixed in [5, 25, 45] {
        for size in [1.0, 2.5, 4.0, 7.0, 12.0, 20.0, 35.0, 60.0] {
            let turns = (300.0 / size) as usize + 4;
            let came = converse(fixed, &vec![size; turns]).await;
            let lost = came.lost();
            assert!(!lost.is_empty(), "{fixed} % fixed, turns of {size} %: no cut");
            assert!(lost.iter().all(|lost| *lost == 0), "{fixed} % fixed, turns of {size} %: {lost:?}");
            assert!(came.told.is_empty(), "{:?}", came.told);
            let (cuts, made) = (lost.len(), came.summaries.len());
            assert!(made <= 3 * cuts, "{fixed} % fixed, turns of {size} %: {made} summaries for {cuts} cuts");
        }
    }
}

#[tokio::test]
async fn a_cut_loses_turns_without_a_summary_only_to_one_that_is_much_larger_than_those_before_it_and_says_so() {
    for fixed in [5, 25, 45] {
        for (seed, most) in [(1, 3), (2, 6), (3, 10), (4, 16), (5, 24), (6, 40)] {
            let sizes: Vec<f64> = dice(seed).map(|roll| 1.0 + (roll % (most * 10)) as f64 / 10.0).take(120).collect();
            let came = converse(fixed, &sizes).await;
            let lost = came.lost();
            let mut before = 0;
            for (cut, lost) in came.cuts.iter().zip(&lost) {
                // The message that made the cut necessary is the last event before it.
                let at = came.said.iter().position(|seq| *seq == cut.made_at).unwrap();
                let largest = sizes[before..at].iter().copied().fold(0.0, f64::max);
                let is_larger = sizes[at] > 1.4 * largest || sizes[at] > came.large;
                assert!(
                    *lost == 0 || is_larger,
                    "{fixed} % fixed, turns of at most {most} %: {lost} lost to {}",
                    sizes[at]
                );
                before = at;
            }
            let (cuts, made) = (lost.len(), came.summaries.len());
            assert!(made <= 4 * cuts, "{fixed} % fixed, turns of at most {most} %: {made} summaries for {cuts} cuts");
            assert_eq!(came.told.len(), lost.iter().filter(|lost| **lost > 0).count(), "{:?}", came.told);
        }
    }
    // A turn of the size that no one before had is told of.
    let came = converse(5, &[[3.0; 20].as_slice(), &[41.0]].concat()).await;
    assert!(came.lost() != [0] && came.told[0].contains("left out"), "{:?}", came.told);
}
