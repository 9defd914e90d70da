//! What a small real model keeps of a conversation in summaries. It takes two minutes or more, so `scripts/test` leaves it out:
//! `scripts/model-servers cargo test -p turnbuckle-models --all-features --test it -- --ignored --nocapture planted_facts`

use std::time::{Duration, Instant};

use turnbuckle::models::{OnExhausted, Script};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Limits, Scope};
use turnbuckle_models::{Key, OpenAi};

/// How long it may go on. A small model on a slow machine may not come to ten versions; what it came to is reported.
const MOST: Duration = Duration::from_secs(20 * 60);

/// Reports how many planted facts a small real model carries through ten versions of a summary. How many it keeps is the model's
/// doing and is not asserted; what users said is kept beside its notes, and that is.
#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn planted_facts_over_ten_rolls_are_counted_with_a_real_model() {
    const FACTS: usize = 10;
    let base = std::env::var("TURNBUCKLE_TEST_LLAMA").expect("run this under scripts/model-servers");
    let small = OpenAi::at(&format!("{base}/v1"), "smollm2", Some(Key::new("test"))).unwrap().max_tokens(160);
    let limits = Limits { context_tokens: 1_600, injection_reserve: 100, ..Limits::default() };
    let speaker = Script::says(["Noted."]).when_exhausted(OnExhausted::Repeat);
    let agent = Agent::builder("a", speaker).limits(limits).summary_model(small);
    let mut rig = Rig::new(agent.build().unwrap());
    let code = |n: usize| format!("heron-{}", 1_000 + n * 37);
    let (began, mut turns, mut summaries) = (Instant::now(), 0, Vec::new());
    while summaries.len() < 10 && turns < 400 && began.elapsed() < MOST {
        let message = match turns {
            turn if turn < FACTS => format!("Remember: the code of room {turn} is {}. It is needed later.", code(turn)),
            turn => format!("Message {turn}. {}", "We talked about the weather and the trains for a while. ".repeat(8)),
        };
        rig.ended(message).await.unwrap();
        rig.conversations.drain(Duration::from_secs(300)).await;
        // A try that failed is due again some minutes later.
        rig.clock.advance(Duration::from_secs(600));
        summaries = rig.conversations.summaries(&rig.id, Scope::local()).await.unwrap();
        turns += 1;
    }
    for summary in &summaries {
        let count = |text: &str| (0..FACTS).filter(|n| text.contains(&code(*n))).count();
        let (notes, shown) = (count(&summary.text), count(&summary.shown));
        println!(
            "version {}: {notes} of {FACTS} facts in the model's notes, {shown} in what contexts show",
            summary.version
        );
    }
    let jobs = rig.conversations.jobs(&rig.id, Scope::local()).await.unwrap();
    let failed: Vec<_> = jobs.iter().filter_map(|job| job.error.as_deref()).collect();
    println!("{} versions in {turns} turns and {} s; failed: {failed:?}", summaries.len(), began.elapsed().as_secs());
    let last = summaries.last().expect("no summary was made");
    assert!(last.shown.contains(&code(0)), "the first message stays word for word: {}", last.shown);
}
