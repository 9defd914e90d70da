//! The budget of a turn: who sees what is left of it, and the last answer that is given when it is used up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use turnbuckle::audit::{AuditLimits, AuditOptions};
use turnbuckle::context::Segment;
use turnbuckle::event::{Cause, EventKind};
use turnbuckle::hook::{AfterModel, BeforeAgentContext, Hook, ModelNext, OnStop, OnStopContext, guard, pre};
use turnbuckle::limits::RemainingBudget;
use turnbuckle::message::{Message, Usage};
use turnbuckle::model::{Model, ModelError, Request, Retry, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Store as _;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::testing::crash::Kit;
use turnbuckle::tool::Effect;
use turnbuckle::tools::{SubAgent, function_with_schema};
use turnbuckle::{
    Agent, AgentBuilder, BoxError, BoxFuture, Conversations, Limits, OnBudget, Outcome, OutputSchema, Reply, Scope,
    Turn, TurnReport, UserInput,
};

type Requests = Arc<Mutex<Vec<Request>>>;

/// A script whose replies have 1,000 tokens and cost a cent for each thousand. It keeps what it was sent.
#[derive(Clone)]
struct Priced {
    script: Arc<Script>,
    sent: Requests,
}

impl Priced {
    fn of(replies: impl IntoIterator<Item = ScriptReply>) -> Self {
        Self { script: Arc::new(Script::of(replies)), sent: Requests::default() }
    }

    fn last_request(&self) -> Request {
        self.sent.lock().unwrap().last().unwrap().clone()
    }

    fn calls(&self) -> usize {
        self.sent.lock().unwrap().len()
    }
}

impl Model for Priced {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.sent.lock().unwrap().push(request.clone());
        Box::pin(async move {
            let mut reply = self.script.stream(request, out).await?;
            reply.usage = Usage { input: 900, output: 100, ..Usage::default() };
            Ok(reply)
        })
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        Some(usage.total() as f64 / 100_000.0)
    }
}

fn look() -> turnbuckle::tools::FunctionTool {
    function_with_schema("look", "Looks.", json!({"type": "object"}), Effect::Pure, |_, _| async { Ok("seen") })
}

/// Calls the tool again and again, and says `text` when it is asked without tools.
fn busy(text: &str) -> Priced {
    let calls = (0..40).map(|n| {
        let mut reply = ScriptReply::calls(&format!("c{n}"), "look", json!({}));
        reply.text = Some(text.to_owned());
        reply
    });
    Priced::of(calls)
}

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits { on_budget: OnBudget::Answer, ..Limits::default() };
    change(&mut limits);
    limits
}

fn agent(model: &Priced, limits: Limits) -> AgentBuilder {
    Agent::builder("a", model.clone()).tool(look()).limits(limits)
}

async fn run(agent: AgentBuilder) -> TurnReport {
    Rig::new(agent.build().unwrap()).ended("go").await.unwrap()
}

fn last_text(request: &Request) -> String {
    request.messages.last().map(|message| message.content().text()).unwrap_or_default()
}

#[tokio::test]
async fn the_last_call_has_no_tools_and_its_answer_is_the_result() {
    let model = busy("as far as I know: 42");
    let report = run(agent(&model, limits(|limits| limits.max_model_calls = 4))).await;
    assert_eq!((report.outcome, report.model_calls), (Outcome::Exhausted, 4));
    assert_eq!(report.cause, Some(Cause::Limit { limit: "max_model_calls".into() }));
    assert_eq!(report.result.as_deref(), Some(&json!("as far as I know: 42")));
    assert_eq!(report.text(), "as far as I know: 42");
    let last = model.last_request();
    assert!(last.tools().is_empty() && last.withheld_tools().len() == 1);
    assert!(last_text(&last).contains("last reply"), "{last:?}");
    let results = last.messages.iter().filter(|message| matches!(message, Message::Result { ok: true, .. })).count();
    assert_eq!(results, 3, "what the calls before it found is in it");
}

#[tokio::test]
async fn without_the_setting_a_turn_ends_at_its_limit_as_ever() {
    let model = busy("partial");
    let report = run(agent(&model, Limits { max_model_calls: 3, ..Limits::default() })).await;
    assert_eq!((report.outcome, report.model_calls, report.result.as_deref()), (Outcome::Exhausted, 3, None));
    assert_eq!(report.text(), "");
}

#[tokio::test]
async fn tokens_and_money_stay_within_their_limits_because_the_last_price_was_kept_back() {
    for (change, name) in [
        (Box::new(|limits: &mut Limits| limits.max_tokens = 9_000) as Box<dyn Fn(&mut Limits)>, "max_tokens"),
        (Box::new(|limits: &mut Limits| limits.max_cost = 0.09), "max_cost"),
    ] {
        let model = busy("so far");
        let report = run(agent(&model, limits(|limits| change(limits)))).await;
        assert_eq!(report.outcome, Outcome::Exhausted, "{name}");
        assert_eq!(report.cause, Some(Cause::Limit { limit: name.into() }));
        assert_eq!(report.text(), "so far");
        assert!(report.usage.total() <= 9_000 && report.cost <= 0.09, "{name}: {report:?}");
        assert!(report.model_calls >= 5, "{name}: most of the budget is used: {report:?}");
    }
}

#[tokio::test]
async fn a_budget_for_one_call_gives_an_answer_at_once() {
    let model = busy("hello");
    let report = run(agent(&model, limits(|limits| limits.max_tokens = 1_500))).await;
    assert_eq!((report.outcome, report.model_calls, &*report.text()), (Outcome::Exhausted, 1, "hello"));
}

#[tokio::test]
async fn a_model_that_is_done_in_time_completes() {
    let model = Priced::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::says("done")]);
    let report = run(agent(&model, limits(|limits| limits.max_model_calls = 3))).await;
    assert_eq!((report.outcome, &*report.text(), report.result.as_deref()), (Outcome::Completed, "done", None));
}

#[tokio::test]
async fn a_last_reply_that_is_nothing_but_calls_is_no_answer() {
    let calls = (0..9).map(|n| ScriptReply::calls(&format!("c{n}"), "look", json!({})));
    let model = Priced::of(calls);
    let report = run(agent(&model, limits(|limits| limits.max_model_calls = 3))).await;
    assert_eq!((report.outcome, report.model_calls, report.result.as_deref()), (Outcome::Exhausted, 3, None));
    assert!(report.warnings.iter().any(|warning| warning.text.contains("no last answer")), "{report:?}");
}

#[tokio::test]
async fn a_model_that_fails_at_the_last_answer_leaves_the_turn_exhausted() {
    let model = Priced::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::fails(500)]);
    let report = run(agent(&model, limits(|limits| limits.max_model_calls = 2))).await;
    assert_eq!((report.outcome, report.result.as_deref()), (Outcome::Exhausted, None));
    assert!(report.warnings.iter().any(|warning| warning.text.contains("scripted")), "{report:?}");
}

/// Refuses every stop and counts how often it was asked.
struct NeverDone(Arc<AtomicU32>);

impl Hook for NeverDone {
    async fn on_stop(&self, _: &OnStopContext) -> Result<OnStop, BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(OnStop::Refuse("not yet".into()))
    }
}

#[tokio::test]
async fn guards_judge_the_last_answer_and_stop_hooks_do_not() {
    let (asked, judged) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let count = judged.clone();
    let counts = guard("counts", move |_: Turn, _: Arc<Reply>| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(AfterModel::Continue) }
    });
    let model = busy("partial");
    let agent = agent(&model, limits(|limits| limits.max_model_calls = 3));
    let report = run(agent.hook(counts).hook(NeverDone(asked.clone()))).await;
    assert_eq!((report.outcome, &*report.text()), (Outcome::Exhausted, "partial"));
    assert_eq!((asked.load(Ordering::Relaxed), judged.load(Ordering::Relaxed)), (0, 3));
}

#[tokio::test]
async fn a_last_answer_that_a_guard_sends_back_is_not_shown() {
    let picky = guard("picky", |_: Turn, reply: Arc<Reply>| async move {
        Ok(match reply.calls.is_empty() {
            true => AfterModel::Regenerate("rude".into()),
            false => AfterModel::Continue,
        })
    });
    let model = busy("a rude word");
    let mut rig = Rig::new(agent(&model, limits(|limits| limits.max_model_calls = 3)).hook(picky).build().unwrap());
    let report = rig.ended("go").await.unwrap();
    assert_eq!((report.outcome, report.result.as_deref(), report.model_calls), (Outcome::Exhausted, None, 3));
    let warned = report.warnings.iter().find(|warning| warning.hook.as_deref() == Some("picky")).unwrap();
    assert!(warned.text.contains("rude"), "{warned:?}");
    let log = rig.log().await.unwrap();
    let said = log.iter().filter(|event| matches!(event.kind, EventKind::AssistantMessage { .. })).count();
    assert_eq!(said, 2, "the third reply is not history");
}

#[tokio::test]
async fn a_guard_that_puts_calls_into_the_last_answer_runs_none() {
    let meddles = guard("meddles", |_: Turn, reply: Arc<Reply>| async move {
        let mut changed = (*reply).clone();
        if changed.calls.is_empty() {
            changed.calls.push(turnbuckle::message::ToolCall {
                call: "extra".into(),
                name: "look".into(),
                arguments: Arc::new(json!({})),
            });
        }
        Ok(AfterModel::Modify(Box::new(changed)))
    });
    let model = busy("partial");
    let report = run(agent(&model, limits(|limits| limits.max_model_calls = 3)).hook(meddles)).await;
    assert_eq!((report.outcome, report.model_calls, &*report.text()), (Outcome::Exhausted, 3, "partial"));
}

#[tokio::test]
async fn a_last_answer_has_the_shape_that_was_asked_for() {
    let schema = OutputSchema::new(json!({"type": "object", "required": ["n"]})).unwrap();
    for (text, result) in [("{\"n\": 3}", Some(json!({"n": 3}))), ("three", None)] {
        let model = Priced::of([ScriptReply::says(text), ScriptReply::says(text)]);
        let agent = agent(&model, limits(|limits| limits.max_model_calls = 1)).build().unwrap();
        let say = UserInput::new("go").with_schema(schema.clone());
        let report = Conversations::in_memory(agent).run(say, Scope::local()).await.unwrap();
        assert_eq!((report.outcome, report.result.as_deref()), (Outcome::Exhausted, result.as_ref()), "{report:?}");
        assert_eq!(report.model_calls, 1);
    }
}

/// Tries again at once, for as long as it is let.
struct Again;

impl Hook for Again {
    async fn wrap_model_call<'a>(
        &self,
        _: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        loop {
            match next.run(request, out).await {
                Err(error) if error.retry() != Retry::Never => {}
                done => return done,
            }
        }
    }
}

#[tokio::test]
async fn retries_that_use_the_calls_up_leave_the_last_one() {
    let broken = (0..3).map(|_| ScriptReply::fails(503));
    let model = Priced::of(broken.chain([ScriptReply::says("sorry, that is all")]));
    let report = run(agent(&model, limits(|limits| limits.max_model_calls = 4)).hook(Again)).await;
    assert_eq!((report.outcome, &*report.text()), (Outcome::Exhausted, "sorry, that is all"), "{report:?}");
    assert_eq!(report.model_calls, 4);
}

#[test]
fn a_last_answer_is_the_result_wherever_the_process_dies() {
    let report = Kit::new(|_| {
        let calls = (0..6).map(|n| {
            let mut reply = ScriptReply::calls(&format!("c{n}"), "look", json!({}));
            reply.text = Some("partial".to_owned());
            reply
        });
        let limits = limits(|limits| limits.max_model_calls = 3);
        Agent::builder("a", Script::of(calls)).tool(look()).limits(limits).build()
    })
    .say("go")
    .run();
    report.assert_kept();
}

#[tokio::test]
async fn a_sub_agent_leaves_its_parent_the_price_of_a_last_answer() {
    let helper_model = busy("half of it");
    let helper = Agent::builder("helper", helper_model.clone()).tool(look()).limits(limits(|_| {})).build().unwrap();
    let boss_model = Priced::of([
        ScriptReply::calls("d1", "helper", json!({"task": "work"})),
        ScriptReply::says("the helper got half"),
    ]);
    let boss = Agent::builder("boss", boss_model.clone()).tool(SubAgent::new(helper, "Helps."));
    let report = run(boss.limits(limits(|limits| limits.max_tokens = 12_000))).await;
    assert!(report.usage.total() <= 12_000, "{report:?}");
    assert_eq!(report.text(), "the helper got half", "{report:?}");
    let last = boss_model.last_request();
    let told = last.messages.iter().any(|message| {
        matches!(message, Message::Result { ok: true, content, .. } if content.text().contains("half of it")
            && content.text().contains("max_tokens"))
    });
    assert!(told, "the boss reads what the helper had: {last:?}");
    assert!(helper_model.calls() > 3);
}

#[tokio::test]
async fn what_is_left_is_seen_by_hooks_tools_and_sub_agents() {
    let seen: Arc<Mutex<Vec<(String, RemainingBudget)>>> = Arc::default();
    let note = |seen: &Arc<Mutex<Vec<_>>>, who: &str, turn: &Turn| {
        seen.lock().unwrap().push((who.to_owned(), turn.remaining_budget()));
    };
    let in_tool = seen.clone();
    let tool = function_with_schema("look", "", json!({"type": "object"}), Effect::Pure, move |turn: Turn, _| {
        note(&in_tool, "tool", &turn);
        async { Ok("seen") }
    });
    let in_hook = seen.clone();
    let hook = pre("watch", move |context: BeforeAgentContext| {
        note(&in_hook, "hook", &context);
        async { context.proceed() }
    });
    let helper = Priced::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::says("ok")]);
    let helper = Agent::builder("helper", helper).tool(tool).build().unwrap();
    let boss = Priced::of([ScriptReply::calls("d1", "helper", json!({"task": "work"})), ScriptReply::says("done")]);
    let boss = Agent::builder("boss", boss).tool(SubAgent::new(helper, "Helps.")).hook(hook);
    let report = run(boss.limits(Limits { max_tokens: 10_000, max_cost: 1.0, ..Limits::default() })).await;
    assert_eq!(report.outcome, Outcome::Completed, "{report:?}");
    let seen = seen.lock().unwrap();
    let [(_, first), (_, inside)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((first.tokens, first.cost, first.model_calls), (Some(10_000), Some(1.0), 50));
    assert_eq!((inside.tokens, inside.model_calls), (Some(8_000), 49), "its own calls, the boss's tokens");
}

#[tokio::test]
async fn the_model_is_told_what_is_left_only_if_that_was_asked_for() {
    for show_budget in [false, true] {
        let model = Priced::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::says("done")]);
        let limits = Limits { max_tokens: 50_000, show_budget, ..Limits::default() };
        let mut rig = Rig::new(agent(&model, limits).build().unwrap());
        assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
        let told: Vec<bool> = model
            .sent
            .lock()
            .unwrap()
            .iter()
            .map(|request| last_text(request).contains("left for this turn"))
            .collect();
        assert_eq!(told, [show_budget; 2]);
        if show_budget {
            assert!(last_text(&model.last_request()).contains("49 model calls, 49000 tokens"));
        }
        let history = rig.log().await.unwrap();
        assert!(!format!("{history:?}").contains("left for this turn"), "it is no history");
    }
}

#[tokio::test]
async fn a_last_answer_that_would_take_more_than_what_is_left_is_not_asked_for() {
    let large = function_with_schema("look", "Looks.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        Ok("some words of prose ".repeat(2_500))
    });
    let model = busy("too dear");
    let limits = limits(|limits| limits.max_tokens = 6_000);
    let report = run(Agent::builder("a", model.clone()).tool(large).limits(limits)).await;
    assert_eq!((report.outcome, report.model_calls, model.calls()), (Outcome::Exhausted, 1, 1));
    assert_eq!(report.cause, Some(Cause::Limit { limit: "max_tokens".into() }));
    assert_eq!(report.result, None);
    assert!(report.warnings.iter().any(|one| one.text.contains("there is no last answer")), "{:?}", report.warnings);
}

#[tokio::test]
async fn a_last_answer_breaks_no_cache_and_the_audit_has_its_tools() {
    let (model, store) = (busy("42"), MemoryStore::default());
    let audit = AuditOptions::new(AuditLimits::default(), |_| None);
    let agent = agent(&model, limits(|limits| limits.max_model_calls = 3)).build().unwrap();
    let mut rig = Rig::with(agent, store.clone(), |builder| builder.audit(audit));
    for message in ["go", "again"] {
        assert_eq!(rig.ended(message).await.unwrap().outcome, Outcome::Exhausted);
    }
    let id = rig.id.clone();
    let breaks = store.cache_breaks(&id).await.unwrap();
    assert!(breaks.iter().all(|found| found.segment != Segment::Tools), "{breaks:?}");
    let (calls, contents) = (store.audited_calls(&id).await.unwrap(), store.audit_contents(&id).await.unwrap());
    assert_eq!(calls.len(), 6);
    for (place, call) in calls.iter().enumerate() {
        let body = call.request(&contents).body;
        // The third call of each turn is the last one: the tools are there, and are said to be withheld.
        let (offered, withheld) = (&body["tools"][0]["name"], &body["withheld_tools"][0]["name"]);
        match place % 3 {
            2 => assert_eq!((withheld, offered), (&json!("look"), &json!(null)), "{body}"),
            _ => assert_eq!((offered, withheld), (&json!("look"), &json!(null)), "{body}"),
        }
    }
}
