//! Model options of `[agent]` and `[[agents]]`: checked against the provider, and sent.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::program::{Folder, Ran};

/// A server of the Messages API or of chat completions that says `ok`, and passes on the bodies it was sent.
fn server() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (tell, bodies)) = (listener.local_addr().unwrap(), channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut read, mut piece) = (Vec::new(), [0; 4096]);
            let body = loop {
                let count = stream.read(&mut piece).unwrap_or(0);
                read.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&read).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|rest| rest.lines().next()?.parse().ok());
                if body.len() >= length.unwrap_or(0) || count == 0 {
                    break (head.to_owned(), body.to_owned());
                }
            };
            let events = match body.0.contains("/v1/messages") {
                true => {
                    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
                     event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"ok\"}}\n\n\
                     event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
                     event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n\
                     event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
                }
                false => {
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
                }
            };
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{events}",
                events.len()
            );
            let _closed = stream.write_all(answer.as_bytes());
            if let Ok(body) = serde_json::from_str(&body.1) {
                let _gone = tell.send(body);
            }
        }
    });
    (format!("http://{address}"), bodies)
}

fn run(folder: &Folder, base: &str, arguments: &[&str]) -> Ran {
    let mut command = folder.command(arguments);
    command.env("ANTHROPIC_BASE_URL", base).env("OPENAI_BASE_URL", format!("{base}/v1"));
    command.env("ANTHROPIC_API_KEY", "sk-test").env("OPENAI_API_KEY", "sk-test");
    Ran::of(command)
}

#[test]
fn options_reach_the_provider_under_its_own_names() {
    let (base, bodies) = server();
    let folder = Folder::new();
    folder.file(
        "turnbuckle.toml",
        "[agent]\nmodel = \"anthropic:claude-sonnet-4-5\"\nmax_output_tokens = 5000\nthinking = 2000\nstop = [\"END\"]\neffort = \"low\"\n\
         [tools]\nbuiltin = []\n[[tools.provider]]\ntype = \"web_search_20250305\"\nname = \"web_search\"\nmax_uses = 2\n",
    );
    run(&folder, &base, &["run", "hi"]).exits(0).prints("ok\n");
    let body = bodies.recv().unwrap();
    assert_eq!(body["max_tokens"], 5000);
    assert_eq!(body["thinking"], serde_json::json!({ "type": "enabled", "budget_tokens": 2000 }));
    assert_eq!(body["stop_sequences"][0], "END");
    assert_eq!(body["output_config"]["effort"], "low");
    assert_eq!(body["tools"][0]["type"], "web_search_20250305");
    assert_eq!(body["tools"][0]["max_uses"], 2);
    folder.file(
        "turnbuckle.toml",
        "[agent]\nmodel = \"openai:gpt-4o\"\nmax_output_tokens = 50\ntemperature = 0.5\ntop_p = 0.9\nstop = [\"END\"]\n[tools]\nbuiltin = []\n",
    );
    run(&folder, &base, &["run", "hi"]).exits(0).prints("ok\n");
    let body = bodies.recv().unwrap();
    assert_eq!((&body["temperature"], &body["top_p"], &body["stop"][0]), (&0.5.into(), &0.9.into(), &"END".into()));
    assert_eq!(body["max_tokens"], 50);
}

#[test]
fn what_a_provider_refuses_is_said_with_its_line_before_anything_is_sent() {
    let (base, bodies) = server();
    for (config, says) in [
        (
            "model = \"anthropic:claude-sonnet-4-5\"\ntemperature = 1.5",
            "turnbuckle.toml:3: `temperature` in [agent] is 1.5, and this provider takes 0 to 1",
        ),
        (
            "model = \"anthropic:claude-sonnet-5-5\"\nthinking = 4000",
            "turnbuckle.toml:3: `thinking` in [agent] is for older models",
        ),
        ("model = \"openai:gpt-4o\"\nthinking = 4000", "`thinking` in [agent] is not an option of chat completions"),
        ("model = \"openai:gpt-4o\"\neffort = \"max\"", "`effort` in [agent] is \"max\""),
        ("model = \"openai:o3\"\ntemperature = 1", "cannot be set for o3, which reasons"),
        ("temperture = 1", "did you mean `temperature`?"),
    ] {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", &format!("[agent]\n{config}\n"));
        run(&folder, &base, &["check"]).exits(2).says(says).says("\n    | ^").says("hint: ");
        run(&folder, &base, &["run", "hi"]).exits(2).says(says);
    }
    assert!(bodies.try_recv().is_err());
}

#[test]
fn a_sub_agent_has_a_model_options_tools_hooks_and_limits_of_its_own() {
    let (base, bodies) = server();
    let folder = Folder::new();
    folder.file(
        "script.json",
        r#"{ "replies": [{ "tool_calls": [{ "id": "r", "name": "writer", "arguments": { "task": "write" } }] }, { "text": "over" }] }"#,
    );
    folder.file(
        "turnbuckle.toml",
        "[agent]\nmodel = \"script:script.json\"\n[tools]\nbuiltin = [\"read_file\"]\n\
         [[agents]]\nname = \"writer\"\ndescription = \"Writes.\"\nsystem = \"You write.\"\nmodel = \"openai:gpt-4o\"\ntemperature = 0.25\n\
         tools = [\"write_file\", \"list_files\"]\n[agents.limits]\nmax_model_calls = 3\n\
         [[agents.hooks]]\nuse = \"command\"\nname = \"seen\"\non = \"ended\"\nrun = \"touch seen\"\n",
    );
    run(&folder, &base, &["run", "go"]).exits(0).prints("over\n");
    let body = bodies.recv().unwrap();
    assert_eq!(body["temperature"], 0.25);
    let tools: Vec<&str> =
        body["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["write_file", "list_files"]);
    assert!(folder.path().join("seen").exists(), "its own hook ran");
    let check = run(&folder, &base, &["check"]).exits(0);
    assert!(check.out.contains("approve   none; in sub-agents, too: write_file\n"), "{}", check.out);
}

#[test]
fn an_audited_request_has_the_options_that_were_sent_and_says_which_tools_were_withheld() {
    let (base, bodies) = server();
    let folder = Folder::new();
    let model = format!("openai@{base}/v1:m");
    folder.file(
        "turnbuckle.toml",
        &format!(
            "[agent]\nmodel = \"{model}\"\ntemperature = 0.25\nmax_output_tokens = 333\n[limits]\nmax_model_calls = 1\n\
             on_budget = \"answer\"\n[store]\naudit = true\n"
        ),
    );
    run(&folder, &base, &["run", "-c", "m", "hi"]).exits(5);
    let sent = bodies.recv().unwrap();
    assert_eq!((&sent["temperature"], &sent["max_tokens"], &sent["tools"]), (&json!(0.25), &json!(333), &Value::Null));
    let why = folder.run(&["why", "m"]).exits(0).out;
    let turn = why.lines().next().unwrap().split([' ', ',']).nth(1).unwrap().to_owned();
    let shown = folder.run(&["show", "m", "--context", &turn]).exits(0);
    let shown = shown.says("as it was sent").says("its tools were withheld");
    let body: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(body["tools"], json!([]));
    assert!(body["withheld_tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "read_file"), "{body}");
    let rest: Value = sent.as_object().unwrap().clone().into_iter().filter(|(name, _)| name != "messages").collect();
    assert_eq!(body["fields"], rest);
    // The tools were not sent, so no text of them was.
    let found = folder.run(&["why", "m", "--find", "read_file"]).exits(0).out;
    assert!(!found.contains("sent in"), "{found}");
}
