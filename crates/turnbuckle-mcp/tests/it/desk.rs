//! A server in a process of its own, and an agent that calls its tools.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnbuckle::event::EventKind;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome};
use turnbuckle_mcp::{McpServer, ServerOptions};

/// Where the server writes what happens to it.
pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn notes_file(&self) -> PathBuf {
        self.folder.path().join("notes")
    }

    /// The server in this mode; nobody is asked.
    pub(crate) fn options(&self, mode: &str) -> ServerOptions {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/server.py");
        let notes = self.notes_file().display().to_string();
        let mut options = ServerOptions::program("test", ["python3", script, mode, &notes], self.folder.path());
        options.approve = Vec::new();
        options
    }

    /// What happened to the server so far.
    pub(crate) fn notes(&self) -> String {
        fs::read_to_string(self.notes_file()).unwrap_or_default()
    }

    pub(crate) async fn until_noted(&self, text: &str) {
        let began = Instant::now();
        while !self.notes().contains(text) {
            assert!(began.elapsed() < Duration::from_secs(60), "{text:?} is not in {:?}", self.notes());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// An agent with the tools of this server, whose model makes these calls one after the other.
pub(crate) fn rig(server: &McpServer, calls: &[(&str, Value)]) -> Rig {
    let call = |(index, (tool, arguments)): (usize, &(&str, Value))| {
        ScriptReply::calls(&format!("c{index}"), &format!("mcp__test__{tool}"), arguments.clone())
    };
    let replies = calls.iter().enumerate().map(call).chain([ScriptReply::says("done")]);
    let mut agent = Agent::builder("tester", Script::of(replies));
    for tool in server.tools() {
        agent = agent.shared_tool(tool);
    }
    Rig::new(agent.build().unwrap())
}

/// The results of these calls of `echo`, in order.
pub(crate) async fn results(server: &McpServer, texts: &[&str]) -> Vec<(bool, String)> {
    let calls: Vec<_> = texts.iter().map(|text| ("echo", json!({ "text": text }))).collect();
    results_of(server, &calls).await
}

pub(crate) async fn results_of(server: &McpServer, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    let mut rig = rig(server, calls);
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    let log = rig.log().await.unwrap();
    let result = |kind: &EventKind| match kind {
        EventKind::ToolResult { ok, content, .. } => Some((*ok, content.text())),
        _ => None,
    };
    log.iter().filter_map(|event| result(&event.kind)).collect()
}
