//! Summaries whose model fails: tries are minutes apart, what they took is kept, and a larger part is tried again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnbuckle::audit::{AuditLimits, AuditOptions};
use turnbuckle::context::tokens;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{BeforeCompaction, BeforeCompactionContext, Hook};
use turnbuckle::message::Usage;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{OnExhausted, Script};
use turnbuckle::store::{CallPurpose, Job, JobKind, Store as _};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, BoxError, BoxFuture, Limits, Outcome, Reply};

/// How a call of [`Unsteady`] goes.
#[derive(Clone, Copy)]
enum Answer {
    Notes,
    /// Nothing, which is no summary, and costs.
    Nothing,
    /// Status 429, with a wait in seconds.
    Later(u64),
    /// No answer at all.
    Never,
}

/// Answers its n-th call as planned; then as the last one says.
#[derive(Clone)]
struct Unsteady {
    plan: Arc<Vec<Answer>>,
    asked: Arc<AtomicUsize>,
    sizes: Arc<Mutex<Vec<u64>>>,
    window: Option<u64>,
}

impl Unsteady {
    fn new(plan: impl Into<Vec<Answer>>) -> Self {
        Self { plan: Arc::new(plan.into()), asked: Arc::default(), sizes: Arc::default(), window: None }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Model for Unsteady {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let nth = self.asked.fetch_add(1, Ordering::SeqCst);
        let size = tokens::of_text(&request.system) + tokens::of_messages(&request.messages);
        self.sizes.lock().unwrap().push(size);
        let usage = Usage { input: 100, output: 7, ..Usage::default() };
        // As long as it may be, and longer.
        let notes: String = (0..90).map(|n| format!("note {n} of {nth}\n")).collect();
        let notes = format!("## Facts\n{notes}");
        let answer = match self.plan[nth.min(self.plan.len() - 1)] {
            Answer::Notes if self.window.is_some() => Ok(Reply { usage, ..Reply::text(notes) }),
            Answer::Notes => Ok(Reply { usage, ..Reply::text("## Goal\nhunter2 and a heron") }),
            Answer::Nothing => Ok(Reply { usage, ..Reply::text(" ") }),
            Answer::Later(seconds) => Err(ModelError::Status {
                status: 429,
                message: "slow down".to_owned(),
                retry_after: Some(Duration::from_secs(seconds)),
            }),
            Answer::Never => return Box::pin(std::future::pending()),
        };
        Box::pin(std::future::ready(answer))
    }
    fn name(&self) -> &str {
        "unsteady"
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        Some(usage.input as f64 / 100.0)
    }
    fn context_window(&self) -> Option<u64> {
        self.window
    }
}

fn agent(summaries: Unsteady, context_tokens: u64) -> Agent {
    let speaker = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let limits = Limits { context_tokens, injection_reserve: 100, ..Limits::default() };
    Agent::builder("a", speaker).limits(limits).summary_model(summaries).build().unwrap()
}

async fn turn(rig: &mut Rig) {
    let ended = rig.ended(format!("hunter2 {}", "word ".repeat(150))).await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    rig.conversations.drain(Duration::from_secs(600)).await;
}

async fn summary_jobs(rig: &Rig, store: &MemoryStore) -> Vec<Job> {
    let jobs = store.jobs(&rig.id).await.unwrap();
    jobs.into_iter().filter(|job| job.kind == JobKind::Summary).collect()
}

/// Turns until the model was asked so often.
async fn until_asked(rig: &mut Rig, model: &Unsteady, times: usize) {
    for _ in 0..600 {
        if model.asked() >= times {
            return;
        }
        turn(rig).await;
    }
    panic!("asked {} times", model.asked());
}

fn given_up(rig: &Rig) -> usize {
    let is_told = |item: &FeedItem| matches!(item, FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("left out without one"));
    rig.told().iter().filter(|told| is_told(&told.item)).count()
}

#[tokio::test]
async fn tries_are_apart_a_wait_that_the_provider_asks_for_is_kept_and_giving_up_is_told_once() {
    let (model, store) = (Unsteady::new([Answer::Later(600), Answer::Nothing]), MemoryStore::default());
    let mut rig = Rig::on(agent(model.clone(), 20_000), store.clone());
    until_asked(&mut rig, &model, 1).await;
    rig.clock.advance(Duration::from_secs(590));
    turn(&mut rig).await;
    assert_eq!(model.asked(), 1, "the provider wants to be left alone for ten minutes");
    rig.clock.advance(Duration::from_secs(11));
    turn(&mut rig).await;
    assert_eq!(model.asked(), 2);
    rig.clock.advance(Duration::from_secs(60));
    turn(&mut rig).await;
    assert_eq!((model.asked(), given_up(&rig)), (2, 0), "the wait grows");
    rig.clock.advance(Duration::from_secs(240));
    turn(&mut rig).await;
    assert_eq!((model.asked(), given_up(&rig)), (3, 1));
    let jobs = summary_jobs(&rig, &store).await;
    assert!(jobs.len() == 1 && jobs[0].due.is_none() && jobs[0].tries == 3, "{jobs:?}");
    rig.clock.advance(Duration::from_secs(3_600));
    turn(&mut rig).await;
    assert_eq!((model.asked(), given_up(&rig)), (3, 1), "nothing new to try, nothing new to tell");
}

#[tokio::test]
async fn a_larger_part_is_tried_again_and_what_failed_tries_took_is_the_summarys_cost() {
    let plan = [Answer::Nothing, Answer::Nothing, Answer::Nothing, Answer::Notes];
    let (model, store) = (Unsteady::new(plan), MemoryStore::default());
    let mut rig = Rig::on(agent(model.clone(), 4_000), store.clone());
    for times in 1..=3 {
        until_asked(&mut rig, &model, times).await;
        rig.clock.advance(Duration::from_secs(3_600));
    }
    let jobs = summary_jobs(&rig, &store).await;
    let spent = jobs[0].spent.expect("what it took is kept");
    assert_eq!((spent.calls, spent.usage.input, spent.cost), (3, 300, 3.0));
    let seq = jobs[0].seq;
    until_asked(&mut rig, &model, 4).await;
    let summaries = store.summaries(&rig.id).await.unwrap();
    assert!(summaries.len() == 1 && summaries[0].last > seq, "{summaries:?}");
    let (calls, made) = (model.asked() as u64, &summaries[0]);
    assert_eq!((made.usage.input, made.usage.output), (100 * calls, 7 * calls));
    assert!((made.cost - calls as f64).abs() < 1e-9, "{}", made.cost);
    assert!(summary_jobs(&rig, &store).await.is_empty(), "the job that was given up is covered");
}

#[tokio::test]
async fn the_audit_has_what_a_summarys_model_was_sent_also_if_it_failed() {
    let (model, store) = (Unsteady::new([Answer::Later(1), Answer::Notes]), MemoryStore::default());
    let redact = |text: &str| text.contains("hunter2").then(|| text.replace("hunter2", "[redacted: password]"));
    let options = AuditOptions::new(AuditLimits::default(), redact);
    let mut rig = Rig::with(agent(model.clone(), 4_000), store.clone(), |builder| builder.audit(options));
    until_asked(&mut rig, &model, 1).await;
    rig.clock.advance(Duration::from_secs(60));
    until_asked(&mut rig, &model, 2).await;
    let (calls, contents) = (store.audited_calls(&rig.id).await.unwrap(), store.audit_contents(&rig.id).await.unwrap());
    let made: Vec<_> = calls.iter().filter(|call| call.purpose == CallPurpose::Summary).collect();
    assert_eq!(made.len(), model.asked());
    assert!(made[0].error.as_ref().unwrap().contains("slow down"), "{:?}", made[0].error);
    assert_eq!((&*made[1].model, made[1].summary, made[1].usage.input), ("unsteady", Some(1), 100));
    for call in made {
        let request = call.request(&contents);
        let text = request.body.to_string();
        assert!(request.is_complete && text.contains("You keep the notes"), "{text}");
        assert!(text.contains("[redacted: password]") && !text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn the_audit_says_of_a_reply_that_was_no_summary_why_it_was_none() {
    let (model, store) = (Unsteady::new([Answer::Nothing, Answer::Notes]), MemoryStore::default());
    let options = AuditOptions::new(AuditLimits::default(), |_: &str| None);
    let mut rig = Rig::with(agent(model.clone(), 4_000), store.clone(), |builder| builder.audit(options));
    until_asked(&mut rig, &model, 1).await;
    rig.clock.advance(Duration::from_secs(600));
    until_asked(&mut rig, &model, 2).await;
    let calls = store.audited_calls(&rig.id).await.unwrap();
    let made: Vec<_> = calls.iter().filter(|call| call.purpose == CallPurpose::Summary).collect();
    assert_eq!(made[0].error.as_deref(), Some("the model answered with nothing"));
    assert_eq!((made[0].usage.input, &made[1].error), (100, &None), "it was answered all the same");
}

#[tokio::test]
async fn what_a_summary_model_with_a_small_window_is_sent_fits_into_it() {
    let model = Unsteady { window: Some(2_048), ..Unsteady::new([Answer::Notes]) };
    let mut rig = Rig::new(agent(model.clone(), 60_000));
    until_asked(&mut rig, &model, 1).await;
    for _ in 0..600 {
        if model.asked() > 60 {
            break;
        }
        turn(&mut rig).await;
    }
    let jobs = rig.conversations.jobs(&rig.id, turnbuckle::Scope::local()).await.unwrap();
    assert!(model.asked() > 60, "the part is read in pieces: {}, {jobs:?}", model.asked());
    let largest = *model.sizes.lock().unwrap().iter().max().unwrap();
    // With notes of its own in it, and a quarter left for the reply.
    assert!((1_000..=1_536).contains(&largest), "{largest}");
}

#[tokio::test]
async fn a_summary_that_ran_out_of_time_goes_on_behind_the_pieces_that_it_has_read() {
    // Each try reads three pieces, and of the fourth one nothing is heard.
    let plan = [Answer::Notes, Answer::Notes, Answer::Notes, Answer::Never].repeat(8);
    let (model, store) = (Unsteady { window: Some(2_048), ..Unsteady::new(plan) }, MemoryStore::default());
    let mut rig = Rig::on(agent(model.clone(), 20_000), store.clone());
    let mut waited = 0;
    let made = loop {
        let ended = rig.ended(format!("hunter2 {}", "word ".repeat(150))).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        if model.asked() / 4 > waited && model.asked().is_multiple_of(4) {
            waited += 1;
            // Longer than a try may take, and then until the next one is due.
            for seconds in [121, 600] {
                rig.clock.advance(Duration::from_secs(seconds));
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
        }
        if let Some(made) = store.summaries(&rig.id).await.unwrap().pop() {
            break made;
        }
        assert!(model.asked() < 32, "asked {} times", model.asked());
    };
    assert!(waited > 3, "{waited} tries ran out of time");
    let pieces = model.asked() - waited;
    let (asked, sizes) = (model.asked() as u64, model.sizes.lock().unwrap().clone());
    assert_eq!(made.calls, asked);
    assert!(pieces < 24 && sizes.iter().all(|size| *size <= 1_536), "{pieces} pieces, {sizes:?}");
    assert_eq!(given_up(&rig), 0, "a try that came further does not count");
}

#[tokio::test]
async fn a_scripted_summary_goes_on_behind_the_replies_that_failed() {
    let text = r###"{"replies": [], "on_exhausted": "repeat", "agents": {"summary": [
        {"text": " "}, {"text": "## Goal\nthe notes"}]}}"###;
    let notes = Script::from_json(text).unwrap();
    let speaker = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let limits = Limits { context_tokens: 4_000, injection_reserve: 400, ..Limits::default() };
    let store = MemoryStore::default();
    let agent = Agent::builder("a", speaker).limits(limits).summary_model(notes).build().unwrap();
    let mut rig = Rig::on(agent, store.clone());
    for n in 0..90 {
        rig.ended(format!("message {n} {}", "word ".repeat(80))).await.unwrap();
        for _ in 0..3 {
            rig.clock.advance(Duration::from_secs(600));
            tokio::task::yield_now().await;
        }
        rig.conversations.drain(Duration::from_secs(600)).await;
    }
    let summaries = store.summaries(&rig.id).await.unwrap();
    let texts: Vec<&str> = summaries.iter().map(|summary| &*summary.text).collect();
    assert!(texts.len() > 1 && texts.iter().all(|text| *text == "## Goal\nthe notes"), "{texts:?}");
    assert!(summaries[0].calls >= 2, "the failed try counts");
}

/// Writes notes of so many facts, and of fewer when it is asked to write them again.
#[derive(Clone)]
struct Wordy {
    facts: usize,
    when_asked_again: usize,
    again: Arc<AtomicUsize>,
}

impl Model for Wordy {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let again = request.messages[0].content().text().contains("Write them again in at most");
        self.again.fetch_add(usize::from(again), Ordering::Relaxed);
        let facts = if again { self.when_asked_again } else { self.facts };
        let facts: String = (0..facts).map(|n| format!("- fact {n}: heron {n} of pond {}\n", n * 7)).collect();
        let notes = format!("## Goal\nCount herons.\n## Done\n{facts}## Facts\n- the code word is grey");
        Box::pin(std::future::ready(Ok(Reply::text(notes))))
    }
}

#[tokio::test]
async fn notes_that_are_too_long_are_asked_for_once_more_and_what_is_cut_off_of_each_section_is_told() {
    for (when_asked_again, is_cut) in [(5, false), (38, true)] {
        let speaker = Script::says(["ok"]).when_exhausted(OnExhausted::Repeat);
        let limits = Limits { context_tokens: 4_000, injection_reserve: 100, ..Limits::default() };
        let wordy = Wordy { facts: 40, when_asked_again, again: Arc::default() };
        let agent = Agent::builder("a", speaker).limits(limits).summary_model(wordy.clone()).build().unwrap();
        let store = MemoryStore::default();
        let mut rig = Rig::on(agent, store.clone());
        for n in 0..40 {
            rig.ended(format!("message {n} {}", "word ".repeat(150))).await.unwrap();
            rig.conversations.drain(Duration::from_secs(600)).await;
        }
        let summaries = store.summaries(&rig.id).await.unwrap();
        assert!(!summaries.is_empty());
        assert!(wordy.again.load(Ordering::Relaxed) >= summaries.len());
        for summary in &summaries {
            assert!(
                summary.text.contains("- fact 4") && summary.text.ends_with("- the code word is grey"),
                "{}",
                summary.text
            );
            assert!(tokens::of_text(&summary.text) <= 390, "{}", tokens::of_text(&summary.text));
            assert_eq!(summary.cut_off > 0, is_cut);
        }
        let is_told = rig.told().iter().any(|told| {
            matches!(&told.item, FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("tokens of its notes are cut off"))
        });
        assert_eq!(is_told, is_cut);
    }
}

/// Keeps a text of its own size for each summary.
struct Keeps(AtomicUsize);

impl Hook for Keeps {
    async fn before_compaction(&self, context: &mut BeforeCompactionContext) -> Result<BeforeCompaction, BoxError> {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        context.keep(format!("plan-{n}"));
        if n == 1 {
            context.keep(format!("all of it: {}", "word ".repeat(2_000)));
        }
        Ok(BeforeCompaction::Continue)
    }
}

#[tokio::test]
async fn a_text_that_a_hook_keeps_and_that_has_no_room_takes_no_other_with_it_and_is_told() {
    let speaker = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let limits = Limits { context_tokens: 4_000, injection_reserve: 100, ..Limits::default() };
    let wordy = Wordy { facts: 2, when_asked_again: 2, again: Arc::default() };
    let agent =
        Agent::builder("a", speaker.clone()).limits(limits).summary_model(wordy).hook(Keeps(AtomicUsize::new(0)));
    let store = MemoryStore::default();
    let mut rig = Rig::on(agent.build().unwrap(), store.clone());
    while store.summaries(&rig.id).await.unwrap_or_default().len() < 2 {
        rig.ended(format!("message {}", "word ".repeat(150))).await.unwrap();
        rig.conversations.drain(Duration::from_secs(600)).await;
    }
    let newest = store.summaries(&rig.id).await.unwrap().pop().unwrap();
    for kept in ["plan-0", "plan-1", "all of it: word word", "more bytes]"] {
        assert!(newest.shown.contains(kept), "{kept}: {}", newest.shown);
    }
    let is_told = rig.told().iter().any(|told| {
        matches!(&told.item, FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("1 text that hooks keep word for word had to be shortened"))
    });
    assert!(is_told);
}

#[tokio::test]
async fn contexts_without_room_for_history_have_no_summaries() {
    let speaker = Script::says(["ok"]).when_exhausted(OnExhausted::Repeat);
    // What system prompt and reserve leave is less than nothing: every turn is a cut.
    let limits = Limits { context_tokens: 4_000, injection_reserve: 2_000, ..Limits::default() };
    let wordy = Wordy { facts: 2, when_asked_again: 2, again: Arc::default() };
    let agent = Agent::builder("a", speaker).limits(limits).summary_model(wordy).system("word ".repeat(2_100));
    let store = MemoryStore::default();
    let mut rig = Rig::on(agent.build().unwrap(), store.clone());
    for n in 0..6 {
        assert_eq!(rig.ended(format!("hello {n}")).await.unwrap().outcome, Outcome::Completed);
        rig.conversations.drain(Duration::from_secs(600)).await;
    }
    assert!(store.cuts(&rig.id).await.unwrap().len() > 2);
    assert!(store.summaries(&rig.id).await.unwrap().is_empty());
    assert!(store.jobs(&rig.id).await.unwrap().is_empty());
}
