//! Servers that offer something else than what was accepted.

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnbuckle_mcp::{Change, McpServer};

use crate::desk::{Desk, results, results_of, rig};

#[tokio::test]
async fn a_tool_whose_description_changed_is_not_called_and_the_others_are() {
    let desk = Desk::new();
    let accepted = McpServer::new(desk.options("good")).list().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (known, noted) = (accepted.clone(), seen.clone());
    let server = McpServer::new(desk.options("changed"))
        .pinned(accepted)
        .on_listed(move |now| noted.lock().unwrap().extend(known.changes(now)));
    let told = results_of(&server, &[("echo", json!({ "text": "hello" })), ("write", json!({ "text": "fine" }))]).await;
    assert!(!told[0].0 && told[0].1.contains("its definition has changed since"), "{}", told[0].1);
    assert!(told[1].0 && told[1].1.contains("fine"), "{}", told[1].1);
    assert_eq!(seen.lock().unwrap()[0], Change::Changed("echo".to_owned()));
    assert!(!desk.notes().contains("call echo"));
    // The model is told what was accepted.
    let description = server.tools()[0].spec().definition.description.to_string();
    assert_eq!(description, "Says it again.");
}

#[tokio::test]
async fn a_change_while_the_server_runs_counts_with_the_next_call() {
    let desk = Desk::new();
    let server = McpServer::new(desk.options("good"));
    let server = server.pinned(server.list().await.unwrap());
    let told = results(&server, &["hello", "change", "hello"]).await;
    assert!(told[0].0 && told[1].0, "{told:?}");
    assert!(!told[2].0 && told[2].1.contains("[not run]"), "{}", told[2].1);
}

#[tokio::test]
async fn a_change_counts_also_if_the_call_that_wanted_to_know_of_it_was_cancelled() {
    let desk = Desk::new();
    let server = McpServer::new(desk.options("slow to list"));
    let server = server.pinned(server.list().await.unwrap());
    assert!(results(&server, &["change"]).await[0].0);
    let mut rig = rig(&server, &[("echo", json!({ "text": "never" }))]);
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let running = tokio::spawn(async move { rig.ended("go").await });
    desk.until_noted("not listed").await;
    conversations.cancel(&id, turnbuckle::Scope::local()).await.unwrap();
    running.await.unwrap().unwrap();
    let told = results(&server, &["hello"]).await;
    assert!(!told[0].0 && told[0].1.contains("[not run]"), "{}", told[0].1);
}
