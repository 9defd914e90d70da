//! The audit: exactly what models were sent, stored once, with secrets taken out.

use std::time::Duration;

use serde_json::json;
use turnbuckle::audit::{AuditLimits, AuditOptions, AuditedCall};
use turnbuckle::{Agent, Limits, OnBudget, Scope};

use turnbuckle::hook::*;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Store as _;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};

use crate::kit::add;

fn options() -> AuditOptions {
    let redact = |text: &str| text.contains("hunter2").then(|| text.replace("hunter2", "[redacted: password]"));
    AuditOptions::new(AuditLimits::default(), redact)
}

fn audited(agent: Agent, store: &MemoryStore) -> Rig {
    Rig::with(agent, store.clone(), |builder| builder.audit(options()))
}

#[tokio::test]
async fn every_request_is_recorded_as_it_was_sent_and_secrets_are_not() {
    let store = MemoryStore::default();
    let calls = ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2}));
    let model = Recorder::of(Script::of([calls, ScriptReply::says("4"), ScriptReply::says("hunter2, you said")]));
    let recall = pre("recall", |mut turn: BeforeAgentContext| async move {
        turn.inject("remembered");
        turn.proceed()
    });
    let agent = Agent::builder("a", model.clone()).system("Be careful with hunter2.").tool(add()).hook(recall);
    let mut rig = audited(agent.build().unwrap(), &store);
    rig.ended("the password is hunter2").await.unwrap();
    rig.ended("what was it?").await.unwrap();
    let (calls, contents) = (store.audited_calls(&rig.id).await.unwrap(), store.audit_contents(&rig.id).await.unwrap());
    assert_eq!(calls.len(), 3);
    assert!(!contents.values().any(|body| body.contains("hunter2")), "{contents:#?}");
    for (call, request) in calls.iter().zip(model.requests()) {
        let recorded = call.request(&contents);
        assert!(recorded.is_complete);
        assert_eq!(recorded.body["system"], "Be careful with [redacted: password].");
        assert_eq!(recorded.body["tools"][0]["name"], "add");
        let sent: Vec<_> = request.messages.iter().map(turnbuckle::audit::message_json).collect();
        let sent = json!(sent).to_string().replace("hunter2", "[redacted: password]");
        assert_eq!(recorded.body["messages"].to_string(), sent);
    }
    let records = store.records(&rig.id, &calls[0].turn).await.unwrap();
    assert!(records.iter().all(|record| record.input.is_some()), "{records:?}");
}

#[tokio::test]
async fn two_hundred_turns_cost_a_small_multiple_of_their_log() {
    let store = MemoryStore::default();
    let says = ScriptReply::says("word ".repeat(60));
    let agent = Agent::builder("a", Script::of([says]).when_exhausted(OnExhausted::Repeat)).build().unwrap();
    let mut rig = audited(agent, &store);
    for turn in 0..200 {
        rig.ended(format!("message {turn} {}", "word ".repeat(60))).await.unwrap();
    }
    let log: usize = rig.log().await.unwrap().iter().map(|event| serde_json::to_string(event).unwrap().len()).sum();
    let contents = store.audit_contents(&rig.id).await.unwrap();
    let stored: usize = contents.iter().map(|(digest, body)| digest.len() + body.len()).sum();
    assert!(stored < 2 * log, "{stored} bytes of audit, {log} of log");
    let calls = store.audited_calls(&rig.id).await.unwrap();
    assert_eq!(calls.len(), 200);
    assert!(calls.iter().all(|call| call.request(&contents).is_complete));
}

#[tokio::test]
async fn a_request_is_recorded_whole_also_if_other_conversations_have_pushed_out_the_one_before_it() {
    let store = MemoryStore::default();
    let says = ScriptReply::says("ok");
    let agent = Agent::builder("a", Script::of([says]).when_exhausted(OnExhausted::Repeat)).system("Be careful.");
    let limits = AuditLimits { calls: 8, ..AuditLimits::default() };
    let options = AuditOptions::new(limits, |_| None);
    let mut rig = Rig::with(agent.build().unwrap(), store.clone(), |builder| builder.audit(options));
    let first = rig.id.clone();
    for turn in 0..3 {
        rig.ended(format!("message {turn}")).await.unwrap();
        for other in 0..9 {
            let other = format!("other_{other}").as_str().into();
            rig.clock.advance(Duration::from_secs(1));
            rig.conversations.turn(&other, "hello", Scope::local()).await.unwrap();
        }
        rig.clock.advance(Duration::from_secs(1));
        rig.ended("once more").await.unwrap();
        let (calls, contents) =
            (store.audited_calls(&first).await.unwrap(), store.audit_contents(&first).await.unwrap());
        let last = calls.last().unwrap().request(&contents);
        assert!(last.is_complete && last.body["system"] == "Be careful.", "{last:?}");
    }
}

#[tokio::test]
async fn without_an_audit_nothing_is_recorded() {
    let store = MemoryStore::default();
    let agent = Agent::builder("a", Script::says(["ok"])).build().unwrap();
    let mut rig = Rig::on(agent, store.clone());
    let ended = rig.ended("hello").await.unwrap();
    assert!(store.audited_calls(&rig.id).await.unwrap().is_empty());
    assert!(store.audit_contents(&rig.id).await.unwrap().is_empty());
    assert!(ended.warnings.is_empty());
}

#[tokio::test]
async fn tools_that_were_withheld_in_a_last_answer_are_recorded_as_withheld() {
    let store = MemoryStore::default();
    let calls = ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2}));
    let mut limits = Limits { on_budget: OnBudget::Answer, ..Limits::default() };
    limits.max_model_calls = 2;
    let agent = Agent::builder("a", Script::of([calls, ScriptReply::says("4")])).tool(add()).limits(limits);
    let mut rig = audited(agent.build().unwrap(), &store);
    rig.ended("what is 2+2?").await.unwrap();
    let (calls, contents) = (store.audited_calls(&rig.id).await.unwrap(), store.audit_contents(&rig.id).await.unwrap());
    let bodies: Vec<_> = calls.iter().map(|call| call.request(&contents).body).collect();
    assert_eq!((&bodies[0]["tools"][0]["name"], bodies[0].get("withheld_tools")), (&json!("add"), None));
    assert_eq!((&bodies[1]["tools"], &bodies[1]["withheld_tools"][0]["name"]), (&json!([]), &json!("add")));
    assert!(bodies.iter().all(|body| body.get("fields").is_none()), "a script sends nothing");
}

#[test]
fn a_call_that_an_older_program_recorded_is_still_read() {
    let old = json!({
        "turn": "t1", "made_at": 1, "attempt": 1, "at": "2026-11-18T09:14:02.113Z", "model": "m", "ms": 3,
        "usage": { "input": 1, "output": 1, "cache_read": 0, "cache_write": 0 },
        "system": "s", "tools": "t", "messages": ""
    });
    let call: AuditedCall = serde_json::from_value(old).unwrap();
    assert!(!call.tools_withheld && call.fields.is_none());
    let contents = [("s", "\"Be brief.\""), ("t", "[{\"name\":\"add\"}]")].map(|(at, body)| (at.into(), body.into()));
    let request = call.request(&contents.into());
    assert!(request.is_complete);
    assert_eq!(request.body["tools"][0]["name"], "add");
}
