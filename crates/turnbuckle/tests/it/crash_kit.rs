//! The crash kit: a careful agent passes at every boundary, and each kind of carelessness is found.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::crash::{BoundaryKind, Kit, Promise, Report, World};
use turnbuckle::tool::{Effect, Output, Reconcile};
use turnbuckle::tools::{FunctionTool, SubAgent, function_with_schema, human};
use turnbuckle::{Agent, BoxError, BoxFuture, BuildError, Reply, ToolCall, Turn};

use crate::kit::{Seen, Spy};

/// A tool that has its effect and then waits a moment; with a key it does so once.
fn acts(world: &World, name: &str, effect: Effect, by_key: bool) -> FunctionTool {
    let world = world.clone();
    function_with_schema(name, "Acts.", json!({"type": "object"}), effect, move |turn, _| {
        let world = world.clone();
        async move {
            if !(by_key && world.has_happened(&turn)) {
                world.happened(&turn, "acted").await;
            }
            tokio::task::yield_now().await;
            Ok("done")
        }
    })
}

/// Calls `tool` as c1, then says so.
fn calls(tool: &str) -> Script {
    Script::of([ScriptReply::calls("c1", tool, json!({})), ScriptReply::says("It is done.")])
}

fn one_tool(tool: FunctionTool) -> Result<Agent, BuildError> {
    Agent::builder("clerk", calls("act")).tool(tool).build()
}

fn crash(make: impl Fn(&World) -> Result<Agent, BuildError> + Send + Sync + 'static) -> Report {
    Kit::new(make).say("go").run()
}

/// Whether the world knows of a call.
struct Looks(World);
impl Reconcile for Looks {
    fn reconcile<'a>(&'a self, turn: &'a Turn, _: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
        Box::pin(async { Ok(self.0.has_happened(turn).then(|| Output::ok("done"))) })
    }
}

fn note(name: &'static str) -> impl Hook {
    background(name, |snapshot: BackgroundContext| async move {
        tokio::task::yield_now().await;
        snapshot.leave_note("She wanted a room.");
        Ok(())
    })
}

/// Everything at once: five policies, an approval, a question, a sub-agent, and hooks that refuse, regenerate, inject.
fn office(world: &World) -> Result<Agent, BuildError> {
    let inner = Agent::builder("helper", calls("act")).tool(acts(world, "act", Effect::Idempotent, true)).build()?;
    let script = Script::of([
        ScriptReply::chunks(["let ", "me see"])
            .and_calls("c1", "look", json!({}))
            .and_calls("c2", "book", json!({}))
            .and_calls("c3", "pay", json!({})),
        ScriptReply::calls("c4", "mail", json!({})).and_calls("c5", "helper", json!({"task": "help"})),
        ScriptReply::calls("c6", "print", json!({})).and_calls("c7", "ask", json!({"question": "Which room?"})),
        ScriptReply::says("rude"),
        ScriptReply::says("too early"),
        ScriptReply::says("all done"),
        ScriptReply::says("you are welcome"),
    ]);
    let recall = pre("recall", |mut turn: BeforeAgentContext| async move {
        tokio::task::yield_now().await;
        turn.inject("She likes tea.");
        turn.proceed()
    });
    let polite = guard("polite", |_: Turn, reply: Arc<Reply>| async move {
        let rude = reply.content.text() == "rude";
        Ok(if rude { AfterModel::Regenerate("be polite".into()) } else { AfterModel::Continue })
    });
    let patient = stop("patient", |turn: OnStopContext| async move {
        let early = turn.assistant_message().is_some_and(|reply| reply.content.text() == "too early");
        Ok(if early { OnStop::Refuse("not yet".into()) } else { OnStop::Accept })
    });
    let group = parallel([
        member("clock", |_| async { Ok("It is noon.") }),
        member("weather", |_| async {
            tokio::task::yield_now().await;
            Ok("It rains.")
        }),
    ]);
    Agent::builder("office", script)
        .tool(acts(world, "look", Effect::Pure, true))
        .tool(acts(world, "book", Effect::Idempotent, true))
        .tool(acts(world, "pay", Effect::Never, false).requires_approval())
        .tool(acts(world, "mail", Effect::Reconcile(Arc::new(Looks(world.clone()))), false))
        .tool(acts(world, "print", Effect::Ask, false))
        .tool(SubAgent::new(world.watch(&inner), "Helps."))
        .tool(human("ask", "Asks."))
        .hook(recall.durable())
        .hook(group)
        .hook(Spy::new("spy", &Seen::default()))
        .hook(polite)
        .hook(patient)
        .hook(note("memory"))
        .hook(post("sign", |mut turn: AfterAgentContext| async move {
            turn.set_result("signed");
            turn.proceed()
        }))
        .build()
}

fn office_kit() -> Kit {
    Kit::new(office).say("A room, please.").approve("c3").answer("c7", "room 7").say("Thank you.")
}

#[test]
fn a_careful_agent_keeps_every_promise_at_every_boundary() {
    let report = office_kit().run();
    report.assert_kept();
    let kinds = report.kinds();
    assert!(report.boundaries().len() > 300, "{report}");
    for (kind, least) in [
        (BoundaryKind::Append, 70),
        (BoundaryKind::Store, 40),
        (BoundaryKind::Model, 18),
        (BoundaryKind::Tool, 14),
        (BoundaryKind::Hook, 100),
        (BoundaryKind::Effect, 12),
        (BoundaryKind::Acknowledged, 4),
        (BoundaryKind::Wait, 20),
    ] {
        assert!(kinds.get(&kind).is_some_and(|count| *count >= least), "{kind:?}: {report}");
    }
}

#[test]
fn two_runs_of_the_kit_find_the_same() {
    let report = || crash(|world| one_tool(acts(world, "act", Effect::Idempotent, false)));
    let first = report();
    assert!(!first.is_kept() && first.missed().is_empty());
    assert_eq!(first, report());
    assert_eq!(first.to_string(), report().to_string());
}

/// Only this promise is broken, at some boundaries, and not everywhere.
fn assert_finds(report: &Report, promise: Promise, story: &str) {
    assert!(!report.is_kept(), "nothing was found");
    assert!(report.broken().len() < report.boundaries().len() / 2, "{report}");
    for broken in report.broken() {
        assert_eq!(broken.promise, promise, "{report}");
    }
    assert!(report.broken().iter().any(|broken| broken.story.contains(story)), "{report}");
}

#[test]
fn a_tool_that_says_it_is_idempotent_and_is_not_is_found() {
    for effect in [Effect::Idempotent, Effect::Pure] {
        let report = crash(move |world| one_tool(acts(world, "act", effect.clone(), false)));
        assert_finds(&report, Promise::Effects, "had its effect twice, and not once");
        let at: Vec<&str> = report.broken().iter().map(|broken| &*broken.at.as_ref().unwrap().name).collect();
        assert_eq!(at.first(), Some(&"after the effect of c1 (acted)"));
        assert!(at.contains(&"after tool act (c1)"), "{at:?}");
        assert!(at.last().unwrap().starts_with("before append") && at.last().unwrap().contains("(tool_result c1)"));
    }
}

#[test]
fn a_tool_that_takes_its_key_before_its_effect_loses_it() {
    let report = crash(|world| {
        let world = world.clone();
        let act = function_with_schema("act", "", json!({"type": "object"}), Effect::Idempotent, move |turn, _| {
            let world = world.clone();
            async move {
                let taken = world.keep::<AtomicBool>().swap(true, Ordering::Relaxed);
                if !taken {
                    world.happened(&turn, "acted").await;
                }
                Ok("done")
            }
        });
        one_tool(act)
    });
    assert_finds(&report, Promise::Effects, "had its effect not at all, and not once");
}

/// Says always the same of every call.
struct Says(bool);
impl Reconcile for Says {
    fn reconcile<'a>(&'a self, _: &'a Turn, _: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
        Box::pin(async { Ok(self.0.then(|| Output::ok("done"))) })
    }
}

#[test]
fn a_reconcile_that_does_not_look_is_found() {
    for (says, story) in [(true, "had its effect not at all"), (false, "had its effect twice")] {
        let report = crash(move |world| one_tool(acts(world, "act", Effect::Reconcile(Arc::new(Says(says))), false)));
        assert_finds(&report, Promise::Effects, story);
    }
}

#[test]
fn a_tool_whose_result_differs_the_second_time_is_found() {
    let report = crash(|world| {
        let world = world.clone();
        let act = function_with_schema("act", "", json!({"type": "object"}), Effect::Pure, move |_, _| {
            let run = world.keep::<AtomicUsize>().fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                tokio::task::yield_now().await;
                Ok(format!("run {run}"))
            }
        });
        one_tool(act)
    });
    assert_finds(&report, Promise::SameTranscript, "\"result     c1 run 2\" in place of \"result     c1 run 1\"");
    let told = report.to_string();
    assert!(told.contains("The process died at wait 1 of tool act (c1)."), "{told}");
    assert!(
        told.contains("without a crash:\n    user       go\n    assistant  \n    call       c1 act({})\n"),
        "{told}"
    );
}

#[test]
fn a_tool_that_remembers_in_its_process_is_found() {
    let script = Script::of([
        ScriptReply::calls("c1", "write", json!({})),
        ScriptReply::calls("c2", "read", json!({})),
        ScriptReply::says("fine"),
    ]);
    let report = crash(move |_| {
        let written = Arc::new(AtomicBool::new(false));
        let writes = written.clone();
        let schema = || json!({"type": "object"});
        let write = function_with_schema("write", "", schema(), Effect::Idempotent, move |_, _| {
            writes.store(true, Ordering::Relaxed);
            async { Ok("written") }
        });
        let read = function_with_schema("read", "", schema(), Effect::Pure, move |_, _| {
            let found = written.load(Ordering::Relaxed);
            async move { Ok(if found { "found" } else { "nothing" }) }
        });
        Agent::builder("notes", script.clone()).tool(write).tool(read).build()
    });
    assert!(report.broken().iter().all(|broken| broken.promise == Promise::SameTranscript), "{report}");
    assert!(report.broken().iter().any(|broken| broken.story.contains("c2 nothing")), "{report}");
}

#[test]
fn a_stop_hook_that_counts_in_its_process_is_found() {
    let report = crash(|_| {
        let refused = Arc::new(AtomicBool::new(false));
        let once = stop("once", move |_: OnStopContext| {
            let first = !refused.swap(true, Ordering::Relaxed);
            async move { Ok(if first { OnStop::Refuse("again".into()) } else { OnStop::Accept }) }
        });
        Agent::builder("a", Script::says(["one", "two", "three"])).hook(once).build()
    });
    assert_finds(&report, Promise::SameTranscript, "warned: overruled: the same refusal twice");
}

/// What the model read that only a crash makes, over all runs.
fn with_ears(tool: FunctionTool, heard: &Arc<Mutex<Vec<String>>>) -> Result<Agent, BuildError> {
    let heard = heard.clone();
    let ears = pre("ears", move |turn: BeforeModelContext| {
        let read = turn.context().map(|request| request.messages.clone()).unwrap_or_default();
        let texts = read.iter().map(|message| message.content().text());
        heard.lock().unwrap().extend(texts.filter(|text| text.starts_with('[')));
        async move { turn.proceed() }
    });
    Agent::builder("clerk", calls("act")).tool(tool).hook(ears.every_call()).build()
}

#[test]
fn what_a_policy_allows_is_not_held_against_a_tool() {
    for (effect, expected) in [(Effect::Never, "[interrupted]"), (Effect::Ask, "[denied by")] {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = heard.clone();
        let report = crash(move |world| with_ears(acts(world, "act", effect.clone(), false), &ears));
        report.assert_kept();
        let heard = heard.lock().unwrap();
        assert!(!heard.is_empty() && heard.iter().all(|text| text.starts_with(expected)), "{heard:?}");
    }
}

#[test]
fn without_a_word_about_effects_the_log_is_still_checked() {
    let report = crash(|_| {
        let act = function_with_schema("act", "", json!({"type": "object"}), Effect::Idempotent, |_, _| async {
            tokio::task::yield_now().await;
            Ok("done")
        });
        one_tool(act)
    });
    report.assert_kept();
    assert!(report.boundaries().len() > 25, "{report}");
    assert_eq!(report.kinds().get(&BoundaryKind::Effect), None);
}

#[test]
fn a_script_that_does_not_fit_is_said_before_anything_is_crashed() {
    let report = Kit::new(|world| one_tool(acts(world, "act", Effect::Pure, true))).say("go").approve("c9").run();
    assert_eq!(report.broken().len(), 1);
    assert_eq!((report.broken()[0].at.as_ref(), report.broken()[0].promise), (None, Promise::GoesOn));
    assert!(report.to_string().contains("step 2 (the answer to c9): the answer to call c9 is stale"), "{report}");
    let report = crash(|_| Agent::builder("", calls("act")).build());
    assert!(report.to_string().contains("building the agent: agent name"), "{report}");
}

#[test]
fn an_agent_that_does_not_do_the_same_in_every_run_is_said() {
    let runs = Arc::new(AtomicUsize::new(0));
    let report = crash(move |world| {
        let odd = runs.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let agent = one_tool(acts(world, "act", Effect::Idempotent, true))?;
        let extra = pre("extra", |turn: BeforeAgentContext| async move { turn.proceed() });
        match odd {
            true => Agent::builder("clerk", calls("act"))
                .tool(acts(world, "act", Effect::Idempotent, true))
                .hook(extra)
                .build(),
            false => Ok(agent),
        }
    });
    assert!(!report.missed().is_empty());
    assert!(report.to_string().contains("the agent does not do the same in every run"));
}

#[tokio::test]
async fn the_kit_runs_inside_a_runtime_and_its_clock_moves_by_itself() {
    let report = crash(|world| {
        let slow = ScriptReply { delay_ms: 900, ..ScriptReply::chunks(["a ", "b"]) };
        Agent::builder("slow", Script::of([slow]).with_clock(world.clock())).build()
    });
    report.assert_kept();
    assert!(report.kinds()[&BoundaryKind::Wait] > 2);
}
