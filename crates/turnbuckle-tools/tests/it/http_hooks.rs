//! Hooks in a service: what is posted, and what answers decide.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use turnbuckle::Outcome;
use turnbuckle::hook::{HookExt as _, OnFailure, Point};
use turnbuckle::models::ScriptReply;
use turnbuckle::testing::Rig;
use turnbuckle_tools::HttpHook;

use crate::worker::{agent, call};

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    head: String,
    body: Vec<u8>,
    /// Which connection it came by.
    connection: usize,
}

impl Posted {
    fn header(&self, name: &str) -> String {
        let find = |line: &str| {
            line.split_once(':')
                .filter(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned())
        };
        self.head.lines().find_map(find).unwrap_or_default()
    }
}

/// A service on this machine. `answer` makes the response out of the request's JSON.
pub(crate) fn serve(
    answer: impl Fn(&Value) -> (u16, String) + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<Posted>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/hooks", listener.local_addr().unwrap().port());
    let posted: Arc<Mutex<Vec<Posted>>> = Arc::default();
    let (noted, answer) = (posted.clone(), Arc::new(answer));
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let (noted, answer) = (noted.clone(), answer.clone());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let one = Posted { head, body: Vec::new(), connection };
                    let mut body = vec![0; one.header("content-length").parse().unwrap()];
                    reader.read_exact(&mut body).unwrap();
                    let (status, text) = answer(&serde_json::from_slice(&body).unwrap());
                    noted.lock().unwrap().push(Posted { body, ..one });
                    let head = format!(
                        "HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: {}\r\n\r\n",
                        text.len()
                    );
                    if stream.write_all((head + &text).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, posted)
}

pub(crate) fn decides(request: &Value, decision: Value) -> (u16, String) {
    (200, json!({"jsonrpc": "2.0", "id": request["id"], "result": decision}).to_string())
}

#[tokio::test]
async fn a_service_denies_and_its_posts_are_signed_and_share_a_connection() {
    let (url, posted) = serve(|request| {
        let command = request["params"]["call"]["arguments"]["command"].as_str().unwrap_or_default().to_owned();
        match command.as_str() {
            "rm" => decides(request, json!({"decision": "deny", "reason": "not rm"})),
            _ => decides(request, json!({"decision": "continue"})),
        }
    });
    let hook = HttpHook::new("policy", [Point::BeforeTool], &url, "whsec_c2VjcmV0").unwrap();
    let replies = [call("rm"), call("ls"), ScriptReply::says("well")];
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    let trace = rig.trace("go").await;
    assert!(trace.contains("[denied by policy] not rm") && trace.contains("ran ls"), "{trace}");
    let posted = posted.lock().unwrap().clone();
    assert_eq!(posted.len(), 2);
    assert_eq!(posted[0].connection, posted[1].connection, "the connection is kept");
    let request: Value = serde_json::from_slice(&posted[0].body).unwrap();
    assert_eq!((&request["method"], &request["params"]["hook"]), (&json!("before_tool"), &json!("policy")));
    for one in &posted {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"secret").unwrap();
        let (id, time) = (one.header("webhook-id"), one.header("webhook-timestamp"));
        [id.as_bytes(), b".", time.as_bytes(), b".", &one.body].iter().for_each(|part| mac.update(part));
        assert_eq!(one.header("webhook-signature"), format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())));
    }
    assert_ne!(posted[0].header("webhook-id"), posted[1].header("webhook-id"));
}

/// The first example of the page in a language that has this text in it.
fn example(language: &str, has: &str) -> String {
    let page = include_str!("../../../../docs/hook-workers.md");
    let fence = format!("```{language}\n");
    let mut all = page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    all.find(|code| code.contains(has)).unwrap().to_owned()
}

#[tokio::test]
async fn the_examples_that_check_a_signature_accept_a_true_one_and_no_other() {
    let (url, posted) = serve(|request| decides(request, json!({"decision": "continue"})));
    let hook = HttpHook::new("policy", [Point::BeforeAgent], &url, "whsec_c2VjcmV0").unwrap();
    let mut rig = Rig::new(agent([ScriptReply::says("x")]).hook(hook).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    let one = posted.lock().unwrap()[0].clone();
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: Value = names.into_iter().map(|name| (name.to_owned(), Value::from(one.header(name)))).collect();
    let given = json!({"headers": headers, "body": String::from_utf8(one.body).unwrap()}).to_string();
    let in_python = format!(
        "import json, sys\n{}\ngiven = json.loads(sys.argv[1])\nh, b = given['headers'], given['body'].encode()\n\
         print(is_genuine('whsec_c2VjcmV0', h, b), is_genuine('other', h, b), is_genuine('whsec_c2VjcmV0', h, b + b' '), \
         is_genuine('whsec_c2VjcmV0', dict(h, **{{'webhook-timestamp': '1'}}), b))",
        example("python", "is_genuine")
    );
    let in_node = format!(
        "{}\nconst {{ headers: h, body }} = JSON.parse(process.argv[1]);\nconst b = Buffer.from(body), s = 'whsec_c2VjcmV0';\n\
         console.log(isGenuine(s, h, b), isGenuine('other', h, b), isGenuine(s, h, body + ' '), \
         isGenuine(s, {{ ...h, 'webhook-timestamp': '1' }}, b));",
        example("js", "isGenuine")
    );
    let commands: [&[&str]; 2] =
        [&["python3", "-c", &in_python, &given], &["node", "--input-type=module", "-e", &in_node, &given]];
    for command in commands {
        let ran = std::process::Command::new(command[0]).args(&command[1..]).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap().to_lowercase();
        assert_eq!(said.trim(), "true false false false", "{}: {}", command[0], String::from_utf8_lossy(&ran.stderr));
    }
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_late_and_follows_on_failure() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    for (on_failure, outcome) in [(OnFailure::Block, Outcome::Failed), (OnFailure::Ignore, Outcome::Completed)] {
        let hook = HttpHook::new("policy", [Point::BeforeAgent], &url, "secret").unwrap().on_failure(on_failure);
        let mut rig = Rig::new(agent([ScriptReply::says("x")]).hook(hook).build().unwrap());
        let clock = rig.clock.clone();
        let (accepted, mut connected) = (silent.try_clone().unwrap(), Vec::new());
        let time_is_up = async {
            // It was connected to, so the post is under way.
            connected.push(tokio::task::spawn_blocking(move || accepted.accept().unwrap()).await.unwrap());
            clock.advance(turnbuckle::hook::HookEntry::DEFAULT_TIMEOUT);
        };
        let (ended, ()) = tokio::join!(rig.ended("go"), time_is_up);
        assert_eq!(ended.unwrap().outcome, outcome);
    }
}

#[tokio::test]
async fn what_is_no_answer_is_the_hooks_failure() {
    type Answer = fn(&Value) -> (u16, String);
    let answers: [(&str, Answer); 7] = [
        ("status 500", |_| (500, String::new())),
        ("status 302", |_| (302, String::new())),
        ("something else than this request", |_| (200, json!({"jsonrpc": "2.0", "id": 999, "result": {}}).to_string())),
        ("answered with a body that is no message", |_| (200, "hello".to_owned())),
        ("answered with nothing", |_| (200, String::new())),
        ("more than", |_| (200, "x".repeat(5 << 20))),
        ("does not take", |request| decides(request, json!({"decision": "sing"}))),
    ];
    for (told, answer) in answers {
        let (url, _) = serve(answer);
        let hook = || HttpHook::new("policy", [Point::BeforeAgent], &url, "secret").unwrap();
        let mut rig = Rig::new(agent([ScriptReply::says("x")]).hook(hook()).build().unwrap());
        let ended = rig.ended("go").await.unwrap();
        assert_eq!(ended.outcome, Outcome::Failed, "{told}");
        let reason = ended.reason.as_deref().unwrap();
        assert!(reason.contains(told) && reason.matches("127.0.0.1").count() < 2, "{told}: {reason}");
        let mut rig =
            Rig::new(agent([ScriptReply::says("x")]).hook(hook().on_failure(OnFailure::Ignore)).build().unwrap());
        assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed, "{told}");
    }
}

#[tokio::test]
async fn a_service_transforms_streams_too() {
    let (url, _) = serve(|request| {
        let text = request["params"]["chunks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|chunk| chunk.as_str().unwrap())
            .collect::<String>();
        decides(request, json!({"decision": "pass", "text": text.to_uppercase()}))
    });
    let hook = HttpHook::new("shout", [Point::Stream], &url, "secret").unwrap();
    let mut rig = Rig::new(agent([ScriptReply::chunks(["a", "b"])]).hook(hook).build().unwrap());
    assert!(rig.trace("go").await.contains("call      \"AB\""));
}

#[test]
fn what_cannot_work_is_refused_when_it_is_built() {
    let made = |points: &[Point], url: &str, secret: &str| {
        HttpHook::new("x", points.iter().copied(), url, secret).err().map(|error| error.option)
    };
    assert_eq!(made(&[], "https://h/x", "s"), Some("on"));
    assert_eq!(made(&[Point::WrapToolCall], "https://h/x", "s"), Some("on"));
    assert_eq!(made(&[Point::OnStop], "ftp://h/x", "s"), Some("url"));
    assert_eq!(made(&[Point::OnStop], "http://h/x", ""), Some("secret_env"));
    assert_eq!(made(&[Point::OnStop], "http://h/x", "whsec_%"), Some("secret_env"));
}
