//! Cancellation, from every await; and a crash at every await, from which the turn comes back.

use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use turnbuckle::conversation::SendError;
use turnbuckle::event::{EventKind, Outcome};
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::crash::{BoundaryKind, Kit};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::trace::trace_told;
use turnbuckle::{Agent, Limits, Scope, TurnStatus, WhileBusy};

use crate::kit::{Seen, Spy, Ticker, adder, assert_valid, sum};

/// A turn in which everything that can await does, and stops for good at one of its awaits.
fn stopping_at(stop: usize) -> (Agent, Arc<Ticker>) {
    let (seen, ticker) = (Seen::default(), Ticker::stopping_at(stop));
    let slow = |name: &str| {
        let ticker = ticker.clone();
        function_with_schema(name, "Waits.", json!({"type": "object"}), Effect::Pure, move |turn, _| {
            let ticker = ticker.clone();
            async move {
                for _ in 0..3 {
                    turn.report_progress("working");
                    ticker.tick().await;
                }
                Ok("ok")
            }
        })
    };
    let refuse_once = stop_once("refuse");
    let script = Script::of([
        ScriptReply::chunks(["let ", "me ", "see"]).and_calls("c1", "left", json!({})).and_calls(
            "c2",
            "right",
            json!({}),
        ),
        ScriptReply::chunks(["al", "most"]),
        ScriptReply::chunks(["do", "ne"]),
    ]);
    let agent = Agent::builder("slow", Ticking(script, ticker.clone()))
        .tool(slow("left"))
        .tool(slow("right"))
        .hook(Spy { ticker: Some(ticker.clone()), ..Spy::new("spy", &seen) })
        .hook(refuse_once)
        .build()
        .unwrap();
    (agent, ticker)
}

fn stop_once(name: &str) -> impl Hook {
    stop(name, |turn: OnStopContext| async move {
        Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse("again".into()) })
    })
}

/// A model that awaits before, between and after its chunks.
struct Ticking(Script, Arc<Ticker>);
impl turnbuckle::model::Model for Ticking {
    fn stream<'a>(
        &'a self,
        request: &'a turnbuckle::model::Request,
        out: &'a mut dyn turnbuckle::model::Sink,
    ) -> turnbuckle::BoxFuture<'a, Result<turnbuckle::Reply, turnbuckle::model::ModelError>> {
        struct Later(Vec<String>);
        impl turnbuckle::model::Sink for Later {
            fn text(&mut self, text: &str) {
                self.0.push(text.to_owned());
            }
            fn thinking(&mut self, _: &str) {}
        }
        Box::pin(async move {
            let mut chunks = Later(Vec::new());
            let reply = self.0.stream(request, &mut chunks).await;
            for chunk in chunks.0 {
                self.1.tick().await;
                out.text(&chunk);
            }
            self.1.tick().await;
            reply
        })
    }
}

#[tokio::test]
async fn cancelled_at_any_await_the_books_are_closed() {
    let mut cancelled = 0;
    loop {
        let (agent, ticker) = stopping_at(cancelled);
        let mut rig = Rig::new(agent);
        let handle = rig.send("go").await.unwrap();
        let conversations = rig.conversations.clone();
        let (id, clock) = (rig.id.clone(), rig.clock.clone());
        let cancel = async {
            ticker.stopped.notified().await;
            conversations.cancel(&id, Scope::local()).await.unwrap();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            // What runs after the end cannot be cancelled: it has its own time limit.
            clock.pass(HookEntry::DEFAULT_TIMEOUT).await;
            std::future::pending::<()>().await;
        };
        let rest = tokio::select! { biased; rest = rig.follow(handle) => rest, () = cancel => unreachable!() };
        let TurnStatus::Ended(ended) = rest.unwrap() else { panic!("it waits at await {cancelled}") };
        let log = rig.log().await.unwrap();
        assert_valid(&log);
        assert!(matches!(&log.last().unwrap().kind, EventKind::TurnEnded(_)), "at await {cancelled}: {log:#?}");
        if ended.outcome == Outcome::Completed {
            break;
        }
        assert_eq!(ended.outcome, Outcome::Cancelled, "at await {cancelled}");
        cancelled += 1;
    }
    assert!(cancelled > 40, "only {cancelled} awaits");
}

#[test]
fn crashed_at_any_await_the_turn_comes_back_and_ends_the_same() {
    let report = Kit::new(|_| Ok(stopping_at(usize::MAX).0)).say("go").run();
    report.assert_kept();
    assert!(report.kinds()[&BoundaryKind::Wait] > 40, "{report}");
}

#[tokio::test]
async fn what_was_told_is_logged_as_cancelled_and_the_next_model_sees_interrupted() {
    let slow = ScriptReply { delay_ms: 10, ..ScriptReply::chunks(["one ", "two ", "three"]) };
    let clock = turnbuckle::testing::PausedClock::default();
    let model = Recorder::of(Script::of([slow, ScriptReply::says("fine")]).with_clock(Arc::new(clock.clone())));
    let mut rig = Rig::new(Agent::builder("a", model.clone()).build().unwrap());
    let handle = rig.send("count").await.unwrap();
    clock.pass(Duration::from_millis(10)).await;
    clock.pass(Duration::from_millis(10)).await;
    rig.settle().await;
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    rig.follow(handle).await.unwrap();
    expect![[r#"
        accept    "count"
        build     1 message, 0 tools
        call      "one two" [cancelled]
        end       cancelled by user local
    "#]]
    .assert_eq(&trace_told(rig.told(), 0));
    let named = |told: &turnbuckle::feed::FeedEvent| match &told.item {
        turnbuckle::feed::FeedItem::Log(event) => match &event.kind {
            turnbuckle::event::EventKind::AssistantMessage { model, .. } => model.clone(),
            _ => None,
        },
        turnbuckle::feed::FeedItem::Live(_) => None,
    };
    assert_eq!(
        rig.told().iter().find_map(named).as_deref(),
        Some("script"),
        "a reply that was cut off names its model"
    );
    rig.run("go on").await.unwrap();
    let messages: Vec<_> = model.requests()[1].messages.iter().map(|message| message.content().text()).collect();
    assert_eq!(messages, ["count", "one two ", "[interrupted]", "go on"]);
}

#[tokio::test]
async fn a_message_while_a_turn_runs_is_rejected_queued_or_interrupts() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let wait = {
        let gate = gate.clone();
        pre("wait", move |turn: BeforeAgentContext| {
            let gate = gate.clone();
            async move {
                if turn.user_message().text() == "first" {
                    gate.notified().await;
                }
                turn.proceed()
            }
        })
    };
    let agent = Agent::builder("a", Script::says(["1", "2", "3"])).hook(wait).build().unwrap();
    let mut rig = Rig::new(agent.clone());
    let first = rig.send("first").await.unwrap();
    rig.settle().await;
    let rejected = rig.conversations.send(&rig.id, "second", Scope::local()).await;
    assert!(matches!(rejected, Err(SendError::Busy { .. })));
    let queued = rig.conversations.send_while(&rig.id, "second", Scope::local(), WhileBusy::Queue).await.unwrap();
    gate.notify_one();
    assert!(matches!(rig.follow(first).await.unwrap(), TurnStatus::Ended(ended) if ended.text() == "1"));
    assert!(matches!(rig.follow(queued).await.unwrap(), TurnStatus::Ended(ended) if ended.text() == "2"));

    let mut rig = Rig::new(agent);
    let first = rig.send("first").await.unwrap();
    rig.settle().await;
    let next = rig.conversations.send_while(&rig.id, "second", Scope::local(), WhileBusy::Interrupt).await.unwrap();
    assert!(
        matches!(rig.follow(first).await.unwrap(), TurnStatus::Ended(ended) if ended.outcome == Outcome::Cancelled)
    );
    assert!(matches!(rig.follow(next).await.unwrap(), TurnStatus::Ended(ended) if ended.text() == "1"));
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn disconnecting_is_not_cancelling() {
    let mut rig = Rig::new(stopping_at(usize::MAX).0);
    drop(rig.send("go").await.unwrap());
    rig.settle().await;
    rig.settle().await;
    let log = rig.log().await.unwrap();
    assert!(matches!(&log.last().unwrap().kind, EventKind::TurnEnded(ended) if ended.outcome == Outcome::Completed));
}

#[tokio::test]
async fn time_at_work_is_bounded_and_waiting_is_not_counted() {
    let forever = pre("forever", |turn: BeforeAgentContext| async move {
        std::future::pending::<()>().await;
        turn.proceed()
    });
    let limits = Limits { turn_timeout: Duration::from_secs(10), ..Limits::default() };
    let mut rig = Rig::new(adder(sum()).limits(limits.clone()).hook(forever).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    rig.clock.pass(Duration::from_secs(10)).await;
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!((ended.outcome, ended.reason.as_deref(), ended.ms), (Outcome::Exhausted, Some("turn_timeout"), 10_000));

    let mut rig = Rig::new(adder(sum()).limits(limits).approve(["add"]).build().unwrap());
    rig.run("go").await.unwrap();
    rig.clock.advance(Duration::from_secs(3600));
    let answer = turnbuckle::store::Answer::Approve;
    let handle = rig.conversations.resolve(&rig.id, &"c1".into(), answer, None, Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!((ended.outcome, ended.ms), (Outcome::Completed, 0));
}
