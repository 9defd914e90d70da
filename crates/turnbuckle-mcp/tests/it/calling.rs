//! Calls, and what comes back.

use serde_json::json;
use turnbuckle::tool::{Approval, Effect};
use turnbuckle_mcp::{Hints, McpServer};

use crate::desk::{Desk, results, results_of, rig};

async fn ready(desk: &Desk) -> McpServer {
    let server = McpServer::new(desk.options("good"));
    let listing = server.list().await.unwrap();
    server.pinned(listing)
}

#[tokio::test]
async fn a_call_is_answered_and_the_answer_is_fenced() {
    let desk = Desk::new();
    let server = ready(&desk).await;
    let told = results(&server, &["hello", "again", "forge"]).await;
    assert_eq!(told[0], (true, "<foreign source=\"mcp/test\">\nhello\n</foreign>".to_owned()));
    assert!(told[2].1.contains("‹/foreign> Ignore"), "{}", told[2].1);
    // Once to be listed, and once for all calls.
    assert_eq!(desk.notes().matches("started").count(), 2);
    assert_eq!(desk.notes().matches("listed").count(), 2);
}

#[tokio::test]
async fn what_a_server_does_wrong_is_a_result_that_the_model_reads() {
    let desk = Desk::new();
    let server = ready(&desk).await;
    let told = results(&server, &["error", "failed", "garbage", "wrong", "fine"]).await;
    assert!(!told[0].0 && told[0].1.contains("no such luck"), "{}", told[0].1);
    assert!(!told[1].0 && told[1].1.contains("it did not work"), "{}", told[1].1);
    assert!(told[2].1.contains("after the garbage"), "{}", told[2].1);
    assert!(!told[3].0, "{}", told[3].1);
    assert!(told[4].0 && told[4].1.contains("fine"), "{}", told[4].1);
}

#[tokio::test]
async fn an_error_of_a_server_is_fenced_and_cut_and_keeps_what_was_asked() {
    let desk = Desk::new();
    let calls = [("echo", json!({ "text": "ask and fail" })), ("read_resource", json!({ "uri": "test://forge" }))];
    let told = results_of(&ready(&desk).await, &calls).await;
    for (ok, text) in &told {
        assert!(!ok && text.len() < 6_000, "{}", text.len());
        let (ours, theirs) = text.split_once("<foreign source=\"mcp/test\">\n").unwrap();
        assert!(ours.contains("the MCP server test") && !ours.contains("Ignore"), "{ours}");
        assert!(theirs.contains("‹/foreign> Ignore") && theirs.contains("bytes left out"), "{theirs}");
        assert!(theirs.ends_with("\n</foreign>") && theirs.matches("</foreign>").count() == 1, "{theirs}");
    }
    assert!(told[0].1.contains("wanted to ask a person") && told[0].1.contains("What is your password?"));
}

#[tokio::test]
async fn a_large_answer_is_cut_and_keeps_both_ends_and_its_fence() {
    let desk = Desk::new();
    let (ok, text) = results(&ready(&desk).await, &["large"]).await.remove(0);
    assert!(ok && text.len() < 300_000, "{}", text.len());
    assert!(text.starts_with("<foreign") && text.contains("begin") && text.ends_with("end\n</foreign>"));
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends_the_call_at_once_and_says_why() {
    let desk = Desk::new();
    let told = results(&ready(&desk).await, &["very large", "too large"]).await;
    assert!(told[0].0 && told[0].1.contains("begin") && told[0].1.ends_with("end\n</foreign>"));
    assert!(!told[1].0 && told[1].1.contains("a message of more than 64 MiB"), "{}", told[1].1);
}

#[tokio::test]
async fn progress_is_told() {
    let desk = Desk::new();
    let mut rig = rig(&ready(&desk).await, &[("echo", json!({ "text": "progress" }))]);
    rig.listen().await.unwrap();
    rig.ended("go").await.unwrap();
    let told: Vec<String> = rig.told().iter().map(|event| format!("{event:?}")).collect();
    assert!(told.iter().any(|event| event.contains("ToolProgress") && event.contains("step ")), "{told:?}");
}

#[tokio::test]
async fn nobody_is_asked_what_a_server_wants_to_know_and_the_result_says_so() {
    let desk = Desk::new();
    let (ok, text) = results(&ready(&desk).await, &["ask"]).await.remove(0);
    assert!(ok && text.contains("the answer was decline"), "{text}");
    assert!(text.contains("nobody was asked: What is your password?"), "{text}");
}

#[tokio::test]
async fn a_cancelled_turn_tells_the_server() {
    let desk = Desk::new();
    let server = ready(&desk).await;
    let mut rig = rig(&server, &[("slow", json!({}))]);
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let running = tokio::spawn(async move { rig.ended("go").await });
    desk.until_noted("slow began").await;
    conversations.cancel(&id, turnbuckle::Scope::local()).await.unwrap();
    desk.until_noted("cancelled").await;
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn resources_and_prompts_are_reached_by_tools() {
    let desk = Desk::new();
    let calls = [
        ("read_resource", json!({})),
        ("read_resource", json!({ "uri": "test://a" })),
        ("get_prompt", json!({})),
        ("get_prompt", json!({ "name": "greet", "arguments": { "who": "Ann" } })),
    ];
    let told = results_of(&ready(&desk).await, &calls).await;
    for (result, expected) in told.iter().zip(["test://a a", "the resource", "greet(who)", "Hello Ann"]) {
        assert!(result.0 && result.1.contains(expected), "{}", result.1);
    }
}

#[tokio::test]
async fn lists_choose_the_tools_and_hints_count_only_where_they_are_trusted() {
    let desk = Desk::new();
    let listing = McpServer::new(desk.options("good")).list().await.unwrap();
    let specs = |change: fn(&mut turnbuckle_mcp::ServerOptions)| {
        let mut options = desk.options("good");
        options.approve = vec!["*".to_owned()];
        change(&mut options);
        let tools = McpServer::new(options).pinned(listing.clone()).tools();
        tools.iter().map(|tool| tool.spec().clone()).collect::<Vec<_>>()
    };
    let names = |specs: &[turnbuckle::tool::Spec]| -> Vec<String> {
        specs.iter().map(|spec| spec.definition.name.trim_start_matches("mcp__test__").to_owned()).collect()
    };
    let cost = |change: fn(&mut turnbuckle_mcp::ServerOptions)| {
        let mut options = desk.options("good");
        change(&mut options);
        McpServer::new(options).pinned(listing.clone()).tokens()
    };
    let without_ours = cost(|options| options.deny = vec!["read_resource".to_owned(), "get_prompt".to_owned()]);
    assert!(without_ours > 0 && cost(|_| ()) > without_ours + 40, "tools for resources and prompts cost as well");
    let all = specs(|_| ());
    assert_eq!(names(&all), ["echo", "write", "slow", "read_resource", "get_prompt"]);
    assert!(all.iter().all(|spec| spec.approval == Approval::Required));
    assert!(matches!(all[0].effect, Effect::Never));
    assert!(all[0].approval_note.as_ref().unwrap().contains("says that it only reads"));
    let some = specs(|options| {
        options.allow = vec!["*o*".to_owned()];
        options.deny = vec!["slow".to_owned(), "get_*".to_owned(), "read_*".to_owned()];
        options.hints = Hints::Trusted;
    });
    assert_eq!(names(&some), ["echo"]);
    assert!(some[0].approval == Approval::NotRequired && matches!(some[0].effect, Effect::Pure));
}
