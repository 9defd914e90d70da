//! Whether a request begins like the one before it: breaks of the provider's prompt cache are found, placed and blamed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use turnbuckle::context::{BreakCause, CacheBreak, Segment};
use turnbuckle::hook::*;
use turnbuckle::message::Usage;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Store as _;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Limits, Message, Outcome, Reply, Turn};

use crate::kit::add;

/// A script with prices, whose provider has a cache that always holds.
struct Priced(Script);

impl Model for Priced {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.0.stream(request, out)
    }
    fn name(&self) -> &str {
        "priced"
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        let fresh = usage.input - usage.cache_read;
        Some((fresh as f64 * 3.0 + usage.cache_read as f64 * 0.3) / 1e6)
    }
}

fn script() -> Script {
    let usage = Usage { input: 4_000, output: 5, ..Usage::default() };
    let mut says = ScriptReply::says("ok");
    says.usage = usage;
    Script::of([says]).when_exhausted(OnExhausted::Repeat)
}

fn agent(model: impl Model) -> AgentBuilder {
    let limits = Limits { context_tokens: 4_000, injection_reserve: 400, ..Limits::default() };
    Agent::builder("a", model).limits(limits).system("You are careful.").tool(add())
}

async fn breaks(rig: &Rig, store: &MemoryStore) -> Vec<CacheBreak> {
    store.cache_breaks(&rig.id).await.unwrap()
}

async fn talk(rig: &mut Rig, turns: usize, words: usize) {
    for turn in 0..turns {
        let ended = rig.ended(format!("message {turn} {}", "word ".repeat(words))).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    }
}

#[tokio::test]
async fn a_conversation_without_hooks_breaks_the_cache_with_cuts_only() {
    let (store, model) = (MemoryStore::default(), Recorder::of(script()));
    let mut rig = Rig::on(agent(model.clone()).build().unwrap(), store.clone());
    talk(&mut rig, 40, 150).await;
    let (found, cuts) = (breaks(&rig, &store).await, store.cuts(&rig.id).await.unwrap());
    assert!(cuts.len() > 2);
    assert_eq!(found.len(), cuts.len());
    let fixed: usize = "You are careful.".len()
        + model.requests()[0]
            .tools()
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
            .sum::<usize>();
    let requests = model.requests();
    let broken = requests.windows(2).filter(|pair| !all(&pair[1]).starts_with(&stable(&pair[0])));
    for ((found, cut), pair) in found.iter().zip(&cuts).zip(broken) {
        assert_eq!(found.cause, BreakCause::Reducers { reducers: cut.reducers.clone() });
        // The oldest message is another one: `message 0 …` and `message 7 …` share what is before the number.
        let [before, now] = [&pair[0], &pair[1]].map(|request| request.messages[0].content().text());
        let same = before.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
        assert_eq!((found.segment, found.byte, found.exact), (Segment::History, (fixed + same) as u64, true));
        assert!(found.lost > 0 && found.made_at == cut.made_at);
    }
}

/// Puts the time of day, or what changes as often, where it does harm.
struct Clock(AtomicUsize);

impl Hook for Clock {
    async fn wrap_model_call(
        &self,
        _: &Turn,
        request: &Request,
        out: &mut dyn Sink,
        next: ModelNext<'_>,
    ) -> Result<Reply, ModelError> {
        let mut request = request.clone();
        request.system = format!("{} It is {}.", request.system, self.0.fetch_add(1, Ordering::Relaxed)).into();
        next.run(&request, out).await
    }
}

/// Passes everything on.
struct Innocent;

impl Hook for Innocent {
    async fn wrap_model_call(
        &self,
        _: &Turn,
        request: &Request,
        out: &mut dyn Sink,
        next: ModelNext<'_>,
    ) -> Result<Reply, ModelError> {
        next.run(request, out).await
    }
}

#[tokio::test]
async fn a_wrap_that_puts_the_time_into_the_system_prompt_is_named_with_the_byte_the_cost_and_a_warning() {
    let store = MemoryStore::default();
    let builder =
        agent(Priced(script())).hook(Innocent.named("before")).hook(Clock(AtomicUsize::new(10)).named("clock"));
    let mut rig = Rig::on(builder.hook(Innocent.named("behind")).build().unwrap(), store.clone());
    talk(&mut rig, 3, 20).await;
    let found = breaks(&rig, &store).await;
    assert_eq!(found.len(), 2);
    for found in &found {
        assert_eq!(found.cause, BreakCause::Hook { hook: "clock".into(), point: Point::WrapModelCall });
        assert_eq!(found.segment, Segment::System);
        assert!(found.cost > 0.0 && found.lost > 0 && found.exact, "{found:?}");
        let cost = found.lost as f64 * 2.7 / 1e6;
        assert!((found.cost - cost).abs() < 1e-9, "the difference of the two prices: {found:?}");
    }
    // Behind "It is 1", which 10, 11 and 12 share.
    assert_eq!(found[0].byte, found[1].byte);
    let report = rig.ended("once more").await.unwrap();
    let warning = report.warnings.iter().find(|warning| warning.text.contains("prompt cache broke 3 times")).unwrap();
    assert_eq!(warning.hook.as_deref(), Some("clock"));
}

#[tokio::test]
async fn what_another_process_changed_is_found_from_what_is_stored() {
    let store = MemoryStore::default();
    let mut rig = Rig::on(agent(script()).build().unwrap(), store.clone());
    talk(&mut rig, 2, 20).await;
    drop(rig);
    let mut rig = Rig::on(agent(script()).build().unwrap(), store.clone());
    talk(&mut rig, 1, 20).await;
    assert!(breaks(&rig, &store).await.is_empty(), "the same agent in another process breaks nothing");
    drop(rig);
    let mut rig = Rig::on(agent(script()).system("You are quick.").build().unwrap(), store.clone());
    talk(&mut rig, 1, 20).await;
    drop(rig);
    let found = breaks(&Rig::on(agent(script()).build().unwrap(), store.clone()), &store).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].cause, BreakCause::Setting { setting: "system".into() });
    assert_eq!((found[0].segment, found[0].exact), (Segment::System, false), "the text of then is not stored");
    let other = agent(script()).system("You are quick.").model_choice("another");
    let mut rig = Rig::on(other.build().unwrap(), store.clone());
    talk(&mut rig, 1, 20).await;
    let found = breaks(&rig, &store).await.pop().unwrap();
    assert!(matches!(&found.cause, BreakCause::Model { to, .. } if **to == *"another"), "{found:?}");
}

#[tokio::test]
async fn what_a_hook_adds_for_a_turn_costs_that_turn_and_nothing_before_it() {
    let store = MemoryStore::default();
    let recall = pre("recall", |mut turn: BeforeAgentContext| async move {
        turn.inject("what was remembered");
        turn.proceed()
    });
    let calls = json!({"a": 2, "b": 2});
    let replies =
        (0..9).flat_map(|n| [ScriptReply::calls(&format!("c{n}"), "add", calls.clone()), ScriptReply::says("4")]);
    let mut rig = Rig::on(agent(Script::of(replies)).hook(recall).build().unwrap(), store.clone());
    talk(&mut rig, 4, 5).await;
    let found = breaks(&rig, &store).await;
    assert_eq!(found.len(), 3, "once for each turn that another one follows: {found:#?}");
    for (found, turn) in found.iter().zip(0..) {
        assert_eq!(found.cause, BreakCause::TurnOver { hooks: vec!["recall".into()] });
        assert_eq!(found.segment, Segment::TurnInjections);
        assert!(found.lost < 60, "turn {turn} alone: {found:?}");
    }
    let report = rig.ended("and now?").await.unwrap();
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[tokio::test]
async fn a_provider_that_reads_less_than_it_had_is_told_apart_from_a_change() {
    let store = MemoryStore::default();
    let reply = |cache_read, cache_write| {
        let mut reply = ScriptReply::says("ok");
        reply.usage = Usage { input: 3_000, output: 5, cache_read, cache_write };
        reply
    };
    let script = Script::of([reply(0, 2_900), reply(2_900, 50), reply(0, 2_990)]);
    let mut rig = Rig::on(agent(Priced(script)).build().unwrap(), store.clone());
    talk(&mut rig, 3, 20).await;
    let found = breaks(&rig, &store).await;
    assert_eq!(found.len(), 1);
    assert!(matches!(found[0].cause, BreakCause::Provider { .. }), "{found:?}");
    assert_eq!((found[0].lost, found[0].read, found[0].cached), (2_950, 0, 2_950));
    assert!(found[0].summary().contains("the provider read 0 of 2950 cached tokens"), "{}", found[0].summary());
}

/// Changes requests in every way that a hook can, as its dice say.
struct Meddler {
    dice: Arc<AtomicUsize>,
}

impl Meddler {
    fn roll(&self, of: usize) -> bool {
        let before = self.dice.fetch_add(0x9E37_79B9, Ordering::Relaxed);
        (before.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).is_multiple_of(of)
    }
}

impl Hook for Meddler {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        if self.roll(3) {
            turn.inject("for this turn");
        }
        if self.roll(9) {
            return Ok(BeforeAgent::Halt("not this one".into()));
        }
        Ok(BeforeAgent::Continue)
    }

    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        if self.roll(3) {
            turn.inject("for this call");
        }
        if self.roll(6) {
            let messages = turn.edit_context();
            let place = messages.len() / 2;
            messages[place] = match &messages[place] {
                Message::User(_) => Message::User("edited".into()),
                Message::Result { call, name, ok, .. } => {
                    Message::Result { call: call.clone(), name: name.clone(), ok: *ok, content: "edited".into() }
                }
                other => other.clone(),
            };
        }
        Ok(BeforeModel::Continue)
    }

    async fn wrap_model_call(
        &self,
        _: &Turn,
        request: &Request,
        out: &mut dyn Sink,
        next: ModelNext<'_>,
    ) -> Result<Reply, ModelError> {
        let mut request = request.clone();
        if self.roll(7) {
            request.system = "Another prompt.".into();
        }
        if self.roll(7) {
            request.narrow_tools(|_| false);
        }
        next.run(&request, out).await
    }
}

/// The stable part of a request, piece by piece, written out.
fn stable(request: &Request) -> Vec<String> {
    let mut pieces = vec![format!("{:?}", request.tools()), request.system.to_string()];
    let end = request.segments().calls;
    for message in &request.messages[..end.messages.min(request.messages.len())] {
        pieces.push(match message {
            Message::Result { call, name, ok, .. } => format!("result {call} {name} {ok}"),
            Message::Assistant { .. } => "assistant".to_owned(),
            Message::User(_) => "user".to_owned(),
            _ => "note".to_owned(),
        });
        pieces.extend(message.content().parts().iter().map(|part| format!("{part:?}")));
        if let Message::Assistant { calls, .. } = message {
            pieces.extend(calls.iter().map(|call| format!("{call:?}")));
        }
    }
    let whole = request.messages.get(end.messages.wrapping_sub(1)).map_or(0, |last| last.content().parts().len());
    if end.parts < whole {
        pieces.truncate(pieces.len() - (whole - end.parts));
    }
    pieces
}

/// All pieces of a request.
fn all(request: &Request) -> Vec<String> {
    let mut whole = Request::of("a", (*request.messages).clone(), request.tools().iter().cloned());
    whole.system = request.system.clone();
    stable(&whole)
}

/// Whatever hooks, cuts and restarts do, a break is recorded exactly where a comparison of what was sent finds one.
#[tokio::test]
async fn breaks_are_those_that_a_comparison_of_whole_requests_finds() {
    let mut total = 0;
    for seed in 0..24 {
        let (store, dice) = (MemoryStore::default(), Arc::new(AtomicUsize::new(seed * 7_919)));
        let replies = (0..400).map(|n| match n % 3 {
            0 => ScriptReply::calls(&format!("c{n}"), "add", json!({"a": n, "b": 2})),
            _ => ScriptReply::says("word ".repeat(40)),
        });
        let model = Recorder::of(Script::of(replies));
        let build = || agent(model.clone()).hook(Meddler { dice: dice.clone() }).build().unwrap();
        let mut rig = Rig::on(build(), store.clone());
        for turn in 0..30 {
            if turn % 7 == seed % 7 {
                rig = Rig::on(build(), store.clone());
            }
            rig.ended(format!("message {turn} {}", "word ".repeat(60))).await.unwrap();
        }
        let requests = model.requests();
        let expected = requests.windows(2).filter(|pair| !all(&pair[1]).starts_with(&stable(&pair[0]))).count();
        let found = breaks(&rig, &store).await;
        assert_eq!(found.len(), expected, "seed {seed}: {found:#?}");
        assert!(!found.iter().any(|found| found.cause == BreakCause::Unknown), "seed {seed}: {found:#?}");
        total += expected;
    }
    assert!(total > 100, "{total}");
}
