//! The runtime itself under the crash kit: every way a turn can go, crashed at every boundary.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use turnbuckle::event::Question;
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::crash::{Kit, World};
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::{FunctionTool, SubAgent, client, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BuildError, Reply, ToolCall, Turn};

fn act(world: &World, name: &str, effect: Effect) -> FunctionTool {
    let world = world.clone();
    let once = matches!(effect, Effect::Idempotent | Effect::Pure);
    function_with_schema(name, "Acts.", json!({"type": "object"}), effect, move |turn, _| {
        let world = world.clone();
        async move {
            if !(once && world.has_happened(&turn)) {
                world.happened(&turn, "acted").await;
            }
            tokio::task::yield_now().await;
            Ok("done")
        }
    })
}

fn call(id: &str, tool: &str) -> ScriptReply {
    ScriptReply::calls(id, tool, json!({}))
}

fn says(text: &str) -> ScriptReply {
    ScriptReply::says(text)
}

/// Says this script, and is built further.
fn agent(replies: impl IntoIterator<Item = ScriptReply>) -> AgentBuilder {
    Agent::builder("main", Script::of(replies))
}

fn kit(make: impl Fn(&World) -> Result<Agent, BuildError> + Send + Sync + 'static) -> Kit {
    Kit::new(make).say("go")
}

fn check(kit: Kit, least: usize) {
    let report = kit.run();
    report.assert_kept();
    assert!(report.boundaries().len() >= least, "{report}");
}

#[test]
fn a_stop_that_is_paused_and_approved_or_denied() {
    let make = |_: &World| {
        let look = stop("look", |turn: OnStopContext| async move {
            let first = turn.assistant_message().is_some_and(|reply| reply.content.text() == "one");
            Ok(if first { OnStop::Pause("look at it".into()) } else { OnStop::Accept })
        });
        let advise = stop("advise", |_: OnStopContext| async { Ok(OnStop::Advise("be quick next time".into())) });
        agent([says("one"), says("two"), says("three")]).hook(look).hook(advise).build()
    };
    check(kit(make).approve("pause_1").say("and again"), 40);
    check(kit(make).deny("pause_1", "not yet").say("and again"), 40);
}

#[test]
fn a_reply_that_a_person_approves() {
    let ask = || {
        guard("ask", |_: Turn, reply: Arc<Reply>| async move {
            let asks = reply.content.text() == "hm";
            Ok(if asks { AfterModel::Ask("is that so?".into()) } else { AfterModel::Continue })
        })
    };
    let make = move |world: &World| {
        let first = ScriptReply { text: Some("hm".into()), ..call("c1", "act") };
        agent([first, says("done")]).tool(act(world, "act", Effect::Never)).hook(ask()).build()
    };
    check(kit(make).approve("reply_1"), 40);
}

#[test]
fn a_gated_client_tool_suspends_twice_beside_a_server_tool() {
    let make = |world: &World| {
        let read = client("read", "Reads.", json!({"type": "object"})).requires_approval();
        agent([call("c1", "read").and_calls("c2", "act", json!({})), says("done")])
            .tool(read)
            .tool(act(world, "act", Effect::Idempotent))
            .build()
    };
    check(kit(make).approve("c1").answer("c1", "page 1"), 50);
}

#[test]
fn a_sub_agent_that_asks_and_acts_by_every_policy() {
    for effect in [Effect::Pure, Effect::Idempotent, Effect::Ask, Effect::Never] {
        let make = move |world: &World| {
            let inner = Script::of([call("i1", "act"), says("inner done")]);
            let inner = Agent::builder("inner", inner).tool(act(world, "act", effect.clone()).requires_approval());
            let inner = SubAgent::new(world.watch(&inner.build()?), "Helps.");
            let ask = ScriptReply::calls("s1", "inner", json!({"task": "act"}));
            agent([ask, says("outer done")]).tool(inner).build()
        };
        check(kit(make).approve("s1"), 60);
    }
}

/// Approving one call must not approve the next that looks the same, wherever the process dies between them.
#[test]
fn an_answer_passed_on_to_a_sub_agent_answers_one_question() {
    let make = |world: &World| {
        let inner = Script::of([call("i1", "act"), call("i2", "act"), says("inner done")]);
        let act = act(world, "act", Effect::Idempotent).requires_approval();
        let inner = SubAgent::new(world.watch(&Agent::builder("inner", inner).tool(act).build()?), "Helps.");
        let ask = ScriptReply::calls("s1", "inner", json!({"task": "act"}));
        agent([ask, says("outer done")]).tool(inner).build()
    };
    check(kit(make).approve("s1").deny("s1", "once is enough"), 90);
}

#[test]
fn turns_that_end_badly_end_as_badly_after_a_crash() {
    let halts = pre("halts", |turn: BeforeAgentContext| async move {
        tokio::task::yield_now().await;
        match turn.user_message().text().as_str() {
            "halt" => turn.halt("no"),
            "erase" => turn.erase("never"),
            _ => turn.proceed(),
        }
    });
    let halts = HookEntry::from(halts);
    let gate = gate("gate", |_: Turn, call: ToolCall| async move {
        Ok(if call.call.as_str() == "c1" { BeforeTool::Halt("stop".into()) } else { BeforeTool::Continue })
    });
    let gate = HookEntry::from(gate);
    let strict = HookEntry::from(guard("strict", |_: Turn, reply: Arc<Reply>| async move {
        let bad = reply.content.text().starts_with("bad");
        Ok(if bad { AfterModel::Regenerate("better".into()) } else { AfterModel::Continue })
    }));
    let make = move |world: &World| {
        agent([
            call("c1", "act").and_calls("c2", "act", json!({})),
            says("bad 1"),
            says("bad 2"),
            says("bad 3"),
            ScriptReply::fails(400),
            says("fine"),
        ])
        .tool(act(world, "act", Effect::Idempotent))
        .hook(halts.clone())
        .hook(gate.clone())
        .hook(strict.clone())
        .build()
    };
    let kit = Kit::new(make).say("halt").say("erase").say("halted at a tool").say("rejected").say("failed").say("fine");
    check(kit, 120);
}

#[test]
fn warnings_of_stop_hooks_survive() {
    let make = |_: &World| {
        let breaks = stop("breaks", |turn: OnStopContext| async move {
            match turn.stop_active() {
                false => Err("broken".into()),
                true => Ok(OnStop::Accept),
            }
        });
        let refuses = stop("refuses", |turn: OnStopContext| async move {
            Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse("again".into()) })
        });
        agent([says("one"), says("two")]).hook(breaks).hook(refuses).build()
    };
    check(kit(make), 25);
}

#[test]
fn background_hooks_are_done_after_a_crash_and_parked_ones_stay_parked() {
    let make = |world: &World| {
        let world = world.clone();
        let tries = background("tries", move |snapshot: BackgroundContext| {
            let tries = world.keep::<AtomicUsize>();
            async move {
                tokio::task::yield_now().await;
                if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err("not now".into());
                }
                snapshot.leave_note("a note");
                Ok(())
            }
        });
        let fails = background("fails", |_: BackgroundContext| async { Err("never".into()) });
        agent([says("one"), says("two")]).hook(tries).hook(fails).build()
    };
    check(kit(make).say("and then?"), 60);
}

#[test]
fn a_conversation_hook_that_injects_and_notes_for_the_next_turn() {
    struct Meets;
    impl Hook for Meets {
        async fn on_conversation(&self, meeting: &mut OnConversationContext) -> Result<(), turnbuckle::BoxError> {
            meeting.inject("It begins.");
            Ok(())
        }
    }
    let make = |world: &World| {
        let later = post("later", |mut turn: AfterAgentContext| async move {
            turn.inject_later("She was kind.");
            turn.proceed()
        });
        agent([call("c1", "act"), says("one"), says("two")])
            .tool(act(world, "act", Effect::Idempotent))
            .hook(Meets.durable())
            .hook(later)
            .build()
    };
    check(kit(make).say("and then?"), 50);
}

#[test]
fn a_tool_that_asks_in_its_own_words() {
    let make = |_: &World| {
        let asks = function_with_schema("asks", "Asks.", json!({"type": "object"}), Effect::Idempotent, |turn, _| {
            let answer = turn.answer().cloned();
            async move {
                Ok(match answer {
                    Some(answer) => Output::ok(format!("{answer:?}")),
                    None => Output::wait(Question::Elicitation { question: "which?".into(), schema: None }),
                })
            }
        });
        agent([call("c1", "asks"), says("done")]).tool(asks).build()
    };
    check(kit(make).answer("c1", "that one"), 40);
}

/// A message that steers a turn is given to it once, with what hooks put behind it, wherever the process dies.
#[test]
fn a_message_that_steers_a_turn() {
    let make = |world: &World| {
        let looks = HookEntry::from(pre("looks", |mut turn: BeforeAgentContext| async move {
            tokio::task::yield_now().await;
            let text = turn.user_message().text();
            if text == "never mind" {
                return turn.halt("not now");
            }
            if turn.is_steering() {
                turn.inject(format!("behind {text}"));
                turn.rewrite_input(format!("{text}, please"));
            }
            turn.proceed()
        }));
        let notes = Notes.durable();
        let act = act(world, "act", Effect::Idempotent).requires_approval();
        agent([call("c1", "act"), call("c2", "act"), says("done"), says("more")])
            .tool(act)
            .hook(looks)
            .hook(notes)
            .build()
    };
    struct Notes;
    impl Hook for Notes {
        async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, turnbuckle::BoxError> {
            turn.inject("noted");
            Ok(BeforeAgent::Continue)
        }
    }
    let kit = kit(make).steer("faster").approve("c1").steer("never mind").approve("c2").say("and then?");
    check(kit, 60);
}

/// A cut leaves steps of the open turn out, and whoever carries the turn on must leave out the same.
#[test]
fn a_turn_of_more_small_steps_than_its_context_holds() {
    let make = |world: &World| {
        let limits = turnbuckle::Limits { context_tokens: 600, injection_reserve: 20, ..Default::default() };
        let words = "one stone after the other, as it was agreed";
        let step = |n: usize| ScriptReply { text: Some(words.into()), ..call(&format!("c{n}"), "act") };
        let replies = (0..16).map(step).chain([says("done")]);
        agent(replies).tool(act(world, "act", Effect::Idempotent)).limits(limits).build()
    };
    check(kit(make), 60);
}
