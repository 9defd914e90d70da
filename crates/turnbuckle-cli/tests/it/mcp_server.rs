//! `turnbuckle mcp`, spoken to as clients speak to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::program::Folder;

struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    count: u64,
}

impl Client {
    fn open(folder: &Folder, arguments: &[&str]) -> Self {
        let mut command = folder.command(&[&["mcp"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, lines) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, stdin, lines, count: 0 };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        assert_eq!(client.request("initialize", &hello)["serverInfo"]["name"], "turnbuckle");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.count += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.count, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the server went away");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.count {
                return if answer["error"].is_null() { answer["result"].clone() } else { answer };
            }
        }
    }

    /// The object of a result, or the text of one that failed.
    fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, String> {
        let result = self.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        match result["isError"].as_bool() {
            Some(true) => Err(result["content"][0]["text"].as_str().unwrap().to_owned()),
            _ => Ok(result["structuredContent"].clone()),
        }
    }

    fn close(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

const WRITES: &str = r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }, { "text": "written" }"#;
const ASKS: &str = r#"{ "tool_calls": [{ "id": "c1", "name": "ask_human", "arguments": { "question": "Which colour?" } }] }, { "text": "noted" }"#;

#[test]
fn a_client_starts_and_continues_conversations() {
    let folder = Folder::with_script(r#"{ "text": "one" }, { "text": "two" }"#);
    let mut client = Client::open(&folder, &[]);
    let tools = client.request("tools/list", &json!({}));
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["send", "list", "watch", "pending", "answer", "cancel"]);
    let first = client.call("send", json!({ "message": "hello" })).unwrap();
    assert_eq!((&first["outcome"], &first["answer"]), (&"completed".into(), &"one".into()));
    let id = first["conversation"].as_str().unwrap().to_owned();
    let second = client.call("send", json!({ "message": "again", "conversation": id })).unwrap();
    assert_eq!(second["answer"], "two");
    let seen = client.call("watch", json!({ "conversation": id, "since": 3 })).unwrap();
    assert_eq!(seen["state"], "idle");
    assert!(seen["events"].as_array().unwrap().iter().all(|event| event["seq"].as_u64().unwrap() > 3));
    assert_eq!(client.call("list", json!({})).unwrap()["conversations"][0]["conversation"], id);
    assert!(client.call("watch", json!({ "conversation": "nobody" })).is_err());
    assert!(client.call("send", json!({ "message": "x", "conversation": "no such id" })).is_err());
    client.close();
}

#[test]
fn a_client_cannot_approve_unless_the_user_allows_it() {
    let folder = Folder::with_script(WRITES);
    let mut client = Client::open(&folder, &[]);
    let waits = client.call("send", json!({ "message": "go" })).unwrap();
    assert_eq!(waits["state"], "waiting");
    let id = waits["conversation"].as_str().unwrap().to_owned();
    let approve = json!({ "conversation": id, "call": "c1", "approve": true });
    assert!(client.call("answer", approve.clone()).unwrap_err().contains("--allow-approvals"));
    // A result in the place of an approval is no way around it.
    assert!(client.call("answer", json!({ "conversation": id, "call": "c1", "answer": "done" })).is_err());
    client.close();
    assert!(!folder.path().join("a").exists());
    let mut client = Client::open(&folder, &["--allow-approvals"]);
    assert_eq!(client.call("pending", json!({})).unwrap()["pending"][0]["conversation"], id);
    assert_eq!(client.call("answer", approve).unwrap()["answer"], "written");
    client.close();
    assert_eq!(folder.read("a"), "x");
    let shown = folder.run(&["show", &id, "--json"]).exits(0);
    assert_eq!(shown.event("resolution")["via"], "mcp");
}

#[test]
fn a_question_is_answered_by_a_client_and_the_log_says_how_it_came() {
    let folder = Folder::with_script(ASKS);
    let mut client = Client::open(&folder, &[]);
    let waits = client.call("send", json!({ "message": "go" })).unwrap();
    let id = waits["conversation"].as_str().unwrap().to_owned();
    let done = client.call("answer", json!({ "conversation": id, "call": "c1", "answer": "blue" })).unwrap();
    assert_eq!(done["answer"], "noted");
    client.close();
    let shown = folder.run(&["show", &id, "--json"]).exits(0);
    assert_eq!(shown.event("resolution")["via"], "mcp");
    assert_eq!(shown.event("tool_result")["content"][0]["text"], "blue");
}

#[test]
fn a_client_that_does_not_wait_watches_a_turn_that_goes_on() {
    let folder = Folder::with_script(r#"{ "chunks": ["one ", "two ", "three"], "delay_ms": 700 }"#);
    let mut client = Client::open(&folder, &[]);
    let begun = client.call("send", json!({ "message": "go", "wait": 0 })).unwrap();
    assert_eq!(begun["state"], "running");
    let id = begun["conversation"].as_str().unwrap().to_owned();
    let seen = client.call("watch", json!({ "conversation": id })).unwrap();
    assert_ne!(seen["state"], "idle", "it looks at once: {seen}");
    let seen = client.call("watch", json!({ "conversation": id, "wait": 60 })).unwrap();
    assert_eq!(seen["state"], "idle");
    let ended = seen["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&ended["turn"], &ended["outcome"]), (&begun["turn"], &"completed".into()), "{ended}");
    assert!(client.call("watch", json!({ "conversation": id, "wait": 4000 })).unwrap_err().contains("at most"));
    client.close();
}

#[test]
fn garbage_ends_no_server_and_a_folder_that_was_not_accepted_is_not_served() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    let mut client = Client::open(&folder, &[]);
    client.send(&json!([1, 2]));
    writeln!(client.stdin.as_mut().unwrap(), "this is no JSON").unwrap();
    assert_eq!(
        client.request("tools/call", &json!({ "name": "send", "arguments": { "mesage": "x" } }))["error"]["code"],
        -32602
    );
    assert!(client.call("no_such_tool", json!({})).is_err());
    assert_eq!(client.call("send", json!({ "message": "hello" })).unwrap()["answer"], "one");
    client.close();
    let clone = Folder::cloned("", "[[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = \"true\"\n");
    clone.run(&["mcp"]).exits(2).says("turnbuckle trust");
}

#[test]
#[ignore = "needs scripts/mcp-servers"]
fn real_mcp_client_of_the_official_python_sdk_is_served() {
    let python = std::env::var("TURNBUCKLE_TEST_MCP_PYTHON").unwrap();
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    folder.file(
        "client.py",
        r#"
import asyncio, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            result = await session.call_tool("send", {"message": "hello"})
            print(tools, result.content[0].text)

asyncio.run(main())
"#,
    );
    let mut command = Command::new(python);
    command.args(["client.py", env!("CARGO_BIN_EXE_turnbuckle")]).current_dir(folder.path()).env("HOME", folder.home());
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("'send'") && out.contains("\"answer\":\"one\""), "{out}{err}");
}
