//! `turnbuckle serve`: the real program over real sockets, killed and asked to leave.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::Folder;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// A server that runs. It is killed when the test is over.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: String,
    /// What it said before it listened.
    pub(crate) said: String,
    /// What it said since then.
    later: Arc<Mutex<String>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    pub(crate) fn start(folder: &Folder, more: &[&str]) -> Self {
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        Self::of(folder.command(&arguments).spawn().unwrap())
    }

    /// One that was started, with its stderr as a pipe.
    pub(crate) fn of(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            if let Some((_, address)) =
                line.trim_end().strip_prefix("listening on ").and_then(|url| url.split_once("://"))
            {
                break address.to_owned();
            }
            said += &line;
        };
        let later = Arc::new(Mutex::new(String::new()));
        let told = later.clone();
        // What it says later must not fill the pipe.
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut told = told.lock().unwrap();
                told.push_str(&line);
                told.push('\n');
            }
        });
        Self { child, address, said, later }
    }

    /// What it said since it listens.
    pub(crate) fn later(&self) -> String {
        self.later.lock().unwrap().clone()
    }

    /// Waits until this is so.
    #[track_caller]
    pub(crate) fn until_so(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", self.later());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its exit code, when it has ended by itself.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn open(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = match body {
            "" => String::new(),
            body => format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()),
        };
        write!(stream, "{head}host: {}\r\n{length}connection: close\r\n\r\n{body}", self.address).unwrap();
        stream
    }

    /// The whole answer to a request that begins with these lines.
    pub(crate) fn text(&self, head: &str, body: &str) -> String {
        let mut answer = String::new();
        self.open(head, body).read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn ask(&self, method: &str, path: &str, header: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let mut stream = self.open(&format!("{method} {path} HTTP/1.1\r\n{header}"), &body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "", None)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, "", Some(&body))
    }

    /// Waits until the view of the conversation is like this.
    pub(crate) fn until(&self, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (status, view) = self.get(&format!("/v1/conversations/{id}"));
            if status == 200 && is_so(&view) {
                return view;
            }
            assert!(begun.elapsed() < PATIENCE, "{view}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn outcome(view: &Value) -> Option<&Value> {
    let events = view["messages"].as_array()?;
    events.iter().find(|event| event["type"] == "turn_ended").map(|event| &event["outcome"])
}

#[test]
fn a_turn_that_a_kill_cut_off_in_mid_stream_goes_on_after_a_restart() {
    let chunks: Vec<String> = (0..60).map(|n| format!("{n} ")).collect();
    let replies = json!({ "chunks": chunks, "delay_ms": 100 }).to_string();
    let folder = Folder::with_script(&format!("{replies}, {{ \"text\": \"all of it\" }}"));
    let mut serving = Serving::start(&folder, &[]);
    assert_eq!(serving.post("/v1/conversations", json!({ "id": "c" })).0, 201);
    assert_eq!(serving.post("/v1/conversations/c/messages", json!({ "content": "go" })).0, 202);
    let once = |serving: &Serving, text: &str| {
        let body = json!({ "content": text, "while_busy": "queue" });
        serving.ask("POST", "/v1/conversations/c/messages", "idempotency-key: k1\r\n", Some(&body))
    };
    let (status, queued) = once(&serving, "next");
    assert_eq!(status, 202);
    serving.until("c", |view| view["streaming"]["text"].as_str().is_some_and(|text| text.contains("1 ")));
    let cursor = serving.get("/v1/conversations/c").1["cursor"].as_str().unwrap().to_owned();
    serving.signal(rustix::process::Signal::KILL);
    serving.ends();

    let serving = Serving::start(&folder, &[]);
    let head = format!("GET /v1/conversations/c/events HTTP/1.1\r\nlast-event-id: {cursor}\r\n");
    let mut lines = BufReader::new(serving.open(&head, "")).lines();
    let first = lines.find_map(|line| line.unwrap().strip_prefix("event: ").map(str::to_owned));
    assert_eq!(first.as_deref(), Some("lagged"), "the cursor is of an earlier process");
    assert_eq!(once(&serving, "next"), (202, queued), "the same key is the same message, also after a restart");
    assert_eq!(once(&serving, "another").0, 400);
    let view = serving.until("c", |view| outcome(view).is_some());
    assert_eq!(outcome(&view), Some(&json!("completed")), "{view}");
}

#[test]
fn a_signal_ends_it_in_good_order_and_the_next_start_carries_on_what_was_left() {
    let chunks: Vec<String> = (0..40).map(|n| format!("{n} ")).collect();
    let slow = json!({ "chunks": chunks, "delay_ms": 150 }).to_string();
    let folder =
        Folder::with_config(&format!("{slow}, {{ \"text\": \"done\" }}"), "[serve]\nrest_within = \"200ms\"\n");
    let mut serving = Serving::start(&folder, &[]);
    serving.post("/v1/conversations", json!({ "id": "c" }));
    let mut events = BufReader::new(serving.open("GET /v1/conversations/c/events HTTP/1.1\r\n", "")).lines();
    assert!(events.any(|line| line.unwrap().starts_with("id: ")));
    assert_eq!(serving.post("/v1/conversations/c/messages", json!({ "content": "go" })).0, 202);
    serving.signal(rustix::process::Signal::TERM);
    let rest: Vec<String> = events.map_while(Result::ok).collect();
    assert!(rest.iter().any(|line| line.contains("the server shuts down")), "{rest:?}");
    assert_eq!(serving.ends(), Some(0));
    let serving = Serving::start(&folder, &[]);
    let view = serving.until("c", |view| outcome(view).is_some());
    assert_eq!(outcome(&view), Some(&json!("completed")));
}

#[test]
fn where_it_may_not_listen_it_says_so_before_anything_runs() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    let refused = folder.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("[[serve.tokens]]"), "{}", refused.err);
    let serving = Serving::start(&folder, &[]);
    let taken = folder.run(&["serve", "--listen", &serving.address]);
    assert_eq!(taken.code, 1, "{taken:?}");
    let bad = folder.run(&["serve", "--listen", "nowhere"]);
    assert_eq!(bad.code, 2);
}

#[test]
fn a_projects_server_needs_acceptance() {
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, "[serve]\nlisten = \"127.0.0.1:0\"\n");
    let refused = folder.run(&["serve"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("turnbuckle trust"), "{}", refused.err);
}

#[test]
fn tokens_are_taken_over_while_it_runs() {
    let token = |secret: &str, user: &str| {
        let digest = sha256(secret);
        format!("[[serve.tokens]]\nsha256 = \"{digest}\"\nuser = \"{user}\"\nroles = [\"staff\"]\n")
    };
    let folder = Folder::with_config(r#"{ "text": "hi" }"#, &token("ann-secret", "ann"));
    let config = folder.read("turnbuckle.toml");
    let serving = Serving::start(&folder, &[]);
    let (ann, bob) = ("authorization: Bearer ann-secret\r\n", "authorization: Bearer bob-secret\r\n");
    let list = |header: &str| serving.ask("GET", "/v1/conversations", header, None).0;
    assert_eq!((list(ann), list(bob), list("")), (200, 401, 401));
    folder.file("turnbuckle.toml", &config.replace(&sha256("ann-secret"), &sha256("bob-secret")));
    let begun = Instant::now();
    while (list(ann), list(bob)) != (401, 200) {
        assert!(begun.elapsed() < PATIENCE, "the tokens are not read again");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Without any token nobody may call; the server does not open itself.
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n");
    let begun = Instant::now();
    while list(bob) != 401 {
        assert!(begun.elapsed() < PATIENCE, "the tokens are not read again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(list(""), 401);
}

pub(crate) fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_is_wrong_in_its_section_is_told_with_its_place() {
    for (config, wanted) in [
        ("listen = \"here\"", "no address"),
        ("burst = 0", "is 0"),
        ("url = \"agents.example\"", "no address that links"),
        ("url = \"https://ann:secret@agents.example\"", "no address that links"),
        ("lisen = \"127.0.0.1:1\"", "listen"),
        ("[[serve.tokens]]\nuser = \"ann\"", "sha256"),
        ("[[serve.tokens]]\nsha256 = \"secret\"\nuser = \"ann\"", "64 hexadecimal digits"),
    ] {
        let folder = Folder::with_config(r#"{ "text": "hi" }"#, &format!("[serve]\n{config}\n"));
        let ran = folder.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(ran.code, 2, "{config}: {ran:?}");
        assert!(ran.err.contains(wanted) && ran.err.contains("turnbuckle.toml:"), "{config}: {}", ran.err);
    }
}

/// Asks whether a file may be written, then says something.
const WRITES: &str = r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }, { "text": "one" }, { "text": "two" }"#;

/// A receiver of webhooks on loopback: a configuration that posts to it, and the bodies that come.
fn webhook(more: &str) -> (String, std::sync::mpsc::Receiver<Value>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (send, got) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(found) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = found.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            if send.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (format!("[[hooks]]\nuse = \"notify\"\nurl = \"{url}\"\nsecret_env = \"PATH\"\n{more}\n"), got)
}

fn link_in(got: &std::sync::mpsc::Receiver<Value>) -> String {
    let asked = got.recv_timeout(PATIENCE).unwrap();
    assert_eq!(asked["type"], "suspension");
    asked["link"].as_str().unwrap_or_else(|| panic!("no link: {asked}")).to_owned()
}

#[test]
fn a_link_that_one_process_posted_is_taken_by_the_server_of_the_same_user() {
    let (hook, got) = webhook("link_for = \"local\"");
    let url = "https://agents.example/base/";
    let folder = Folder::with_config(WRITES, &format!("[serve]\nurl = \"{url}\"\n{hook}"));
    let ran = folder.run(&["run", "-c", "asks", "go"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    let link = link_in(&got);
    let path = link.strip_prefix("https://agents.example/base").unwrap();
    let folder_mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(folder.home().join(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(folder_mode(".local/state/turnbuckle/serve.key"), 0o600);
    assert_eq!(folder_mode(".local/state/turnbuckle"), 0o700);
    let serving = Serving::start(&folder, &[]);
    let (status, shown) = serving.get(path);
    assert_eq!((status, &shown["user"], &shown["prompt"]["tool"]), (200, &json!("local"), &json!("write_file")));
    assert_eq!(folder.read("a"), "");
    assert_eq!(serving.post(path, json!({ "approve": true })).0, 200);
    serving.until("asks", |view| outcome(view).is_some());
    assert_eq!(folder.read("a"), "x");
    assert_eq!(serving.post(path, json!({ "approve": true })).0, 404);
    drop(serving);
    let shown = folder.run(&["show", "asks", "--json"]).exits(0);
    assert_eq!(
        (&shown.event("resolution")["via"], &shown.event("resolution")["by"]),
        (&json!("link"), &json!({ "user": "local" }))
    );
    // Another user's server has other keys.
    let other = Folder::with_script(WRITES);
    assert_eq!(Serving::start(&other, &[]).get(path).0, 404);
}

#[test]
fn without_a_model_the_conversations_that_are_there_are_served_and_not_the_demonstration() {
    let folder = Folder::foreign();
    let bare = Serving::start(&folder, &[]);
    bare.until_so("it says what it shows", |bare| bare.later().contains("this is a demonstration in a scratch folder"));
    drop(bare);
    assert!(!folder.path().join(".turnbuckle").exists(), "the demonstration makes nothing");
    folder.run(&["run", "-c", "mine", "--model", "demo", "hello"]).exits(0);
    let serving = Serving::start(&folder, &[]);
    let says = "turnbuckle.db are served, and the demo model answers";
    serving.until_so("it says whose conversations these are", |serving| serving.later().contains(says));
    assert!(!serving.later().contains("demonstration"), "{}", serving.later());
    let listed = serving.get("/v1/conversations").1;
    assert!(listed.to_string().contains("\"mine\"") && !listed.to_string().contains("\"story\""), "{listed}");
    assert_eq!(serving.post("/v1/conversations/mine/messages", json!({ "content": "again" })).0, 202);
}

#[test]
fn the_lines_of_the_docs_work_as_they_stand() {
    let page = include_str!("../../../../docs/http.md");
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5);
    let (hook, got) = webhook("link_for = \"local\"\nevents = [\"suspension\"]");
    let folder = Folder::with_config(WRITES, &hook);
    let serving = Serving::start(&folder, &[]);
    serving.post("/v1/conversations", json!({ "id": "asks" }));
    serving.post("/v1/conversations/asks/messages", json!({ "content": "go" }));
    let link = link_in(&got);
    assert!(link.starts_with(&format!("http://{}/v1/answers/", serving.address)), "{link}");
    // What the other variables of the lines stand for: a call that waits, and a standing approval.
    serving.post("/v1/conversations", json!({ "id": "waits" }));
    let sent = serving.post("/v1/conversations/waits/messages", json!({ "content": "go" })).1;
    link_in(&got);
    folder.run(&["run", "-c", "stands", "go"]).exits(4);
    folder.run(&["answer", "stands", "c1", "--approve", "--always"]).exits(0);
    let approvals = serving.get("/v1/approvals").1;
    let approval = approvals["approvals"][0]["id"].as_str().unwrap();
    for line in blocks.concat().lines() {
        let mut shell = std::process::Command::new("sh");
        let ran = shell
            .args(["-e", "-c", line])
            .env("URL", format!("http://{}", serving.address))
            .env("LINK", &link)
            .env("ID", "waits")
            .env("CALL", "c1")
            .env("TURN", sent["turn"].as_str().unwrap())
            .env("APPROVAL", approval)
            .output();
        let ran = ran.unwrap();
        assert!(
            ran.status.success(),
            "{line}\n{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}

#[test]
fn the_lines_of_the_docs_have_every_route_of_the_api() {
    let page = include_str!("../../../../docs/http.md");
    let lines: String = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let asked = |call: &str| {
        let method = call.split_once("-X ").map_or("get", |(_, rest)| rest.split(' ').next().unwrap());
        let words = call.split_whitespace().map(|word| word.trim_matches(['"', ';']));
        let mut path =
            words.filter_map(|word| if word == "$LINK" { Some("/v1/answers/x") } else { word.strip_prefix("$URL") });
        (method.to_ascii_lowercase(), path.next_back().unwrap_or_default().split('?').next().unwrap().to_owned())
    };
    let shown: Vec<_> = lines.split("curl ").skip(1).map(asked).collect();
    let is_of = |path: &str, route: &str| {
        let is_same = |(part, of): (&str, &str)| of.starts_with('{') || part == of;
        path.split('/').count() == route.split('/').count() && path.split('/').zip(route.split('/')).all(is_same)
    };
    let description = turnbuckle_server::Server::openapi();
    for (route, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let has = shown.iter().any(|(shown, path)| shown == method && is_of(path, route));
            assert!(has, "no line of docs/http.md has {method} {route}");
        }
    }
}

/// Markup taken out, and what it stood for put back.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    for piece in html.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
    }
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'").replace("&amp;", "&")
}

#[test]
fn the_page_of_a_turn_has_the_hooks_as_the_command_prints_them() {
    let config = "[[hooks]]\nuse = \"command\"\nname = \"gate\"\non = \"before_tool\"\nrun = [\"true\"]\ntools = [\"read_*\"]\n\
                  [[hooks]]\nuse = \"claude\"\n";
    let folder = Folder::with_config(r#"{ "text": "hi" }"#, config);
    folder.file("AGENTS.md", "Be brief.");
    let handler = json!([{ "matcher": "Write|Edit", "hooks": [{ "type": "command", "command": "true" }] }]);
    folder.file(".claude/settings.json", &json!({ "hooks": { "PreToolUse": handler } }).to_string());
    let printed = folder.run(&["hooks"]).exits(0).out;
    assert!(
        printed.contains("instructions  use = \"instructions\" (added by default; `default_instructions"),
        "{printed}"
    );
    let serving = Serving::start(&folder, &[]);
    serving.post("/v1/conversations", json!({ "id": "c" }));
    let (_, sent) = serving.post("/v1/conversations/c/messages", json!({ "content": "go" }));
    serving.until("c", |view| outcome(view).is_some());
    let path = format!("GET /page/c/c/turns/{} HTTP/1.1\r\n", sent["turn"].as_str().unwrap());
    let page = text_of(&serving.text(&path, ""));
    let mut seen = 0;
    for line in printed.lines().filter(|line| line.starts_with("  ")) {
        // The name stands in a column of its own.
        let words = line.trim_start();
        let words = words.split_once("  ").map_or(words, |(_, rest)| rest.trim_start());
        let words = words.strip_prefix("- ").unwrap_or(words);
        assert!(page.contains(words), "{words}: {page}");
        seen += 1;
    }
    assert!(seen >= 10, "{printed}");
}
