//! Questions of a server to a person, while its call is open.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use turnbuckle::event::EventKind;
use turnbuckle::{BoxFuture, Outcome};
use turnbuckle_mcp::{Elicitation, ElicitationAnswer, McpServer, Person};

use crate::desk::{Desk, results_of, rig};

/// Answers with this, or never; keeps what it was asked.
struct Somebody {
    answer: Option<ElicitationAnswer>,
    asked: Mutex<Vec<Elicitation>>,
}

impl Somebody {
    fn who(answer: Option<ElicitationAnswer>) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::default() })
    }

    async fn was_asked(&self) {
        let began = Instant::now();
        while self.asked.lock().unwrap().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody was asked");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Person for Somebody {
    fn ask(&self, question: Elicitation) -> BoxFuture<'static, Option<ElicitationAnswer>> {
        self.asked.lock().unwrap().push(question);
        let answer = self.answer.clone();
        Box::pin(async move {
            match answer {
                Some(answer) => Some(answer),
                None => std::future::pending().await,
            }
        })
    }
}

async fn asking(desk: &Desk, person: Arc<Somebody>) -> McpServer {
    let mut options = desk.options("good");
    options.person = Some(person);
    let server = McpServer::new(options);
    let listing = server.list().await.unwrap();
    server.pinned(listing)
}

#[tokio::test]
async fn a_person_answers_while_the_call_is_open() {
    let desk = Desk::new();
    for (answer, expected) in [
        (ElicitationAnswer::Accepted(json!({ "p": "blue" })), r#"the answer was accept {"p": "blue"}"#),
        (ElicitationAnswer::Declined, "the answer was decline null"),
    ] {
        let person = Somebody::who(Some(answer));
        let told = results_of(&asking(&desk, person.clone()).await, &[("echo", json!({ "text": "ask" }))]).await;
        assert!(told[0].0 && told[0].1.contains(expected), "{}", told[0].1);
        assert!(!told[0].1.contains("wanted to ask"), "{}", told[0].1);
        let asked = person.asked.lock().unwrap().clone();
        assert_eq!((asked.len(), &*asked[0].server, &*asked[0].message), (1, "test", "What is your password?"));
        assert_eq!((asked[0].conversation.as_str(), asked[0].call.as_str()), ("c_1", "c0"));
        assert_eq!(asked[0].schema["properties"]["p"]["type"], "string");
    }
}

#[tokio::test]
async fn when_the_time_is_up_the_server_is_told_no_and_the_result_says_what_was_asked() {
    let desk = Desk::new();
    let person = Somebody::who(None);
    let mut rig = rig(&asking(&desk, person.clone()).await, &[("echo", json!({ "text": "ask" }))]);
    let clock = rig.clock.clone();
    let turn = tokio::spawn(async move {
        let ended = rig.ended("go").await;
        (ended, rig)
    });
    person.was_asked().await;
    clock.advance(Duration::from_secs(121));
    let (ended, rig) = turn.await.unwrap();
    assert_eq!(ended.unwrap().outcome, Outcome::Completed);
    let log = rig.log().await.unwrap();
    let text = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult { content, .. } => Some(content.text()),
        _ => None,
    });
    let text = text.unwrap();
    assert!(text.contains("the answer was decline"), "{text}");
    assert!(text.contains("nobody answered in time: What is your password?"), "{text}");
}

#[tokio::test]
async fn a_server_that_asks_without_end_asks_nobody_for_long_and_the_call_ends() {
    let desk = Desk::new();
    let person = Somebody::who(Some(ElicitationAnswer::Declined));
    let told = results_of(&asking(&desk, person.clone()).await, &[("echo", json!({ "text": "flood" }))]).await;
    assert!(told[0].0 && told[0].1.contains("flooded") && told[0].1.len() < 20_000, "{}", told[0].1);
    assert!(person.asked.lock().unwrap().len() <= 8);
}

#[tokio::test]
async fn a_message_without_an_end_ends_the_server_and_nothing_else() {
    let desk = Desk::new();
    let mut options = desk.options("good");
    options.clock = Arc::new(turnbuckle::clock::SystemClock::default());
    let server = McpServer::new(options);
    let server = server.pinned(server.list().await.unwrap());
    let told =
        results_of(&server, &[("echo", json!({ "text": "line without end" })), ("echo", json!({ "text": "hi" }))])
            .await;
    assert!(!told[0].0 && told[0].1.contains("was lost in the middle of the call"), "{}", told[0].1);
    assert!(told[0].1.contains("a message of more than 64 MiB"), "{}", told[0].1);
    // It is started again after a pause.
    assert!(told[1].1.contains("it is started again in"), "{}", told[1].1);
}
