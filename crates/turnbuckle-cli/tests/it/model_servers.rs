//! `turnbuckle run` against servers that we did not write, over both wires. `scripts/model-servers` starts them and sets where
//! they are; without it these tests are ignored, and the harness says so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::program::{Folder, Ran};

fn server(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this under scripts/model-servers"))
}

/// The program over each wire: the name of a model, and where it is.
fn both(folder: &Folder, server: &str, arguments: &[&str]) -> [Command; 2] {
    let wire = |model: &str, variable: &str, url: String| {
        let mut all = arguments.to_vec();
        all.extend(["--model", model]);
        let mut command = folder.command(&all);
        command.env(variable, url).env("ANTHROPIC_API_KEY", "sk-test-wire").env("OPENAI_API_KEY", "sk-test-wire");
        command
    };
    [
        wire("anthropic:claude-sonnet-4-5", "ANTHROPIC_BASE_URL", server.to_owned()),
        wire("openai:gpt-4o", "OPENAI_BASE_URL", format!("{server}/v1")),
    ]
}

fn without_tools() -> Folder {
    let folder = Folder::new();
    folder.file("turnbuckle.toml", "[tools]\nbuiltin = []\n");
    folder
}

/// The real model works for one at a time, and these tests watch it.
static LLAMA: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
#[ignore = "needs scripts/model-servers"]
fn a_real_model_answers_and_its_usage_is_counted() {
    let _alone = LLAMA.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = without_tools();
    for command in both(&folder, &server("TURNBUCKLE_TEST_LLAMA"), &["run", "--json", "Say hello in five words."]) {
        let ran = Ran::of(command).exits(0);
        let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let deltas = lines.iter().filter(|line| line["type"] == "text_delta").count();
        let ended = lines.iter().find(|line| line["type"] == "turn_ended").unwrap();
        assert!(deltas > 1, "it streamed: {deltas}");
        assert!(
            ended["usage"]["input"].as_u64().unwrap() > 0 && ended["usage"]["output"].as_u64().unwrap() > 0,
            "{ended}"
        );
    }
}

#[test]
#[ignore = "needs scripts/model-servers"]
fn a_tool_turn_is_completed_over_both_wires() {
    let folder = Folder::new();
    folder.file("hello.txt", "hello");
    folder.file("turnbuckle.toml", "[tools]\nbuiltin = [\"list_files\"]\n");
    for command in both(&folder, &server("TURNBUCKLE_TEST_AIMOCK"), &["run", "what is in this folder?"]) {
        Ran::of(command).exits(0).prints("A file named hello.txt.\n").says("list_files");
    }
}

#[test]
#[ignore = "needs scripts/model-servers"]
fn an_interrupt_closes_the_books_and_the_real_server_stops_working() {
    let _alone = LLAMA.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = without_tools();
    let llama = server("TURNBUCKLE_TEST_LLAMA");
    for mut command in both(&folder, &llama, &["run", "--json", "Write a very long story. Do not stop."]) {
        let mut child = command.spawn().unwrap();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("text_delta") {
            let read = std::io::BufRead::read_line(&mut stdout, &mut said).unwrap();
            assert!(read > 0, "it ended before it said anything: {said}");
        }
        assert!(is_working(&llama), "it works while it speaks");
        let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(interrupt.success());
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(said.contains("\"outcome\":\"cancelled\""), "{said}");
        let limit = Instant::now() + Duration::from_secs(10);
        while is_working(&llama) {
            assert!(Instant::now() < limit, "the server still works for nobody");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn is_working(llama: &str) -> bool {
    let address = llama.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /slots HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.contains("\"is_processing\""), "{answer}");
    answer.contains("\"is_processing\":true")
}

#[test]
#[ignore = "needs scripts/model-servers"]
fn doctor_finds_the_model_and_asks_it_for_one_token() {
    let _alone = LLAMA.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = without_tools();
    for command in both(&folder, &server("TURNBUCKLE_TEST_LLAMA"), &["doctor", "--json"]) {
        let ran = Ran::of(command).exits(0);
        let found: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(found["check"]["ok"], true, "{found}");
        assert_eq!(found["check"]["usage"]["output"], 1, "{found}");
        assert!(!ran.out.contains("sk-test-wire"), "a key is never shown");
    }
}
