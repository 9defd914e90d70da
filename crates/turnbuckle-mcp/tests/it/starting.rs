//! Servers that do not start, die, and come back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnbuckle::testing::PausedClock;
use turnbuckle_mcp::{McpError, McpServer};

use crate::desk::{Desk, results, results_of};

#[tokio::test]
async fn a_server_that_cannot_be_used_says_why() {
    let desk = Desk::new();
    let list = |mode: &str, seconds: u64| {
        let mut options = desk.options(mode);
        options.start_timeout = Duration::from_secs(seconds);
        async move { McpServer::new(options).list().await }
    };
    assert!(matches!(list("dies", 60).await, Err(McpError::Ended { .. } | McpError::Greeting(_))));
    assert!(matches!(list("silent", 1).await, Err(McpError::TooSlow { seconds: 1 })));
    let missing = turnbuckle_mcp::ServerOptions::program("none", ["no-such-program-anywhere"], ".");
    assert!(matches!(McpServer::new(missing).list().await, Err(McpError::Start(_))));
    let endless = list("endless", 60).await.unwrap();
    assert!(endless.tools.len() <= 256, "{}", endless.tools.len());
}

#[tokio::test]
async fn a_server_that_dies_takes_one_call_along_and_is_started_again_after_a_pause() {
    let desk = Desk::new();
    let clock = Arc::new(PausedClock::default());
    let mut options = desk.options("good");
    options.clock = clock.clone();
    let server = McpServer::new(options);
    let server = server.pinned(server.list().await.unwrap());
    let told = results(&server, &["fine", "die", "too soon"]).await;
    assert!(told[0].0, "{}", told[0].1);
    assert!(!told[1].0 && told[1].1.contains("whether it happened is unknown"), "{}", told[1].1);
    assert!(!told[2].0 && told[2].1.contains("started again in"), "{}", told[2].1);
    clock.advance(Duration::from_secs(60));
    let told = results(&server, &["back"]).await;
    assert!(told[0].0 && told[0].1.contains("back"), "{}", told[0].1);
    assert_eq!(desk.notes().matches("started").count(), 3);
}

#[tokio::test]
async fn many_calls_at_once_start_one_server() {
    let desk = Desk::new();
    let server = McpServer::new(desk.options("good"));
    let server = server.pinned(server.list().await.unwrap());
    let turns = (0..8).map(|_| results(&server, &["hello"]));
    for told in futures_util::future::join_all(turns).await {
        assert!(told[0].0, "{}", told[0].1);
    }
    assert_eq!(desk.notes().matches("started").count(), 2);
}

#[tokio::test]
async fn a_death_that_several_calls_see_is_one_death() {
    let desk = Desk::new();
    let clock = Arc::new(PausedClock::default());
    let mut options = desk.options("good");
    options.clock = clock.clone();
    let server = McpServer::new(options);
    let server = server.pinned(server.list().await.unwrap());
    let slow = |server: McpServer| async move { results_of(&server, &[("slow", json!({}))]).await };
    let open: Vec<_> = (0..4).map(|_| tokio::spawn(slow(server.clone()))).collect();
    desk.until_noted(&"call slow\nslow began\n".repeat(4)).await;
    let died = results(&server, &["die"]).await;
    assert!(died[0].1.contains("was lost in the middle"), "{}", died[0].1);
    for call in open {
        assert!(call.await.unwrap()[0].1.contains("was lost in the middle"));
    }
    // The pause of a first failure, not of a fifth.
    clock.advance(Duration::from_secs(2));
    let told = results(&server, &["back"]).await;
    assert!(told[0].0 && told[0].1.contains("back"), "{}", told[0].1);
}
