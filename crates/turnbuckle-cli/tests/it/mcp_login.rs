//! `turnbuckle mcp login` against an authorization server on this machine: the person, the browser and the tokens.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::program::Folder;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../turnbuckle-mcp/tests/it/login_server.py");

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn get(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts the login, and has a browser do with the address that is printed what `browse` does. The exit code, and what was printed.
fn log_in(folder: &Folder, browse: impl Fn(&str)) -> (i32, String) {
    let (exit, said, _) = log_in_with(folder, &["mcp", "login", "web"], browse);
    (exit, said)
}

/// The same, and what was printed on stdout.
fn log_in_with(folder: &Folder, arguments: &[&str], browse: impl Fn(&str)) -> (i32, String, String) {
    let mut command = folder.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut login = command.spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(login.stderr.take().unwrap());
    while !said.lines().any(|line| line.starts_with("http://")) {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    browse(said.lines().find(|line| line.starts_with("http://")).unwrap());
    lines.read_to_string(&mut said).unwrap();
    let mut out = String::new();
    login.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    (login.wait().unwrap().code().unwrap(), said, out)
}

#[test]
fn a_person_logs_in_and_the_agent_uses_the_server_and_one_who_is_denied_is_told() {
    let folder = Folder::new();
    let mut command = Command::new("python3");
    command.arg(SERVER).arg(folder.home().join("notes")).stdout(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    folder.file("script.json", r#"{ "replies": [{ "tool_calls": [{ "id": "c1", "name": "mcp__web__echo", "arguments": { "text": "hello" } }] }, { "text": "done" }] }"#);
    let config = format!(
        "[agent]\nmodel = \"script:script.json\"\n[[tools.mcp]]\nname = \"web\"\nurl = \"{url}\"\napprove = []\n"
    );
    folder.file("turnbuckle.toml", &config);
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "go"]).says("if it wants you to log in: `turnbuckle mcp login web`");
    let denied = |address: &str| {
        let value = |name: &str| {
            let at = address.find(&format!("{name}=")).unwrap() + name.len() + 1;
            address[at..].split('&').next().unwrap().replace("%3A", ":").replace("%2F", "/")
        };
        let forged = "%1b%5B31mnot+today";
        get(&format!(
            "{}?error=access_denied&error_description={forged}&state={}",
            value("redirect_uri"),
            value("state")
        ));
    };
    let (exit, said) = log_in(&folder, denied);
    assert!(exit == 1 && said.contains("access_denied") && said.contains("not today"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let agree = |address: &str| {
        let answer = get(address);
        let back = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
        assert!(get(&back).starts_with("HTTP/1.1 200"));
    };
    let (exit, said) = log_in(&folder, agree);
    assert!(exit == 0 && said.contains("Logged in at web."), "{said}");
    let tokens = PathBuf::from(said.rsplit("The tokens are in ").next().unwrap().trim());
    let (exit, _, told) = log_in_with(&folder, &["mcp", "login", "web", "--json"], agree);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((exit, told), (0, serde_json::json!({ "server": "web", "tokens": tokens.to_str().unwrap() })));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&tokens), mode(tokens.parent().unwrap())), (0o600, 0o700));
    let ran = folder.run(&["run", "--json", "go"]).exits(0);
    assert!(ran.event("tool_result")["content"].to_string().contains("hello"), "{}", ran.out);
    assert!(!ran.out.contains("access-") && !ran.err.contains("access-"), "{}", ran.err);
}
