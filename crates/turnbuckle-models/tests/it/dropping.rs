//! Dropping the future closes the socket, shown from the server's side; and a whole turn that is cancelled does the same.

use std::time::Duration;

use serde_json::json;
use turnbuckle::model::Model;
use turnbuckle::{Agent, Conversations, Scope};

use crate::kit::{Ear, anthropic, asking, delta, openai};
use crate::stand_in::{StandIn, Step, streaming};

fn held(before: &str) -> Vec<Step> {
    let mut steps = streaming(before);
    steps.push(Step::AwaitClose);
    steps
}

/// The server waits for the close; a socket that stays open would let the test run into its limit.
async fn sees_close(mut server: StandIn) {
    let seen = tokio::time::timeout(Duration::from_secs(10), server.closed.recv()).await;
    assert_eq!(seen.expect("the socket stayed open"), Some(()));
}

#[tokio::test]
async fn dropped_in_mid_stream_the_socket_is_closed() {
    let start = format!("data: {}\n\n", delta(json!({ "content": "Well" })));
    let server = StandIn::playing(vec![held(&start)]).await;
    let (model, request, mut ear) = (openai(&server.url), asking("hi"), Ear::default());
    {
        let future = model.stream(&request, &mut ear);
        // Half a second of real time, since a real socket has to carry the first words.
        let unfinished = tokio::time::timeout(Duration::from_millis(500), future).await;
        assert!(unfinished.is_err(), "it has no end yet");
    }
    assert_eq!(ear.text, "Well");
    sees_close(server).await;
}

#[tokio::test]
async fn dropped_before_the_first_byte_the_socket_is_closed() {
    let server = StandIn::playing(vec![vec![Step::AwaitClose]]).await;
    let (model, request, mut ear) = (anthropic(&server.url), asking("hi"), Ear::default());
    let asked = tokio::time::timeout(Duration::from_millis(300), model.stream(&request, &mut ear)).await;
    assert!(asked.is_err());
    sees_close(server).await;
}

#[tokio::test]
async fn a_cancelled_turn_closes_the_providers_connection() {
    let start = format!("data: {}\n\n", delta(json!({ "content": "Well" })));
    let server = StandIn::playing(vec![held(&start)]).await;
    let conversations = Conversations::in_memory(Agent::builder("a", openai(&server.url)).build().unwrap());
    let id = "c".into();
    let turn = conversations.turn(&id, "hi", Scope::local());
    let cancel = async {
        while server.received.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        conversations.cancel(&id, Scope::local()).await.unwrap();
    };
    let (ended, ()) = tokio::join!(turn, cancel);
    drop(ended);
    sees_close(server).await;
}
