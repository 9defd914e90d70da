//! Providers by name: keys and addresses from the environment, and what is said when something is missing.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::program::{Folder, Ran};

fn run(variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let folder = Folder::new();
    let mut command = folder.command(arguments);
    command.envs(variables.iter().copied());
    Ran::of(command)
}

#[test]
fn without_a_key_it_is_said_which_one() {
    run(&[], &["run", "--model", "anthropic:claude", "hi"])
        .exits(2)
        .says("ANTHROPIC_API_KEY is not set")
        .says("hint: export")
        .says("`turnbuckle doctor`");
    run(&[], &["run", "--model", "openai:gpt", "hi"]).exits(2).says("OPENAI_API_KEY is not set");
    run(&[("OPENAI_API_KEY", " ")], &["run", "--model", "openai:gpt", "hi"]).exits(2).says("is not set");
    run(&[], &["check", "--model", "anthropic:claude"]).exits(2).says("ANTHROPIC_API_KEY is not set");
}

#[test]
fn an_address_that_is_none_is_blamed_on_its_variable_and_not_shown() {
    let variables = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "user:secret@nowhere")];
    let ran = run(&variables, &["run", "--model", "openai:gpt", "hi"]).exits(2).says("OPENAI_BASE_URL: the base URL");
    assert!(!ran.err.contains("secret"));
}

#[test]
fn a_key_that_is_none_is_blamed_on_its_own_variable() {
    let variables = [("OPENAI_API_KEY", "sk-se\ncret"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")];
    let ran = run(&variables, &["run", "--model", "openai:m", "hi"])
        .exits(2)
        .says("OPENAI_API_KEY: the key holds characters")
        .says("export OPENAI_API_KEY=… again");
    assert!(!ran.err.contains("OPENAI_BASE_URL") && !ran.err.contains("cret"), "{}", ran.err);
}

#[test]
fn what_every_provider_reads_is_in_the_help_the_hints_and_doctor() {
    let (help, hint) =
        (run(&[], &["run", "--help"]).exits(0).out, run(&[], &["run", "--model", "nobody", "hi"]).exits(2).err);
    let (help, doctor) = (help.split_whitespace().collect::<Vec<_>>().join(" "), run(&[], &["doctor"]).exits(0).out);
    for provider in turnbuckle_models::providers() {
        assert!(
            help.contains(provider.form()) && hint.contains(provider.form()),
            "{}:\n{help}\n{hint}",
            provider.form()
        );
        for variable in provider.key_variables().iter().copied().chain(provider.base_variable()) {
            assert!(doctor.lines().any(|line| line.starts_with(variable)), "{variable}:\n{doctor}");
        }
    }
    run(&[], &["run", "--model", "antropic:m", "hi"]).exits(2).says("did you mean `anthropic`?");
}

#[test]
fn a_dead_port_fails_the_turn_and_says_where() {
    run(&[], &["run", "--model", "openai@http://127.0.0.1:9/v1:m", "hi"])
        .exits(1)
        .says("asking 127.0.0.1:9")
        .says("refused")
        .says("hint: is the server there")
        .says("`turnbuckle doctor`");
    run(&[("OLLAMA_HOST", "127.0.0.1:9")], &["run", "--model", "ollama:m", "hi"]).exits(1).says("asking 127.0.0.1:9");
}

/// A server that gives everybody this answer; what it was asked first comes back.
fn answering(answer: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length == 1) {
                head.push(byte[0]);
            }
            let _ = asked.send(String::from_utf8_lossy(&head).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, seen)
}

const GREETING: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

#[test]
fn what_a_person_can_set_right_is_a_hint_and_doctor_is_named() {
    for (answer, hint) in [
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>", "end in /v1"),
        ("HTTP/1.1 401 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "is the key right"),
        ("HTTP/1.1 404 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "does the provider know the model"),
    ] {
        let (address, _) = answering(answer);
        let model = format!("openai@http://{address}:m");
        run(&[], &["run", "--model", &model, "hi"]).exits(1).says(hint).says("`turnbuckle doctor`");
        run(&[], &["doctor", "--model", &model]).exits(1).says(hint);
    }
}

#[test]
fn a_proxy_is_taken_from_the_environment_and_this_machine_is_asked_directly() {
    let (proxy, asked) = answering(GREETING);
    let by_proxy = format!("http://{proxy}");
    let variables = [("HTTP_PROXY", by_proxy.as_str()), ("http_proxy", by_proxy.as_str())];
    let model = "openai@http://models.example.com/v1:m";
    run(&variables, &["run", "--model", model, "hi"]).exits(0).prints("hello\n");
    // Its server is asked first how many tokens the model takes.
    let heads: Vec<String> = asked.try_iter().collect();
    assert!(heads.last().unwrap().starts_with("POST http://models.example.com/v1/chat/completions"), "{heads:?}");
    assert!(heads.iter().all(|head| head.contains(" http://models.example.com/")), "{heads:?}");

    let (here, _) = answering(GREETING);
    let nowhere = [("HTTP_PROXY", "http://127.0.0.1:9"), ("http_proxy", "http://127.0.0.1:9")];
    run(&nowhere, &["run", "--model", &format!("openai@http://{here}/v1:m"), "hi"]).exits(0).prints("hello\n");
}

#[test]
fn the_first_key_found_chooses_the_model_and_it_is_said() {
    let nowhere = "http://127.0.0.1:9";
    let anthropic = [("ANTHROPIC_API_KEY", "sk-secret-1"), ("ANTHROPIC_BASE_URL", nowhere), ("OPENAI_API_KEY", "k")];
    let ran = run(&anthropic, &["run", "hi"]).exits(1).says("note: no model was chosen: anthropic:claude");
    assert!(!ran.err.contains("sk-secret-1"));
    run(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", nowhere)], &["run", "hi"]).exits(1).says("chosen: openai:gpt");
    run(&[], &["run", "hi"]).exits(0).says("no key was found, so the demo model answers");
}

#[test]
fn doctor_says_what_is_there_and_shows_no_secret() {
    let ran = run(&[("OLLAMA_HOST", "127.0.0.1:9")], &["doctor"]).exits(0);
    assert!(
        ran.out.contains("demo (no key was found)") && ran.out.contains("nobody answers (http://127.0.0.1:9/v1)"),
        "{}",
        ran.out
    );
    let variables =
        [("OPENAI_API_KEY", "sk-secret-2"), ("OPENAI_BASE_URL", "http://u:sk-secret-3@127.0.0.1:9/v1?k=sk-secret-4")];
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let ran = run(&variables, arguments).exits(1).says("asking 127.0.0.1:9");
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains("sk-secret"), "{text}");
        }
        assert!(ran.out.contains("http://127.0.0.1:9/v1"), "{}", ran.out);
    }
    run(&[], &["doctor", "--model", "gpt"]).exits(1).says("there is no model");
}

#[test]
fn prices_of_ones_own_are_read_or_refused() {
    let folder = Folder::new();
    let model = ["check", "--model", "openai@http://127.0.0.1:9/v1:m"];
    for (text, exit) in [("[models]\nm = { input = 1.0, output = 2.0 }", 0), ("[models]\nm = 3", 2), ("[modles]", 2)] {
        let path = folder.file("prices.toml", text);
        let mut command = folder.command(&model);
        command.env("TURNBUCKLE_PRICES", path);
        let ran = Ran::of(command).exits(exit);
        assert_eq!(ran.err.contains("TURNBUCKLE_PRICES"), exit == 2, "{}", ran.err);
    }
}
