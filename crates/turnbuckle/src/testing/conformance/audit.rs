//! Promises about the audit: what models were sent.

use super::*;
use crate::audit::digest;
use crate::message::{Text, Usage};
use crate::store::{AuditLimits, AuditWrite, AuditedCall, CallPurpose};

/// A call that was sent these texts. Links are made as the runtime makes them.
fn call(turn: &str, at: Timestamp, texts: &[&str]) -> (AuditedCall, Vec<(Text, Text)>) {
    let body = |text: &str| (digest(&format!("{text:?}")), Text::from(format!("{text:?}")));
    let (system, tools, fields) = (body("system"), body("tools"), body("fields"));
    let (mut contents, mut link) = (vec![system.clone(), tools.clone(), fields.clone()], Text::from(""));
    for text in texts {
        let (content, written) = body(text);
        let text: Text = format!("{link} {content}").into();
        link = digest(&text);
        contents.extend([(content, written), (link.clone(), text)]);
    }
    let call = AuditedCall {
        purpose: CallPurpose::Turn,
        turn: turn.into(),
        made_at: 1,
        attempt: 2,
        at,
        model: "demo".into(),
        ms: 1_234,
        usage: Usage { input: 10, output: 5, cache_read: 3, cache_write: 1 },
        cost: Some(0.25),
        error: Some("slow down".into()),
        summary: Some(3),
        cut: Some(9),
        injected: vec![("recall".into(), 12)],
        system: system.0,
        tools: tools.0,
        tools_withheld: true,
        schema: None,
        fields: Some(fields.0),
        messages: link,
    };
    (call, contents)
}

async fn add(store: &SharedStore, id: &ConversationId, epoch: u64, limits: AuditLimits, at: Timestamp, texts: &[&str]) {
    let (call, contents) = call("t1", at, texts);
    let seq = store.log(id, 1, 999).await.unwrap().len() as u64;
    let events = [Arc::new(Event { at, ..(*said("t1", seq + 1)).clone() })];
    let write = AuditWrite { calls: vec![call], contents, limits };
    store.append(Batch { audit: Some(&write), ..batch(id, epoch, seq, &events) }).await.unwrap();
}

pub(super) async fn what_was_sent_is_kept_once_and_read_back(store: SharedStore) {
    let ((id, epoch), limits) = (opened(&store).await, AuditLimits::default());
    assert!(store.audited_calls(&id).await.unwrap().is_empty());
    add(&store, &id, epoch, limits, NOW, &["one"]).await;
    let before = store.audit_contents(&id).await.unwrap().len();
    add(&store, &id, epoch, limits, NOW, &["one", "two"]).await;
    add(&store, &id, epoch, limits, NOW, &["one", "two"]).await;
    let (calls, contents) = (store.audited_calls(&id).await.unwrap(), store.audit_contents(&id).await.unwrap());
    assert_eq!(contents.len(), before + 2, "a message and its link are added, and nothing is stored twice");
    assert_eq!(calls[1], call("t1", NOW, &["one", "two"]).0);
    let request = calls[2].request(&contents);
    assert!(request.is_complete);
    assert_eq!(request.body["messages"], serde_json::json!(["one", "two"]));
    assert_eq!(calls[0].request(&contents).body["messages"], serde_json::json!(["one"]));
    assert!(matches!(store.audited_calls(&"nobody".into()).await, Err(StoreError::NotFound { .. })));
}

pub(super) async fn what_was_sent_between_turns_is_kept_without_a_claim(store: SharedStore) {
    let ((id, epoch), limits) = (opened(&store).await, AuditLimits { calls: 2, ..AuditLimits::default() });
    add(&store, &id, epoch, limits, NOW, &["one"]).await;
    for nth in 1..=2 {
        let (call, contents) = call("t1", later(Duration::from_secs(nth)), &["notes"]);
        let write = AuditWrite { calls: vec![AuditedCall { purpose: CallPurpose::Summary, ..call }], contents, limits };
        store.add_audited(&id, &write).await.unwrap();
    }
    let (calls, contents) = (store.audited_calls(&id).await.unwrap(), store.audit_contents(&id).await.unwrap());
    assert_eq!(calls.iter().map(|call| call.purpose).collect::<Vec<_>>(), [CallPurpose::Summary; 2], "the limits hold");
    assert!(calls.iter().all(|call| call.request(&contents).is_complete));
    let write = AuditWrite { calls: calls.clone(), contents: Vec::new(), limits };
    assert!(matches!(store.add_audited(&"nobody".into(), &write).await, Err(StoreError::NotFound { .. })));
}

pub(super) async fn an_audit_ends_with_its_time_and_takes_what_only_it_refers_to(store: SharedStore) {
    let ((id, epoch), limits) = (opened(&store).await, AuditLimits::default());
    add(&store, &id, epoch, limits, NOW, &["old", "rest"]).await;
    let after = later(limits.ttl / 2);
    add(&store, &id, epoch, limits, after, &["new"]).await;
    assert_eq!(store.expire_audit(limits, after).await.unwrap(), 0);
    // A write that adds to the audit of one conversation clears the others, too.
    let other = ConversationId::from("other");
    store.open(&other, &ann(), NOW).await.unwrap();
    let claimed = claim(&store, &other, "w", NOW).await.unwrap();
    add(&store, &other, claimed.epoch, limits, later(limits.ttl), &["elsewhere"]).await;
    let (calls, contents) = (store.audited_calls(&id).await.unwrap(), store.audit_contents(&id).await.unwrap());
    assert_eq!(calls.len(), 1);
    assert!(calls[0].request(&contents).is_complete);
    assert!(!contents.values().any(|body| body.contains("old")), "{contents:?}");
    assert_eq!(store.expire_audit(limits, later(limits.ttl * 3)).await.unwrap(), 2);
    assert!(store.audit_contents(&id).await.unwrap().is_empty());
}

pub(super) async fn an_audit_is_no_larger_than_it_may_be_and_the_oldest_calls_go_first(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let calls = AuditLimits { calls: 3, ..AuditLimits::default() };
    let names: Vec<String> = (0..6).map(|nth| format!("message {nth}")).collect();
    for (nth, name) in names.iter().enumerate() {
        add(&store, &id, epoch, calls, later(Duration::from_secs(nth as u64)), &[name]).await;
    }
    let kept = store.audited_calls(&id).await.unwrap();
    assert_eq!(kept.iter().map(|call| call.at).min(), Some(later(Duration::from_secs(3))));
    assert_eq!(kept.len(), 3);
    // Of many, some may go at once. What is left is whole, and what only the others referred to is gone.
    let many = AuditLimits { calls: 60, ..AuditLimits::default() };
    let names: Vec<String> = (0..9).map(|nth| format!("shared {nth}")).collect();
    for nth in 0..70 {
        let own = format!("own {nth}");
        let texts: Vec<&str> = names.iter().map(String::as_str).chain([own.as_str()]).collect();
        add(&store, &id, epoch, many, later(Duration::from_secs(9)), &texts).await;
    }
    let (kept, contents) = (store.audited_calls(&id).await.unwrap(), store.audit_contents(&id).await.unwrap());
    assert!((50..=60).contains(&kept.len()), "{}", kept.len());
    assert!(kept.iter().all(|call| call.request(&contents).is_complete));
    let own = contents.values().filter(|body| body.contains("own ")).count();
    assert_eq!(own, kept.len(), "each call has a text of its own");
    let large = "x".repeat(1_000);
    let bytes = AuditLimits { bytes: 2_500, ..AuditLimits::default() };
    for nth in 0..4 {
        let text = format!("{nth}{large}");
        add(&store, &id, epoch, bytes, later(Duration::from_secs(10 + nth)), &[&text]).await;
    }
    let contents = store.audit_contents(&id).await.unwrap();
    assert!(contents.values().map(|body| body.len()).sum::<usize>() <= 2_500);
    let last = store.audited_calls(&id).await.unwrap().pop().unwrap();
    assert!(last.request(&contents).is_complete, "the newest one is whole");
}

pub(super) async fn a_refused_batch_adds_nothing_to_the_audit(store: SharedStore) {
    let (id, epoch) = opened(&store).await;
    let (call, contents) = call("t1", NOW, &["one"]);
    let write = AuditWrite { calls: vec![call], contents, limits: AuditLimits::default() };
    let events = [said("t1", 9)];
    assert!(store.append(Batch { audit: Some(&write), ..batch(&id, epoch, 0, &events) }).await.is_err());
    assert!(store.audited_calls(&id).await.unwrap().is_empty());
    assert!(store.audit_contents(&id).await.unwrap().is_empty());
}

pub(super) async fn a_deleted_conversation_takes_its_audit_with_it(store: SharedStore) {
    let ((id, epoch), limits) = (opened(&store).await, AuditLimits { calls: 2, ..AuditLimits::default() });
    add(&store, &id, epoch, limits, NOW, &["one"]).await;
    add(&store, &id, epoch, limits, NOW, &["one", "two"]).await;
    let by = Author::User("ann".into());
    store.delete(Deletion { conversation: &id, epoch, by: &by, at: NOW, left: &[] }).await.unwrap();
    assert!(matches!(store.audited_calls(&id).await, Err(StoreError::Deleted { .. })));
    assert!(matches!(store.audit_contents(&id).await, Err(StoreError::Deleted { .. })));
    // What it had counts no more against the limits.
    let other = ConversationId::from("other");
    store.open(&other, &ann(), NOW).await.unwrap();
    let claimed = claim(&store, &other, "w", NOW).await.unwrap();
    add(&store, &other, claimed.epoch, limits, NOW, &["one"]).await;
    add(&store, &other, claimed.epoch, limits, NOW, &["two"]).await;
    assert_eq!(store.audited_calls(&other).await.unwrap().len(), 2);
}
