//! No secret that the program is given comes out of it: keys are planted everywhere, everything is run, everything is searched.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{Folder, Ran};

/// In every planted secret, and nowhere else. Its base64, however it is aligned, is looked for as well.
const MARK: &str = "PLANTEDSECRET";
const MARK_IN_BASE64: [&str; 3] = ["UExBTlRFRFNFQ1JF", "BMQU5URURTRUNSRV", "QTEFOVEVEU0VDUkVU"];

/// A server that repeats what it was sent, in every way in which an error can come.
fn echoing() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || drop(answer(stream, number)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, number: usize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(given) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = given.trim().parse().unwrap_or(0);
        }
        head += &line;
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let said = serde_json::json!({ "error": { "message": format!("refused: {head}"), "type": "invalid" } }).to_string();
    let whole = |status: &str, kind: &str, more: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    };
    let one_line = head.replace("\r\n", " ");
    let text = match number % 8 {
        0 => whole("401 No", "application/json", "", &said),
        1 => whole("400 No", "text/plain", "", &head),
        2 => whole("200 OK", "application/json", "", &said),
        3 => whole("200 OK", "text/html", "", &head),
        4 => whole("302 There", "text/plain", &format!("location: http://u:{MARK}@127.0.0.1/{MARK}\r\n"), ""),
        5 => whole("200 OK", "text/event-stream", "", &format!("event: error\ndata: {said}\n\n")),
        6 => whole("200 OK", "text/event-stream", "", &format!("data: {{ {one_line}\n\n")),
        _ => return Ok(()),
    };
    stream.write_all(text.as_bytes())
}

struct Planted {
    folder: Folder,
    variables: BTreeMap<&'static str, String>,
    address: String,
    /// What came out, and of what.
    heard: Vec<(String, String)>,
}

impl Planted {
    fn new() -> Self {
        let address = echoing();
        let url = |what: &str, path: &str| format!("http://ann:{MARK}-{what}@{address}{path}");
        let query = format!("?v=1&token={MARK}-query");
        let mut variables = BTreeMap::from([
            ("OPENAI_BASE_URL", url("base", "/v1")),
            ("ANTHROPIC_BASE_URL", url("anthropic", "")),
            ("OLLAMA_HOST", url("ollama", "")),
            ("WEBHOOK_SECRET", format!("{MARK}-webhook")),
        ]);
        let keys = turnbuckle_models::providers().iter().flat_map(|provider| provider.key_variables());
        variables.extend(keys.map(|name| (*name, format!("sk-{MARK}-{name}"))));
        let folder = Folder::new();
        let hooks = format!(
            r#"
[[hooks]]
use = "command"
name = "dump"
on = "before_agent"
run = "env > command.env; cat > /dev/null; env >&2; exit 0"
[[hooks]]
use = "command"
name = "fails"
on = "ended"
run = "env >&2; exit 7"
[[hooks]]
use = "lint"
run = "env > lint.env; env; exit 0"
[[hooks]]
use = "persist"
run = "env > persist.env; cat > /dev/null"
[[hooks]]
use = "notify"
url = "{}"
secret_env = "WEBHOOK_SECRET"
tries = 1
give_up_after = "1s"
[[hooks]]
use = "telemetry"
endpoint = "{}"
[[hooks]]
use = "critic"
model = "openai@{}:judge"
brief = "x"
on_failure = "ignore"
"#,
            url("notify", &format!("/hook{query}")),
            url("otel", &query),
            url("critic", "/v1"),
        );
        let call =
            r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "b" } }] }"#;
        folder
            .file("script.json", &format!(r#"{{ "replies": [{call}, {{ "text": "done" }}, {{ "text": "done" }}] }}"#));
        folder.file("turnbuckle.toml", &format!("[agent]\nmodel = \"openai@{}:file\"\n{hooks}", url("file", "/v1")));
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        Self { folder, variables, address, heard: Vec::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.folder.command(arguments);
        command.envs(&self.variables).env("TMPDIR", self.folder.path().join("tmp"));
        command
    }

    fn hear(&mut self, arguments: &[&str], ran: Ran) -> i32 {
        self.heard.push((format!("{arguments:?}"), format!("{}\n{}", ran.out, ran.err)));
        ran.code
    }

    fn run(&mut self, arguments: &[&str]) -> i32 {
        let ran = Ran::of(self.command(arguments));
        self.hear(arguments, ran)
    }

    fn run_with_stdin(&mut self, arguments: &[&str], stdin: &str) -> i32 {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        self.hear(arguments, output.into())
    }

    fn url(&self, what: &str) -> String {
        format!("http://ann:{MARK}-{what}@{}/v1", self.address)
    }

    /// Nothing of it is in what was heard, nor in any file but the configuration itself.
    fn search(&self, files_at_least: usize) {
        let mut found = Vec::new();
        for (of, heard) in &self.heard {
            found.extend(lines_with_secrets(heard.as_bytes()).into_iter().map(|line| format!("{of}: {line}")));
        }
        let mut files = 0;
        for path in files_below(self.folder.path()) {
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            let lines = lines_with_secrets(&bytes).into_iter();
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
        assert!(files >= files_at_least, "{files} files were searched");
        assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
    }
}

fn lines_with_secrets(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let has = |line: &&str| line.contains(MARK) || MARK_IN_BASE64.iter().any(|mark| line.contains(mark));
    text.split(['\n', '\0']).filter(has).map(|line| line.chars().take(400).collect()).collect()
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_none_or(|end| end != "toml") {
            files.push(path);
        }
    }
    files
}

#[test]
fn base64_of_the_mark_is_known_wherever_it_begins() {
    // Otherwise the searches below would prove nothing.
    let encode = |text: &str| {
        let mut child =
            Command::new("base64").args(["-w0"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    for before in ["", "a", "ab", "ann:"] {
        let encoded = encode(&format!("{before}{MARK}-x"));
        assert!(!lines_with_secrets(encoded.as_bytes()).is_empty(), "{encoded}");
    }
}

#[test]
fn no_secret_that_the_program_is_given_comes_out_of_it() {
    let mut planted = Planted::new();
    let at_url = format!("openai@{}:m", planted.url("model"));
    // Every model against every way in which a server can repeat what it was sent.
    for round in 0..8 {
        for model in ["anthropic:m", "openai:m", "ollama:m", &at_url] {
            let id = format!("r{round}");
            assert_eq!(planted.run(&["run", "-vvv", "-c", &id, "--model", model, "hi"]), 1, "{model}");
        }
        planted.run(&["run", "--json", "hi"]);
        planted.run(&["doctor", "--model", &at_url]);
    }
    for model in ["anthropic:m", "openai:m", "ollama:m", &at_url] {
        planted.run(&["doctor", "-vvv", "--json", "--model", model]);
    }
    planted.run_with_stdin(&["chat", "-vvv", "-c", "talk"], "hello\nagain\n");
    planted.run_with_stdin(&["chat", "-c", "talk", "--model", &at_url], "hello\n");
    // A turn that waits, seen from all sides, and answered.
    assert_eq!(planted.run(&["run", "-vvv", "-c", "w", "--model", "script:script.json", "write"]), 4);
    for arguments in [
        &["run", "-c", "w", "--model", &at_url, "more"][..],
        &["show", "w", "--model", &at_url],
        &["show", "w", "--json"],
        &["show", "none", "--model", &at_url],
        &["list"],
        &["list", "--json"],
        &["trace", "w"],
        &["trace", "r1"],
        &["check"],
        &["check", "-vvv", "--model", &at_url],
        &["hooks"],
        &["hooks", "--json"],
        &["trust"],
        &["trust", "list", "--json"],
        &["cancel", "r1", "--model", &at_url],
        &["resolve", "w", "none", "--approve", "--model", &at_url],
    ] {
        planted.run(arguments);
    }
    assert_eq!(planted.run(&["resolve", "-vvv", "w", "c1", "--approve", "--json", "--model", "script:script.json"]), 0);
    planted.run(&["show", "w"]);
    for (event, input) in
        [("before_agent", r#"{"prompt":"hi"}"#), ("stop", "{}"), ("ended", "{}"), ("before_agent", "[")]
    {
        planted.run_with_stdin(&["hooks", "-vvv", "test", event], input);
    }
    let mut logged = planted.command(&["run", "--model", &at_url, "hi"]);
    logged.env("TURNBUCKLE_LOG", "trace").env("TURNBUCKLE_LOG_FILE", planted.folder.path().join("all.log"));
    planted.hear(&["run", "with a log file"], Ran::of(logged));
    assert!(planted.folder.read("all.log").contains("openai@http://…@127.0.0.1"));
    for name in ["command", "lint", "persist"] {
        let dumped = planted.folder.read(&format!("{name}.env"));
        assert!(dumped.contains("PATH=") && dumped.contains("TURNBUCKLE_PROGRAM="), "{name} did not run: {dumped}");
    }
    planted.search(6);
}

#[test]
fn what_would_be_contacted_is_shown_and_what_would_run_is_shown_whole() {
    let folder = Folder::foreign();
    // What looks like the query of an address is run by the shell.
    let run = format!("curl http://u:p@h/x?a=1;touch${{IFS}}{MARK}");
    folder.file(
        "turnbuckle.toml",
        &format!(
            "[[hooks]]\nuse = \"notify\"\nurl = \"https://ann:{MARK}@hooks.example.com:8443/in/box?token={MARK}&v=2\"\nsecret_env = \"HOME\"\n\
             [[hooks]]\nuse = \"command\"\non = \"stop\"\nrun = \"{run}\"\n"
        ),
    );
    let shown = folder.run(&["trust"]).exits(2).out;
    assert!(shown.contains("https://…@hooks.example.com:8443/in/box?token=…&v=…"), "{shown}");
    assert!(shown.contains(&run), "{shown}");
    let listed = folder.run(&["hooks"]).exits(0).out;
    assert!(listed.contains("https://…@hooks.example.com:8443/in/box?token=…&v=…"), "{listed}");
    assert!(!listed.contains(MARK), "{listed}");
}

#[test]
fn no_secret_is_in_what_is_said_of_a_mistake() {
    let mut planted = Planted::new();
    let urls = [
        planted.url("a"),
        format!("http://ann:{MARK}/x@h"),
        format!("http://{MARK}@h:x/v1"),
        format!("http://127.0.0.1:9/v1?token={MARK}"),
        format!("http://127.0.0.1:9/v1?{MARK}#{MARK}"),
    ];
    for url in &urls {
        let mistyped = url.replace("http://", "htp/");
        for model in [
            format!("openai@{url}"),
            format!("nobody@{url}:m"),
            format!("ollama@{url}:m"),
            format!("openai@x{url}:m"),
            format!("openai@{mistyped}:m"),
            format!("openai@{}:m", url.replace("//", "/")),
        ] {
            for command in ["run", "check", "doctor", "chat"] {
                planted.run(&[command, "-vvv", "--model", &model]);
            }
        }
        for store in [url.replace("http", "postgres"), format!("sqlite:{}", &url[5..]), format!("redis{}", &url[4..])] {
            for command in ["run", "list", "check"] {
                planted.run(&[command, "-vvv", "--store", &store]);
            }
            planted.run(&["show", "x", "--store", &store]);
        }
        for config in [
            format!("[agent]\nmodel = \"openai@{url}\"\n"),
            format!("[agent]\nmodel = [\"openai@{url}\"]\n"),
            format!("[agent]\nmodel = \"openai@{mistyped}:m\"\n"),
            format!("[[hooks]]\nuse = \"fallback\"\nmodels = [\"openai@{mistyped}:m\"]\n"),
            format!("[[hooks]]\nuse = \"fallback\"\nmodels = [\"nobody@{url}:m\"]\n"),
            format!("[store]\nurl = \"postgres{}\"\n", url[4..].replace("//", "/")),
            format!("[store]\nurl = \"mysql{}\"\n", &url[4..]),
            format!("[[hooks]]\nuse = \"critic\"\nbrief = \"x\"\nmodel = \"nobody@{url}:m\"\n"),
            format!("[[hooks]]\nuse = \"notify\"\nurl = \"ftp{}\"\nsecret_env = \"WEBHOOK_SECRET\"\n", &url[4..]),
            format!("[[hooks]]\nuse = \"notify\"\nurl = \"{url} x\"\nsecret_env = \"WEBHOOK_SECRET\"\n"),
            format!("[[hooks]]\nuse = \"notify\"\nurl = [\"{url}\"]\nsecret_env = \"WEBHOOK_SECRET\"\n"),
            format!("[[hooks]]\nuse = \"telemetry\"\nendpoint = \"ftp{}\"\n", &url[4..]),
            format!("[[hooks]]\nuse = \"telemetry\"\nsample = \"{url}\"\n"),
        ] {
            planted.folder.file("wrong.toml", &config);
            for command in ["run", "check", "hooks"] {
                planted.run(&[command, "-vvv", "--config", "wrong.toml"]);
            }
            let cloned = Folder::foreign();
            cloned.file("turnbuckle.toml", &config);
            for arguments in [&["trust"][..], &["hooks", "--json"], &["doctor", "--json"], &["run", "hi"], &["list"]] {
                let ran = cloned.run(arguments);
                planted.hear(arguments, ran);
            }
        }
    }
    planted.run(&["run", "hi"]);
    planted.search(1);
}

#[test]
fn no_password_of_a_model_that_a_hook_asks_comes_out() {
    let mut planted = Planted::new();
    planted.folder.file("ok.json", r#"{ "replies": [{ "text": "fine" }], "on_exhausted": "repeat" }"#);
    let broken = "openai@http://127.0.0.1:1/v1:m";
    let model = |what: &str| format!("openai@{}:m", planted.url(what));
    let hooks = [
        ("fallback", broken, format!("models = [\"{}\", \"{}\"]", model("first"), model("second"))),
        ("fallback", broken, format!("models = [\"{}\", \"script:ok.json\"]", model("answered"))),
        ("critic", "script:ok.json", format!("brief = \"x\"\nmodel = \"{}\"", model("critic"))),
        (
            "critic",
            "script:ok.json",
            format!("critics = [{{ name = \"one\", brief = \"x\", model = \"{}\" }}]", model("panel")),
        ),
        ("refine", "script:ok.json", format!("brief = \"x\"\nmodel = \"{}\"", model("refine"))),
        ("suggest", "script:ok.json", format!("model = \"{}\"", model("suggest"))),
        ("remember", "script:ok.json", format!("model = \"{}\"", model("remember"))),
        ("dream", "script:ok.json", format!("model = \"{}\"", model("dream"))),
        ("monitor", broken, format!("max_error_rate = 0.5\nfallback = \"{}\"", model("monitor"))),
    ];
    for (number, (hook, own, options)) in hooks.iter().enumerate() {
        let audit = "[[hooks]]\nuse = \"audit_log\"\ncontent = true\n";
        let config = format!(
            "[agent]\nmodel = \"{own}\"\ndefault_retry = false\n{audit}[[hooks]]\nuse = \"{hook}\"\n{options}\n"
        );
        planted.folder.file("h.toml", &config);
        let id = format!("h{number}");
        // Every way in which the server can repeat what it was sent; hooks in the background are slow to give up.
        let rounds = if ["suggest", "remember", "dream"].contains(hook) { 2 } else { 8 };
        for _ in 0..rounds {
            let code = planted.run(&["run", "-vvv", "--json", "-c", &id, "--config", "h.toml", "hi"]);
            assert!([0, 1, 3].contains(&code), "{hook}: {:?}", planted.heard.last());
        }
        for command in ["show", "trace", "export"] {
            planted.run(&[command, &id, "--config", "h.toml"]);
        }
        for command in ["check", "hooks", "list"] {
            assert_eq!(planted.run(&[command, "--config", "h.toml"]), 0, "{hook}: {:?}", planted.heard.last());
        }
    }
    planted.search(4);
}

/// The variables that a program of each kind of hook is given, of those for providers.
fn given(pass: &str) -> BTreeMap<String, Vec<String>> {
    let hooks = format!(
        "[tools]\napprove = []\n\
         [[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = \"env > command.env\"\n{pass}\
         [[hooks]]\nuse = \"lint\"\nrun = \"env > lint.env\"\n{pass}\
         [[hooks]]\nuse = \"persist\"\nrun = [\"sh\", \"-c\", \"env > persist.env\"]\n{pass}"
    );
    let call =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "b" } }] }"#;
    let folder = Folder::with_config(&format!(r#"{call}, {{ "text": "done" }}"#), &hooks);
    let mut command = folder.command(&["run", "go"]);
    command.envs([
        ("OPENAI_API_KEY", "k1"),
        ("OPENAI_BASE_URL", "http://h"),
        ("ANTHROPIC_API_KEY", "k2"),
        ("OTHER_KEY", "k3"),
    ]);
    Ran::of(command).exits(0);
    let names = |name: &str| {
        let dumped = folder.read(&format!("{name}.env"));
        let known = |line: &&str| ["OPENAI_", "ANTHROPIC_", "OTHER_"].iter().any(|start| line.starts_with(start));
        let mut names: Vec<String> =
            dumped.lines().filter(known).map(|line| line.split('=').next().unwrap().to_owned()).collect();
        names.sort();
        (name.to_owned(), names)
    };
    ["command", "lint", "persist"].map(names).into()
}

#[test]
fn programs_get_no_variable_of_a_provider_unless_their_hook_lets_it_through() {
    for (kind, names) in given("") {
        assert_eq!(names, ["OTHER_KEY"], "{kind}");
    }
    for (kind, names) in given("pass_env = [\"OPENAI_API_KEY\"]\n") {
        assert_eq!(names, ["OPENAI_API_KEY", "OTHER_KEY"], "{kind}");
    }
}

#[test]
fn a_variable_that_cannot_be_meant_is_told() {
    let folder = |hook: &str| Folder::with_config(r#"{ "text": "done" }"#, &format!("[[hooks]]\n{hook}\n"));
    let command = "use = \"command\"\non = \"stop\"\nrun = \"true\"\non_failure = \"block\"\n";
    let ran = folder(&format!("{command}pass_env = [\"OPENAI_API_KEYS\"]")).run(&["check"]).exits(0);
    ran.says("`pass_env` names \"OPENAI_API_KEYS\", which is not withheld").says("did you mean `OPENAI_API_KEY`?");
    let ran = folder(&format!("{command}pass_env = [\"OPENAI_API_KEY\"]")).run(&["check"]).exits(0);
    assert!(!ran.err.contains("pass_env"), "{}", ran.err);
    for name in ["", "A=B"] {
        let hook = folder(&format!("{command}pass_env = [\"{name}\"]"));
        hook.run(&["check"]).exits(2).says("`pass_env` in [[hooks]] must be names of environment variables");
    }
    let file = "use = \"persist\"\nfile = \"a.md\"\npass_env = [\"OPENAI_API_KEY\"]";
    folder(file).run(&["check"]).exits(2).says("`pass_env` in [[hooks]] is for a program");
    folder("use = \"retry\"\npass_env = [\"A\"]").run(&["check"]).exits(2).says("unknown key `pass_env`");
}
