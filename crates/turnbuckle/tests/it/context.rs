//! What contexts hold when a conversation has become too large: what is left out is recorded, and nothing else changes.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::context::CutCause;
use turnbuckle::context::plan::{Plan, Retention};
use turnbuckle::context::reducer::Reducer;
use turnbuckle::context::reducers::Window;
use turnbuckle::context::tokens;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{BeforeModelContext, pre};
use turnbuckle::hooks::Fallback;
use turnbuckle::message::Usage;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Store as _;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::trace::{trace_of_turn, trace_with_times};
use turnbuckle::{Agent, AgentBuilder, BoxFuture, ConversationId, Limits, Message, Outcome, Reply, Scope};

use crate::kit::assert_valid;

/// Answers with so many bytes that begin with the number it is given.
fn read(bytes: usize) -> FunctionTool {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    function_with_schema("read", "Reads.", schema, Effect::Pure, move |_, arguments| async move {
        let begin = format!("file {}\n", arguments["n"]);
        Ok(format!("{begin}{}", "x".repeat(bytes - begin.len())))
    })
}

/// Reads files one after the other, and then answers.
fn reads(files: usize) -> Vec<ScriptReply> {
    let call = |n| ScriptReply::calls(&format!("c{n}"), "read", json!({"n": n}));
    (0..files).map(call).chain([ScriptReply::says("done")]).collect()
}

fn limited(model: Recorder, context_tokens: u64) -> AgentBuilder {
    let limits = Limits { context_tokens, injection_reserve: context_tokens / 8, ..Limits::default() };
    Agent::builder("a", model).limits(limits)
}

fn size(request: &Request) -> u64 {
    let tools: u64 = request.tools().iter().map(tokens::of_definition).sum();
    tokens::of_text(&request.system) + tools + tokens::of_messages(&request.messages)
}

/// Every call has its result right behind it, and a user speaks first.
fn assert_pairs(messages: &[Message]) {
    assert!(matches!(messages.first(), Some(Message::User(_))));
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        match message {
            Message::Result { call, .. } => assert_eq!(open.remove(0), call.as_str()),
            Message::Assistant { calls, .. } => {
                assert!(open.is_empty());
                open = calls.iter().map(|call| call.call.to_string()).collect();
            }
            _ => assert!(open.is_empty()),
        }
    }
    assert!(open.is_empty());
}

fn results(request: &Request) -> Vec<String> {
    let result = |message: &Message| matches!(message, Message::Result { .. }).then(|| message.content().text());
    request.messages.iter().filter_map(result).collect()
}

#[tokio::test]
async fn a_turn_that_reads_twenty_files_of_50_kb_completes_in_a_window_of_32000_tokens() {
    let model = Recorder::of(Script::of(reads(20)));
    let agent = Agent::builder("a", model.clone()).tool(read(50_000)).build().unwrap();
    let mut rig = Rig::new(agent);
    let ended = rig.ended("read them").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    let log = rig.log().await.unwrap();
    assert_valid(&log);
    for (n, request) in model.requests().iter().enumerate() {
        assert_pairs(&request.messages);
        assert!(size(request) <= 32_000, "call {n} has {} tokens", size(request));
        let results = results(request);
        assert_eq!(results.len(), n, "every call keeps a result");
        if let Some(newest) = results.last() {
            assert_eq!(newest.len(), 50_000, "the model has not read the newest one yet");
        }
    }
    let last = model.requests().last().unwrap().clone();
    assert!(results(&last)[0].contains("a result of 50000 bytes, which began \"file 0\""), "{}", results(&last)[0]);
    assert!(results(&last)[0].contains("Call read again"));
    // The log has everything.
    let whole =
        |kind: &EventKind| matches!(kind, EventKind::ToolResult { content, .. } if content.text().len() == 50_000);
    assert_eq!(log.iter().filter(|event| whole(&event.kind)).count(), 20);
}

#[tokio::test]
async fn results_of_one_reply_that_are_too_large_together_are_shortened_to_both_ends() {
    for (files, bytes) in [(1, 200_000), (20, 50_000)] {
        let mut reply = ScriptReply::calls("c0", "read", json!({"n": 0}));
        for n in 1..files {
            reply = reply.and_calls(&format!("c{n}"), "read", json!({"n": n}));
        }
        let model = Recorder::of(Script::of([reply, ScriptReply::says("done")]));
        let mut rig = Rig::new(Agent::builder("a", model.clone()).tool(read(bytes)).build().unwrap());
        let ended = rig.ended("read them").await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
        let last = model.requests().last().unwrap().clone();
        assert_pairs(&last.messages);
        assert!(size(&last) <= 32_000);
        for (n, result) in results(&last).iter().enumerate() {
            assert!(result.starts_with(&format!("file {n}\nxxx")) && result.ends_with("xxx"), "{result}");
            assert!(result.contains(&format!("of {bytes} bytes. Ask read for a smaller part")), "{result}");
        }
    }
}

#[tokio::test]
async fn a_context_that_fits_is_never_cut() {
    let model = Recorder::of(Script::of(reads(4)));
    let mut rig = Rig::new(limited(model, 32_000).tool(read(20_000)).build().unwrap());
    rig.ended("read them").await.unwrap();
    assert!(rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cut_leaves_at_most_60_percent_and_the_next_calls_keep_the_prefix() {
    let model = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let mut rig = Rig::new(limited(model.clone(), 4_000).build().unwrap());
    for n in 0..60 {
        rig.ended(format!("{n} {}", "word ".repeat(100))).await.unwrap();
    }
    let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
    assert!((2..12).contains(&cuts.len()), "{} cuts", cuts.len());
    for cut in &cuts {
        assert!(cut.before > 3_100 && cut.after <= 2_100, "{cut:?}");
    }
    let requests = model.requests();
    let moved = requests.windows(2).filter(|pair| pair[0].messages[0] != pair[1].messages[0]).count();
    assert_eq!(moved, cuts.len(), "the front moves with a cut and never otherwise");
}

/// Half of the turns read files, in processes of their own if `fresh`.
async fn conversation(model: &Recorder, store: &MemoryStore, fresh: bool) -> ConversationId {
    let agent = || limited(model.clone(), 3_000).tool(read(1_500).retention(Retention::Last(2))).build().unwrap();
    let mut rig = Rig::on(agent(), store.clone());
    for n in 0..40 {
        if fresh {
            rig = Rig::on(agent(), store.clone());
        }
        let ended = rig.ended(format!("{n} {}", "word ".repeat(n * 7 % 50))).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    }
    rig.id.clone()
}

#[tokio::test]
async fn a_revived_conversation_with_stubs_sends_what_a_live_one_would() {
    let script = || {
        let turn = |n: usize| {
            let call = |k: usize| ScriptReply::calls(&format!("c{n}_{k}"), "read", json!({"n": n}));
            (0..n % 4).map(call).chain([ScriptReply::says("so ".repeat(n % 30))]).collect::<Vec<_>>()
        };
        Recorder::of(Script::of((0..40).flat_map(turn).collect::<Vec<_>>()))
    };
    let (live, revived) = (script(), script());
    let (staying, restarted) = (MemoryStore::default(), MemoryStore::default());
    let id = conversation(&live, &staying, false).await;
    conversation(&revived, &restarted, true).await;
    let sent = |model: &Recorder| model.requests().iter().map(|request| request.messages.to_vec()).collect::<Vec<_>>();
    assert_eq!(sent(&live), sent(&revived));
    let cuts = |store: MemoryStore, id: ConversationId| async move {
        let cuts = store.cuts(&id).await.unwrap();
        cuts.into_iter().map(|cut| (cut.made_at, cut.first, cut.stubs, cut.before, cut.after)).collect::<Vec<_>>()
    };
    let recorded = cuts(staying, id.clone()).await;
    assert_eq!(recorded, cuts(restarted, id).await);
    assert!(recorded.iter().any(|(_, _, stubs, ..)| !stubs.is_empty()), "no result was shortened");
    assert!(recorded.windows(2).any(|pair| pair[0].1 < pair[1].1), "no turn was left out");
    live.requests().iter().for_each(|request| assert_pairs(&request.messages));
}

#[tokio::test]
async fn results_that_a_tool_keeps_stay_whole_and_others_give_way() {
    let script = [ScriptReply::calls("c1", "keep", json!({})), ScriptReply::calls("c2", "read", json!({"n": 1}))];
    let more = reads(3).into_iter().chain([ScriptReply::says("and")]);
    let model = Recorder::of(Script::of(script.into_iter().chain(more).collect::<Vec<_>>()));
    let keep = function_with_schema("keep", "Keeps.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        Ok("k".repeat(2_000))
    });
    let agent = limited(model.clone(), 4_000).tool(read(6_000)).tool(keep.retention(Retention::Keep));
    let mut rig = Rig::new(agent.build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    let last = model.requests().last().unwrap().clone();
    let results = results(&last);
    assert_eq!(results[0], "k".repeat(2_000));
    assert!(results[1].starts_with("[left out"), "{}", results[1]);
}

/// Leaves every ended turn out.
struct ForgetAll;

impl Reducer for ForgetAll {
    fn name(&self) -> &str {
        "forget_all"
    }
    fn reduce(&self, plan: &mut Plan) {
        while plan.leave_out_oldest() {}
        assert!(!plan.leave_out_oldest(), "the open turn cannot be left out");
    }
}

/// Is broken.
struct Broken;

impl Reducer for Broken {
    fn name(&self) -> &str {
        "broken"
    }
    fn reduce(&self, _: &mut Plan) {
        panic!("out of order");
    }
}

#[tokio::test]
async fn a_reducer_of_ones_own_is_asked_and_one_that_panics_fails_no_turn() {
    let model = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let agent = limited(model.clone(), 2_000).reducer(Broken).reducer(ForgetAll).reducer(Window);
    let mut rig = Rig::new(agent.build().unwrap());
    for n in 0..20 {
        let ended = rig.ended(format!("{n} {}", "word ".repeat(100))).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    }
    let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
    assert!(!cuts.is_empty() && cuts.iter().all(|cut| cut.reducers == [Arc::from("forget_all")]), "{cuts:#?}");
    let told =
        |item: &FeedItem| matches!(item, FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("broken"));
    assert!(rig.told().iter().any(|event| told(&event.item)));
}

#[tokio::test]
async fn a_trace_tells_the_number_of_messages_that_was_sent() {
    let halt = pre("halt", |turn: BeforeModelContext| async move {
        let stop = turn.user_message().text().starts_with("stop");
        if stop { turn.halt("as asked") } else { turn.proceed() }
    })
    .every_call();
    let model = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let mut rig = Rig::new(limited(model.clone(), 2_000).hook(halt).build().unwrap());
    for n in 0..30 {
        let word = if n % 5 == 4 { "stop" } else { "go" };
        rig.ended(format!("{word} {n} {}", "word ".repeat(60))).await.unwrap();
    }
    let sent: Vec<usize> = model.requests().iter().map(|request| request.messages.len()).collect();
    let log = rig.log().await.unwrap();
    let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
    let numbers = |trace: &str| -> Vec<usize> {
        let builds = trace.lines().filter_map(|line| line.strip_prefix("build     "));
        builds.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    let trace = trace_with_times(&log, &cuts);
    assert_eq!(numbers(&trace), sent);
    assert_eq!(trace.matches("compact   ").count(), cuts.len());
    let live = turnbuckle::trace::trace_told(rig.told(), 0);
    assert_eq!(numbers(&live), sent, "live, too");
    assert_eq!(live.matches("compact   ").count(), cuts.len());
}

#[tokio::test]
async fn a_trace_tells_the_number_of_messages_after_cuts_that_other_processes_made() {
    let model = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let store = MemoryStore::default();
    let mut id = None;
    for n in 0..60 {
        let mut rig = Rig::on(limited(model.clone(), 2_000).build().unwrap(), store.clone());
        rig.id = id.get_or_insert_with(|| rig.id.clone()).clone();
        rig.ended(format!("{n} {}", "word ".repeat(60))).await.unwrap();
    }
    let id = id.unwrap();
    let (log, cuts) = (store.log(&id, 1, usize::MAX).await.unwrap(), store.cuts(&id).await.unwrap());
    assert!(cuts.len() > 1);
    let turns: Vec<_> = log.iter().filter(|event| matches!(event.kind, EventKind::UserMessage { .. })).collect();
    for (turn, request) in turns.iter().zip(model.requests()) {
        let trace = trace_of_turn(&log, &cuts, &turn.turn);
        let messages = format!("\nbuild     {} message", request.messages.len());
        assert!(trace.starts_with("accept") && trace.contains(&messages), "{messages}: {trace}");
    }
}

/// Refuses requests with more than so many tokens, as it counts them, and reports what it counted.
pub(crate) struct Narrow {
    most: u64,
    /// What it counts for one estimated token, in percent.
    percent: u64,
    says_size: bool,
    pub(crate) asked: Arc<std::sync::Mutex<Vec<u64>>>,
    window: Option<u64>,
}

impl Narrow {
    pub(crate) fn new(most: u64, percent: u64) -> Self {
        Self { most, percent, says_size: true, asked: Arc::default(), window: None }
    }
}

impl Model for Narrow {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let counted = size(request) * self.percent / 100;
        self.asked.lock().unwrap().push(counted);
        let (status, message) = (Some(400), "prompt is too long".to_owned());
        let (limit, told) = (self.says_size.then_some(self.most), self.says_size.then_some(counted));
        let usage = Usage { input: counted, output: 1, ..Usage::default() };
        Box::pin(std::future::ready(match counted > self.most {
            true => Err(ModelError::TooLong { message, status, limit, size: told }),
            false => Ok(Reply { usage, ..Reply::text("ok") }),
        }))
    }
    fn name(&self) -> &str {
        "narrow"
    }
    fn context_window(&self) -> Option<u64> {
        self.window
    }
    fn summarises(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_request_that_the_provider_finds_too_long_is_made_smaller_and_sent_once_more() {
    for says_size in [true, false] {
        let model = Narrow { says_size, ..Narrow::new(3_000, 160) };
        let asked = model.asked.clone();
        let limits = Limits { context_tokens: 4_000, injection_reserve: 0, ..Limits::default() };
        let mut rig = Rig::new(Agent::builder("a", model).limits(limits).build().unwrap());
        let mut told = Vec::new();
        for n in 0..30 {
            let ended = rig.ended(format!("{n} {}", "word ".repeat(140))).await.unwrap();
            assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
            told.extend(ended.warnings);
        }
        let refused = asked.lock().unwrap().iter().filter(|counted| **counted > 3_000).count();
        assert!((1..=4).contains(&refused), "a cut leaves room for some turns: {refused} times");
        assert_eq!(told.len(), refused, "each time it is told");
        assert!(told[0].text.contains("made smaller"), "{}", told[0].text);
        let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
        assert_eq!(cuts.iter().filter(|cut| cut.cause == CutCause::Refused).count(), refused);
        let trace = trace_with_times(&rig.log().await.unwrap(), &cuts);
        assert!(trace.contains("the provider had said that the request was too long"), "{trace}");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_made_small_enough_fails_after_one_more_attempt() {
    let model = Narrow::new(10, 100);
    let asked = model.asked.clone();
    let mut rig = Rig::new(Agent::builder("a", model).build().unwrap());
    let ended = rig.ended("word ".repeat(100)).await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    let cause = serde_json::to_value(ended.cause).unwrap();
    assert_eq!(cause, json!({"kind": "model", "status": 400, "error": "too_long"}));
    assert_eq!((asked.lock().unwrap().len(), ended.model_calls), (2, 2));
}

#[tokio::test]
async fn what_the_provider_counts_corrects_the_next_cut_and_moves_nothing_before() {
    let store = MemoryStore::default();
    let agent = || {
        let limits = Limits { context_tokens: 4_000, injection_reserve: 0, ..Limits::default() };
        Agent::builder("a", Narrow::new(u64::MAX, 150)).limits(limits).build().unwrap()
    };
    let mut rig = Rig::on(agent(), store.clone());
    for n in 0..60 {
        rig.ended(format!("{n} {}", "word ".repeat(100))).await.unwrap();
    }
    let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
    assert!(cuts.len() >= 2, "{}", cuts.len());
    for cut in &cuts {
        assert!((1_450..1_520).contains(&cut.factor.as_thousandths()), "{cut:?}");
        // By the provider's count, contexts are cut when they come near the limit and not long before.
        assert!((3_000..4_000).contains(&cut.before), "{cut:?}");
    }
    // Another process begins with what this one learned.
    let calibrations = store.calibrations().await.unwrap();
    assert_eq!((calibrations.len(), &*calibrations[0].model), (1, "narrow"));
    assert!((1_450..1_520).contains(&calibrations[0].factor.as_thousandths()), "{calibrations:?}");
}

#[test]
fn contexts_hold_three_quarters_of_a_window_that_is_known() {
    let built = |window, context_tokens| {
        let model = Narrow { window, ..Narrow::new(0, 100) };
        let limits = Limits { context_tokens, ..Limits::default() };
        Agent::builder("a", model).limits(limits).build().unwrap().limits().context_tokens
    };
    assert_eq!(built(None, 0), 32_000);
    assert_eq!(built(None, 500_000), 500_000);
    assert_eq!(built(Some(200_000), 0), 150_000);
    assert_eq!(built(Some(200_000), 60_000), 60_000);
    assert_eq!(built(Some(200_000), 190_000), 150_000);
}

#[tokio::test]
async fn a_fallback_model_with_a_smaller_window_is_handed_a_context_that_it_takes() {
    let small = Narrow { window: Some(4_000), ..Narrow::new(4_000, 100) };
    let asked = small.asked.clone();
    let broken = Recorder::of(Script::of(std::iter::repeat_n(ScriptReply::fails(500), 99)));
    let limits = Limits { context_tokens: 20_000, injection_reserve: 0, ..Limits::default() };
    let store = MemoryStore::default();
    let well = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let mut rig = Rig::on(Agent::builder("a", well).limits(limits.clone()).build().unwrap(), store.clone());
    for n in 0..40 {
        rig.ended(format!("{n} {}", "word ".repeat(300))).await.unwrap();
    }
    let agent = Agent::builder("a", broken).limits(limits).hook(Fallback::to([Arc::new(small) as _]).unwrap());
    let mut rig = Rig::on(agent.build().unwrap(), store);
    let ended = rig.ended("go on").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "it was not asked what it could not take");
    assert!((500..=3_000).contains(&asked[0]), "{asked:?}");
}

#[tokio::test]
async fn what_each_call_was_sent_can_be_rebuilt_from_log_and_cuts() {
    let (model, store) = (Recorder::of(Script::of((0..40).flat_map(|_| reads(2)))), MemoryStore::default());
    let id = conversation(&model, &store, false).await;
    let (log, cuts) = (store.log(&id, 1, usize::MAX).await.unwrap(), store.cuts(&id).await.unwrap());
    assert!(!cuts.is_empty());
    let rebuilt = crate::kit::rebuilt(&log, &cuts);
    let sent = model.requests();
    assert_eq!(rebuilt.len(), sent.len());
    for ((call, messages), request) in rebuilt.iter().zip(&sent) {
        assert_eq!(call.messages, request.messages.len());
        assert_eq!(**messages, *request.messages, "call {} of {}", call.number, call.turn);
    }
}
