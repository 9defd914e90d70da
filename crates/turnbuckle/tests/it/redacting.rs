//! Redaction of what is stored: the log and every context have the redacted form of arguments, the tool gets what was meant.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::conversation::Conversations;
use turnbuckle::event::EventKind;
use turnbuckle::hook::{BeforeTool, Hook, HookExt, Settings, gate};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Answer, LEASE, Store};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{PausedClock, Recorder};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, client, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, ConversationId, Scope, TurnStatus};

/// What must not be stored.
const SECRET: &str = "s3cret";

/// Puts `[hidden]` in the place of the secret, wherever it is.
struct Hide;

fn hidden(value: &Value) -> Option<Value> {
    let text = value.to_string();
    text.contains(SECRET).then(|| serde_json::from_str(&text.replace(SECRET, "[hidden]")).unwrap())
}

impl Hook for Hide {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.redacts_arguments = true;
        settings
    }
    fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError> {
        Ok(hidden(arguments))
    }
}

/// The arguments that the tool ran with.
type Ran = Arc<Mutex<Vec<Value>>>;

fn send_tool(ran: &Ran, effect: Effect) -> FunctionTool {
    let ran = ran.clone();
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    function_with_schema("send", "Sends.", schema, effect, move |_, arguments| {
        ran.lock().unwrap().push(arguments);
        async { Ok("sent") }
    })
}

fn calling(arguments: Value) -> Script {
    Script::of([ScriptReply::calls("c1", "send", arguments), ScriptReply::says("done")])
}

fn agent(ran: &Ran) -> AgentBuilder {
    Agent::builder("a", calling(json!({"to": SECRET}))).tool(send_tool(ran, Effect::Never)).hook(Hide)
}

/// A process on the store. Its clock is past the lease of every process before it.
fn process(agent: AgentBuilder, store: &MemoryStore, clock: &PausedClock) -> Conversations {
    clock.advance(LEASE);
    Conversations::builder(agent.build().unwrap(), store.clone()).clock(Arc::new(clock.clone())).build()
}

struct World {
    store: MemoryStore,
    clock: PausedClock,
    id: ConversationId,
    ran: Ran,
}

impl World {
    fn new() -> Self {
        Self { store: MemoryStore::default(), clock: PausedClock::default(), id: "c".into(), ran: Ran::default() }
    }

    async fn turn(&self, agent: AgentBuilder) -> (Conversations, TurnStatus) {
        let conversations = process(agent, &self.store, &self.clock);
        let status = conversations.turn(&self.id, "go", Scope::local()).await.unwrap();
        (conversations, status)
    }

    /// The log, as it is stored.
    async fn log(&self) -> String {
        let log = self.store.log(&self.id, 1, usize::MAX).await.unwrap();
        serde_json::to_string(&log).unwrap()
    }

    async fn stored_nothing(&self) {
        let log = self.log().await;
        assert!(!log.contains(SECRET), "{log}");
        assert!(log.contains("[hidden]"), "{log}");
        assert!(self.store.scratch(&self.id).await.unwrap().is_none(), "the turn is over");
    }

    fn ran_with(&self, arguments: &[Value]) {
        assert_eq!(*self.ran.lock().unwrap(), arguments);
    }
}

#[tokio::test]
async fn the_log_and_the_next_context_have_the_redacted_form_and_the_tool_gets_what_was_meant() {
    let world = World::new();
    let model = Recorder::of(calling(json!({"to": SECRET})));
    let agent = Agent::builder("a", model.clone()).tool(send_tool(&world.ran, Effect::Never)).hook(Hide);
    world.turn(agent).await;
    world.ran_with(&[json!({"to": SECRET})]);
    world.stored_nothing().await;
    let second = format!("{:?}", model.requests()[1].messages);
    assert!(second.contains("[hidden]") && !second.contains(SECRET), "{second}");
    let log = world.store.log(&world.id, 1, 99).await.unwrap();
    let digests = log.iter().filter_map(|event| match &event.kind {
        EventKind::ToolStarted { digest, .. } => Some(digest.text().to_string()),
        _ => None,
    });
    let digests: Vec<String> = digests.collect();
    let plain = World::new();
    let unredacted = Agent::builder("a", calling(json!({"to": SECRET}))).tool(send_tool(&plain.ran, Effect::Never));
    plain.turn(unredacted).await;
    assert!(plain.log().await.contains(&digests[0]), "the digest is of what runs");
}

#[tokio::test]
async fn several_calls_of_several_replies_each_get_what_was_meant_for_them() {
    let world = World::new();
    let meant = |n: u32| json!({"to": format!("{SECRET} {n}")});
    let script = Script::of([
        ScriptReply::calls("c1", "send", meant(1)).and_calls("c2", "send", json!({"to": "plain"})).and_calls(
            "c3",
            "send",
            meant(3),
        ),
        ScriptReply::calls("c4", "send", meant(4)),
        ScriptReply::says("done"),
    ]);
    let agent =
        || Agent::builder("a", script.clone()).tool(send_tool(&world.ran, Effect::Never)).hook(Hide).approve(["send"]);
    let (_, mut status) = world.turn(agent()).await;
    // Each answer is given in another process.
    while let TurnStatus::Waiting(pending) = status {
        let other = process(agent(), &world.store, &world.clock);
        let call = pending[0].call.clone();
        let handle = other.resolve(&world.id, &call, Answer::Approve, None, Scope::local()).await.unwrap();
        status = handle.wait().await.unwrap();
    }
    world.ran_with(&[meant(1), json!({"to": "plain"}), meant(3), meant(4)]);
    world.stored_nothing().await;
}

#[tokio::test]
async fn an_approval_is_of_what_runs_and_its_question_has_the_redacted_form() {
    let world = World::new();
    let gated = || agent(&world.ran).approve(["send"]);
    let (_, status) = world.turn(gated()).await;
    let TurnStatus::Waiting(pending) = status else { panic!("{status:?}") };
    let asked = serde_json::to_string(&pending[0].question).unwrap();
    assert!(asked.contains("[hidden]") && !asked.contains("standing"), "{asked}");
    assert!(!world.log().await.contains(SECRET));
    // Another process has nothing but the store.
    let other = process(gated(), &world.store, &world.clock);
    let handle = other.resolve(&world.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    handle.wait().await.unwrap();
    world.ran_with(&[json!({"to": SECRET})]);
    world.stored_nothing().await;
}

#[tokio::test]
async fn arguments_that_an_approver_edits_are_redacted_as_well() {
    let world = World::new();
    let gated = || agent(&world.ran).approve(["send"]);
    let (conversations, _) = world.turn(gated()).await;
    let edited = Answer::ApproveWith(Arc::new(json!({"to": format!("ann, {SECRET}")})));
    let handle = conversations.resolve(&world.id, &"c1".into(), edited, None, Scope::local()).await.unwrap();
    handle.wait().await.unwrap();
    world.ran_with(&[json!({"to": format!("ann, {SECRET}")})]);
    world.stored_nothing().await;
}

/// Someone without the agent records an answer: the hook that redacts is not there.
#[tokio::test]
async fn an_edit_that_is_recorded_without_the_agent_is_not_in_the_log_at_all() {
    let world = World::new();
    let gated = || agent(&world.ran).approve(["send"]);
    world.turn(gated()).await;
    world.clock.advance(LEASE);
    let desk = Conversations::without_agent(world.store.clone()).clock(Arc::new(world.clock.clone())).build();
    let edited = Answer::ApproveWith(Arc::new(json!({"to": format!("bob, {SECRET}")})));
    desk.answer(&world.id, &"c1".into(), edited, None, Scope::local()).await.unwrap();
    assert!(!world.log().await.contains(SECRET));
    let own = process(gated(), &world.store, &world.clock);
    own.resume(&world.id, Scope::local()).await.unwrap().unwrap().wait().await.unwrap();
    world.ran_with(&[json!({"to": format!("bob, {SECRET}")})]);
    world.stored_nothing().await;
}

#[test]
fn a_call_that_a_crash_left_runs_again_with_what_was_meant() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let world = World::new();
    // Dropping the runtime drops everything in flight, as a crash does.
    runtime().block_on(async {
        let hangs =
            function_with_schema("send", "Sends.", json!({"type": "object"}), Effect::Idempotent, |_, _| async {
                std::future::pending::<()>().await;
                Ok("never")
            });
        let agent = Agent::builder("a", calling(json!({"to": SECRET}))).tool(hangs).hook(Hide);
        let conversations = process(agent, &world.store, &world.clock);
        conversations.send(&world.id, "go", Scope::local()).await.unwrap();
        while !world.log().await.contains("tool_started") {
            tokio::task::yield_now().await;
        }
        assert!(!world.log().await.contains(SECRET));
        let scratch = world.store.scratch(&world.id).await.unwrap().unwrap();
        assert_eq!(scratch.effective.unwrap()[0].1["to"], SECRET);
    });
    runtime().block_on(async {
        let tool = send_tool(&world.ran, Effect::Idempotent);
        let agent = Agent::builder("a", calling(json!({"to": SECRET}))).tool(tool).hook(Hide);
        let conversations = process(agent, &world.store, &world.clock);
        conversations.resume(&world.id, Scope::local()).await.unwrap().unwrap().wait().await.unwrap();
        world.ran_with(&[json!({"to": SECRET})]);
        world.stored_nothing().await;
    });
}

#[tokio::test]
async fn what_a_hook_rewrote_is_what_runs_also_if_nothing_is_left_to_redact() {
    for rewritten in [json!({"to": "nobody"}), json!({"to": format!("{SECRET} and more")})] {
        let world = World::new();
        let rewrite = rewritten.clone();
        let rewrites = gate("rewrites", move |_, _| {
            let rewrite = rewrite.clone();
            async move { Ok(BeforeTool::Rewrite(rewrite)) }
        });
        let gated = || agent(&world.ran).hook(rewrites.clone()).approve(["send"]);
        let (conversations, _) = world.turn(gated()).await;
        let handle = conversations.resolve(&world.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
        handle.unwrap().wait().await.unwrap();
        world.ran_with(&[rewritten]);
        world.stored_nothing().await;
    }
}

#[tokio::test]
async fn a_complaint_about_arguments_does_not_quote_what_is_redacted() {
    let world = World::new();
    let script = Script::of([
        ScriptReply::calls("c1", "send", json!({"to": {"not a text": SECRET}})),
        ScriptReply::says("done"),
    ]);
    world.turn(Agent::builder("a", script).tool(send_tool(&world.ran, Effect::Never)).hook(Hide)).await;
    world.ran_with(&[]);
    world.stored_nothing().await;
}

#[tokio::test]
async fn a_client_is_not_asked_to_run_what_it_could_not_be_told() {
    let world = World::new();
    let client = client("send", "Sends.", json!({"type": "object"}));
    let (_, status) = world.turn(Agent::builder("a", calling(json!({"to": SECRET}))).tool(client).hook(Hide)).await;
    assert!(matches!(status, TurnStatus::Ended(_)), "{status:?}");
    assert!(world.log().await.contains("[not run]"));
    world.stored_nothing().await;
}

#[tokio::test]
async fn a_hook_that_fails_to_redact_leaves_a_note_and_the_tool_runs() {
    struct Fails(bool);
    impl Hook for Fails {
        fn settings(&self) -> Settings {
            Hide.settings()
        }
        fn redact_arguments(&self, _: &Value) -> Result<Option<Value>, BoxError> {
            assert!(self.0, "told to panic");
            Err("out of ink".into())
        }
    }
    for fails in [true, false] {
        let world = World::new();
        let tool = send_tool(&world.ran, Effect::Never);
        let agent = Agent::builder("a", calling(json!({"to": SECRET}))).tool(tool).hook(Fails(fails));
        let (_, status) = world.turn(agent).await;
        world.ran_with(&[json!({"to": SECRET})]);
        let log = world.log().await;
        assert!(!log.contains(SECRET) && log.contains("not stored"), "{log}");
        let TurnStatus::Ended(report) = status else { panic!("{status:?}") };
        assert!(report.warnings.iter().any(|warning| warning.text.contains("failed")), "{report:?}");
    }
}

#[tokio::test]
async fn a_hook_for_other_tools_leaves_arguments_alone() {
    let world = World::new();
    let tool = send_tool(&world.ran, Effect::Never);
    let other = client("other", "Another.", json!({"type": "object"}));
    world
        .turn(
            Agent::builder("a", calling(json!({"to": SECRET}))).tool(tool).tool(other).hook(Hide.for_tools(["other"])),
        )
        .await;
    assert!(world.log().await.contains(SECRET));
}
