//! Every kind of event comes back as it was written.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::event::{
    Approvals, CallDigest, Cause, EndDetails, Event, EventKind, InjectionTarget as For, Outcome, Question, Refusal,
    ReplyExtras, Resolved, TurnEnded, Warning,
};
use turnbuckle::message::{File, Image, ProviderBlock, StopReason, Text, Thought, Usage};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::store::Store;
use turnbuckle::tool::Executor;
use turnbuckle::{Content, ConversationId, Part};

use crate::kit::{NOW, Place, batch, claim};

/// JSON with everything that a careless reader would change.
fn awkward() -> Arc<Value> {
    Arc::new(json!({
        "type": "turn_ended", "kind": "pause", "seq": 99, "turn": null, "prompt": {"content": []},
        "big": u64::MAX, "small": i64::MIN, "text": "\u{0} \u{1F980} \" \\ \n </script> 'x'; DROP TABLE event;--",
        "empty": {}, "list": [[], {}, [null]], "half": 0.5, "": ""
    }))
}

fn questions() -> Vec<Question> {
    vec![
        Question::Approval {
            tool: Some("rm".into()),
            arguments: awkward(),
            digest: "d".into(),
            why: Some("!".into()),
            again: true,
            redacted: false,
            standing: None,
        },
        Question::Approval {
            tool: None,
            arguments: Arc::new(json!([])),
            digest: "".into(),
            why: None,
            again: false,
            redacted: false,
            standing: None,
        },
        Question::Elicitation { question: "which?".into(), schema: Some(awkward()) },
        Question::Elicitation { question: "which?".into(), schema: None },
        Question::ClientExec { tool: "click".into(), arguments: awkward() },
        Question::Pause { hook: "coach".into(), reason: "look".into() },
    ]
}

fn kinds() -> Vec<EventKind> {
    let by = [Author::User("ann".into()), Author::Hook("lint".into())];
    let system = [SystemAuthor::Expiry, SystemAuthor::Recovery, SystemAuthor::Limit].map(Author::System);
    let content: Content = vec![
        Part::text("words"),
        Thought { text: "hm".into(), signature: Some("s".into()) }.into(),
        Part::thinking(""),
        Image { media_type: "image/png".into(), data: Some("AA==".into()), url: None }.into(),
        File { media_type: "a/b".into(), name: Some("n".into()), data: None, url: Some("u".into()) }.into(),
        ProviderBlock { provider: "anthropic".into(), block: awkward() }.into(),
    ]
    .into();
    let usage = Usage { input: 1, output: 2, cache_read: 3, cache_write: u64::MAX };
    let mut kinds = vec![
        EventKind::Injection { hook: "recall".into(), content: content.clone(), place: For::ThisTurn },
        EventKind::Injection { hook: "recall".into(), content: Content::default(), place: For::NextTurn },
        EventKind::ToolStarted {
            call: "c1".into(),
            arguments: awkward().into(),
            digest: CallDigest::from(Text::from("d")),
            approvals: None,
        },
        EventKind::ToolResult { call: "c1".into(), ok: true, content: content.clone() },
        EventKind::ToolResult { call: "c1".into(), ok: false, content: "".into() },
        EventKind::StopFeedback { refusals: Vec::new() },
        EventKind::StopFeedback { refusals: vec![Refusal { hook: "lint".into(), feedback: "no".into() }] },
    ];
    for by in by.into_iter().chain(system) {
        kinds.push(EventKind::UserMessage { content: content.clone(), by: by.clone() });
        let (arguments, rule) = (awkward(), Some("shell(cargo test *)".into()));
        let approvals = Approvals { last: Some(by.clone()), all: Vec::new(), rule }.boxed();
        kinds.push(EventKind::ToolStarted {
            call: "c1".into(),
            arguments: arguments.into(),
            digest: CallDigest::from(Text::from("d")),
            approvals,
        });
        let (reason, decision) = (Some("so".into()), Resolved::Denied);
        kinds.push(EventKind::Resolution { call: "c1".into(), decision, by, reason, evidence: Default::default() });
    }
    for stop_reason in
        [StopReason::End, StopReason::ToolCalls, StopReason::Length, StopReason::Refusal, StopReason::Cancelled]
    {
        for object in [None, Some(awkward())] {
            let (content, annotations) = (content.clone(), object.clone());
            kinds.push(EventKind::AssistantMessage {
                attempt: 2,
                content,
                stop_reason,
                usage,
                extras: ReplyExtras { object, annotations }.boxed(),
                cost: 0.25,
                model: Some("m".into()),
            });
        }
    }
    for executor in [Executor::Server, Executor::Human, Executor::Client, Executor::Provider] {
        let name = "add".into();
        kinds.push(EventKind::ToolCall { call: "c1~2".into(), name, arguments: awkward().into(), executor });
    }
    kinds.extend(questions().into_iter().map(|question| EventKind::Suspension {
        call: "c2".into(),
        question: Box::new(question),
        expires: NOW,
        rule: None,
    }));
    for decision in [Resolved::Approved, Resolved::Answered, Resolved::Expired, Resolved::Cancelled] {
        let by = Author::User("ann".into());
        kinds.push(EventKind::Resolution {
            call: "c1".into(),
            decision,
            by,
            reason: None,
            evidence: Default::default(),
        });
    }
    use Outcome::{Cancelled, Completed, Exhausted, Failed, Halted, Rejected};
    for outcome in [Completed, Halted, Rejected, Exhausted, Cancelled, Failed] {
        let details = EndDetails {
            reason: Some("r".into()),
            cause: Some(Cause::Limit { limit: "max_tokens".into() }),
            by: Some(Author::System(SystemAuthor::Limit)),
            result: Some(awkward()),
            warnings: vec![
                Warning { hook: None, text: "w".into(), cause: None },
                Warning {
                    hook: Some("h".into()),
                    text: "w".into(),
                    cause: Some(Cause::Overruled { hook: "h".into() }),
                },
            ],
        };
        kinds.push(EventKind::TurnEnded(Arc::new(TurnEnded {
            outcome,
            details: details.boxed(),
            model_calls: 3,
            usage,
            cost: 0.1 + 0.2,
            ms: u64::MAX,
            agent: Some("a".into()),
        })));
    }
    kinds
}

async fn there_and_back(kinds: Vec<EventKind>) -> (Vec<Arc<Event>>, Vec<Arc<Event>>) {
    let place = Place::new();
    let (store, id) = (place.store(), ConversationId::from("c"));
    claim(&store, &id, "w", NOW).await.unwrap();
    let event = |(kind, seq)| Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind });
    let events: Vec<_> = kinds.into_iter().zip(1..).map(event).collect();
    store.append(batch(&id, 1, 0, &events)).await.unwrap();
    let back = store.log(&id, 1, usize::MAX).await.unwrap();
    (events, back)
}

#[tokio::test]
async fn every_kind_of_event_comes_back() {
    let (events, back) = there_and_back(kinds()).await;
    for (event, back) in events.iter().zip(&back) {
        assert_eq!(event, back);
    }
    assert_eq!(events.len(), back.len());
}

fn call(arguments: Value) -> EventKind {
    let arguments = arguments.into();
    EventKind::ToolCall { call: "c1".into(), name: "add".into(), arguments, executor: Executor::Server }
}

/// An approval's digest is taken over the arguments: a last digit that changes would make it stale.
#[tokio::test]
async fn numbers_come_back_to_the_last_digit() {
    let mut numbers = vec![0.1 + 0.2, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e23, 123_456_789.123_456_78];
    let mut seed = 1u64;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.extend(Some(f64::from_bits(seed)).filter(|number| number.is_finite()));
    }
    let (events, back) = there_and_back(vec![call(json!(numbers))]).await;
    assert!(events == back, "a number changed");
}

/// As deep as a model's JSON may be.
#[tokio::test]
async fn deep_arguments_come_back() {
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let (events, back) = there_and_back(vec![call(serde_json::from_str(&deep).unwrap())]).await;
    assert_eq!(events, back);
}

/// A window in memory costs what its text costs: what a turn's events have in common is there once.
#[tokio::test]
async fn what_events_have_in_common_is_shared_when_they_come_back() {
    let started = |arguments: Value| EventKind::ToolStarted {
        call: "c1".into(),
        arguments: arguments.into(),
        digest: CallDigest::from(Text::from("d")),
        approvals: None,
    };
    let kinds = vec![call(json!({"a": 1})), started(json!({"a": 1})), started(json!({"a": 2}))];
    let (events, back) = there_and_back(kinds).await;
    assert_eq!(events, back);
    let arguments = |event: &Event| match &event.kind {
        EventKind::ToolCall { arguments, .. } | EventKind::ToolStarted { arguments, .. } => arguments.value(),
        other => panic!("{other:?}"),
    };
    assert!(Arc::ptr_eq(&arguments(&back[0]), &arguments(&back[1])));
}
