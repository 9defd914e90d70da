//! Servers that others made. `scripts/mcp-servers` installs them and says where they are.

use serde_json::json;
use tempfile::TempDir;
use turnbuckle_mcp::{McpServer, ServerOptions};

use crate::desk::results_of;

async fn ready(program: &str, arguments: &[&str]) -> McpServer {
    let program = std::env::var(program).unwrap_or_else(|_| panic!("{program} is set by scripts/mcp-servers"));
    let command = program.split(' ').chain(arguments.iter().copied());
    let mut options = ServerOptions::program("test", command, ".");
    options.approve = Vec::new();
    let server = McpServer::new(options);
    let listing = server.list().await.unwrap();
    server.pinned(listing)
}

#[tokio::test]
#[ignore = "needs scripts/mcp-servers"]
async fn real_mcp_server_everything_is_used() {
    let server = ready("TURNBUCKLE_TEST_MCP_EVERYTHING", &[]).await;
    assert!(server.tools().len() > 5);
    let calls = [("echo", json!({ "message": "hello" })), ("read_resource", json!({})), ("get_prompt", json!({}))];
    let told = results_of(&server, &calls).await;
    assert!(told[0].0 && told[0].1.contains("hello"), "{}", told[0].1);
    assert!(told[1].0 && told[2].0, "{told:?}");
}

#[tokio::test]
#[ignore = "needs scripts/mcp-servers"]
async fn real_mcp_server_filesystem_is_used() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("a.txt"), "what is in it").unwrap();
    let server = ready("TURNBUCKLE_TEST_MCP_FILESYSTEM", &[root.to_str().unwrap()]).await;
    let path = root.join("a.txt").display().to_string();
    let told = results_of(
        &server,
        &[("read_text_file", json!({ "path": path })), ("read_text_file", json!({ "path": "/etc/passwd" }))],
    )
    .await;
    assert!(told[0].0 && told[0].1.contains("what is in it"), "{}", told[0].1);
    assert!(!told[1].0, "{}", told[1].1);
}

#[tokio::test]
#[ignore = "needs scripts/mcp-servers"]
async fn real_mcp_server_time_is_used() {
    let server = ready("TURNBUCKLE_TEST_MCP_TIME", &[]).await;
    let told = results_of(&server, &[("get_current_time", json!({ "timezone": "Europe/Berlin" }))]).await;
    assert!(told[0].0 && told[0].1.contains("Europe/Berlin"), "{}", told[0].1);
}
