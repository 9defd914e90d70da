//! The `retry` hook around a provider: what was told decides, however the bytes came.

use std::time::Duration;

use serde_json::json;
use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::hooks::Retry;
use turnbuckle::hooks::retry::RetryOptions;
use turnbuckle::{Agent, Conversations, Outcome, Scope, TurnReport, TurnStatus};

use crate::kit::{anthropic, anthropic_events};
use crate::stand_in::{StandIn, answering, streaming};

/// Text or a thought, and then either the end or an overloaded server, in one write.
fn stream(kind: &str, words: &str, overloaded: bool) -> String {
    let end = match overloaded {
        true => json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }),
        false => json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
    };
    let block = json!({ "type": kind, kind: words });
    anthropic_events(&[json!({ "type": "content_block_start", "index": 0, "content_block": block }), end])
}

/// How the turn ended, how often the server was asked, and what a viewer saw.
async fn turn(answers: Vec<Vec<crate::stand_in::Step>>, after_text: bool) -> (TurnReport, usize, Vec<String>) {
    let server = StandIn::playing(answers).await;
    let backoff = Duration::from_millis(1).into();
    let retry = Retry::new(RetryOptions { backoff, after_text, ..RetryOptions::default() }).unwrap();
    let agent = Agent::builder("a", anthropic(&server.url)).hook(retry).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let mut tail = conversations.subscribe(&"c".into(), Delivery::Lossless, Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = conversations.turn(&"c".into(), "hi", Scope::local()).await.unwrap() else {
        panic!()
    };
    let mut seen = Vec::new();
    while let Some(told) = tail.try_next() {
        match &told.item {
            FeedItem::Live(LiveEvent::TextDelta { attempt, text }) => seen.push(format!("{attempt}:{text}")),
            FeedItem::Live(LiveEvent::AttemptDiscarded { attempt, .. }) => seen.push(format!("{attempt}:taken back")),
            _ => {}
        }
    }
    (*ended, server.bodies().len(), seen)
}

#[tokio::test]
async fn before_any_text_an_overloaded_provider_is_asked_again() {
    let fine = || streaming(&stream("text", "Hello.", false));
    for refused in
        [answering(529, "retry-after: 0\r\n", ""), streaming(&stream("thinking", "Hm.", true)), streaming("")]
    {
        let (ended, asked, seen) = turn(vec![refused, fine()], false).await;
        assert_eq!((ended.outcome, ended.text().as_str(), asked), (Outcome::Completed, "Hello.", 2));
        assert!(seen.contains(&"2:Hello.".to_owned()), "{seen:?}");
    }
}

#[tokio::test]
async fn after_text_was_told_it_is_asked_again_only_if_allowed_and_the_text_is_taken_back() {
    let answers = || vec![streaming(&stream("text", "Well", true)), streaming(&stream("text", "Hello.", false))];
    let (ended, asked, seen) = turn(answers(), false).await;
    assert_eq!((ended.outcome, asked), (Outcome::Failed, 1));
    assert_eq!(seen, ["1:Well", "1:taken back"]);
    let (ended, asked, seen) = turn(answers(), true).await;
    assert_eq!((ended.outcome, ended.text().as_str(), asked), (Outcome::Completed, "Hello.", 2));
    assert_eq!(seen, ["1:Well", "1:taken back", "2:Hello."]);
}
